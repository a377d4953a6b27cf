"""What the accounting asks of an optimizer, of whatever class: that it counts its noised steps and says what they were.

One place for two questions: is this an optimizer that can be accounted for (`require`), and how many noised steps has
it taken (`noised_steps`).
"""

from __future__ import annotations

import inspect
from typing import Any, Protocol

from adaclip_tf._internal.prior import Prior
from adaclip_tf.privacy.past_steps import PastSteps


class PrivateOptimizer(Protocol):
    """The part of `DPAdaClipSGD` that budgets, TensorBoard and releases use; any class that has it will do."""

    name: str
    noise_multiplier: float
    num_microbatches: int | None
    expected_batch_size: int | None
    accumulation_steps: int
    seed: int | None
    iterations: Any  # how often it has updated the weights
    prior: Prior | None  # what was asked before training, as `ClippingRule` has it

    @property
    def microbatch_sensitivity(self) -> float:
        """1, or 2 where microbatches hold several examples."""

    @property
    def noised_steps(self) -> Any:
        """An integer, or an integer variable. ValueError where the optimizer has no state yet."""

    def past_steps(self) -> PastSteps:
        """What the saved state says."""

    def other_past_steps(self) -> list[PastSteps]:
        """Those of other private optimizers that trained some of the weights before, as far as that is known."""

    def start_phase(self, phase: Any) -> None:
        """Makes what follows a phase of its own."""

    def drop_unfinished(self) -> None:
        """Forgets the parts of a logical batch that was not completed."""

    def build(self, var_list: Any) -> None:
        """Makes the state, if it is not there yet."""


def is_private(optimizer: Any) -> bool:
    """Whether `optimizer` counts its noised steps. By its class, so that a wrapper which forwards attributes is not."""
    return callable(inspect.getattr_static(optimizer, "past_steps", None))


def require(optimizer: Any, who: str) -> PrivateOptimizer:
    """`optimizer` itself, or a ValueError that says what `who` needs."""
    if not is_private(optimizer):
        got = "none, before a model's `fit` has one" if optimizer is None else type(optimizer).__name__
        raise ValueError(f"{who} needs an `optimizer` that counts its noised steps, such as DPAdaClipSGD; got {got}.")
    return optimizer


def noised_steps(optimizer: PrivateOptimizer) -> int:
    """Noised steps that the weights have seen, by the optimizer's own count; 0 before it has state."""
    try:
        count = optimizer.noised_steps
    except ValueError:
        return 0
    return as_int(count)


def as_int(variable: Any) -> int:
    """The value of an integer, or of an integer variable, for which `int` fails under a distribution strategy."""
    return int(variable.numpy() if hasattr(variable, "numpy") else variable)
