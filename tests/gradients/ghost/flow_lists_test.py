"""Loops and lists of gradients: what is not linear in the seed, or moves examples, has no label."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.gradients.ghost import flow, flow_lists
from adaclip_tf.gradients.ghost.labels import Context, Inner, Lead, Listed, Lost


def label_of(function, shape=(3, 2)):
    """The label of what `function` makes of a gradient [n, 2], in a graph of its own."""
    with tf.Graph().as_default():
        seed = tf.identity(tf.ones(shape[:1]))
        ctx = Context(seed, None)
        result = function(tf.reshape(seed, [-1, 1]) * tf.ones([1, shape[1]]))
        flow.propagate(ctx, seed)
        return ctx.label(result)


def summed_up(start, step):
    return lambda dy: tf.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, step(h, dy)), (0, start(dy)))[1]


def test_a_loop_that_starts_from_zero_is_linear():
    assert isinstance(label_of(summed_up(tf.zeros_like, lambda h, dy: h + 2.0 * dy)), Lead)


def test_a_loop_that_does_not_start_from_zero_is_not_linear():
    assert isinstance(label_of(summed_up(tf.ones_like, lambda h, dy: 2.0 * dy)), Lost)


def test_a_loop_that_leaves_zero_behind_is_not_linear():
    def step(i, c, h):
        return i + 1, c + 1.0, h + c + dy_of[0]

    dy_of = []

    def function(dy):
        dy_of.append(dy)
        return tf.while_loop(lambda i, c, h: i < 3, step, (0, tf.zeros([3, 2]), tf.zeros_like(dy)))[2]

    assert isinstance(label_of(function), Lost)


def test_a_loop_that_hands_labels_on_for_too_long_is_not_followed():
    """What depends on the gradient only after many rounds must not be taken for what does not."""

    def function(dy, states):
        def step(i, *handed_on):
            return i + 1, dy, *handed_on[:-1]

        return tf.while_loop(lambda i, *_: i < 9, step, (0, *[tf.zeros_like(dy)] * states))[-1]

    assert isinstance(label_of(lambda dy: function(dy, 2)), Lead)
    assert isinstance(label_of(lambda dy: function(dy, 9)), Lost)


@pytest.mark.parametrize("step", [lambda h, dy: h + tf.reverse(dy, [0]), lambda h, dy: tf.roll(h + dy, 1, axis=0)])
def test_a_loop_that_moves_examples_is_not_followed(step):
    assert isinstance(label_of(summed_up(tf.zeros_like, step)), Lost)


def test_a_loop_that_the_gradient_stops_is_not_linear():
    def function(dy):
        return tf.while_loop(lambda h: tf.reduce_sum(h) < 9.0, lambda h: (h + dy,), (tf.zeros_like(dy),))[0]

    assert isinstance(label_of(function), Lost)


def over_time(dy):
    """[time, n, 2], from a list."""
    elements = tf.raw_ops.EmptyTensorList(element_shape=[3, 2], max_num_elements=-1, element_dtype=tf.float32)
    for factor in (1.0, 2.0):
        elements = tf.raw_ops.TensorListPushBack(input_handle=elements, tensor=factor * dy)
    return tf.raw_ops.TensorListStack(
        input_handle=elements, element_shape=[3, 2], element_dtype=tf.float32, num_elements=2
    )


def test_lists_along_time_and_back():
    assert label_of(over_time) == Inner(1)
    back = label_of(lambda dy: tf.transpose(over_time(dy), [1, 0, 2]))
    assert isinstance(back, Lead) and back.axis == 0 and back.rows == 1
    assert isinstance(label_of(lambda dy: tf.reshape(over_time(dy), [-1, 2])), Lost)
    unknown = lambda: tf.compat.v1.placeholder(tf.int32, [3])  # noqa: E731
    assert isinstance(label_of(lambda dy: tf.transpose(over_time(dy), unknown())), Lost)
    assert isinstance(label_of(lambda dy: tf.reverse(over_time(dy), [1])), Lost)


def test_what_is_put_back_in_front_of_the_examples_leaves_them_apart():
    """Steps go where they were taken from; entries that are numbered along time and examples at once may meet."""
    put_back = lambda ids: label_of(lambda dy: tf.math.unsorted_segment_sum(over_time(dy), ids, 5))  # noqa: E731
    assert put_back([4, 0]) == Inner(1)
    assert isinstance(put_back([[4, 0, 1], [1, 1, 2]]), Lost)
    turned = lambda dy: tf.transpose(over_time(dy), [0, 2, 1])  # noqa: E731
    assert label_of(lambda dy: tf.math.unsorted_segment_sum(turned(dy), [[4, 0], [1, 1]], 5)) == Inner(1)


def test_a_list_that_was_a_tensor_takes_gradients_of_the_same_layout():
    """[time, n, 2] taken apart along time: two numbers of each example, as those that are put in have."""

    def function(dy):
        steps = tf.transpose(tf.reshape(tf.tile(dy, [1, 2]), [-1, 2, 2]), [1, 0, 2])
        elements = tf.raw_ops.TensorListFromTensor(tensor=steps, element_shape=[3, 2])
        elements = tf.raw_ops.TensorListSetItem(input_handle=elements, index=0, item=3.0 * dy)
        return tf.raw_ops.TensorListGetItem(
            input_handle=elements, index=0, element_shape=[3, 2], element_dtype=tf.float32
        )

    assert label_of(function) == Lead(0, 1, 2)


def test_a_list_of_other_things_is_not_linear():
    def function(dy):
        elements = tf.raw_ops.TensorListFromTensor(
            tensor=tf.constant(np.ones([2, 3, 2], np.float32)), element_shape=[3, 2]
        )
        elements = tf.raw_ops.TensorListPushBack(input_handle=elements, tensor=dy)
        return tf.raw_ops.TensorListGetItem(
            input_handle=elements, index=0, element_shape=[3, 2], element_dtype=tf.float32
        )

    assert isinstance(label_of(function), Lost)


def test_a_list_with_an_element_for_each_example_is_not_followed():
    def function(dy):
        elements = tf.raw_ops.TensorListFromTensor(tensor=dy, element_shape=[2])
        return tf.raw_ops.TensorListGetItem(input_handle=elements, index=0, element_shape=[2], element_dtype=tf.float32)

    assert isinstance(label_of(function), Lost)


def test_one_label_for_two_forgets_what_only_one_knows_and_keeps_the_checks_of_both():
    first, second = Lead(0, 2, 6, 1, frozenset({1})), Lead(0, None, 6, 1, frozenset({2}))
    both = Lead(0, None, 6, 1, frozenset({1, 2}))
    assert flow_lists._of_both(first, second) == both == flow_lists._of_both(second, first)
    assert flow_lists._of_both(Listed(first), Listed(second)) == Listed(both)
    assert flow_lists._of_both(Inner(1, 2, frozenset({1})), Inner(1, 3, frozenset({2}))) == Inner(
        1, None, frozenset({1, 2})
    )
    for other in (Lead(1), Lead(0, 2, 6, 4), Inner(0), Listed(first), None):
        assert flow_lists._of_both(first, other) is None


@pytest.mark.parametrize("put,linear", [(0.0, True), (1.0, False)])
def test_a_list_is_zero_as_long_as_zeros_are_put_in(put, linear):
    def function(dy):
        empty = tf.raw_ops.TensorListReserve(element_shape=[3, 2], num_elements=2, element_dtype=tf.float32)
        filled = tf.raw_ops.TensorListSetItem(input_handle=empty, index=0, item=tf.fill([3, 2], put))
        element = tf.raw_ops.TensorListGetItem(
            input_handle=filled, index=0, element_shape=[3, 2], element_dtype=tf.float32
        )
        return dy + element

    assert isinstance(label_of(function), Lead if linear else Lost)
