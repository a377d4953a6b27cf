"""Tests of `adaclip_tf._internal.made`: the same tensors as TensorFlow's, by fewer ops."""

import numpy as np
import tensorflow as tf

from adaclip_tf._internal import made


def test_constants_are_shared_by_value_shape_and_dtype():
    with tf.Graph().as_default():
        assert made.constant([1, 2]) is made.constant((1, 2))
        different = [
            ([1, 2], tf.int32),
            ([1, 2], tf.int64),
            ([[1, 2]], tf.int32),
            ([2, 1], tf.int32),
            (-0.0, tf.float32),
        ]
        different.append((0.0, tf.float32))
        assert len({id(made.constant(*pair)) for pair in different}) == len(different)


def test_every_graph_has_its_own():
    graphs = [tf.Graph(), tf.Graph()]
    for current in graphs:
        with current.as_default():
            assert made.constant(3).graph is current
    assert made.constant(3).numpy() == 3  # eagerly
    assert made.reshape(tf.ones([2, 3]), [-1]).shape == [6]


def test_inside_of_a_branch_outer_tensors_are_captured():
    @tf.function(autograph=False)
    def both(x, flag):
        inside = tf.cond(
            flag, lambda: made.reshape(x, [3, 2]) + made.constant(1.0, tf.float32), lambda: tf.zeros([3, 2])
        )
        return inside, made.reshape(x, [3, 2]) + made.constant(1.0, tf.float32)

    x = tf.reshape(tf.range(6.0), [2, 3])
    inside, outside = both(x, tf.constant(True))
    np.testing.assert_array_equal(inside, outside)
    np.testing.assert_array_equal(outside, tf.reshape(x, [3, 2]) + 1.0)


def test_shapes_of_the_run():
    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, 3, None])])
    def shapes(x):
        rows, columns = made.extent(x, 0), made.extent(x, 2)
        assert made.extent(x, 1) == 3
        assert made.extent(x, 0) is rows
        assert made.reshape(x, [rows, -1]) is made.reshape(x, [rows, -1])
        assert made.reshape(x, [rows, -1]) is not made.reshape(x, [columns, -1])
        return made.vector(made.extents(x)), made.reshape(x, [columns, rows, 3])

    vector, reshaped = shapes(tf.ones([2, 3, 4]))
    assert vector.numpy().tolist() == [2, 3, 4]
    assert reshaped.shape == [4, 2, 3]


def test_a_reshape_to_the_same_shape_is_no_op():
    with tf.Graph().as_default():
        matrix, vector = tf.ones([2, 3]), tf.ones([6])
        assert made.reshape(matrix, [2, 3]) is matrix
        assert made.reshape(vector, [-1]) is vector
        assert made.reshape(matrix, [3, 2]) is not matrix
        unknown = tf.compat.v1.placeholder(tf.float32, [None, 3])
        assert made.reshape(unknown, [2, 3]) is not unknown


def test_what_was_reshaped_is_flat_again_without_an_op():
    @tf.function
    def step(flat, other):
        shaped = made.reshape(flat, [2, 3])
        assert made.reshape(shaped, [-1]) is flat
        assert made.reshape(shaped, [3, 2]).shape == [3, 2]
        assert made.reshape(made.reshape(other, [3, 2]), [-1]).shape == [6]
        inside = tf.cond(flat[0] > 0.0, lambda: made.reshape(shaped, [-1]), lambda: flat)
        return inside, made.reshape(shaped, [-1])

    values = tf.range(6.0)
    for result in step(values, tf.zeros([2, 3])):
        np.testing.assert_array_equal(result, values)
    np.testing.assert_array_equal(made.reshape(made.reshape(values, [2, 3]), [-1]), values)
