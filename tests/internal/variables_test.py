"""Variables that are made while a function is being traced."""

import pytest
import tensorflow as tf

from adaclip_tf._internal import variables


@pytest.mark.parametrize(("scope", "expected"), [(variables.made_at_once, 1), (tf.init_scope, 2)])
def test_a_function_that_makes_variables_is_traced_once(scope, expected):
    """`tf.init_scope`, the negative control, has TensorFlow trace a second time."""
    made, traces = [], []

    @tf.function
    def add(x):
        traces.append(1)
        if not made:
            with scope():
                made.append(tf.Variable(2.0, name="made", trainable=False))
        return made[0].assign_add(x)

    assert add(tf.constant(1.0)).numpy() == 3.0
    assert add(tf.constant(1.0)).numpy() == 4.0
    assert len(traces) == expected
    assert made[0].name == "made:0"
    assert not made[0].trainable


def test_variables_under_a_strategy_are_the_strategys():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope(), variables.made_at_once():
        assert strategy.extended.variable_created_in_scope(tf.Variable(1.0))
