"""What the checker can find: a `Finding` for each thing that is not known to be private, and the rules for it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from adaclip_tf.releasing import layer_state

UN_NOISED, UNKNOWN = "un-noised", "unknown"

METRIC = (
    "state of a Keras metric",
    "totals and counts over training data without noise: of a loss, its true total and the number of examples drawn",
)
# Keras 2 counts random numbers, Keras 3 calls of the layer: one for each example where every example is run by itself.
GENERATOR = ("state of a random generator", "its counter may tell how many examples there were")
WHOLE = "(whole file)"
# Variables of our optimizers; all others of theirs are functions of noised sums, or public.
BATCH_SIZES = ("divisor", "largest_batch", "largest_microbatch")
NO_STATEMENT = (
    "holds no privacy statement",
    "nothing says what epsilon it has, nor that all of it had noise; `adaclip_tf.release` writes files that do",
)
_GENERATOR_NAME = re.compile(r"_generator(_state)?(_\d+)?$")  # Keras 3 numbers them
WEIGHTS = ("weights", "nothing in the file says that they were trained with noise")


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing in a file that is not known to be private.

    `kind` is "un-noised" for what was computed from data without noise, "unknown" for what may have been. `value` is
    the array itself, where it is one; it is not printed.
    """

    entry: str
    what: str
    why: str
    kind: str = UNKNOWN
    value: Any = dataclasses.field(default=None, repr=False, compare=False)


def of_values(entry: str, config: Any, named: Sequence[str]) -> Iterator[Finding]:
    """What a configuration holds besides architecture."""
    for held in layer_state.held_in(config):
        if not set(held.names) & set(named):
            yield Finding(f"{entry}: {held.place}", held.what, "it may have been computed from the data")
    for size in sorted(set(layer_state.batch_sizes(config))):
        yield Finding(
            f"{entry}: batch size {size}", "a static batch size", "it may be the true size of a Poisson batch"
        )


def of_layers(config: Any, optimizer: Any) -> Iterator[Finding]:
    """Layers that the optimizer does not train, or not all of."""
    if not _is_ours(optimizer):
        yield Finding("layers", *WEIGHTS)
        return
    for name, kind, module, trainable in layer_state.layers_in(config):
        if kind in layer_state.LEARNT:
            continue  # named already
        if not trainable:
            yield Finding(f"layer {name}", "frozen weights", "the optimizer did not train them; are they public?")
        elif kind in layer_state.MOVING:
            yield Finding(f"layer {name}", layer_state.MOVING[kind], "the optimizer does not train them")
        elif module.split(".")[0] != "keras":
            yield Finding(
                f"layer {name}", f"variables of a {kind}", "it may have some that the optimizer does not train"
            )


def of_arrays(arrays: dict[str, Any], optimizer: Any) -> Iterator[Finding]:
    """Arrays of a file that is no release, by their place in it. `optimizer` is its configuration, if that is known."""
    for name, array in arrays.items():
        root, value = name.split("/")[0].split("@")[0], {"value": array}
        if root == "metrics":
            yield Finding(name, *METRIC, UN_NOISED, **value)
        elif root in ("optimizer", "optimizer_weights"):
            yield from _of_optimizer_state(name, array, optimizer)
        elif is_generator(name):
            yield Finding(name, *GENERATOR, **value)
        elif root not in ("layers", "vars", "model_weights") and (optimizer is not None or "vars" in name.split("/")):
            yield Finding(name, "unknown", "an attribute of the model, which may be a metric", **value)


def is_generator(name: str) -> bool:
    """Whether an entry is the state of a random generator, by its name."""
    return any(_GENERATOR_NAME.search(part) for part in name.split("/"))


def _of_optimizer_state(name: str, array: Any, optimizer: Any) -> Iterator[Finding]:
    """m, s^2, momentum and counts are functions of noised sums. The divisor is, only if B is given."""
    if optimizer is None:
        yield Finding(
            name, "state of an optimizer", "nothing in the file says that its gradients had noise", value=array
        )
    elif not _is_ours(optimizer):
        yield Finding(name, "state of an optimizer", "its gradients had no noise", UN_NOISED, array)
    elif not _public_divisor(optimizer):
        yield from of_batch_size(name.split("/")[-1].split(":")[0], name, array)


def of_batch_size(variable: str, entry: str, array: Any, unless: str = "") -> Iterator[Finding]:
    """What in our optimizer's state may be a batch's true size, where no `expected_batch_size` is the divisor.

    `variable` is its name, or, in files that have no names, its number; "0" is Keras's count of iterations.
    """
    why = f"with no `expected_batch_size` it is how many examples a batch had{unless}; public only where that is fixed"
    if variable in BATCH_SIZES:
        yield Finding(entry, f"the optimizer's {variable}", why, UNKNOWN if unless else UN_NOISED, array)
    elif variable.isdigit() and variable != "0" and np.ndim(array) == 0:
        yield Finding(entry, "a number of the optimizer's, perhaps its divisor", why, value=array)


def _is_ours(optimizer: Any) -> bool:
    if not isinstance(optimizer, dict):
        return False  # none, or the name of one of Keras's
    names = [str(optimizer.get(key) or "") for key in ("registered_name", "class_name", "module")]
    return any(name.startswith(("adaclip_tf>", "adaclip_tf.")) for name in names)


def _public_divisor(optimizer: Any) -> bool:
    return bool(optimizer["config"].get("expected_batch_size") or optimizer["config"].get("num_microbatches"))


def of_settings(optimizer: Any) -> Iterator[Finding]:
    """Settings with which the noise is none."""
    if not _is_ours(optimizer):
        return
    settings = optimizer["config"]
    if not settings.get("noise_multiplier"):
        yield Finding("optimizer: noise_multiplier=0", "weights", "they were trained without noise", UN_NOISED)
    if settings.get("seed") is not None:
        why = "anybody who reads it can remove the noise from the weights"
        yield Finding(f"optimizer: seed={settings['seed']}", "the seed of the noise", why, UN_NOISED)
