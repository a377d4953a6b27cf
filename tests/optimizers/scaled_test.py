"""`DPAdaClipSGD(scales=...)`: one step by hand, saving and going on, what has no meaning."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import core
from adaclip_tf.core import noise
from adaclip_tf.optimizers.adaclip import DPAdaClipSGD
from adaclip_tf.optimizers.adaclip_any import DPAdaClip
from adaclip_tf.optimizers.dp_optimizer import DPOptimizer
from tests import models

SHAPES = [np.float32([[0.5], [1.0], [2.0], [0.25]]), np.float32([1.5])]
SCALES = core.Scales(0.8, SHAPES, 0.5)


def optimizer(scales=SCALES, **options):
    return DPAdaClipSGD(0.3, noise_multiplier=0.7, expected_batch_size=10, scales=scales, seed=5, **options)


class Fitted:
    """What an optimizer asks of a fitted `PrivateScales`."""

    def for_training(self, noise_multiplier, expected_batch_size):
        assert (noise_multiplier, expected_batch_size) == (0.7, 10)
        return SCALES


@pytest.mark.parametrize("precondition, multiplier", [(True, 0.5), (True, 1.7), (False, 0.5)])
def test_one_step_by_hand(precondition, multiplier):
    """theta -= rate max(1, mu) W / (B C h), or rate mu C h W / B without `precondition`."""
    inputs, labels = models.data(8)
    model = models.softmax_regression()
    before = [w.astype(np.float64) for w in model.get_weights()]
    scales = core.Scales(0.8, SHAPES, multiplier)
    models.fit(model, optimizer(scales, precondition=precondition), inputs, labels, batch_size=8)
    b = [multiplier * 0.8 * h for h in SHAPES]
    records = models.softmax_gradients(before, inputs, labels)
    w = [g / h for g, h in zip(records, b)]
    norms = np.sqrt(sum(np.square(part).sum(axis=tuple(range(1, part.ndim))) for part in w))
    normals = noise.NoiseSource(5).fresh_normals([[4, 3], [3]])
    for theta, after, part, h, scale, normal in zip(before, model.get_weights(), w, SHAPES, b, normals):
        factor = (1 / np.maximum(1.0, norms)).reshape([-1] + [1] * (part.ndim - 1))
        noised = (factor * part).sum(axis=0) + 0.7 * normal.numpy()
        step = max(1.0, multiplier) * noised / (10 * 0.8 * h) if precondition else scale * noised / 10
        np.testing.assert_allclose(after, theta - 0.3 * step, rtol=1e-4, atol=1e-5)


def test_it_is_saved_loaded_and_goes_on(tmp_path):
    inputs, labels = models.data(8)
    model = models.fit(models.softmax_regression(), optimizer(precondition=True), inputs, labels, batch_size=4)
    model.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    assert int(loaded.optimizer.noised_steps) == 2
    ours, theirs = model.optimizer.private_state(), loaded.optimizer.private_state()
    for one, other in zip(ours.values(), theirs.values()):
        np.testing.assert_array_equal(one["scale"], other["scale"])
    loaded.fit(inputs, labels, batch_size=4, verbose=0)
    assert int(loaded.optimizer.noised_steps) == 4


def test_an_inner_optimizer_is_handed_the_direction(tmp_path):
    """Plain SGD inside is the optimizer itself; what is saved goes on."""
    inputs, labels = models.data(8)
    inner = DPAdaClip(
        tf.keras.optimizers.SGD(0.3),
        noise_multiplier=0.7,
        expected_batch_size=10,
        scales=SCALES,
        precondition=True,
        seed=5,
    )
    wrapped = models.fit(models.softmax_regression(), inner, inputs, labels, batch_size=4)
    plain = models.fit(models.softmax_regression(), optimizer(precondition=True), inputs, labels, batch_size=4)
    for one, other in zip(wrapped.get_weights(), plain.get_weights()):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    wrapped.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.get_config() == wrapped.optimizer.get_config()
    assert int(loaded.optimizer.noised_steps) == 2


def test_scales_may_be_fitted_ones_or_a_configuration():
    for given in (Fitted(), SCALES, SCALES.get_config()):
        made = optimizer(given, precondition=True)
        assert made.rule.scales.get_config() == SCALES.get_config()
        assert made.get_config()["scales"] == SCALES.get_config()
        assert DPAdaClipSGD.from_config(made.get_config()).get_config() == made.get_config()


def test_without_scales_nothing_has_changed():
    made = optimizer(None, h2=0.01)
    assert isinstance(made.rule, core.AdaClip)
    assert (made.get_config()["scales"], made.get_config()["precondition"]) == (None, False)


def test_frozen_layers_keep_their_scales():
    """b of what is trained belongs to it, and not to its place in the list."""
    model = models.mlp()
    shapes = [np.full(shape, size, np.float32) for size, shape in enumerate(([4, 1], [1], [5, 1], [1]), 1)]
    model.compile(DPOptimizer(core.ScaledClip(core.Scales(1.0, shapes)), noise_multiplier=0.0), "mse")
    made = model.optimizer
    made.build(model.trainable_variables)
    made.private_step.train_only([2, 3])
    scales = [float(np.asarray(state["scale"]).mean()) for state in made.private_state().values()]
    assert scales == [3.0, 4.0]


def test_what_has_no_meaning_is_told():
    with pytest.raises(ValueError, match="`precondition=True` needs `scales`"):
        optimizer(None, precondition=True)
    with pytest.raises(ValueError, match="have nothing to do: leave them out"):
        optimizer(h2=0.1)
    with pytest.raises(ValueError, match="have nothing to do: leave them out"):
        optimizer(gamma=0.5)
    with pytest.raises(ValueError, match="`scales` must be a fitted `PrivateScales`"):
        optimizer(3.0)
    with pytest.raises(ValueError, match="`precondition` must be True or False"):
        optimizer(precondition="yes")
    with pytest.raises(ValueError, match="does not fit a variable of shape"):
        optimizer().build(models.softmax_regression(features=5).trainable_variables)
