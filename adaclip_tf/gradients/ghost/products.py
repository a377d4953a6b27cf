"""Terms whose per-example gradient is a sum of outer products of rows: dense layers and convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from adaclip_tf.gradients.ghost import slices, terms
from adaclip_tf.gradients.ghost.terms import Examples, Rows, SquaredNorms


class OuterProduct:
    """g_k = x_k dy_k^T: a dense layer on [batch, features]."""

    def __init__(self, rows: Rows, x: tf.Tensor, dy: tf.Tensor):
        self._rows = rows
        self._x, self._dy = tf.cast(x, tf.float32), tf.cast(dy, tf.float32)

    def squared_norms(self, center: tf.Tensor, scale: tf.Tensor) -> SquaredNorms:
        return terms.outer_product_norms(self._x, self._dy, center, scale)

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        x, dy = self._x, self._dy
        small_x = x.shape[1] < dy.shape[1]  # the weights go to the smaller operand
        x = self._rows.weigh(x, weights) if small_x else self._rows.keep(x, weights)
        dy = self._rows.keep(dy, weights) if small_x else self._rows.weigh(dy, weights)
        return tf.matmul(x, dy, transpose_a=True)

    def row_norms(self, weights: tf.Tensor, width: int) -> tf.Tensor | None:
        """sum_k |weights_k row_i of g_k| over rows of `width` coordinates; None where these are no parts of dy.

        A row is x_ki times a part of dy_k, so its norm is |x_ki| times that part's: one product, no g is formed.
        """
        outer = self._dy.shape[1]
        if outer % width:
            return None
        x, dy = self._rows.keep(self._x, weights), self._rows.weigh(self._dy, weights)
        parts = tf.norm(tf.reshape(dy, [tf.shape(dy)[0], outer // width, width]), axis=2)
        return tf.matmul(tf.abs(x), parts, transpose_a=True)

    def examples(self) -> Examples:
        size = self._x.shape[1] * self._dy.shape[1]

        def make(arrays: list[tf.Tensor]) -> tf.Tensor:
            products = arrays[0][:, :, tf.newaxis] * arrays[1][:, tf.newaxis, :]
            return tf.reshape(products, [tf.shape(products)[0], size])

        return Examples([self._x, self._dy], make, 2 * size)


class SumOfOuterProducts:
    """g_k = sum_t x_kt dy_kt^T over T rows per microbatch: [T, I] and [T, J] matrices.

    With a scale per coordinate, g_k is formed for one slice of examples at a time. With a scalar scale the
    Gram form |g_k|^2 = sum_tt' (x_t . x_t')(dy_t . dy_t') may be cheaper, and is used where it is.

    Args:
      n: how many microbatches there are.
      arrays: tensors with a leading axis of n microbatches.
      make: from slices of `arrays` to x [s, T, I] and dy [s, T, J].
      shape: (I, J).
      length: T if known.
      total: the weighted sum, from weights.
    """

    def __init__(
        self,
        *,
        n: tf.Tensor,
        arrays: list[tf.Tensor],
        make: Callable[[list[tf.Tensor]], tuple[tf.Tensor, tf.Tensor]],
        shape: tuple[int, int],
        length: int | None,
        total: Callable[[tf.Tensor], tf.Tensor],
    ):
        self._n, self._arrays, self._make = n, arrays, make
        self._shape, self._length, self._total = shape, length, total

    def squared_norms(self, center: tf.Tensor, scale: tf.Tensor) -> SquaredNorms:
        if terms.is_scalar(center) and terms.is_scalar(scale) and self._gram_is_cheaper():
            return self._gram(center, scale)
        inner, outer = self._shape
        flip = inner > outer  # batched products are faster with the longer side last
        if flip:
            center, scale = (self._transpose(value) for value in (center, scale))

        def norms(arrays: list[tf.Tensor]) -> tf.Tensor:
            x, dy = self._make(arrays)
            gradients = tf.matmul(dy, x, transpose_a=True) if flip else tf.matmul(x, dy, transpose_a=True)
            return terms.direct_norms(gradients, center, scale)

        floats = 2 * inner * outer + (self._length or 1) * (inner + outer)
        value = slices.map_examples(norms, self._arrays, self._n, floats)
        return SquaredNorms(value, value)

    def _transpose(self, value: tf.Tensor) -> tf.Tensor:
        return value if terms.is_scalar(value) else tf.transpose(tf.reshape(value, self._shape))

    def _gram_is_cheaper(self) -> bool:
        if self._length is None:
            return False
        inner, outer = self._shape
        # Forming g costs about as much as 8 more rows: it is written, squared and read again.
        return self._length**2 * (inner + outer + 8) < (self._length + 8) * inner * outer

    def _gram(self, center: tf.Tensor, scale: tf.Tensor) -> SquaredNorms:
        inner, outer = self._shape
        length = self._length or 1

        def sums(arrays: list[tf.Tensor]) -> Any:
            x, dy = self._make(arrays)
            products = tf.matmul(x, x, transpose_b=True) * tf.matmul(dy, dy, transpose_b=True)
            entries = tf.reduce_sum(tf.reduce_sum(x, axis=2) * tf.reduce_sum(dy, axis=2), axis=1)
            quadratic = tf.reduce_sum(products, axis=[1, 2])
            magnitude = tf.reduce_sum(tf.abs(products), axis=[1, 2])
            # What the dot products' underflowing terms are short of, at most, times the other factor.
            guard = terms.TINY * length * (inner * _sum_squares(dy) + outer * _sum_squares(x))
            return tf.stack([quadratic + guard, magnitude + guard, entries], axis=1)

        floats = 3 * length**2 + length * (inner + outer)
        results = slices.map_examples(sums, self._arrays, self._n, floats, width=3)
        p = tf.math.reciprocal(tf.square(scale))
        quadratic, magnitude, entries = tf.unstack(results, axis=1)
        constant = terms.constant_part(center, scale, inner * outer)
        norms = terms.expanded(quadratic * p, entries * center * p, constant)
        return SquaredNorms(norms.value, norms.magnitude + (magnitude - quadratic) * p)

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        return self._total(weights)

    def examples(self) -> Examples:
        inner, outer = self._shape

        def make(arrays: list[tf.Tensor]) -> tf.Tensor:
            x, dy = self._make(arrays)
            return tf.reshape(tf.matmul(x, dy, transpose_a=True), [tf.shape(x)[0], inner * outer])

        return Examples(list(self._arrays), make, inner * outer + (self._length or 1) * (inner + outer))


def _sum_squares(rows: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.square(rows), axis=[1, 2])
