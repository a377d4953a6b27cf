"""Single numbers that a step is given from further out: they must be public where a step needs them."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.gradients import proof

W = tf.Variable(np.linspace(-1.0, 1.0, 3).astype(np.float32))
KEPT = tf.Variable(0.0)
SPEC = [tf.TensorSpec([None, 3])]
REFUSED = pytest.raises(ValueError, match=r"in which a step is taken, .* the number .* must be public")

TOLD = {
    "a sum of the data": tf.reduce_sum,
    "how many examples there are": lambda x: tf.where(tf.shape(x)[0] > 7, 1.0, -1.0),
}
PUBLIC = {
    "a constant": lambda x: tf.constant(0.5),
    "a variable": lambda x: KEPT * 2.0,
    "how many features there are": lambda x: tf.cast(tf.shape(x)[1], tf.float32),
}


def _step(x, number):
    proof.prove(tf.reduce_sum(x * W, axis=1) * number)
    return tf.constant(0.0)


def _handed_through(x, number):
    proof.prove(tf.reduce_sum(x * W, axis=1))
    return number + 1.0


def _written(x, number):
    proof.prove(tf.reduce_sum(x * W, axis=1))
    KEPT.assign(number)
    return tf.constant(0.0)


def _measured(metric):
    def step(x, number):
        proof.prove(tf.reduce_sum(x * W, axis=1))
        metric.update_state(number)
        return tf.constant(0.0)

    return step


def _traced(function):
    tf.function(function, input_signature=SPEC, autograph=False).get_concrete_function()


def _nested(step, number):
    inner = tf.function(step, autograph=False)
    return lambda x: inner(x, number(x))


def _by_name(step, number):
    inner = tf.function(step, autograph=False)
    return lambda x: inner(number=number(x), x=x)


def _further_out(step, number):
    inner = tf.function(step, autograph=False)
    between = tf.function(lambda x, number: inner(x, number + 1.0), autograph=False)
    return lambda x: between(x, number(x))


def _captured_between(step, number):
    def between(x, number):
        return tf.function(lambda x: step(x, number), autograph=False)(x)

    return lambda x: tf.function(between, autograph=False)(x, number(x))


NESTED = (_nested, _by_name, _further_out, _captured_between)


@pytest.mark.parametrize("number", TOLD.values(), ids=TOLD)
@pytest.mark.parametrize("nested", NESTED)
@pytest.mark.parametrize("step", [_step, _written])
def test_a_number_that_tells_of_the_batch_is_refused(step, nested, number):
    with REFUSED:
        _traced(nested(step, number))


@pytest.mark.parametrize("number", PUBLIC.values(), ids=PUBLIC)
@pytest.mark.parametrize("nested", NESTED)
def test_public_numbers_are_handed_on(nested, number):
    _traced(nested(_step, number))


@pytest.mark.parametrize("nested", NESTED)
def test_what_the_step_does_not_need_may_be_anything(nested):
    _traced(nested(_handed_through, TOLD["a sum of the data"]))
    metric = tf.keras.metrics.Mean()
    metric.update_state(1.0)
    _traced(nested(_measured(metric), TOLD["a sum of the data"]))


def _rounds(next_state, used):
    """Rounds that draw a batch each, and hand on two numbers."""
    batches = tf.data.Dataset.from_tensor_slices(np.ones([8, 3], np.float32)).batch(4)
    iterator = iter(batches)

    def round_of(i, first, second):
        rows = tf.ensure_shape(next(iterator), [None, 3])
        _step(rows, (first, second, tf.constant(1.0))[used])
        return i + 1, *next_state(rows, first, second)

    def loop():
        tf.while_loop(lambda i, *_: i < 2, round_of, (tf.constant(0), tf.constant(0.0), tf.constant(0.0)))

    tf.function(loop, autograph=False).get_concrete_function()


@pytest.mark.parametrize("told", TOLD.values(), ids=TOLD)
def test_rounds_hand_on_nothing_of_a_batch_that_a_step_needs(told):
    with REFUSED:
        _rounds(lambda rows, first, second: (told(rows), second), used=0)
    with REFUSED:  # two rounds later
        _rounds(lambda rows, first, second: (second * 2.0, told(rows)), used=0)


def test_rounds_may_add_up_what_no_step_needs():
    _rounds(lambda rows, first, second: (first + tf.reduce_sum(rows), second + 1.0), used=2)
    _rounds(lambda rows, first, second: (first + tf.reduce_sum(rows), second + 1.0), used=1)


def test_a_loop_starts_from_something_public():
    batches = tf.data.Dataset.from_tensor_slices(np.ones([8, 3], np.float32)).batch(4)
    iterator = iter(batches)

    def round_of(i, number):
        _step(tf.ensure_shape(next(iterator), [None, 3]), number)
        return i + 1, number

    def loop(x):
        tf.while_loop(lambda i, _: i < 2, round_of, (tf.constant(0), tf.reduce_sum(x)))

    with REFUSED:
        _traced(loop)
