"""Tests of `examples.baselines`: each mechanism's clip, noise and accounting, worked out by hand."""

import math

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf

import adaclip_tf
from adaclip_tf import core
from adaclip_tf.optimizers import adaclip
from adaclip_tf.privacy import events
from examples import baselines

X = np.array([[3.0, -0.2], [0.0, 0.5], [-4.0, 4.0]], np.float32)
COMMON = {"learning_rate": 1.0, "noise_multiplier": 0.0, "expected_batch_size": 10}


class Output(tf.keras.losses.Loss):
    """The prediction itself."""

    def call(self, y_true, y_pred):
        return y_pred[:, 0]


def make_model(optimizer_, dimension=2):
    """The loss of example k is x_k . w with w = 0, so that its gradient is x_k."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model.build([None, dimension])
    model.compile(optimizer_, Output(reduction="none"))
    return model


def weights_after_a_step(optimizer_, x=X):
    model = make_model(optimizer_, x.shape[1])
    model.fit(x, np.zeros(len(x)), batch_size=len(x), verbose=0)
    return model.get_weights()[0][:, 0]


def test_per_coordinate_clipping_by_hand():
    """Clipped to [-1, 1]: (1, -0.2) + (0, 0.5) + (-1, 1) = (0, 1.3); over B = 10; minus, at learning rate 1."""
    weights = weights_after_a_step(baselines.DPPerCoordinateClipSGD(value_clip=1.0, **COMMON))
    np.testing.assert_allclose(weights, [0.0, -0.13], atol=1e-6)


def test_per_coordinate_clipping_counts_nan_as_zero_and_infinity_as_the_clip():
    x = np.array([[np.nan, 0.5], [np.inf, 0.25]], np.float32)
    weights = weights_after_a_step(baselines.DPPerCoordinateClipSGD(value_clip=1.0, **COMMON), x)
    assert np.isfinite(weights).all()
    assert np.abs(weights * 10).max() <= 2.0


def test_per_coordinate_noise_is_z_c_sqrt_d():
    """20,000 coordinates, no gradient: the weights are noise of standard deviation z C sqrt(d) / B."""
    dimension, clip, z = 20_000, 0.01, 1.5
    optimizer_ = baselines.DPPerCoordinateClipSGD(
        1.0, value_clip=clip, noise_multiplier=z, expected_batch_size=10, seed=1
    )
    weights = weights_after_a_step(optimizer_, np.zeros([2, dimension], np.float32))
    expected = z * clip * math.sqrt(dimension) / 10
    ratio = np.std(weights) / expected
    assert abs(ratio - 1.0) < 0.03
    assert not abs(ratio * 2 / 3 - 1.0) < 0.03 and not abs(ratio * 3 / 2 - 1.0) < 0.03
    np.testing.assert_allclose(optimizer_.private_metrics()["noise_norm"], expected * math.sqrt(dimension), rtol=1e-4)


def test_quantile_clip_by_hand():
    """Clip 1, no noise: (3, -0.2) / 3.00666 + (0, 0.5) + (-4, 4) / 5.65685.

    One of three is unclipped, and B = 10. tensorflow-privacy centres the count: (0.5 - 0.5 - 0.5) / 10 + 0.5 = 0.45. So
    the clip moves by the factor exp(-0.2 (0.45 - 0.5)).
    """
    optimizer_ = baselines.DPQuantileClipSGD(**{**COMMON, "noise_multiplier": 1e-9})
    optimizer_._query._quantile_estimator_query._below_estimate_query._numerator._stddev = 0.0
    weights = weights_after_a_step(optimizer_)
    total = X[0] / np.linalg.norm(X[0]) + X[1] + X[2] / np.linalg.norm(X[2])
    np.testing.assert_allclose(weights, -total / 10, atol=1e-5)
    np.testing.assert_allclose(optimizer_.private_metrics()["l2_norm_clip"], math.exp(0.01), rtol=1e-5)
    assert int(optimizer_.noised_steps) == 1


def test_quantile_clip_adapts_under_fit():
    """Gradients of norm 5 and a clip that starts at 1: after 30 steps it has grown past 4."""
    optimizer_ = baselines.DPQuantileClipSGD(0.0, noise_multiplier=0.5, expected_batch_size=100)
    model = make_model(optimizer_)
    x = np.tile(np.float32([[3.0, 4.0]]), [100, 1])
    model.fit(x, np.zeros(100), batch_size=100, epochs=30, verbose=0)
    assert 4.0 < float(optimizer_.private_metrics()["l2_norm_clip"]) < 7.0


def test_quantile_event_is_the_one_that_is_accounted_for():
    """The query's own event (sum and count) and one Gaussian of `noise_multiplier` have the same epsilon."""
    z = 1.3
    optimizer_ = baselines.DPQuantileClipSGD(noise_multiplier=z, expected_batch_size=60)
    query = optimizer_._query
    state = query.initial_global_state()
    sample = query.accumulate_record(
        query.derive_sample_params(state), query.initial_sample_state(tf.zeros([2])), tf.ones([2])
    )
    _, _, event = query.get_noised_result(sample, state)
    parts = [dp_accounting.GaussianDpEvent(float(part.noise_multiplier)) for part in event.events]
    theirs = adaclip_tf.epsilon_of(dp_accounting.ComposedDpEvent(parts), delta=1e-5)
    ours = adaclip_tf.epsilon_of(events.gaussian_event(z), delta=1e-5)
    assert theirs == pytest.approx(ours, rel=1e-4)


