"""Rows of a table that one example looks up more than once."""

from __future__ import annotations

import tensorflow as tf


class Places:
    """Which of the rows that examples look up are looked up by the same example again.

    Most rows are looked up once, and adding up is slow: only what repeats is taken out and added up.

    Args:
      n: how many examples there are.
      length: positions of each.
      indices: [n * length].
      vocabulary: rows of the table.
    """

    def __init__(self, n: tf.Tensor, length: tf.Tensor, indices: tf.Tensor, vocabulary: int):
        self._n = n
        indices = tf.reshape(tf.cast(indices, tf.int64), [n, length])
        keys = tf.reshape(indices + vocabulary * tf.range(tf.cast(n, tf.int64))[:, tf.newaxis], [-1])
        distinct, lookups, counts = tf.unique_with_counts(keys)
        times = tf.gather(counts, lookups)
        self._repeats, self.counts = times > 1, tf.cast(times, tf.float32)
        self._positions = tf.where(self._repeats)[:, 0]
        repeated, self._groups = tf.unique(tf.gather(lookups, self._positions))
        keys = tf.gather(distinct, repeated)
        self._examples, self.rows = keys // vocabulary, keys % vocabulary  # of what is added up

    def add_up(self, values: tf.Tensor) -> tf.Tensor:
        """The sums of the values [n * length, width] whose rows repeat, one for each of `rows`."""
        return tf.math.unsorted_segment_sum(tf.gather(values, self._positions), self._groups, tf.size(self.rows))

    def total(self, by_position: tf.Tensor, by_row: tf.Tensor) -> tf.Tensor:
        """For each example, the sum over the positions whose rows do not repeat and over its `rows`."""
        once = sums_by_example(tf.where(self._repeats, 0.0, by_position), self._n)
        return once + tf.math.unsorted_segment_sum(by_row, self._examples, self._n)


def sums_by_example(values: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
    """The sum of everything in each example's part of the leading axis."""
    floats = tf.size(values) // tf.maximum(n, 1)
    return tf.reduce_sum(tf.reshape(values, [n, floats]), axis=1)
