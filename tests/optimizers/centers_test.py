"""Tests of `adaclip_tf.optimizers.centers`: only what is 0 in every state is taken for 0."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import core
from adaclip_tf.optimizers import centers

SPECS = [tf.TensorSpec([3, 2], tf.float32, "kernel"), tf.TensorSpec([2], tf.float32, "bias")]


class _HalfCentered(core.ClippingRule):
    """a = 0 for the first variable; for the second, a scalar that is 0 at the start and may be another number later."""

    def initial_state(self, specs):
        return {"mean": tf.constant(0.0)}

    def transform(self, state, specs):
        return core.Transform([tf.constant(0.0), state["mean"]], [tf.constant(1.0)] * 2)


class _Fixed(_HalfCentered):
    """Constants, with an entry for each unit: only a number that is 0 stands for zeros everywhere."""

    def transform(self, state, specs):
        return core.Transform([tf.constant([0.0, 1.0]), tf.constant([0.0, 0.0])], [tf.constant(1.0)] * 2)


@pytest.mark.parametrize(
    ("rule", "zeros"),
    [
        (core.FixedClip(1.0), [True, True]),
        (core.ScaledClip(core.Scales(1.0, [np.ones([3, 1]), np.ones([1])])), [True, True]),
        (core.AdaClip(), [False, False]),  # m is 0 at the start, as a value of a variable
        (_HalfCentered(), [True, False]),
        (_Fixed(), [False, False]),
    ],
)
def test_what_is_known_to_be_zero(rule, zeros):
    state = tf.nest.map_structure(tf.Variable, rule.initial_state(SPECS))
    compiled = tf.function(lambda state, trained: rule.transform(state, SPECS), jit_compile=True)
    found = []

    @tf.function
    def step():
        values = tf.nest.map_structure(lambda variable: variable.value(), state)
        transform = centers.transform(compiled, values, (0, 1))
        found.extend(tf.get_static_value(center) is not None for center in transform.center)
        return transform

    transform, expected = step(), rule.transform(tf.nest.map_structure(lambda v: v.value(), state), SPECS)
    assert found == zeros
    for one, other in zip(tf.nest.flatten(transform), tf.nest.flatten(expected)):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_what_stands_in_the_state_is_taken_from_there():
    """Each center is its own variable's m, no copy of it, and no other variable's."""
    state = core.AdaClip().initial_state(SPECS)
    values = iter(range(1, 9))
    state = tf.nest.map_structure(lambda tensor: tf.zeros_like(tensor) + float(next(values)), state)
    compiled = tf.function(lambda state, trained: core.AdaClip().transform(state, SPECS), jit_compile=True)
    transform, expected = centers.transform(compiled, state, (0, 1)), core.AdaClip().transform(state, SPECS)
    for one, other in zip(tf.nest.flatten(transform), tf.nest.flatten(expected)):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    given = [id(tensor) for tensor in tf.nest.flatten(state)]
    assert all(id(center) in given for center in transform.center)
