"""Tests of `adaclip_tf.auditing.canaries`."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.auditing import canaries
from adaclip_tf.data import sampling


def _model(*outputs, loss, inputs=((4,), "float32")):
    shape, dtype = inputs
    given = tf.keras.Input(shape, dtype=dtype)
    hidden = tf.keras.layers.Flatten()(tf.keras.layers.Lambda(lambda x: tf.cast(x, tf.float32))(given))
    model = tf.keras.Model(given, [tf.keras.layers.Dense(size)(hidden) for size in outputs])
    model.compile("sgd", loss=loss)
    return model


def test_rows_get_other_labels_and_every_second_one_is_far_out(rng):
    x, y = rng.normal(size=(30, 3)).astype(np.float32), np.arange(30)
    load, number = sampling.loader(({"a": x, "b": y}, y, np.full(30, 0.5)), None)
    features, labels, weights = canaries.from_rows(load, number, 40, rng)
    rows = features["b"]
    np.testing.assert_allclose(features["a"], np.where(np.arange(40)[:, None] % 2, 10.0, 1.0) * x[rows], rtol=1e-6)
    assert features["a"].dtype == np.float32
    assert np.mean(labels == rows) < 0.3
    assert np.all(weights == 1.0)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("sparse_categorical_crossentropy", {0, 1, 2}),
        (tf.keras.losses.CategoricalCrossentropy(), {0.0, 1.0}),
        ("binary_crossentropy", {0.0, 1.0}),
        (tf.keras.losses.MeanSquaredError(), None),
    ],
    ids=["sparse", "one-hot", "binary", "regression"],
)
def test_random_examples_have_the_model_s_shapes(rng, loss, expected):
    model = _model(3, loss=loss)
    x, y = canaries.from_model(model, 50, rng)
    assert x.shape == (50, 4) and x.dtype == np.float32
    assert y.shape == ((50,) if expected == {0, 1, 2} else (50, 3))
    if expected is not None:
        assert set(np.unique(y)) == expected
    x, y = tf.constant(x), tf.constant(y)
    model.compute_loss(x=x, y=y, y_pred=model(x), sample_weight=None)


def test_what_can_not_be_made_up_is_asked_for(rng):
    with pytest.raises(ValueError, match=r"int32.*rows `\(x, y\)`"):
        canaries.from_model(_model(3, loss="mse", inputs=((4,), "int32")), 8, rng)
    with pytest.raises(ValueError, match="one output and one loss"):
        canaries.from_model(_model(3, 2, loss=["mse", "mse"]), 8, rng)


def test_the_chosen_ones_span_most():
    gradients = np.array([[1.0, 0.0, 0.0], [0.99, 0.1, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.8], [0.0, 0.0, 0.0]])
    chosen = canaries.choose(gradients @ gradients.T, 3)
    assert set(chosen[:1]) <= {0, 1} and set(chosen[1:]) == {2, 3}
    assert sorted(canaries.choose(np.zeros((4, 4)), 4)) == [0, 1, 2, 3]  # each once, whatever they are
