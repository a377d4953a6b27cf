"""The gradient of a variable that is used with its axes in another order."""

from __future__ import annotations

import tensorflow as tf

from adaclip_tf._internal import made
from adaclip_tf.gradients.ghost import cancelling, keeping
from adaclip_tf.gradients.ghost.terms import Examples, SquaredNorms, Term, is_scalar


class Transposed:
    """Another term's gradient, split into axes of these `sizes`, which are then permuted."""

    def __init__(self, term: Term, sizes: list[int], permutation: list[int]):
        self.term, self.sizes, self.permutation = term, sizes, permutation

    def _back(self, tensor: tf.Tensor) -> tf.Tensor:
        if is_scalar(tensor):
            return tensor
        tensor = made.reshape(tensor, [self.sizes[axis] for axis in self.permutation])
        return _transpose(tensor, [self.permutation.index(axis) for axis in range(len(self.sizes))])

    def squared_norms(self, center: tf.Tensor, scale: tf.Tensor) -> SquaredNorms:
        return self.term.squared_norms(self._back(center), self._back(scale))

    def to_keep(self) -> list[keeping.Kept]:
        return keeping.to_keep(self.term)

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        return _transpose(made.reshape(self.term.weighted_sum(weights), self.sizes), self.permutation)

    def examples(self) -> Examples:
        return self._moved(self.term.examples())

    def _moved(self, inner: Examples) -> Examples:
        def make(arrays: list[tf.Tensor]) -> tf.Tensor:
            gradients = inner.make(arrays)
            count = tf.shape(gradients)[0]
            split = tf.reshape(gradients, [count, *self.sizes])
            moved = tf.transpose(split, [0, *(axis + 1 for axis in self.permutation)])
            return tf.reshape(moved, [count, gradients.shape[1]])

        return inner._replace(make=make, floats=2 * inner.floats)

    def bounds(self) -> Examples | None:
        inner = cancelling.bounds_of(self.term)
        return None if inner is None else self._moved(inner)


def _transpose(tensor: tf.Tensor, permutation: list[int]) -> tf.Tensor:
    """`tf.transpose`; nothing where no axis moves."""
    if permutation == sorted(permutation):
        return tensor
    return made.op("Transpose", tensor, made.constant(permutation))
