"""The term whose per-example gradient is one outer product: a dense layer on [batch, features]."""

from __future__ import annotations

import tensorflow as tf

from adaclip_tf.gradients.ghost import keeping, single
from adaclip_tf.gradients.ghost.products import SumOfOuterProducts, of_arrays
from adaclip_tf.gradients.ghost.terms import Examples, Rows, SquaredNorms


class OuterProduct:
    """g_k = x_k dy_k^T: a dense layer on [batch, features]."""

    def __init__(self, rows: Rows, x: tf.Tensor, dy: tf.Tensor):
        self._rows = rows
        self._x, self._dy = tf.cast(x, tf.float32), tf.cast(dy, tf.float32)

    def squared_norms(self, center: tf.Tensor, scale: tf.Tensor) -> SquaredNorms:
        return single.squared_norms(self._x, self._dy, center, scale)

    def to_keep(self) -> list[keeping.Kept]:
        large = self._dy if self._x_is_small else self._x
        return [keeping.Kept(large, lambda used: self._rows.weigh(large, used))]

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        x, dy = self._x, self._dy
        x = self._rows.weigh(x, weights) if self._x_is_small else self._rows.keep(x, weights)
        dy = self._rows.keep(dy, weights) if self._x_is_small else self._rows.weigh(dy, weights)
        return tf.matmul(x, dy, transpose_a=True)

    @property
    def _x_is_small(self) -> bool:
        """The weights go to the smaller operand."""
        return self._x.shape[1] < self._dy.shape[1]

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

    def divided(self, rows: tf.Tensor) -> OuterProduct:
        """The term of g_ij / rows_i."""
        return OuterProduct(self._rows, self._x / rows, self._dy)

    @property
    def shape(self) -> tuple[int, int]:
        return self._x.shape[1], self._dy.shape[1]

    def examples(self) -> Examples:
        return self.as_sum().examples()

    def as_sum(self) -> SumOfOuterProducts:
        """The same, as a sum over one row per microbatch."""
        return of_arrays(self._rows.n, self._x[:, tf.newaxis], self._dy[:, tf.newaxis], 1)
