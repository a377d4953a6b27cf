"""Terms whose per-example gradient is a sum of outer products of rows: dense layers on sequences, and convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from adaclip_tf._internal import made
from adaclip_tf.gradients.ghost import cancelling, inverses, keeping, single, slices, terms
from adaclip_tf.gradients.ghost.terms import Examples, SquaredNorms

# Up to so many rows per microbatch, products of pairs of them are cheaper than g itself, which is written and read.
_FEW_ROWS = 4


def of_arrays(n: tf.Tensor, x: tf.Tensor, dy: tf.Tensor, length: int | None) -> SumOfOuterProducts:
    """The term of x [n, T, I] and dy [n, T, J]."""
    small_x = x.shape[2] < dy.shape[2]  # the weights go to the smaller operand
    large = dy if small_x else x

    def total(weights: tf.Tensor) -> tf.Tensor:
        operands = [
            terms.weigh(array, weights) if is_x == small_x else terms.keep(array, weights)
            for array, is_x in ((x, True), (dy, False))
        ]
        flat = [made.reshape(array, [-1, array.shape[2]]) for array in operands]
        return tf.matmul(*flat, transpose_a=True)

    return SumOfOuterProducts(
        n=n,
        arrays=[x, dy],
        make=lambda arrays: (arrays[0], arrays[1]),
        shape=(x.shape[2], dy.shape[2]),
        length=length,
        total=total,
        kept=[keeping.Kept(large, lambda used: terms.weigh(large, used))],
        plain=True,
    )


class SumOfOuterProducts:
    """g_k = sum_t x_kt dy_kt^T over T rows per microbatch: [T, I] and [T, J] matrices.

    With a scale per coordinate, g_k is formed for one slice of examples at a time. With a scalar scale the
    Gram form |g_k|^2 = sum_tt' (x_t . x_t')(dy_t . dy_t') may be cheaper, and is used where it is. With a scale per
    coordinate, its like, sum_tt' ((x_t x_t') @ p) . (dy_t dy_t'), is used for few rows.

    Args:
      n: how many microbatches there are.
      arrays: tensors with a leading axis of n microbatches.
      make: from slices of `arrays` to x [s, T, I] and dy [s, T, J].
      shape: (I, J).
      length: T if known.
      total: the weighted sum, from weights.
      plain: whether `arrays` are x and dy themselves.
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
        kept: Sequence[keeping.Kept] = (),
        plain: bool = False,
    ):
        self._n, self.arrays, self._make = n, arrays, make
        self.shape, self._length, self._total = shape, length, total
        self._kept_in_total, self._plain = list(kept), plain

    def squared_norms(self, center: tf.Tensor, scale: tf.Tensor) -> SquaredNorms:
        if terms.is_scalar(center) and terms.is_scalar(scale) and self._gram_is_cheaper():
            return self._gram(center, scale)
        if self._has_few_rows():
            return self._pairs(center, scale)
        if self._keeps():
            return self._kept(center, scale)
        inner, outer = self.shape
        flip = inner > outer  # batched products are faster with the longer side last
        turned = self._transpose(center, scale) if flip else (center, scale)
        p = inverses.over_square(scale)
        if not terms.is_scalar(p):
            p = made.reshape(p, self.shape)

        def norms(arrays: list[tf.Tensor]) -> tf.Tensor:
            x, dy = self._make(arrays)
            gradients = tf.matmul(dy, x, transpose_a=True) if flip else tf.matmul(x, dy, transpose_a=True)
            most, _ = single.weighted_squares(tf.reduce_sum(tf.square(x), 1), p, tf.reduce_sum(tf.square(dy), 1))
            return tf.stack([terms.direct_norms(gradients, *turned), most], axis=1)

        floats = 2 * inner * outer + (self._length or 1) * (inner + outer)
        results = slices.map_examples(norms, self.arrays, self._n, floats, width=2)
        value, most = tf.unstack(results, axis=1)
        # What cancels between the rows does so in the weighted sum only after it was added up over all examples. The
        # absolute values of an entry's terms add up to no more than |x_i| |dy_j| over the rows (Cauchy and Schwarz).
        constant = terms.constant_part(center, scale, inner * outer)
        return SquaredNorms(value, tf.maximum(value, tf.square(tf.sqrt(most) + tf.sqrt(constant))))

    def _has_few_rows(self) -> bool:
        return self._plain and self._length is not None and self._length <= _FEW_ROWS

    def _keeps(self) -> bool:
        """Whether all g_k may be in memory at a time: they are then formed once, for norms and weighted sum."""
        small = self.shape[0] * self.shape[1] <= slices.MODEST * slices.floats_of(self.arrays)
        return self._length is not None and small and not self._has_few_rows()

    def _formed(self) -> terms.PerExample:
        """All g_k, once; transposed where that is faster to form."""
        inner, outer = self.shape
        flip = inner > outer
        size = inner * outer

        def form(arrays: list[tf.Tensor]) -> tf.Tensor:
            x, dy = self._make(arrays)
            gradients = tf.matmul(dy, x, transpose_a=True) if flip else tf.matmul(x, dy, transpose_a=True)
            return made.reshape(gradients, [made.extent(gradients, 0), size])

        def make() -> terms.PerExample:
            floats = (self._length or 1) * (inner + outer)
            return terms.PerExample(slices.map_examples(form, self.arrays, self._n, floats, width=size), size)

        return made.once(self._key, make)

    @property
    def _key(self) -> tuple:
        return ("gradients", *(array.ref() for array in self.arrays), *self.shape)

    def _kept(self, center: tf.Tensor, scale: tf.Tensor) -> SquaredNorms:
        if self.shape[0] > self.shape[1]:
            center, scale = self._transpose(center, scale)
        return self._formed().squared_norms(center, scale)

    def _transpose(self, center: tf.Tensor, scale: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if not terms.is_scalar(center):
            center = tf.transpose(made.reshape(center, self.shape))
        return center, scale if terms.is_scalar(scale) else inverses.transposed(scale, self.shape)

    def _gram_is_cheaper(self) -> bool:
        if self._length is None:
            return False
        inner, outer = self.shape
        # Forming g costs about as much as 8 more rows: it is written, squared and read again. Where it is kept, it
        # spares the product of the weighted sum, for another 8.
        rows = 16 if self._keeps() else self._length + 8
        return self._length**2 * (inner + outer + 8) < rows * inner * outer

    def _gram(self, center: tf.Tensor, scale: tf.Tensor) -> SquaredNorms:
        inner, outer = self.shape
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
        results = slices.map_examples(sums, self.arrays, self._n, floats, width=3)
        p = tf.math.reciprocal(tf.square(scale))
        quadratic, magnitude, entries = tf.unstack(results, axis=1)
        constant = terms.constant_part(center, scale, inner * outer)
        norms = terms.expanded(quadratic * p, entries * center * p, constant)
        return SquaredNorms(norms.value, norms.magnitude + (magnitude - quadratic) * p)

    def _pairs(self, center: tf.Tensor, scale: tf.Tensor) -> SquaredNorms:
        """The square of the sum over rows, expanded: no g is formed.

        With q_t = sum p x_t^2 dy_t^2, what the pair (t, t') adds up is in absolute value at most sqrt(q_t q_t')
        (Cauchy and Schwarz): so (sum_t sqrt(q_t))^2 bounds the sum of all absolute values.
        """
        x, dy = self.arrays
        length = self._length or 0
        pairs = [(s, t) for s in range(length) for t in range(s, length)]
        xs, dys = tf.unstack(x, num=length, axis=1), tf.unstack(dy, num=length, axis=1)
        products = tf.concat([xs[s] * xs[t] for s, t in pairs], 0), tf.concat([dys[s] * dys[t] for s, t in pairs], 0)
        size, p = self.shape[0] * self.shape[1], inverses.over_square(scale)
        # What squares are short of by underflow, at most, times the squares' sums.
        short = inverses.short_of(scale, size) + terms.TINY * sum(self.shape)
        center, scale, p = (
            value if terms.is_scalar(value) else made.reshape(value, self.shape) for value in (center, scale, p)
        )
        sums, entries = (
            tf.unstack(tf.reshape(value, [len(pairs), self._n]), num=len(pairs))
            for value in single.weighted_squares(products[0], p, products[1])
        )
        squares = [sums[i] + short * entries[i] for i, (s, t) in enumerate(pairs) if s == t]
        crossed = [2.0 * sums[i] for i, (s, t) in enumerate(pairs) if s != t]
        guard = short * float(length) * tf.add_n([entries[i] for i, (s, t) in enumerate(pairs) if s == t])
        quadratic = tf.add_n([*squares, *crossed]) + guard
        magnitude = tf.square(tf.add_n([tf.sqrt(square) for square in squares])) + guard
        if terms.is_zero(center):
            return SquaredNorms(quadratic, magnitude)
        linear = tf.add_n([single.bilinear(x_t, center * p, dy_t) for x_t, dy_t in zip(xs, dys)])
        norms = terms.expanded(quadratic, linear, terms.constant_part(center, scale, size))
        return SquaredNorms(norms.value, norms.magnitude - quadratic + magnitude)

    def divided(self, rows: tf.Tensor) -> SumOfOuterProducts | None:
        """The term of g_ij / rows_i, for norms alone; None where g is at hand."""
        if self._keeps() and not self._gram_is_cheaper():
            return None
        if self._plain:
            return of_arrays(self._n, self.arrays[0] / rows, self.arrays[1], self._length)

        def make(arrays: list[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
            x, dy = self._make(arrays)
            return x / rows, dy

        return SumOfOuterProducts(
            n=self._n, arrays=self.arrays, make=make, shape=self.shape, length=self._length, total=self._total
        )

    def is_plain(self, shape: tuple[int, int]) -> bool:
        """Whether `arrays` are x and dy, with this many features."""
        return self._plain and self.shape == shape

    def to_keep(self) -> list[keeping.Kept]:
        formed = made.known(self._key)
        return self._kept_in_total if formed is None else formed.to_keep()

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        formed = made.known(self._key)
        if formed is None:
            return self._total(weights)
        total = formed.weighted_sum(weights)
        return tf.transpose(made.reshape(total, self.shape[::-1])) if self.shape[0] > self.shape[1] else total

    def examples(self) -> Examples:
        inner, outer = self.shape

        def make(arrays: list[tf.Tensor]) -> tf.Tensor:
            x, dy = self._make(arrays)
            return tf.reshape(tf.matmul(x, dy, transpose_a=True), [tf.shape(x)[0], inner * outer])

        return Examples(list(self.arrays), make, inner * outer + (self._length or 1) * (inner + outer))

    def bounds(self) -> Examples | None:
        return None if self._length == 1 else cancelling.of_absolutes(self.examples())

    @classmethod
    def longer(cls, parts: Sequence[SumOfOuterProducts]) -> SumOfOuterProducts:
        """The sum of several such sums, which is one over all their rows."""
        lengths = [part._length for part in parts]
        length = None if None in lengths else sum(lengths)  # type: ignore[arg-type]
        if all(part._plain for part in parts):
            x, dy = (tf.concat(arrays, axis=1) for arrays in zip(*(part.arrays for part in parts)))
            return of_arrays(parts[0]._n, x, dy, length)

        def make(arrays: list[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
            remaining = list(arrays)
            made = [part._make([remaining.pop(0) for _ in part.arrays]) for part in parts]
            return tf.concat([x for x, _ in made], axis=1), tf.concat([dy for _, dy in made], axis=1)

        return cls(
            n=parts[0]._n,
            arrays=[array for part in parts for array in part.arrays],
            make=make,
            shape=parts[0].shape,
            length=length,
            kept=[each for part in parts for each in part._kept_in_total],
            total=lambda weights: tf.add_n([tf.reshape(part._total(weights), parts[0].shape) for part in parts]),
        )


def _sum_squares(rows: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.square(rows), axis=[1, 2])
