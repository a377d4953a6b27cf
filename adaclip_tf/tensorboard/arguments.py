"""Arguments of `PrivacyTensorBoard`, checked at once: the argument, its value and the fix, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adaclip_tf._internal import validate
from adaclip_tf.privacy.budget import PrivacyBudget
from adaclip_tf.privacy.mechanism import Mechanism
from adaclip_tf.privacy.meter import PrivacyMeter


def meter_of(budget: Any, num_examples: Any, batch_size: Any, delta: Any) -> PrivacyMeter | None:
    """What counts epsilon: the budget's meter, or one of its own, or None."""
    given = {"num_examples": num_examples, "batch_size": batch_size, "delta": delta}
    missing = [name for name, value in given.items() if value is None]
    if budget is not None:
        if not isinstance(budget, (PrivacyBudget, PrivacyMeter)):
            raise ValueError(f"`budget` must be a PrivacyBudget, or a PrivacyMeter; got {budget!r}.")
        if len(missing) < len(given):
            raise ValueError("Give either `budget`, or `num_examples`, `batch_size` and `delta`: not both.")
        return budget if isinstance(budget, PrivacyMeter) else budget.meter
    if len(missing) == len(given):
        return None
    if missing:
        raise ValueError(f"Epsilon needs `num_examples`, `batch_size` and `delta`; `{missing[0]}` is missing.")
    return PrivacyMeter(Mechanism(1.0, num_examples, batch_size), delta=delta)


def update_frequency(value: Any) -> int | None:
    """Noised steps between two looks; None for the end of each epoch."""
    if value == "epoch":
        return None
    try:
        return validate.positive_integer("update_freq", value)
    except ValueError:
        raise ValueError(f"`update_freq` must be a whole number of noised steps or 'epoch'; got {value!r}.") from None


def frequency(name: str, value: Any) -> int:
    """Epochs between two; 0 for never."""
    if value is False or value == 0:
        return 0
    try:
        return validate.positive_integer(name, value)
    except ValueError:
        raise ValueError(f"`{name}` must be a whole number of epochs, or 0 for never; got {value!r}.") from None


def hparams(value: Any) -> bool | Mapping[str, Any]:
    """`value`, if it is what can be written to the HPARAMS tab, or says whether to."""
    if not isinstance(value, (bool, Mapping)):
        raise ValueError(f"`hparams` must be True, False or a dict of more hyper-parameters; got {value!r}.")
    return value
