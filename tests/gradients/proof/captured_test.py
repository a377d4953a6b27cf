"""Public arrays from further out, as long as the batch: one example that is run alone must not see how long."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import DPFixedClipSGD

X = np.arange(24, dtype=np.float32).reshape([8, 3]) / 8.0
WEIGHTS = tf.Variable(np.linspace(-1.0, 1.0, 3).astype(np.float32))


def _by_number(x, array):
    return tf.cond(tf.reduce_sum(array) > 7.5, lambda: x, lambda: -x)


def _by_length(x, array):
    return tf.cond(tf.shape(array)[0] > 7, lambda: x, lambda: -x)


def _each_its_own(x, array):
    return tf.map_fn(lambda one: tf.tanh(one[0]) * one[1], (x, array), fn_output_signature=tf.float32)


def _moved(make_array, use, rows, path="auto"):
    """How one step without noise moves the weights; the array is made outside of the step's function."""
    WEIGHTS.assign(np.linspace(-1.0, 1.0, 3))
    optimizer = DPFixedClipSGD(
        1.0, l2_norm_clip=0.5, noise_multiplier=0.0, expected_batch_size=8, gradient_path=path, seed=1
    )
    optimizer.build([WEIGHTS])

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def outer(x):
        array = make_array(tf.shape(x)[0])

        @tf.function
        def step():
            loss = tf.tanh(tf.reduce_sum(use(x, array) * WEIGHTS, axis=1))
            optimizer.minimize(loss, [WEIGHTS])

        step()

    before = WEIGHTS.numpy()
    outer(rows)
    return WEIGHTS.numpy() - before


@pytest.mark.parametrize(
    ("use", "path"), [(_by_number, "auto"), (_by_length, "auto"), (_each_its_own, "auto"), (_by_number, "jacobian")]
)
def test_an_example_sees_its_row_of_ones(use, path):
    whole = _moved(lambda n: tf.ones([n]), use, X, path)
    assert np.linalg.norm(whole) > 0.1
    for k in (0, 7):
        left = _moved(lambda n: tf.ones([n]), use, np.delete(X, k, axis=0), path)
        assert np.linalg.norm(whole - left) <= 0.5 / 8 * (1 + 1e-4)


def test_draws_from_further_out_are_one_for_each():
    """An example alone has one of them, so that its loss has one entry."""
    assert np.all(np.isfinite(_moved(lambda n: tf.random.normal([n]), _each_its_own, X, "jacobian")))


@pytest.mark.parametrize("make_array", [lambda n: tf.random.stateless_uniform([n], [1, 2]), lambda n: tf.ones([3, n])])
def test_what_is_longer_in_another_way_is_refused(make_array):
    with pytest.raises(ValueError, match="is as long as the batch, and examples must be run alone"):
        _moved(make_array, _by_number, X)
