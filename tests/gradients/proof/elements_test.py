"""What is drawn from a dataset, and where."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.gradients import proof

DATA = tf.data.Dataset.from_tensor_slices(np.ones([8, 4], np.float32)).batch(8).repeat()


def _proof(function):
    """Of a step whose loss is computed from a batch and `function(iterator, batch)`."""
    found = []

    @tf.function(autograph=False)
    def step(iterator):
        x = next(iterator)
        found.append(proof.prove(tf.reduce_sum(x * function(iterator, x), axis=1)))

    step.get_concrete_function(iter(DATA))
    return found[0]


def _in_a_loop(iterator, x):
    def body(i, total):
        return i + 1, total + tf.reduce_mean(next(iterator))

    return tf.while_loop(lambda i, _: i < 2, body, (tf.constant(0), tf.constant(0.0)))[1]


def _in_a_function(iterator, x):
    return tf.function(lambda iterator: tf.reduce_mean(next(iterator), axis=0), autograph=False)(iterator)


def _filled(iterator, x):
    """A branch that fills an optional with what it likes, and takes that out."""
    optional = iterator.get_next_as_optional()
    centered = x - tf.reduce_mean(x, axis=0)
    return tf.cond(
        optional.has_value(), lambda: tf.experimental.Optional.from_value(centered).get_value(), optional.get_value
    )


def _told_by_data(iterator, x):
    """Which batch it is hangs on this one."""
    optional = iterator.get_next_as_optional()
    return tf.cond(tf.reduce_sum(x) > 0.0, optional.get_value, lambda: tf.zeros([0, 4]))


DRAWS = {
    "in a function": _in_a_function,
    "in a branch": lambda iterator, x: tf.cond(
        tf.random.uniform([]) < 0.5, lambda: tf.reduce_mean(next(iterator)), lambda: 1.0
    ),
    "in a loop": _in_a_loop,
    "of an optional that a branch fills": _filled,
    "told by data": _told_by_data,
}


@pytest.mark.parametrize("name", DRAWS)
def test_what_is_drawn_further_in_is_not_public(name):
    with pytest.raises(ValueError, match=r"one example changes others"):
        _proof(DRAWS[name])


def test_what_is_drawn_in_the_step_is_data():
    found = _proof(lambda iterator, x: next(iterator))
    assert found.unproven is None and len(found.data) == 2


def test_an_element_that_may_be_missing_is_data():
    def another(iterator, x):
        optional = iterator.get_next_as_optional()
        return tf.cond(optional.has_value(), optional.get_value, lambda: tf.zeros([0, 4]))

    found = _proof(another)
    assert found.unproven is None and len(found.data) == 2