def test_quantile_needs_a_batch_that_carries_its_noise():
    with pytest.raises(ValueError, match=r"`noise_multiplier` must be below expected_batch_size / 10 = 2,.*; got 3\.0"):
        baselines.DPQuantileClipSGD(noise_multiplier=3.0, expected_batch_size=20)


def test_whitening_is_the_choice_of_the_core(rng):
    """b = sqrt(d / gamma) s: with s = initial_std everywhere, |b| = d s / sqrt(gamma)."""
    optimizer_ = baselines.DPWhiteningSGD(
        noise_multiplier=1.0, expected_batch_size=5, initial_std=0.01, gamma=0.25, h2=1.0
    )
    optimizer_.build([tf.Variable(tf.zeros([4, 3])), tf.Variable(tf.zeros([3]))])
    assert isinstance(optimizer_._choice, core.Whitening)
    np.testing.assert_allclose(optimizer_.private_metrics()["scale_norm"], 15 * 0.01 / 0.5, rtol=1e-5)


ALL = [
    baselines.DPWhiteningSGD(0.3, noise_multiplier=1.0, expected_batch_size=50, h2=0.5, gamma=0.5),
    baselines.DPPerCoordinateClipSGD(0.3, 0.5, noise_multiplier=1.0, expected_batch_size=50, value_clip=0.25),
    baselines.DPQuantileClipSGD(0.3, noise_multiplier=1.0, expected_batch_size=50, target_quantile=0.7),
]


@pytest.mark.parametrize("optimizer_", ALL, ids=lambda optimizer_: type(optimizer_).__name__)
def test_config_round_trip(optimizer_):
    copy = type(optimizer_).from_config(optimizer_.get_config())
    assert copy.get_config() == optimizer_.get_config()


@pytest.mark.parametrize("optimizer_", ALL[1:], ids=lambda optimizer_: type(optimizer_).__name__)
def test_microbatches_are_refused(optimizer_):
    for change in ({"num_microbatches": 5}, {"accumulation_steps": 2}):
        with pytest.raises(ValueError, match=f"has no `{next(iter(change))}`"):
            type(optimizer_).from_config({**optimizer_.get_config(), **change})


def test_state_is_saved_and_restored(tmp_path):
    first = make_model(baselines.DPQuantileClipSGD(0.1, noise_multiplier=1.0, expected_batch_size=50))
    first.fit(X, np.zeros(3), epochs=3, verbose=0)
    tf.train.Checkpoint(model=first).save(str(tmp_path / "checkpoint"))
    second = make_model(baselines.DPQuantileClipSGD(0.1, noise_multiplier=1.0, expected_batch_size=50))
    second.optimizer.build(second.trainable_variables)
    tf.train.Checkpoint(model=second).restore(tf.train.latest_checkpoint(str(tmp_path)))
    for name, value in first.optimizer.private_metrics().items():
        np.testing.assert_array_equal(value, second.optimizer.private_metrics()[name])
    assert int(second.optimizer.noised_steps) == 3


def test_they_are_used_where_the_librarys_own_are():
    assert all(isinstance(one, adaclip.DPOptimizer) for one in ALL)


def two_layers(optimizer_):
    """Loss x . (w1 + 2 w2): gradients x in the first layer and 2 x in the second, with weights of 0."""
    first = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", name="first")
    second = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", name="second")
    inputs = tf.keras.Input([2])
    model = tf.keras.Model(inputs, first(inputs) + 2.0 * second(inputs))
    model.compile(optimizer_, Output(reduction="none"))
    return model


def test_per_layer_clipping_by_hand():
    """Each layer of each example has norm 1 at most, whatever the other layer's is."""
    model = two_layers(baselines.DPPerLayerClipSGD(l2_norm_clip=1.0, **COMMON))
    model.fit(X, np.zeros(len(X)), batch_size=len(X), verbose=0)
    for factor, layer in ((1.0, "first"), (2.0, "second")):
        (weights,) = model.get_layer(layer).get_weights()
        gradients = factor * X
        norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        clipped = gradients / np.maximum(1.0, norms)
        np.testing.assert_allclose(weights[:, 0], -clipped.sum(axis=0) / 10, atol=1e-5)
    assert int(model.optimizer.noised_steps) == 1


def test_per_layer_noise_is_for_all_layers_together():
    """z C sqrt(L) / B on every coordinate: L = 2 layers of norm C have sensitivity C sqrt(2)."""
    optimizer_ = baselines.DPPerLayerClipSGD(
        1.0, l2_norm_clip=0.5, noise_multiplier=1.5, expected_batch_size=10, seed=1
    )
    inputs = tf.keras.Input([5000])
    outputs = tf.keras.layers.Dense(2, name="b", use_bias=False)(tf.keras.layers.Dense(2, name="a")(inputs))
    model = tf.keras.Model(inputs, outputs)
    model.compile(optimizer_, Output(reduction="none"))
    before = [weights.copy() for weights in model.get_weights()]
    model.fit(np.zeros([2, 5000], np.float32), np.zeros(2), batch_size=2, verbose=0)
    ratio = np.std(model.get_weights()[0] - before[0]) / (1.5 * 0.5 * math.sqrt(2) / 10)
    assert abs(ratio - 1.0) < 0.03
    assert not abs(ratio * math.sqrt(2) - 1.0) < 0.03  # the noise of one layer alone


def test_per_layer_clipping_needs_a_graph():
    model = two_layers(baselines.DPPerLayerClipSGD(l2_norm_clip=1.0, **COMMON))
    model.compile(model.optimizer, Output(reduction="none"), run_eagerly=True)
    with pytest.raises(ValueError, match="run_eagerly"):
        model.fit(X, np.zeros(len(X)), verbose=0)
