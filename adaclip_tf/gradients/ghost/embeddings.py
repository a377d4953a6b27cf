"""The rule for gathered tables: sparse gradients (IndexedSlices), without a [batch, vocabulary, width] tensor.

Position l of an example adds v_l to row i_l of the table's gradient G. With G_j the sum over the positions that
look up row j,

    |(G - a) / b|^2 = sum_{j looked up} G_j^2 p_j  -  2 sum_l v_l . (a p)[i_l]  +  sum a^2 p
                    = sum_{j looked up} ((G_j - a_j)^2 p_j - a_j^2 p_j)  +  sum a^2 p

The last term is one number for all examples, however many rows nobody looked up. Positions that look up the same
row are added before they are squared.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from adaclip_tf._internal import made
from adaclip_tf.gradients.ghost import cancelling, keeping, terms
from adaclip_tf.gradients.ghost.labels import Context, Unknown
from adaclip_tf.gradients.ghost.places import Places, sums_by_example
from adaclip_tf.gradients.ghost.rules import SPARSE, Found, facts_about, lead, rule
from adaclip_tf.gradients.ghost.terms import Examples, Rows, SquaredNorms

# Columns: from 32 on `SparseTensorDenseMatMul` takes another loop.
_LONGEST = None if tf.__version__.startswith("2.15.") else 31


class Lookup:
    """The gradient of a table [vocabulary, width] from the rows that each example looked up.

    Args:
      n: how many microbatches there are.
      shape: (vocabulary, width).
      indices: [n * positions], those of one microbatch side by side.
      values: [n * positions, width].
      positions: per microbatch, where that is known before the run.
    """

    def __init__(
        self, n: tf.Tensor, shape: tuple[int, int], indices: tf.Tensor, values: tf.Tensor, positions: int | None
    ):
        self._n, self._vocabulary, self._width, self._positions = n, *shape, positions
        self._indices, self._values, self.shape = indices, values, shape

    def squared_norms(self, center: tf.Tensor, scale: tf.Tensor) -> SquaredNorms:
        norms = self._norms(center, scale)
        if self._positions == 1:
            return norms
        # Positions that look up the same row may cancel, in the weighted sum only after all examples were added up.
        constant = terms.constant_part(center, scale, self._vocabulary * self._width)
        most = tf.square(tf.sqrt(self._most(self._values / self.look_up(scale))) + tf.sqrt(constant))
        return SquaredNorms(norms.value, tf.maximum(norms.magnitude, most))

    def _most(self, values: tf.Tensor) -> tf.Tensor:
        """No less than sum_j (sum_{l: i_l = j} |v_l|)^2 of each example, by Cauchy and Schwarz."""
        if made.in_xla():
            return tf.cast(self._length(), tf.float32) * self._per_example(terms.squared_lengths(values))
        return self._per_example(self._places().counts * terms.squared_lengths(values))

    def _norms(self, center: tf.Tensor, scale: tf.Tensor) -> SquaredNorms:
        if terms.is_zero(center) and terms.is_scalar(scale):
            quadratic = self._sum_of_squares(self._values)
            if tf.get_static_value(scale) != 1.0:
                short = terms.TINY * float(self._width) * tf.cast(self._length(), tf.float32)  # by underflow, at most
                quadratic = (quadratic + short) / tf.square(scale)
            return SquaredNorms(quadratic, quadratic)
        scaled = self._values / self.look_up(scale)  # v / b, so that squares are of w's size
        if terms.is_zero(center):
            quadratic = self._sum_of_squares(scaled)
            return SquaredNorms(quadratic, quadratic)
        ratio = center / scale
        constant = terms.constant_part(center, scale, self._vocabulary * self._width)
        if not terms.is_scalar(ratio) and not made.in_xla():
            return self._around(scaled, tf.reshape(ratio, [self._vocabulary, self._width]), constant)
        quadratic, ratio = self._sum_of_squares(scaled), self.look_up(ratio)
        linear = self._per_example(scaled) * ratio if terms.is_scalar(ratio) else self._per_example(scaled * ratio)
        return terms.expanded(quadratic, linear, constant)

    def _around(self, scaled: tf.Tensor, ratio: tf.Tensor, constant: tf.Tensor) -> SquaredNorms:
        """The same from v / b, a / b and sum (a / b)^2, by rows: what is looked up takes another square's place.

        |(G - a) / b|^2 = sum_{j looked up} (|G_j / b - (a / b)_j|^2 - |(a / b)_j|^2) + sum (a / b)^2
        """
        places = self._places()
        constants = terms.squared_lengths(ratio)
        distances = terms.squared_lengths(scaled - tf.gather(ratio, self._indices))
        by_position = [distances, tf.gather(constants, self._indices)]
        values, rows = places.add_up(scaled), places.rows
        by_row = [terms.squared_lengths(values - tf.gather(ratio, rows)), tf.gather(constants, rows)]
        there, taken_out = (places.total(*pair) for pair in zip(by_position, by_row))
        return SquaredNorms(there + (constant - taken_out), there + (constant + taken_out))

    def divided(self, rows: tf.Tensor) -> Lookup:
        """The term of G_ij / rows_i."""
        values = self._values / tf.gather(rows, self._indices)[:, tf.newaxis]
        return Lookup(self._n, self.shape, self._indices, values, self._positions)

    def look_up(self, table: tf.Tensor) -> tf.Tensor:
        """The rows of an array like the table for all positions; scalars stay such."""
        if terms.is_scalar(table):
            return table
        return tf.gather(tf.reshape(table, [self._vocabulary, self._width]), self._indices)

    def _per_example(self, rows: tf.Tensor) -> tf.Tensor:
        """The sum of everything in each example's rows."""
        return sums_by_example(rows, self._n)

    def _sum_of_squares(self, values: tf.Tensor) -> tf.Tensor:
        """sum_j |sum_{l: i_l = j} v_l|^2 of each example."""
        if self._positions == 1:
            return self._per_example(terms.squared_lengths(values))
        if made.in_xla():
            return self._per_example(tf.square(self._added_up(values)))
        places = self._places()
        return places.total(terms.squared_lengths(values), terms.squared_lengths(places.add_up(values)))

    def _places(self) -> Places:
        """What repeats within an example. It needs the indices alone, so it need not wait for the backward pass."""
        return made.once(
            ("places", self._indices.ref(), self._n.ref(), self._vocabulary),
            lambda: Places(self._n, self._length(), self._indices, self._vocabulary),
        )

    def _length(self) -> tf.Tensor:
        """Positions per microbatch."""
        return tf.shape(self._indices)[0] // tf.maximum(self._n, 1)

    def _added_up(self, values: tf.Tensor) -> tf.Tensor:
        """Rows of one example that have the same index, added up in one of their places; 0 in the others.

        All shapes follow from the batch's, as XLA needs them to.
        """
        positions = tf.shape(self._indices)[0]
        length = positions // tf.maximum(self._n, 1)
        indices = tf.reshape(self._indices, [self._n, length])
        order = tf.argsort(indices, axis=1, stable=True)
        ordered = tf.gather(indices, order, batch_dims=1)
        is_new = tf.cast(tf.not_equal(ordered[:, 1:], ordered[:, :-1]), tf.int32)
        start = (length * tf.range(self._n))[:, tf.newaxis]  # where the example's rows start
        place = start + tf.concat([tf.zeros([self._n, tf.minimum(length, 1)], tf.int32), tf.cumsum(is_new, 1)], 1)
        # Back from sorted order; each sum has one term.
        place = tf.math.unsorted_segment_sum(tf.reshape(place, [-1]), tf.reshape(start + order, [-1]), positions)
        return tf.scatter_nd(place[:, tf.newaxis], values, [positions, self._width])

    def _runs(self) -> tf.Tensor:
        """The values, all of one example in a row; once for the same."""

        def make() -> tf.Tensor:
            floats = tf.shape(self._indices)[0] * self._width // tf.maximum(self._n, 1)
            return tf.reshape(self._values, [self._n, floats])

        return made.once(("runs", self._values.ref(), self._n.ref()), make)

    def to_keep(self) -> list[keeping.Kept]:
        runs = self._runs()
        return [] if made.in_xla() else [keeping.Kept(runs, lambda used: terms.weigh(runs, used))]

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        positions, runs = tf.shape(self._indices)[0], self._runs()
        if made.in_xla():
            values = tf.reshape(terms.weigh(runs, weights), [positions, self._width])
            return tf.scatter_nd(self._indices[:, tf.newaxis], values, [self._vocabulary, self._width])
        # A product with the matrix that has the weights in the places that were looked up: no weighed copy.
        pieces = _pieces(self._width)
        indices = tf.cast(self._indices, tf.int64)
        if pieces > 1:
            indices = tf.reshape(indices[:, tf.newaxis] * pieces + tf.range(pieces, dtype=tf.int64), [-1])
        number = tf.size(indices, tf.int64)
        total = tf.raw_ops.SparseTensorDenseMatMul(
            a_indices=tf.stack([indices, tf.range(number)], axis=1),
            a_values=tf.reshape(tf.broadcast_to(weights[:, tf.newaxis], [self._n, self._length() * pieces]), [-1]),
            a_shape=tf.stack([tf.constant(self._vocabulary * pieces, tf.int64), number]),
            b=tf.reshape(terms.keep(runs, weights), [positions * pieces, self._width // pieces]),
        )
        return tf.reshape(total, [self._vocabulary, self._width])

    def by_example(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Indices [n, positions] and values [n, positions, width]."""
        positions = self._positions
        if positions is None:
            positions = tf.shape(self._indices)[0] // tf.maximum(self._n, 1)
        shape = [self._n, positions]
        return tf.reshape(self._indices, shape), tf.reshape(self._values, [*shape, self._width])

    def row_norms(self, weights: tf.Tensor, width: int) -> tf.Tensor | None:
        """sum_k |weights_k row of g_k| for all rows of the table; None where `width` is not that of a row.

        Positions of one example that look up the same row are added up before the norm is taken.
        """
        if width != self._width:
            return None
        positions = tf.shape(self._indices)[0]
        each = tf.maximum(positions // tf.maximum(self._n, 1), 1)
        keys = tf.cast(self._indices, tf.int64) + self._vocabulary * tf.cast(tf.range(positions) // each, tf.int64)
        distinct, lookups = tf.unique(keys)
        runs = tf.reshape(self._values, [self._n, positions * self._width // tf.maximum(self._n, 1)])
        values = tf.math.multiply_no_nan(runs, tf.reshape(weights, [-1, 1]))
        values = tf.reshape(values, [positions, self._width])
        norms = tf.norm(tf.math.unsorted_segment_sum(values, lookups, tf.size(distinct)), axis=1)
        return tf.math.unsorted_segment_sum(norms, distinct % self._vocabulary, self._vocabulary)

    def examples(self) -> Examples:
        size = self._vocabulary * self._width

        def make(arrays: list[tf.Tensor]) -> tf.Tensor:
            indices, values = arrays
            count, positions = tf.shape(indices)[0], tf.shape(indices)[1]
            places = tf.cast(indices, tf.int64) + self._vocabulary * tf.range(tf.cast(count, tf.int64))[:, tf.newaxis]
            flat = tf.reshape(values, [count * positions, self._width])
            table = tf.scatter_nd(
                tf.reshape(places, [-1, 1]), flat, tf.cast([count * self._vocabulary, self._width], tf.int64)
            )
            return tf.reshape(table, [count, size])

        return Examples(list(self.by_example()), make, 2 * size)

    def bounds(self) -> Examples | None:
        return None if self._positions == 1 else cancelling.of_absolutes(self.examples())

    @classmethod
    def longer(cls, parts: Sequence[Lookup]) -> Lookup:
        """Several look-ups of one table are one, of all their positions."""
        first = parts[0]
        indices, values = (list(column) for column in zip(*(part.by_example() for part in parts)))
        indices = tf.reshape(tf.concat([tf.cast(part, tf.int64) for part in indices], axis=1), [-1])
        values = tf.reshape(tf.concat(values, axis=1), [tf.shape(indices)[0], first._width])
        known = [part._positions for part in parts]
        return cls(first._n, first.shape, indices, values, None if None in known else sum(known))  # type: ignore[arg-type]


def _pieces(width: int) -> int:
    """Into how many rows each row is cut before rows are added up.

    TensorFlow 2.21 adds up short rows in a sixth of the time, by another loop; in 2.15 long ones are as fast.
    """
    if _LONGEST is None or width <= _LONGEST:
        return 1
    return next(pieces for pieces in range(2, width + 1) if width % pieces == 0 and width // pieces <= _LONGEST)


def _inside(indices: tf.Tensor, values: tf.Tensor, vocabulary: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Without the rows that no table has: a sum by segments drops them, and here they would be another example's."""
    valid = (indices >= 0) & (indices < vocabulary)
    # The indices by themselves: what is computed from them alone need not wait for the values.
    inside = tf.cond(tf.reduce_all(valid), lambda: values, lambda: tf.where(valid[:, tf.newaxis], values, 0.0))
    return tf.where(valid, indices, 0), inside


def looked_up_for_all(n: tf.Tensor, shape: tf.TensorShape, indices: tf.Tensor, gradients: tf.Tensor) -> Lookup:
    """The term where all examples use the same rows of a table.

    Args:
      n: how many microbatches there are.
      shape: the table's.
      indices: of the rows, in any shape: the same for all examples.
      gradients: [n, indices * width], of the rows that were looked up, by microbatch.
    """
    indices, width = tf.reshape(indices, [-1]), shape[1:].num_elements()
    positions = tf.shape(indices)[0]
    values = tf.reshape(tf.cast(gradients, tf.float32), [n * positions, width])
    everybody = tf.tile(indices, [n])
    everybody, values = _inside(everybody, values, shape[0])
    return Lookup(n, (shape[0], width), everybody, values, indices.shape[0])


@rule(SPARSE)
def _lookup(ctx: Context, gradient: tf.IndexedSlices, shape: tf.TensorShape) -> Found:
    label = lead(ctx, gradient.values)
    if label.outer != 1:
        raise Unknown("is not followed between SpaceToBatchND and BatchToSpaceND")
    if ctx.label(gradient.indices) is not None:
        raise Unknown("looks up rows that depend on the gradient")
    if not shape.is_fully_defined() or shape.rank < 1:
        raise Unknown("has a shape that is only known at run time")
    rows = Rows(ctx, label)
    values, facts = gradient.values, facts_about(ctx, label, gradient.values, rows)
    indices = tf.reshape(gradient.indices, [-1])
    width = shape[1:].num_elements()
    values = tf.reshape(tf.cast(values, tf.float32), [tf.shape(indices)[0], width])
    indices, values = _inside(indices, values, shape[0])
    return Found(Lookup(ctx.n, (shape[0], width), indices, values, rows.per_microbatch), facts)
