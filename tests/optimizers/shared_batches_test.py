"""Several private steps on one batch: counted together, or refused."""

import math
import types

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import DPFixedClipSGD, PrivacyBudget, epsilon, epsilon_of, optimizer_event, poisson_batches
from adaclip_tf.optimizers import shared_batches

N, B, DELTA = 60, 6, 1e-3


def _optimizer(noise_multiplier=1.0):
    return DPFixedClipSGD(0.1, l2_norm_clip=1.0, noise_multiplier=noise_multiplier, expected_batch_size=B)


def _loss(model, batch):
    return tf.reduce_mean(tf.square(model(batch[0], training=True) - batch[1]), axis=1)


class Players(tf.keras.Sequential):
    """Two layers, each with an optimizer of its own; or one optimizer that takes two steps."""

    def train_step(self, data):
        first, second = (layer.trainable_variables for layer in self.layers)
        if self.other is None:
            self.optimizer.minimize(_loss(self, data), self.trainable_variables)
            self.optimizer.minimize(_loss(self, data), self.trainable_variables)
        else:
            losses = _loss(self, data)
            self.optimizer.minimize(losses, first)
            self.other.minimize(losses, second)
        return {"loss": tf.constant(0.0)}


def _model(other):
    model = Players([tf.keras.Input([3]), tf.keras.layers.Dense(2), tf.keras.layers.Dense(1)])
    model.other = other
    model.compile(_optimizer())
    return model


def _batches():
    x = np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32)
    return poisson_batches((x, x[:, :1]), expected_batch_size=B, steps=3, seed=1)


def test_one_optimizer_takes_one_step_on_a_batch():
    with pytest.raises(ValueError, match="two steps on the same batch"):
        _model(None).fit(_batches(), verbose=0)


def test_two_optimizers_on_one_batch_are_counted_together():
    """z = 1 and z = 2 on one batch are z = 1 / sqrt(1 + 1/4); the epsilon of one alone would be too small."""
    other = _optimizer(2.0)
    model = _model(other)
    model.fit(_batches(), verbose=0)
    together = 1.0 / math.sqrt(1.0 + 0.25)
    for optimizer in (model.optimizer, other):
        assert optimizer.past_steps().steps == 3
        assert optimizer.past_steps().noise_multiplier == pytest.approx(together)
    run = {"delta": DELTA, "num_examples": N, "batch_size": B, "steps": 3}
    counted = epsilon_of(optimizer_event(model.optimizer, num_examples=N, batch_size=B), delta=DELTA)
    assert counted == pytest.approx(epsilon(noise_multiplier=together, **run))
    assert counted > 1.1 * epsilon(noise_multiplier=1.0, **run)


def test_a_budget_of_one_of_them_says_so():
    batches = _batches()
    with pytest.raises(ValueError, match="Another private optimizer trains on the same batches"):
        _model(_optimizer(2.0)).fit(batches, callbacks=[PrivacyBudget.of(batches, delta=DELTA)], verbose=0)


@pytest.mark.parametrize(
    ("multipliers", "together"), [((1.5,), 1.5), ((3.0, 4.0), 2.4), ((2.0, 2.0, 2.0, 2.0), 1.0), ((2.0, 0.0), 0.0)]
)
def test_the_noise_of_several_releases_of_one_batch(multipliers, together):
    steps = [types.SimpleNamespace(settings=types.SimpleNamespace(noise_multiplier=z)) for z in multipliers]
    assert shared_batches.noise_together(steps) == pytest.approx(together)
