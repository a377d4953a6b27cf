"""Small variables, joined into one for the arithmetic that treats all coordinates alike.

What a step does after the sum is known (un-transform, learn) is the same few operations on every coordinate. For each
variable by itself they are traced, and compiled by XLA, again: for a network of many small variables that was more than
half of a first step. A rule that says so (`core.ClippingRule.treats_coordinates_alike`) therefore gets its small
variables as one long one. The numbers are the same, but for the rounding of sums over all coordinates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from adaclip_tf import core
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

    def join(self, structure: Any) -> Any:
        """Lists over variables as lists over parts."""
        return _in_lists(self._join, structure) if self._small else structure

    def part(self, structure: Any) -> Any:
        """Lists over parts as lists over variables."""
        return _in_lists(self._part, structure) if self._small else structure

    def _sizes(self) -> list[int]:
        return [self._specs[i].shape.num_elements() for i in self._small]

    def _join(self, tensors: list[Any]) -> list[Any]:
        more = tensors[len(self._specs) :]
        flat = tf.concat([made.reshape(tensors[i], [-1]) for i in self._small], axis=0)
        return [*(tensors[i] for i in self._large), flat, *more]

    def _part(self, tensors: list[Any]) -> list[Any]:
        number = len(self._large)
        parts = dict(zip(self._large, tensors))
        for i, flat in zip(self._small, tf.split(tensors[number], made.constant(self._sizes()))):
            parts[i] = made.reshape(flat, self._specs[i].shape.as_list())
        return [*(parts[i] for i in range(len(self._specs))), *tensors[number + 1 :]]


def _in_lists(change: Any, structure: Any) -> Any:
    """`structure` with `change` of every list in it."""
    if isinstance(structure, list):
        return change(structure)
    if isinstance(structure, dict):
        return {key: _in_lists(change, part) for key, part in structure.items()}
    if hasattr(structure, "_asdict"):
        return type(structure)(*[_in_lists(change, part) for part in structure])
    if isinstance(structure, tuple):
        return tuple(_in_lists(change, part) for part in structure)
    return structure


def unique_name(index: int, names: Sequence[str]) -> str:
    """The name, numbered where an earlier one is the same."""
    earlier = list(names[:index]).count(names[index])
    return f"{names[index]}_{earlier}" if earlier else names[index]
