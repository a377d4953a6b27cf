"""`noise_terms`: noise as a sum of several draws, through the optimizers and the query."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from adaclip_tf import AdaClipSumQuery, ClippedSumQuery, DPAdaClipSGD, DPFixedClipSGD, core

Z, BATCH = 1.3, 4


def _noise_through_fit(optimizer, steps=3):
    """What `fit` on empty batches adds to the weights, in units in which it should be N(0, z^2)."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(40, kernel_initializer="zeros", input_shape=(30,))])
    model.compile(optimizer, tf.keras.losses.MeanSquaredError(reduction="none"))
    empty = (np.zeros([0, 30], np.float32), np.zeros([0, 40], np.float32))
    model.fit(tf.data.Dataset.from_tensors(empty).repeat(steps), verbose=0)
    return np.concatenate([weight.ravel() for weight in model.get_weights()]) * BATCH / np.sqrt(steps)


@pytest.mark.parametrize("terms", [1, 2, 4])
def test_noise_through_fit_has_standard_deviation_z(terms):
    optimizer = DPFixedClipSGD(
        1.0, l2_norm_clip=1.0, noise_multiplier=Z, expected_batch_size=BATCH, noise_terms=terms, seed=3
    )
    sample = _noise_through_fit(optimizer)
    assert scipy.stats.kstest(sample / Z, "norm").pvalue > 1e-3
    assert scipy.stats.kstest(sample / (Z * 3 / 2), "norm").pvalue < 1e-6
    assert scipy.stats.kstest(sample / (Z * 2 / 3), "norm").pvalue < 1e-6


def test_accumulation_adds_noise_once_per_logical_batch():
    optimizer = DPFixedClipSGD(
        1.0, l2_norm_clip=1.0, noise_multiplier=Z, expected_batch_size=BATCH, accumulation_steps=3, seed=3
    )
    sample = _noise_through_fit(optimizer, steps=9)
    assert int(optimizer.noised_steps) == 3
    assert np.std(sample) == pytest.approx(Z / np.sqrt(3), rel=0.1)  # `_noise_through_fit` takes it for 9 steps


def test_config_and_bad_values():
    optimizer = DPAdaClipSGD(noise_multiplier=1.0, noise_terms=4)
    assert DPAdaClipSGD.from_config(optimizer.get_config()).noise_terms == 4
    assert DPAdaClipSGD(noise_multiplier=1.0).get_config()["noise_terms"] == 1
    with pytest.raises(ValueError, match="noise_terms"):
        DPFixedClipSGD(l2_norm_clip=1.0, noise_multiplier=1.0, noise_terms=0)
    with pytest.raises(ValueError, match="noise_terms"):
        AdaClipSumQuery(tf.TensorSpec([2]), 1.0, 4.0, noise_terms=1.5)


def test_the_query_takes_it_too():
    queries = [
        ClippedSumQuery(core.FixedClip(1.0), tf.TensorSpec([3000]), Z, 4.0, seed=1, noise_terms=terms)
        for terms in (1, 3)
    ]
    draws = [q.get_noised_result(q.initial_sample_state(), q.initial_global_state())[0].numpy() for q in queries]
    assert np.abs(draws[0] - draws[1]).min() > 0
    for draw in draws:
        assert scipy.stats.kstest(draw / Z, "norm").pvalue > 1e-3
