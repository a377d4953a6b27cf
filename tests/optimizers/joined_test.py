"""Small variables joined into one: the same step, and nothing is mixed up."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import DPAdaClipSGD, DPWhiteningSGD, core
from adaclip_tf.optimizers import fused, joined

SPECS = [tf.TensorSpec(shape, tf.float32) for shape in [(2, 3), (), (200, 200), (4,), (1, 5)]]


def _values(start):
    return [start + 100.0 * i + tf.reshape(tf.range(float(np.prod(s.shape))), s.shape) for i, s in enumerate(SPECS)]


def test_joined_and_parted_again_is_what_it_was():
    both = joined.Joined(core.AdaClip(), SPECS)
    structure = core.Moments(_values(0.0), _values(0.5)), {"all": tf.constant(7.0)}
    parts = both.join(structure)
    assert [part.shape for part in parts[0].mean] == [spec.shape for spec in both.specs] == [(200, 200), (16,)]
    assert parts[1]["all"].numpy() == 7.0
    expected = np.concatenate([np.ravel(value) for i, value in enumerate(_values(0.5)) if i != 2])
    np.testing.assert_array_equal(parts[0].variance[1], expected)
    for value, wanted in zip(tf.nest.flatten(both.part(parts)), tf.nest.flatten(structure)):
        np.testing.assert_array_equal(value, wanted)


def test_what_a_list_has_beyond_the_variables_stays_last():
    both = joined.Joined(core.AdaClip(), SPECS)
    parts = both.join([*_values(0.0), tf.constant([3.0])])
    assert [part.shape for part in parts] == [(200, 200), (16,), (1,)]
    assert [part.shape for part in both.part(parts)] == [*(spec.shape for spec in SPECS), (1,)]


class _OfOnesOwn(core.AdaClip):
    """May do something else with each variable, for all that is known."""


@pytest.mark.parametrize("rule", [core.FixedClip(1.0), _OfOnesOwn(), core.PerLayerClip(1.0)])
def test_rules_that_do_not_say_so_get_every_variable_by_itself(rule):
    assert joined.Joined(rule, SPECS).specs == SPECS


def test_a_few_variables_are_not_joined():
    assert joined.Joined(core.AdaClip(), SPECS[1:4]).specs == [SPECS[1], SPECS[2], SPECS[3]]


def _train(optimizer):
    tf.keras.utils.set_random_seed(1)
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [tf.keras.Input([3]), layers.Dense(4, "tanh"), layers.Dense(5, "tanh"), layers.Dense(1)]
    )
    model.compile(optimizer, tf.keras.losses.MeanSquaredError(reduction="none"))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8, 3)).astype(np.float32)
    for _ in range(3):
        model.train_on_batch(x, x[:, :1])
    state = [value for parts in optimizer.private_state().values() for value in parts.values()]
    return [*model.get_weights(), *map(np.asarray, state)]


OPTIONS = {"noise_multiplier": 1.0, "expected_batch_size": 8, "initial_std": 0.1, "seed": 1}
OTHERWISE = {
    "one by one": (DPAdaClipSGD, joined, "FEWEST", 1000),
    "one by one, whitening": (DPWhiteningSGD, joined, "FEWEST", 1000),
    "fused by XLA": (DPAdaClipSGD, fused, "FROM", 0),
}


@pytest.mark.parametrize(("optimizer", "module", "name", "value"), OTHERWISE.values(), ids=OTHERWISE)
def test_training_is_the_same(optimizer, module, name, value, monkeypatch):
    together = _train(optimizer(0.1, **OPTIONS))
    monkeypatch.setattr(module, name, value)
    for joint, other in zip(together, _train(optimizer(0.1, **OPTIONS))):
        np.testing.assert_allclose(joint, other, rtol=1e-4, atol=1e-6)
