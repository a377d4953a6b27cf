"""How a transformed gradient w_k becomes u_k of norm at most 1.

| clip             | u_k                                                                            |
|------------------|--------------------------------------------------------------------------------|
| `NormClip()`     | w_k / max(1, |w_k|), the norm taken over all variables: the paper's             |
| `NormClip(...)`  | the same in groups of variables, each to its part of the norm                   |
| `CoordinateClip` | every coordinate cut to [-1 / sqrt(d), 1 / sqrt(d)]                             |

Formal guarantee. |u_k| <= `radius` <= 1 for every record whatever its values, and u_k depends on record k alone. So
adding or removing one record moves sum_k u_k by at most `radius`. What is left of 1 may go to statistics of the
records: `left_for_statistics` is sqrt(1 - radius^2). Gradient and statistics together: `sensitivity`, 1.

| a record with                              | contributes                                                    |
|--------------------------------------------|----------------------------------------------------------------|
| NaN or infinity                            | exactly 0 (`CoordinateClip`: 0 where NaN, the cut where infinite) |
| |w_k| above float32's sqrt(max), 1.8e19    | exactly 0                                                      |
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import tensorflow as tf

Tensors = Sequence[tf.Tensor]


def squared_norms(records: Tensors) -> tf.Tensor:
    """|w_k|^2 over all variables, one number per record: shape [n]."""
    return tf.add_n(
        [
            tf.reduce_sum(tf.square(tf.cast(record, tf.float32)), axis=list(range(1, record.shape.rank)))
            for record in records
        ]
    )


def clip_weights(squared_norm: tf.Tensor) -> tf.Tensor:
    """c_k = 1 / max(1, |w_k|); 0 where the norm is not finite, so that such a record is left out."""
    weights = tf.math.rsqrt(tf.maximum(squared_norm, 1.0))
    return tf.where(tf.math.is_finite(squared_norm), weights, 0.0)


def weigh_records(records: Tensors, weights: tf.Tensor) -> list[tf.Tensor]:
    """c_k w_k, and exactly 0 where c_k is 0 (0 * NaN would be NaN)."""
    weighted = []
    for record in records:
        weight = tf.reshape(weights, [-1] + [1] * (record.shape.rank - 1))
        weighted.append(tf.where(weight > 0.0, weight * record, 0.0))
    return weighted


class Clip:
    """A way to make a record's norm at most `radius`: the unit ball, divided between gradient and statistics.

    Attributes:
      radius: the largest norm of u_k.
      needs_gradients: whether norms do not say how to clip: every example is then run by itself.
      sensitivity: how far one record moves the sum of gradients and statistics together, at most.
    """

    radius: float = 1.0
    needs_gradients = True
    sensitivity = 1.0

    @property
    def left_for_statistics(self) -> float:
        """The largest norm of a record's statistics."""
        return math.sqrt(1.0 - self.radius**2)

    def records(self, transformed: Tensors) -> list[tf.Tensor]:
        """u_k from w_k."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class NormClip(Clip):
    """Each group of variables is clipped to norm radius / sqrt(number of groups).

    Attributes:
      groups: indices of the variables of each group; None for one group of all.
      radius: of all groups together.
    """

    groups: tuple[tuple[int, ...], ...] | None = None
    radius: float = 1.0
    needs_gradients = False

    def groups_of(self, number: int) -> list[list[int]]:
        """The groups of `number` variables, which must be in one each: the norm of one left out would be unbounded."""
        if self.groups is None:
            return [list(range(number))]
        if sorted(index for group in self.groups for index in group) != list(range(number)):
            raise ValueError(f"`groups` must hold each of the {number} variables once; got {self.groups!r}.")
        return [list(group) for group in self.groups]

    def weights(self, squared_norm: tf.Tensor) -> tf.Tensor:
        """c_k of a group, from its |w_k|^2."""
        groups = 1 if self.groups is None else len(self.groups)
        limit = self.radius**2 / groups
        return clip_weights(squared_norm if limit == 1.0 else squared_norm / limit)

    def records(self, transformed: Tensors) -> list[tf.Tensor]:
        clipped: list[tf.Tensor] = list(transformed)
        for group in self.groups_of(len(transformed)):
            members = [transformed[index] for index in group]
            for index, u in zip(group, weigh_records(members, self.weights(squared_norms(members)))):
                clipped[index] = u
        return clipped


@dataclasses.dataclass(frozen=True)
class CoordinateClip(Clip):
    """Every coordinate is cut to [-1 / sqrt(d), 1 / sqrt(d)].

    Attributes:
      dimension: d, the number of coordinates of all variables.
    """

    dimension: int

    def records(self, transformed: Tensors) -> list[tf.Tensor]:
        limit = 1.0 / math.sqrt(self.dimension)
        numbers = [tf.where(tf.math.is_nan(record), 0.0, record) for record in transformed]
        return [tf.clip_by_value(number, -limit, limit) for number in numbers]


NORM = NormClip()
