"""Sums of row norms of clipped gradients, before noise: exact on both paths, moved by at most one by an example."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import core, gradients
from adaclip_tf.scales import rows
from tests import models

layers = tf.keras.layers
EXTREMES = (0.0, 1e30, 3e38, np.inf, -np.inf, np.nan)


def mlp():
    tf.keras.utils.set_random_seed(4)
    return tf.keras.Sequential([layers.Dense(3, activation="tanh", input_shape=(16,)), layers.Dense(models.CLASSES)])


def convolution():
    tf.keras.utils.set_random_seed(2)
    return tf.keras.Sequential(
        [
            layers.Reshape([4, 4, 1], input_shape=(16,)),
            layers.Conv2D(2, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(models.CLASSES),
        ]
    )


class Normed(layers.Layer):
    """A kernel of norm 1: a variable that has no ghost rule."""

    def build(self, shape):
        self.kernel = self.add_weight(name="kernel", shape=[shape[-1], 3], initializer="glorot_uniform")

    def call(self, inputs):
        return tf.nn.tanh(inputs @ (self.kernel / tf.norm(self.kernel)))


def both_paths():
    """The first layer's kernel is run example by example, the rest is not: one clip for all of them."""
    tf.keras.utils.set_random_seed(5)
    return tf.keras.Sequential([tf.keras.Input([16]), Normed(), layers.Dense(models.CLASSES)])


def recurrent():
    """Spelled out: of the LSTM's kernels each example has a row per step."""
    tf.keras.utils.set_random_seed(3)
    return tf.keras.Sequential(
        [layers.Reshape([8, 2], input_shape=(16,)), layers.LSTM(3), layers.Dense(models.CLASSES)]
    )


CASES = [(mlp, "auto"), (mlp, "jacobian"), (convolution, "auto"), (recurrent, "auto"), (both_paths, "auto")]


class Asked:
    """`clipped_row_norms` of a model, for any batch and any scales, traced once."""

    def __init__(self, model, path, weighted=False):
        self.variables, loss = [*model.trainable_variables], models.per_example_loss()
        self.shapes = [rows.row_shape(variable.shape) for variable in self.variables]

        def ask(inputs, labels, scale, omega=None):
            with tf.GradientTape() as tape:
                losses = loss(labels, model(inputs, training=True), sample_weight=omega)
            return gradients.clipped_row_norms(losses, model.trainable_variables, tape, scale, path=path)

        scale = [tf.TensorSpec(shape) for shape in self.shapes]
        signature = [tf.TensorSpec([None, 16]), tf.TensorSpec([None], tf.int64), scale]
        signature += [tf.TensorSpec([None])] * weighted
        self._ask = tf.function(ask, input_signature=signature, autograph=False)

    def __call__(self, inputs, labels, scale, *omega):
        found = self._ask(inputs, labels, [tf.constant(b, tf.float32) for b in scale], *omega)
        return [part.numpy().astype(np.float64) for part in found.total], found.squared_norms.numpy()

    def flat(self, inputs, labels, scale):
        return np.concatenate([part.ravel() for part in self(inputs, labels, scale)[0]])

    def scales(self, rng, size):
        return [size * rng.uniform(0.5, 2.0, shape) for shape in self.shapes]


def by_hand(model, inputs, labels, scale):
    """The same from every example's own gradient, in float64."""
    loss, totals, norms = models.per_example_loss(), [np.zeros(np.shape(b)) for b in scale], []
    for k in range(len(inputs)):
        with tf.GradientTape() as tape:
            value = loss(labels[k : k + 1], model(inputs[k : k + 1]))
        record = [np.asarray(g, np.float64) / b for g, b in zip(tape.gradient(value, model.trainable_variables), scale)]
        norm = np.sqrt(sum(np.square(g).sum() for g in record))
        norms.append(norm**2)
        for total, g in zip(totals, record):
            total += np.linalg.norm(g / max(1.0, norm), axis=-1, keepdims=True)
    return totals, np.array(norms)


