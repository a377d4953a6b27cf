"""The noise that training really adds, seen through `fit`."""

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from adaclip_tf import DPAdaClipSGD, DPFixedClipSGD
from tests import models

Z, CLIP, BATCH = 1.3, 0.5, 4
PATHS = ("auto", "jacobian")


def _wide_model():
    tf.keras.utils.set_random_seed(0)
    return tf.keras.Sequential(
        [tf.keras.layers.Dense(40, activation="tanh", input_shape=(30,)), tf.keras.layers.Dense(models.CLASSES)]
    )


class _Collect(tf.keras.callbacks.Callback):
    """How far each step moved the weights, against the same step without noise."""

    def on_train_begin(self, logs=None):
        self.moves, self._last = [], self.model.get_weights()

    def on_train_batch_end(self, batch, logs=None):
        now = self.model.get_weights()
        self.moves.append([p - q for p, q in zip(now, self._last)])
        self._last = now


def _noise_in_units_of_clip(path, steps=40, noise_multiplier=Z, **arguments):
    """What `fit` adds to every weight at every step, scaled so that it should be N(0, z^2).

    With all-zero inputs and no bias gradient to speak of, the clipped sum is known: here it is removed by training
    on an empty dataset of the right shape, where the sum is exactly 0 and only noise is left.
    """
    empty = (np.zeros([0, 30], np.float32), np.zeros([0], np.int64))
    dataset = tf.data.Dataset.from_tensors(empty).repeat(steps)
    optimizer = DPFixedClipSGD(
        1.0,
        l2_norm_clip=CLIP,
        noise_multiplier=noise_multiplier,
        expected_batch_size=BATCH,
        gradient_path=path,
        **arguments,
    )
    model = _wide_model()
    collect = _Collect()
    model.compile(optimizer, models.per_example_loss())
    model.fit(dataset, verbose=0, callbacks=[collect])
    return [[move * BATCH / CLIP for move in moves] for moves in collect.moves]


def _p_value(sample, std):
    return scipy.stats.kstest(np.ravel(sample) / std, "norm").pvalue


@pytest.mark.parametrize("path", PATHS)
def test_noise_through_fit_has_standard_deviation_z(path):
    draws = _noise_in_units_of_clip(path, seed=5)
    for variable in range(len(draws[0])):
        sample = np.concatenate([step[variable].ravel() for step in draws])
        assert _p_value(sample, Z) > 1e-3
        if sample.size > 1000:  # enough to tell
            assert _p_value(sample, Z * 2 / 3) < 1e-6
            assert _p_value(sample, Z * 3 / 2) < 1e-6


def test_noise_is_on_top_of_the_clipped_sum():
    """The difference between a noisy and a noiseless step on real data is the noise, as for an empty batch."""
    inputs, labels = models.data(BATCH, features=30)
    results = {}
    for z in (0.0, Z):
        optimizer = DPFixedClipSGD(1.0, l2_norm_clip=CLIP, noise_multiplier=z, expected_batch_size=BATCH, seed=9)
        results[z] = models.fit(_wide_model(), optimizer, inputs, labels, BATCH).get_weights()
    sample = np.concatenate([(p - q).ravel() for p, q in zip(results[Z], results[0.0])]) * BATCH / CLIP
    assert _p_value(sample, Z) > 1e-3
    assert _p_value(sample, Z * 2 / 3) < 1e-6
    assert _p_value(sample, Z * 3 / 2) < 1e-6


def test_noise_differs_between_steps_variables_and_runs():
    first, second = (_noise_in_units_of_clip("auto", steps=3) for _ in range(2))
    flat = [np.concatenate([part.ravel() for part in step]) for step in first + second]
    for i in range(len(flat)):
        for j in range(i):
            assert abs(np.corrcoef(flat[i], flat[j])[0, 1]) < 0.12  # 5 standard deviations of 1,323 + draws
    # Variables of the same step do not share a stream: the last layer's draws are not the first layer's.
    kernel, bias = first[0][0].ravel(), first[0][3].ravel()
    assert not np.isclose(kernel[: bias.size], bias).any()


def test_global_seeds_do_not_make_the_noise_predictable():
    runs = []
    for _ in range(2):
        tf.random.set_seed(1)
        np.random.seed(1)
        tf.keras.utils.set_random_seed(1)
        runs.append(_noise_in_units_of_clip("auto", steps=1)[0])
    assert not any(np.isclose(p, q).any() for p, q in zip(*runs))
    # Negative control: with `seed=` they are the same.
    runs = [_noise_in_units_of_clip("auto", steps=1, seed=2)[0] for _ in range(2)]
    assert all((p == q).all() for p, q in zip(*runs))


def test_restoring_a_checkpoint_does_not_replay_noise(tmp_path):
    inputs, labels = models.data(BATCH, features=30)
    optimizer = DPFixedClipSGD(1.0, l2_norm_clip=CLIP, noise_multiplier=Z)
    model = models.fit(_wide_model(), optimizer, inputs, labels, BATCH)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    path = checkpoint.write(str(tmp_path / "checkpoint"))
    after = []
    for _ in range(2):
        checkpoint.restore(path)
        assert int(optimizer.noised_steps) == 1
        model.fit(inputs, labels, batch_size=BATCH, verbose=0)
        after.append(model.get_weights())
    assert not any((p == q).all() for p, q in zip(*after))


def test_adaclip_scales_its_noise_by_b():
    """The first step of AdaCliP on an empty batch: g~ is b z N / B, with b = s sqrt(d / gamma) known."""
    empty = (np.zeros([0, 30], np.float32), np.zeros([0], np.int64))
    optimizer = DPAdaClipSGD(1.0, noise_multiplier=Z, expected_batch_size=BATCH, initial_std=0.01, gamma=0.25, seed=11)
    model = _wide_model()
    before = model.get_weights()
    model.compile(optimizer, models.per_example_loss())
    model.fit(tf.data.Dataset.from_tensors(empty), verbose=0)
    dimension = sum(w.size for w in before)
    scale = 0.01 * np.sqrt(dimension / 0.25)
    sample = np.concatenate([(p - q).ravel() for p, q in zip(model.get_weights(), before)]) * BATCH / scale
    assert _p_value(sample, Z) > 1e-3
    assert _p_value(sample, Z * 2 / 3) < 1e-6
    assert _p_value(sample, Z * 3 / 2) < 1e-6
