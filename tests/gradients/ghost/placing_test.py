"""`ghost.placing`: what an op does to the gradients of parts, it does to those of each example."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.gradients.ghost import placing
from adaclip_tf.gradients.ghost.labels import Unknown

PARTS = np.arange(36, dtype=np.float32).reshape(3, 2, 6)  # of three examples, [2, 6] each
CASES = {
    "one after another": (lambda g: tf.raw_ops.Pack(values=[g, -g], axis=0), 2),
    "side by side": (lambda g: tf.raw_ops.Pack(values=[g, -g], axis=-1), 2),
    "joined": (lambda g: tf.concat([g, -g, g], axis=-1), 3),
    "a part of a variable": (
        lambda g: tf.raw_ops.StridedSliceGrad(
            shape=[4, 8], begin=[1, 0], end=[0, 6], strides=[2, 1], dy=g, begin_mask=0, end_mask=1
        ),
        1,
    ),
}


def _op(make):
    """The op that `make` makes of one example's gradient, and its function for all."""
    with tf.Graph().as_default():
        op = make(tf.constant(PARTS[0])).op
        return op, placing.place(op)


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_parts_lie_where_the_op_puts_them(name):
    make, number = CASES[name]
    _, placed = _op(make)
    parts = [tf.constant(PARTS * sign) for sign in (1.0, -1.0, 1.0)[:number]]
    one_by_one = np.stack([make(tf.constant(part)).numpy() for part in PARTS])
    np.testing.assert_array_equal(placed(parts), one_by_one)


def test_places_that_are_only_known_at_run_time_are_unknown():
    with tf.Graph().as_default():
        axis = tf.compat.v1.placeholder(tf.int32, [])
        with pytest.raises(Unknown, match="only known at run time"):
            placing.place(tf.concat([tf.constant(PARTS), tf.constant(PARTS)], axis=axis).op)
