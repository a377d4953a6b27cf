"""Every way into an optimizer by which gradients that are not private could come."""

import copy

import numpy as np
import pytest
import tensorflow as tf

import adaclip_tf
from adaclip_tf._internal import keras

ARGUMENTS = {"l2_norm_clip": 1.0, "noise_multiplier": 1.0, "expected_batch_size": 4}
OPTIMIZERS = {
    "sgd": lambda: adaclip_tf.DPFixedClipSGD(0.1, **ARGUMENTS),
    "wrapped": lambda: adaclip_tf.DPFixedClip(tf.keras.optimizers.Adam(0.1), **ARGUMENTS),
}


def _built(name):
    optimizer, variable = OPTIMIZERS[name](), tf.Variable(tf.ones([3]))
    optimizer.build([variable])
    return optimizer, variable


def _entrances(optimizer, variable):
    raw = tf.ones([3])
    rate = [tf.constant(0.1)] if keras.GENERATION == 3 else []
    entrances = {
        "apply_gradients": lambda: optimizer.apply_gradients([(raw, variable)]),
        "update": lambda: optimizer.update([(raw, variable)]),
        "update_step": lambda: optimizer.update_step(raw, variable, *rate),
        "move": lambda: optimizer.move(raw, variable, 0.1),
    }
    if keras.GENERATION == 3:
        entrances["apply"] = lambda: optimizer.apply([raw], [variable])
    return entrances


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_raw_gradients_are_refused_by_every_entrance(name):
    optimizer, variable = _built(name)
    for entrance, call in _entrances(optimizer, variable).items():
        with pytest.raises(ValueError, match="private"):
            call()
        np.testing.assert_array_equal(variable, np.ones(3), err_msg=entrance)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_they_are_refused_after_a_step_too(name):
    """Keras keeps compiled updates."""
    optimizer, variable = _built(name)
    optimizer.minimize(lambda x: tf.reduce_sum(x * variable, axis=1), [variable], data=(tf.ones([4, 3]),))
    before = variable.numpy()
    for entrance, call in _entrances(optimizer, variable).items():
        with pytest.raises(ValueError, match="private"):
            call()
        np.testing.assert_array_equal(variable, before, err_msg=entrance)


def test_a_copy_made_from_the_configuration_draws_noise_of_its_own():
    optimizer, variable = _built("sgd")
    other = type(optimizer).from_config(copy.deepcopy(optimizer.get_config()))
    moves = []
    for each in (optimizer, other):
        start = variable.numpy()
        each.minimize(lambda x: tf.reduce_sum(x * variable, axis=1), [variable], data=(tf.zeros([4, 3]),))
        moves.append(variable.numpy() - start)
    assert not np.any(moves[0] == moves[1])


def test_a_batch_that_the_loss_closes_over_is_refused():
    optimizer, variable = _built("sgd")
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    eager = tf.constant(x)
    losses = [
        lambda rows: tf.reduce_sum((rows - tf.reduce_mean(eager, axis=0)) * variable, axis=1),
        lambda rows: tf.reduce_sum((rows - tf.reduce_mean(x, axis=0)) * variable, axis=1),
    ]
    for loss in losses:
        with pytest.raises(ValueError, match="does not get as an argument"):
            optimizer.minimize(loss, [variable], data=(x,))
    y = tf.constant(x[:, 0])
    for data in ((x, y + 1.0), (y,)):
        with pytest.raises(ValueError, match="does not get as an argument"):
            optimizer.minimize(
                lambda rows, *_: (tf.reshape(rows, [4, -1])[:, 0] - y) * variable[0], [variable], data=data
            )
    row = tf.constant(x[:1])  # of a batch of one, it may be anything
    optimizer.minimize(lambda rows: tf.reduce_sum(rows * row * variable, axis=1), [variable], data=(x[1:2],))
    table = tf.constant(x[:3])
    optimizer.minimize(lambda rows: tf.reduce_sum(rows @ table * variable, axis=1), [variable], data=(x,))


def test_a_number_among_the_data_is_refused_and_not_shown():
    """It may have been computed from all examples, and each would see it."""
    optimizer, variable = _built("sgd")
    x = tf.ones([4, 3])
    for number in (tf.reduce_sum(x), 12.25):
        with pytest.raises(ValueError, match="a single number at place 1") as error:
            optimizer.minimize(lambda rows, n: tf.reduce_sum(rows * n * variable, axis=1), [variable], data=(x, number))
        assert "12" not in str(error.value)


@pytest.mark.parametrize("accumulation_steps", [1, 2])
def test_a_batch_that_must_be_refused_ends_training_in_xla_too(accumulation_steps):
    """XLA drops assertions. A sum of nothing would tell nine examples from eight, which are a right batch."""
    optimizer = adaclip_tf.DPFixedClipSGD(0.1, **ARGUMENTS, accumulation_steps=accumulation_steps)
    variable = tf.Variable(tf.ones([3]))
    optimizer.build([variable])
    first = lambda x: tf.reduce_sum(x * variable, axis=1)[:8]  # noqa: E731
    spec = tf.TensorSpec([None, 3])
    step = tf.function(lambda x: optimizer.minimize(lambda: first(x), [variable]), [spec], jit_compile=True)
    for _ in range(accumulation_steps):
        step(tf.ones([8, 3]))
    assert np.all(np.isfinite(variable))
    step(tf.ones([9, 3]))
    for _ in range(accumulation_steps - 1):
        step(tf.ones([8, 3]))
    assert np.all(np.isnan(variable))
