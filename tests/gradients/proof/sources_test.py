"""`proof.sources`: which constants tell nothing of places."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.gradients.proof import sources


@pytest.mark.parametrize(
    ("value", "expected"), [([[3.0]], True), ([2.0, 2.0], True), ([2.0, 3.0], False), (np.zeros([0]), False)], ids=str
)
def test_constants_that_are_one_number_are_alike_everywhere(value, expected):
    with tf.Graph().as_default():
        assert sources.is_one_number(tf.constant(value)) is expected


_READERS = {
    "shape": (lambda c: tf.reshape(tf.zeros([6]), c), True),
    "part of a shape of 64 bits": (lambda c: tf.cast(c, tf.int64)[:1], True),
    "extents of a shape of 64 bits": (lambda c: tf.gather(tf.cast(c, tf.int64), [1, 0]), True),
    "shape of what a list holds": (lambda c: tf.raw_ops.TensorListReserve(
        element_shape=c, num_elements=tf.constant(3), element_dtype=tf.float32
    ), True),
    "numbers": (lambda c: c + 1, False),
    "numbers of 64 bits": (lambda c: tf.cast(c, tf.int64) * 2, False),
    "numbers of 64 bits that are given back": (lambda c: tf.cast(c, tf.int64), False),
}  # fmt: skip


@pytest.mark.parametrize(("use", "expected"), _READERS.values(), ids=_READERS)
def test_constants_that_are_shapes_are_told_by_what_reads_them(use, expected):
    with tf.Graph().as_default():
        constant = tf.constant([2, 3])
        use(constant)
        assert sources._is_structural(constant) is expected