@pytest.mark.parametrize("build, path", CASES)
def test_one_example_moves_the_sums_by_at_most_one(build, path, rng):
    model = build()
    inputs, labels = models.data(7, features=16)
    asked = Asked(model, path)
    for size in (0.02, 5.0):
        scale = asked.scales(rng, size)
        totals, norms = asked(inputs, labels, scale)
        expected, expected_norms = by_hand(model, inputs, labels, scale)
        np.testing.assert_allclose(norms, expected_norms, rtol=1e-4)
        for total, other in zip(totals, expected):
            np.testing.assert_allclose(total, other, rtol=1e-4, atol=1e-6)
        without = asked.flat(inputs[:6], labels[:6], scale)
        assert np.all(without >= 0.0)
        for value in EXTREMES:
            neighbour = inputs.copy()
            neighbour[6] = value
            moved = asked.flat(neighbour, labels, scale) - without
            assert np.isfinite(moved).all()
            assert np.linalg.norm(moved) <= 1.0 + 1e-4, (value, size)
            if not np.isfinite(value):
                assert np.linalg.norm(moved) <= 1e-5


def test_the_bound_is_reached_and_without_the_clip_it_would_be_passed(rng, monkeypatch):
    """A gradient that is clipped moves all rows together by exactly 1; unclipped, by its norm."""
    model = mlp()
    inputs, labels = models.data(4, features=16)
    asked = Asked(model, "auto")
    scale = asked.scales(rng, 1e-3)
    moved = asked.flat(inputs, labels, scale) - asked.flat(inputs[:3], labels[:3], scale)
    np.testing.assert_allclose(np.linalg.norm(moved), 1.0, rtol=1e-4)
    monkeypatch.setattr(core, "clip_weights", tf.ones_like)
    asked = Asked(model, "auto")
    moved = asked.flat(inputs, labels, scale) - asked.flat(inputs[:3], labels[:3], scale)
    assert np.linalg.norm(moved) > 10.0


@pytest.mark.parametrize("path", ["auto", "jacobian"])
def test_weights_do_as_in_training(path, rng):
    """Up to 1 after clipping, so that norms do not know them; above, before it. No weight moves the sums by more."""
    model = mlp()
    inputs, labels = models.data(6, features=16)
    omega = np.float32([0.0, 0.25, 1.0, 3.0, 0.5, 1e30])
    asked = Asked(model, path, weighted=True)
    for size in (0.02, 5.0):
        scale = asked.scales(rng, size)
        totals, norms = asked(inputs, labels, scale, omega)
        expected = [np.zeros(np.shape(b)) for b in scale]
        for k in range(5):
            one, square = by_hand(model, inputs[k : k + 1], labels[k : k + 1], [b / max(omega[k], 1.0) for b in scale])
            np.testing.assert_allclose(norms[k], square[0], rtol=1e-4)
            expected = [total + min(omega[k], 1.0) * part for total, part in zip(expected, one)]
        fewer = [part.ravel() for part in asked(inputs[:5], labels[:5], scale, omega[:5])[0]]
        np.testing.assert_allclose(np.concatenate(fewer), np.concatenate([e.ravel() for e in expected]), rtol=1e-4)
        moved = np.concatenate([part.ravel() for part in totals]) - np.concatenate(fewer)
        assert np.linalg.norm(moved) <= 1.0 + 1e-4


def test_what_training_refuses_is_refused():
    """A gradient that looks at the batch; and whatever has no ghost rule, where nothing else is allowed."""
    w = tf.Variable(tf.ones([3, 2]))

    @tf.custom_gradient
    def scaled(y):
        return tf.identity(y), lambda dy: dy * tf.reduce_max(y)

    def ask(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(scaled(x @ w), axis=1)
        return gradients.clipped_row_norms(loss, [w], tape, [tf.ones([3, 1])])

    with pytest.raises(ValueError, match="so that one example changes others"):
        tf.function(ask, [tf.TensorSpec([None, 3])], autograph=False).get_concrete_function()
    asked = Asked(both_paths(), "ghost")
    with pytest.raises(ValueError, match="No ghost rule for some variables"):
        asked._ask.get_concrete_function()
