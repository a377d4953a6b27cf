"""Small variables, joined into one for the arithmetic that treats all coordinates alike.

What a step does after the sum is known (un-transform, learn) is the same few operations on every coordinate. For each
variable by itself they are traced, and compiled by XLA, again: for a network of many small variables that was more than
half of a first step. A rule that says so (`core.ClippingRule.treats_coordinates_alike`) therefore gets its small
variables as one long one, and its state is kept so, too (`rule_state`): to read and to write it is one op then, and
one array that XLA's code must fill. The numbers are the same, but for the rounding of sums over all coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from adaclip_tf import core, gradients
from adaclip_tf._internal import made
from adaclip_tf.optimizers import fused

SMALL = 2**15  # coordinates: a copy of so many is nothing against compiling a kernel for them
FEWEST = 4  # with fewer small variables, what joins and parts them costs a step more than it spares
FEWEST_COMPILED = 2  # where XLA compiles, each part takes as long to compile as some 300 ops to trace


class Joined:
    """A list over variables as one over parts: the small variables as one part, the others each by itself.

    Nested structures are taken apart as far as their lists, which run over the variables; anything else in them, and
    what a list has beyond the variables, stays as it is.
    """

    def __init__(self, rule: core.ClippingRule, specs: Sequence[tf.TensorSpec]):
        self._specs = list(specs)
        small = [i for i, spec in enumerate(specs) if spec.shape.num_elements() <= SMALL]
        alike = vars(type(rule)).get("treats_coordinates_alike", False)
        fewest = FEWEST_COMPILED if fused.is_large(specs) else FEWEST
        self._small = small if alike and len(small) >= fewest else []
        self._large = [i for i in range(len(specs)) if i not in self._small]

    @property
    def specs(self) -> list[tf.TensorSpec]:
        """The parts."""
        large = [self._specs[i] for i in self._large]
        if not self._small:
            return large
        return [*large, tf.TensorSpec([sum(self._sizes())], tf.float32, "small")]

    def alone(self, variables: Sequence[Any]) -> list[Any]:
        """For each part the variable that it is; None for the part that is several."""
        return [*(variables[i] for i in self._large), *([None] if self._small else [])]

    def join(self, structure: Any) -> Any:
        """Lists over variables as lists over parts."""
        return in_lists(self._join, structure) if self._small else structure

    def part(self, structure: Any) -> Any:
        """Lists over parts as lists over variables."""
        return in_lists(self._part, structure) if self._small else structure

    def part_transform(self, transform: core.Transform) -> core.Transform:
        """(a, b) over variables; what norms divide by is made of the parts."""
        result = self.part(transform)
        if self._small:
            scales = [result.scale[i] for i in self._small]
            gradients.know_reciprocals(scales, transform.scale[len(self._large)], self._part_small)
        return result

    def _sizes(self) -> list[int]:
        return [self._specs[i].shape.num_elements() for i in self._small]

    def _join(self, tensors: list[Any]) -> list[Any]:
        more = tensors[len(self._specs) :]
        flat = tf.concat([made.reshape(tensors[i], [-1]) for i in self._small], axis=0)
        return [*(tensors[i] for i in self._large), flat, *more]

    def _part(self, tensors: list[Any]) -> list[Any]:
        number = len(self._large)
        parts = {**dict(zip(self._large, tensors)), **dict(zip(self._small, self._part_small(tensors[number])))}
        return [*(parts[i] for i in range(len(self._specs))), *tensors[number + 1 :]]

    def _part_small(self, joined: tf.Tensor) -> list[tf.Tensor]:
        flat = tf.split(joined, made.constant(self._sizes()))
        return [made.reshape(part, self._specs[i].shape.as_list()) for i, part in zip(self._small, flat)]


def in_lists(change: Callable[..., list[Any]], structure: Any, *like: Any) -> Any:
    """`structure` with `change(list, *those in the same place of `like`)` for every list in it."""
    if isinstance(structure, list):
        return change(structure, *like)
    if isinstance(structure, dict):
        return {key: in_lists(change, part, *(other[key] for other in like)) for key, part in structure.items()}
    if hasattr(structure, "_asdict"):
        return type(structure)(*[in_lists(change, *parts) for parts in zip(structure, *like)])
    if isinstance(structure, tuple):
        return tuple(in_lists(change, *parts) for parts in zip(structure, *like))
    return structure


def unique_name(index: int, names: Sequence[str]) -> str:
    """The name, numbered where an earlier one is the same."""
    earlier = list(names[:index]).count(names[index])
    return f"{names[index]}_{earlier}" if earlier else names[index]
