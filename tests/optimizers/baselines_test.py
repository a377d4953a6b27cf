"""Tests of the optimizers to compare with: each mechanism's clip, noise and accounting, worked out by hand."""

import math

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf

import adaclip_tf
from adaclip_tf import core
from adaclip_tf.privacy import events
from tests import tfp

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
    weights = weights_after_a_step(adaclip_tf.DPPerCoordinateClipSGD(value_clip=1.0, **COMMON))
    np.testing.assert_allclose(weights, [0.0, -0.13], atol=1e-6)


def test_per_coordinate_clipping_counts_nan_as_zero_and_infinity_as_the_clip():
    x = np.array([[np.nan, 0.5], [np.inf, 0.25]], np.float32)
    weights = weights_after_a_step(adaclip_tf.DPPerCoordinateClipSGD(value_clip=1.0, **COMMON), x)
    assert np.isfinite(weights).all()
    assert np.abs(weights * 10).max() <= 2.0


def test_per_coordinate_noise_is_z_c_sqrt_d():
    """20,000 coordinates, no gradient: the weights are noise of standard deviation z C sqrt(d) / B."""
    dimension, clip, z = 20_000, 0.01, 1.5
    optimizer_ = adaclip_tf.DPPerCoordinateClipSGD(
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
    optimizer_ = adaclip_tf.DPQuantileClipSGD(**{**COMMON, "noise_multiplier": 1e-9})
    weights = weights_after_a_step(optimizer_)
    total = X[0] / np.linalg.norm(X[0]) + X[1] + X[2] / np.linalg.norm(X[2])
    np.testing.assert_allclose(weights, -total / 10, atol=1e-5)
    np.testing.assert_allclose(optimizer_.private_metrics()["l2_norm_clip"], math.exp(0.01), rtol=1e-5)
    assert int(optimizer_.noised_steps) == 1


def test_quantile_clip_adapts_under_fit():
    """Gradients of norm 5 and a clip that starts at 1: after 30 steps it has grown past 4."""
    optimizer_ = adaclip_tf.DPQuantileClipSGD(0.0, noise_multiplier=0.5, expected_batch_size=100)
    model = make_model(optimizer_)
    x = np.tile(np.float32([[3.0, 4.0]]), [100, 1])
    model.fit(x, np.zeros(100), batch_size=100, epochs=30, verbose=0)
    assert 4.0 < float(optimizer_.private_metrics()["l2_norm_clip"]) < 7.0


def test_quantile_event_is_the_one_that_is_accounted_for():
    """What tensorflow-privacy releases (a sum with z_sum, a count with B / 20) costs as much as one Gaussian of z."""
    z, batch = 1.3, 60
    optimizer_ = adaclip_tf.DPQuantileClipSGD(noise_multiplier=z, expected_batch_size=batch)
    quantile = tfp.module("dp_query.quantile_adaptive_clip_sum_query")
    query = quantile.QuantileAdaptiveClipSumQuery(
        initial_l2_norm_clip=1.0,
        noise_multiplier=optimizer_.sum_noise_multiplier,
        target_unclipped_quantile=0.5,
        learning_rate=0.2,
        clipped_count_stddev=batch / 20,
        expected_num_records=batch,
    )
    state = query.initial_global_state()
    sample = query.accumulate_record(
        query.derive_sample_params(state), query.initial_sample_state(tf.zeros([2])), tf.ones([2])
    )
    _, _, event = query.get_noised_result(sample, state)
    parts = [dp_accounting.GaussianDpEvent(float(part.noise_multiplier)) for part in event.events]
    theirs = adaclip_tf.epsilon_of(dp_accounting.ComposedDpEvent(parts), delta=1e-5)
    ours = adaclip_tf.epsilon_of(events.gaussian_event(z), delta=1e-5)
    assert theirs == pytest.approx(ours, rel=1e-4)


def test_quantile_noise_is_that_of_the_paper():
    """No example at all: the weights are noise of z_sum C / B, and the fraction is 1/2 with noise of (B / 20) / B."""
    dimension, batch, z, eta = 20_000, 40, 1.5, 0.5
    optimizer_ = adaclip_tf.DPQuantileClipSGD(
        1.0, noise_multiplier=z, expected_batch_size=batch, l2_norm_clip=2.0, clip_learning_rate=eta, seed=1
    )
    z_sum = (z**-2 - (2 * batch / 20) ** -2) ** -0.5
    assert optimizer_.sum_noise_multiplier == pytest.approx(z_sum)
    model = make_model(optimizer_, dimension)
    fractions = []
    for _ in range(200):
        before = float(optimizer_.private_metrics()["l2_norm_clip"]) if fractions else 2.0
        model.train_on_batch(np.full([1, dimension], np.nan, np.float32), np.zeros(1))
        if not fractions:
            noise = model.get_weights()[0][:, 0]
            np.testing.assert_allclose(noise.std(), z_sum * 2.0 / batch, rtol=0.03)
        fractions.append(0.5 - math.log(float(optimizer_.private_metrics()["l2_norm_clip"]) / before) / eta)
    assert np.std(fractions) == pytest.approx(1 / 20, rel=0.15)
    assert np.mean(fractions) == pytest.approx(0.5, abs=4 * (1 / 20) / math.sqrt(200))


@pytest.mark.parametrize(("accumulation_steps", "microbatches"), [(2, None), (1, 2), (2, 2)])
def test_every_rule_takes_accumulation_and_microbatches(accumulation_steps, microbatches):
    """Four examples in one batch, or in two parts: the same weights. With microbatches, means of two are clipped."""
    x = np.float32([[3.0, -0.2], [0.0, 0.5], [-4.0, 4.0], [1.0, 1.0]])
    parts = 4 // accumulation_steps
    arguments = {
        **COMMON,
        "noise_multiplier": 1e-9,
        "expected_batch_size": 8,
        "accumulation_steps": accumulation_steps,
        "num_microbatches": microbatches // accumulation_steps if microbatches else None,
    }
    rows = x if microbatches is None else x.reshape(2, 2, 2).mean(axis=1)
    divisor = 8 if microbatches is None else 2
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    clipped = {
        "DPQuantileClipSGD": rows / np.maximum(norms, 1.0),
        "DPPerLayerClipSGD": rows / np.maximum(norms, 1.0),
        "DPPerCoordinateClipSGD": np.clip(rows, -1.0, 1.0),
    }
    for name, values in clipped.items():
        own = {"value_clip": 1.0} if name == "DPPerCoordinateClipSGD" else {"l2_norm_clip": 1.0}
        model = make_model(getattr(adaclip_tf, name)(**arguments, **own))
        model.fit(x, np.zeros(4), batch_size=parts, shuffle=False, verbose=0)
        np.testing.assert_allclose(model.get_weights()[0][:, 0], -values.sum(axis=0) / divisor, atol=1e-5)
        assert int(model.optimizer.noised_steps) == 1


def test_a_saved_clip_that_no_training_leaves_behind_is_refused():
    """A clip of 0 would stay 0 for ever."""
    optimizer_ = adaclip_tf.DPQuantileClipSGD(**{**COMMON, "noise_multiplier": 1e-9})
    optimizer_.build([tf.Variable([1.0, 2.0])])
    names, values = ([get(v) for v in optimizer_.variables] for get in (lambda v: v.name, np.array))
    optimizer_.check_saved(values)
    (index,) = [i for i, name in enumerate(names) if "l2_norm_clip" in name]
    values[index] = np.zeros_like(values[index])
    with pytest.raises(ValueError, match="is out of range"):
        optimizer_.check_saved(values)


def test_quantile_needs_a_batch_that_carries_its_noise():
    with pytest.raises(ValueError, match=r"`noise_multiplier` must be below expected_batch_size / 10 = 2,.*; got 3\.0"):
        adaclip_tf.DPQuantileClipSGD(noise_multiplier=3.0, expected_batch_size=20)
    with pytest.raises(ValueError, match="must be below expected_batch_size / 10 = 2"):
        adaclip_tf.DPQuantileClipSGD(noise_multiplier=2.0, expected_batch_size=20)
    adaclip_tf.DPQuantileClipSGD(noise_multiplier=1.9, expected_batch_size=20)


def test_whitening_is_the_choice_of_the_core(rng):
    """b = sqrt(d / gamma) s: with s = initial_std everywhere, |b| = d s / sqrt(gamma)."""
    optimizer_ = adaclip_tf.DPWhiteningSGD(
        noise_multiplier=1.0, expected_batch_size=5, initial_std=0.01, gamma=0.25, h2=1.0
    )
    optimizer_.build([tf.Variable(tf.zeros([4, 3])), tf.Variable(tf.zeros([3]))])
    assert isinstance(optimizer_.rule, core.Whitening)
    np.testing.assert_allclose(optimizer_.private_metrics()["scale_norm"], 15 * 0.01 / 0.5, rtol=1e-5)


ALL = [
    adaclip_tf.DPWhiteningSGD(0.3, noise_multiplier=1.0, expected_batch_size=50, h2=0.5, gamma=0.5),
    adaclip_tf.DPPerCoordinateClipSGD(0.3, 0.5, noise_multiplier=1.0, expected_batch_size=50, value_clip=0.25),
    adaclip_tf.DPQuantileClipSGD(0.3, noise_multiplier=1.0, expected_batch_size=50, target_quantile=0.7),
]


@pytest.mark.parametrize("optimizer_", ALL, ids=lambda optimizer_: type(optimizer_).__name__)
def test_config_round_trip(optimizer_):
    copy = type(optimizer_).from_config(optimizer_.get_config())
    assert copy.get_config() == optimizer_.get_config()


def test_state_is_saved_and_restored(tmp_path):
    first = make_model(adaclip_tf.DPQuantileClipSGD(0.1, noise_multiplier=1.0, expected_batch_size=50))
    first.fit(X, np.zeros(3), epochs=3, verbose=0)
    tf.train.Checkpoint(model=first).save(str(tmp_path / "checkpoint"))
    second = make_model(adaclip_tf.DPQuantileClipSGD(0.1, noise_multiplier=1.0, expected_batch_size=50))
    second.optimizer.build(second.trainable_variables)
    tf.train.Checkpoint(model=second).restore(tf.train.latest_checkpoint(str(tmp_path)))
    for name, value in first.optimizer.private_metrics().items():
        np.testing.assert_array_equal(value, second.optimizer.private_metrics()[name])
    assert int(second.optimizer.noised_steps) == 3


def test_they_are_used_where_the_librarys_own_are():
    assert all(isinstance(one, adaclip_tf.DPOptimizer) for one in ALL)


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
    model = two_layers(adaclip_tf.DPPerLayerClipSGD(l2_norm_clip=1.0, **COMMON))
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
    optimizer_ = adaclip_tf.DPPerLayerClipSGD(
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
    model = two_layers(adaclip_tf.DPPerLayerClipSGD(l2_norm_clip=1.0, **COMMON))
    model.compile(model.optimizer, Output(reduction="none"), run_eagerly=True)
    with pytest.raises(ValueError, match="run_eagerly"):
        model.fit(X, np.zeros(len(X)), verbose=0)


def test_layers_may_be_frozen_where_the_state_is_of_no_variable():
    """The quantile's state is one number for all variables: it does not say which of them are trained."""
    model = two_layers(adaclip_tf.DPQuantileClipSGD(**{**COMMON, "noise_multiplier": 1e-9}))
    model.fit(X, np.zeros(len(X)), batch_size=len(X), verbose=0)
    before = {name: model.get_layer(name).get_weights()[0] for name in ("first", "second")}
    model.get_layer("first").trainable = False
    model.compile(model.optimizer, Output(reduction="none"))
    model.fit(X, np.zeros(len(X)), batch_size=len(X), verbose=0)
    np.testing.assert_array_equal(model.get_layer("first").get_weights()[0], before["first"])
    assert (model.get_layer("second").get_weights()[0] != before["second"]).any()
    assert int(model.optimizer.noised_steps) == 2


def test_there_is_no_momentum_unless_somebody_asks_for_it():
    optimizer = adaclip_tf.DPOptimizer(core.FixedClip(1.0), learning_rate=0.1, noise_multiplier=1.0)
    assert optimizer.momentum == 0.0
