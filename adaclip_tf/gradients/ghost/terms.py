"""Per-example norms and weighted sums of one variable's gradient, by the form the gradient has.

With p = 1 / b^2, every term computes, per microbatch k,

    value     = sum_i (g_ki - a_i)^2 p_i
    magnitude = the sum of the absolute values of what was added up to get `value`

in float32. Where the square is expanded, value = sum g^2 p - 2 sum g a p + sum a^2 p, and rounding may cost a few
ulps of `magnitude`: clipping by value + (a few ulps) * magnitude never clips too little. Where g_k itself is formed,
value is right; but what cancels in g_k may do so in the weighted sum only after it was added up over all examples, so
that what is added up to g_k counts for the magnitude (`cancelling`), unless the sum is made of the same g_k.

Edge cases.

| record                                    | value                     | weighted sum                      |
|-------------------------------------------|---------------------------|-----------------------------------|
| NaN or infinity anywhere in its rows      | NaN or infinity           | exactly no contribution at weight 0 |
| squares that overflow float32             | infinity                  | "                                 |
| squares that underflow, times large ones  | rounded up, never down    | exact                             |
| no records at all (n = 0)                 | shape [0]                 | 0                                 |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import tensorflow as tf

from adaclip_tf._internal import made
from adaclip_tf.gradients.ghost import inverses, keeping
from adaclip_tf.gradients.ghost.inverses import TINY, is_scalar
from adaclip_tf.gradients.ghost.labels import Context, Lead


class SquaredNorms(NamedTuple):
    """|(g_k - a) / b|^2 of one variable, and the sum of the absolute values of its terms: shapes [n]."""

    value: tf.Tensor
    magnitude: tf.Tensor


class Examples(NamedTuple):
    """How to form the gradients of some microbatches.

    Attributes:
      arrays: tensors with a leading axis of n microbatches.
      make: from slices of `arrays` along that axis to [s, size], in the order of the term's coordinates.
      floats: about how many numbers that takes per microbatch.
    """

    arrays: list[tf.Tensor]
    make: Callable[[list[tf.Tensor]], tf.Tensor]
    floats: int


class Term(Protocol):
    """The gradient of one variable as a sum over microbatches."""

    def squared_norms(self, center: tf.Tensor, scale: tf.Tensor) -> SquaredNorms:
        """|(g_k - center) / scale|^2, where each is a scalar or has an entry for every coordinate of g."""

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        """sum_k weights_k g_k; a record of weight 0 contributes exactly 0, whatever its values."""

    def examples(self) -> Examples:
        """g_k itself, for slices of microbatches."""


class Rows:
    """A tensor whose leading axis holds the microbatches' rows in the layout of a label."""

    def __init__(self, ctx: Context, label: Lead):
        self.n = ctx.n
        self.label = label
        self.per_microbatch: int | None = None  # rows; None where only the run tells
        if label.rows is not None and ctx.microbatch_size is not None:
            self.per_microbatch = label.rows * label.outer * ctx.microbatch_size

    def split(self, tensor: tf.Tensor) -> tf.Tensor:
        """[rows, ...] as [n, rows per microbatch, ...]."""
        axis, outer = self.label.axis, self.label.outer
        inner = made.extents(tensor, axis + 1)
        each: int | tf.Tensor
        if self.per_microbatch is not None:
            each = self.per_microbatch // outer
        else:
            each = made.extent(tensor, axis) // (outer * tf.maximum(self.n, 1))
        if outer == 1:
            return made.reshape(tensor, [self.n, each, *inner])
        blocks = made.reshape(tensor, [outer, self.n, each, *inner])
        blocks = tf.transpose(blocks, [1, 0, 2, *range(3, 3 + len(inner))])
        return made.reshape(blocks, [self.n, outer * each, *inner])

    def weigh(self, tensor: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """Every row times its microbatch's weight, and 0 where the weight is 0."""
        outer = self.label.outer
        if self.per_microbatch == 1:
            return made.op("MulNoNan", tensor, _column(weights, tensor))
        floats = tf.size(tensor) // tf.maximum(outer * self.n, 1)
        runs = tf.reshape(tensor, [outer, self.n, floats])
        weighed = tf.math.multiply_no_nan(runs, tf.reshape(weights, [1, self.n, 1]))
        result = tf.reshape(weighed, tf.shape(tensor))
        result.set_shape(tensor.shape)
        return result

    def keep(self, tensor: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        """The rows as they are, and 0 where the weight is 0."""
        return keeping.unless_all_used(tensor, weights, lambda used: self.weigh(tensor, used))


def weigh(tensor: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """[n, ...] times the microbatches' weights, and 0 where a weight is 0."""
    if tensor.shape.rank == 2:
        return made.op("MulNoNan", tensor, made.reshape(weights, [-1, 1]))
    count, width = made.extent(tensor, 0), tensor.shape[1:].num_elements()
    if width is None:
        width = tf.size(tensor) // tf.maximum(count, 1)
    weighed = made.op("MulNoNan", made.reshape(tensor, [count, width]), made.reshape(weights, [-1, 1]))
    return made.reshape(weighed, made.extents(tensor))


def keep(tensor: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """[n, ...] as it is, and 0 where the weight is 0."""
    return keeping.unless_all_used(tensor, weights, lambda used: weigh(tensor, used))


def _column(weights: tf.Tensor, tensor: tf.Tensor) -> tf.Tensor:
    """[n] in a shape that broadcasts along the rows of `tensor`."""
    return made.reshape(weights, [-1] + [1] * (tensor.shape.rank - 1))


class PerExample:
    """Per-example gradients as a tensor [n, ...] that is no larger than an activation: biases, scales.

    Args:
      gradients: their tensor.
      size: entries of one of them, where its shape may not be known before the run.
    """

    def __init__(self, gradients: tf.Tensor, size: int | None = None):
        self._size = gradients.shape[1:].num_elements() if size is None else size
        if gradients.shape.rank != 2:
            count = made.extent(gradients, 0)
            each = tf.size(gradients) // tf.maximum(count, 1) if self._size is None else self._size
            gradients = made.reshape(gradients, [count, each])
        self.gradients = gradients

    def squared_norms(self, center: tf.Tensor, scale: tf.Tensor) -> SquaredNorms:
        value = direct_norms(self.gradients, center, scale)
        return SquaredNorms(value, value)

    def to_keep(self) -> list[keeping.Kept]:
        return [keeping.Kept(self.gradients, lambda used: weigh(self.gradients, used))]

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        kept = keep(self.gradients, weights)
        return made.op("MatMul", _column(weights, kept), kept, transpose_a=True)

    def examples(self) -> Examples:
        return Examples([self.gradients], lambda arrays: arrays[0], self._size)


class Bias(PerExample):
    """A bias whose per-example gradient is dy [n, J] itself.

    The kernel's term squares the same dy; with the square expanded, both use that one tensor, and no other of its
    size is made.
    """

    def __init__(self, dy: tf.Tensor):
        super().__init__(dy)
        self._dy = dy

    def squared_norms(self, center: tf.Tensor, scale: tf.Tensor) -> SquaredNorms:
        if is_scalar(scale):
            if not is_zero(center):
                return super().squared_norms(center, scale)
            value = _over_square(squared_lengths(self._dy), scale, self._size)
            return SquaredNorms(value, value)
        if inverses.formed_in_one_loop(scale, self._size):
            return super().squared_norms(center, scale)
        centered, p = is_zero(center), made.reshape(inverses.over_square(scale), [self._size])
        center = tf.broadcast_to(center, [self._size]) if is_scalar(center) else made.reshape(center, [self._size])
        quadratic = _times(squares_of(self._dy), p) + inverses.short_of(scale, self._size)
        if centered:
            return SquaredNorms(quadratic, quadratic)
        return expanded(quadratic, _times(self._dy, center * p), constant_part(center, scale, self._size))


def is_zero(tensor: tf.Tensor) -> bool:
    """Whether it is 0 for all coordinates, as the graph tells: then nothing need be computed of it."""
    return is_scalar(tensor) and tf.get_static_value(tensor) == 0.0


def constant_part(center: tf.Tensor, scale: tf.Tensor, size: int) -> tf.Tensor:
    """sum_i a_i^2 / b_i^2 over `size` coordinates, where scalars stand for all of them."""
    total = tf.reduce_sum(tf.square(center / scale))
    return total * float(size) if is_scalar(center) and is_scalar(scale) else total


def expanded(quadratic: tf.Tensor, linear: tf.Tensor, constant: tf.Tensor) -> SquaredNorms:
    """The expanded square from sum g^2 p, sum g a p and sum a^2 p."""
    squares, twice = quadratic + constant, made.constant(2.0, tf.float32) * linear
    return SquaredNorms(squares - twice, squares + tf.abs(twice))


def direct_norms(gradients: tf.Tensor, center: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """sum_i (g_ki - a_i)^2 p_i from the per-example gradients themselves, [s, ...] to [s]."""
    size = gradients.shape[1:].num_elements()
    flat = gradients if gradients.shape.rank == 2 else made.reshape(gradients, [made.extent(gradients, 0), size])
    if is_zero(center) and is_scalar(scale):
        return _over_square(squared_lengths(flat), scale, size)
    if not is_scalar(center):
        center = made.reshape(center, [1, size])
    if inverses.formed_in_one_loop(scale, size):
        deviation = flat if is_zero(center) else flat - center
        # XLA may square the factors before it multiplies them.
        squares = made.op("Square", deviation * made.reshape(inverses.reciprocal(scale), [1, size]))
        return row_sums(squares) + inverses.short_of(scale, size)
    squares = made.op("Square", flat) if is_zero(center) else made.op("SquaredDifference", flat, center)
    if is_scalar(scale):
        return _over_square(row_sums(squares), scale, size)
    return _times(squares, inverses.over_square(scale)) + inverses.short_of(scale, size)


def _over_square(squares: tf.Tensor, scale: tf.Tensor, size: int) -> tf.Tensor:
    """Sums of `size` squares over b^2: each may be short of TINY by underflow, at most."""
    return (squares + made.constant(TINY * size, tf.float32)) / tf.square(scale)


def _times(matrix: tf.Tensor, vector: tf.Tensor) -> tf.Tensor:
    """A matrix times a vector, which may be in any shape."""
    return made.reshape(made.op("MatMul", matrix, made.reshape(vector, [matrix.shape[1], 1])), [-1])


def row_sums(matrix: tf.Tensor) -> tf.Tensor:
    """Over the last of two axes; once for the same matrix."""
    key = ("row sums", matrix.ref())
    return made.once(key, lambda: made.op("Sum", matrix, made.constant([1])))


def squared_lengths(matrix: tf.Tensor) -> tf.Tensor:
    """The sums of squares over the last of two axes, in one pass; once for the same matrix."""

    def make() -> tf.Tensor:
        if made.in_xla():  # which has no such op
            return row_sums(squares_of(matrix))
        return made.op("Square", made.op("EuclideanNorm", matrix, made.constant([1])))

    return made.once(("squared lengths", matrix.ref()), make)


def squares_of(tensor: tf.Tensor) -> tf.Tensor:
    """Once for the same tensor: a kernel's term and its bias's square the same dy."""
    return made.once(("squares", tensor.ref()), lambda: made.op("Square", tensor))
