"""Models whose examples do not stay apart are refused, with every offending layer named."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import DPAdaClipSGD, check_model
from tests import models

layers = tf.keras.layers


def test_check_model_lists_every_offending_layer():
    inner = tf.keras.Sequential([layers.Dense(4), layers.BatchNormalization(name="inner_norm")])
    model = tf.keras.Sequential(
        [
            layers.Dense(4, kernel_regularizer="l2", name="penalised", input_shape=(4,)),
            layers.BatchNormalization(name="outer_norm"),
            inner,
            layers.Dense(3, activity_regularizer="l1", name="active"),
            layers.LayerNormalization(name="fine"),
        ]
    )
    with pytest.raises(ValueError) as error:
        check_model(model)
    for name in ("penalised", "outer_norm", "inner_norm", "active"):
        assert name in str(error.value)
    assert "fine" not in str(error.value)
    assert "weight_decay" in str(error.value)


def test_check_model_accepts_what_keeps_examples_apart():
    frozen = layers.BatchNormalization()
    frozen.trainable = False
    model = tf.keras.Sequential(
        [layers.Dense(4, input_shape=(4,)), frozen, layers.LayerNormalization(), layers.GroupNormalization(2)]
    )
    check_model(model)
    check_model(tf.keras.Sequential([layers.LSTM(2, input_shape=(3, 2))]))


def test_stateful_recurrent_layers_are_refused():
    model = tf.keras.Sequential([tf.keras.Input(batch_size=4, shape=(3, 2)), layers.LSTM(2, stateful=True)])
    with pytest.raises(ValueError, match="stateful=False"):
        check_model(model)


class _Centred(layers.Layer):
    def call(self, inputs):
        return inputs - tf.stop_gradient(tf.reduce_mean(inputs, axis=0))


@pytest.mark.parametrize("path", ["auto", "jacobian"])
@pytest.mark.parametrize("mix", ["dense_norm", "image_norm", "centred"])
def test_training_refuses_mixing_layers(path, mix):
    inputs, labels = models.data(8, features=16)
    before = {
        "dense_norm": [layers.BatchNormalization()],
        "image_norm": [layers.Reshape([4, 4, 1]), layers.BatchNormalization(), layers.Flatten()],
        "centred": [_Centred()],
    }[mix]
    model = tf.keras.Sequential([layers.Dense(16, input_shape=(16,)), *before, layers.Dense(models.CLASSES)])
    weights = model.get_weights()
    with pytest.raises(ValueError, match="so that one example changes others"):
        models.fit(model, DPAdaClipSGD(noise_multiplier=1.0, gradient_path=path), inputs, labels, 4)
    trainable = [np.array_equal(p, q) for p, q in zip(weights, model.get_weights())]
    assert trainable[0] and trainable[-1]


@pytest.mark.parametrize(
    "norm", [layers.LayerNormalization, lambda: layers.GroupNormalization(4), layers.UnitNormalization]
)
def test_training_accepts_other_normalisation(norm):
    inputs, labels = models.data(8)
    model = tf.keras.Sequential([layers.Dense(8, input_shape=(4,)), norm(), layers.Dense(models.CLASSES)])
    models.fit(model, DPAdaClipSGD(noise_multiplier=1.0), inputs, labels, 4)
    assert int(model.optimizer.noised_steps) == 2


def test_frozen_batch_normalisation_trains():
    inputs, labels = models.data(8)
    norm = layers.BatchNormalization()
    norm.trainable = False
    model = tf.keras.Sequential([layers.Dense(8, input_shape=(4,)), norm, layers.Dense(models.CLASSES)])
    check_model(model)
    models.fit(model, DPAdaClipSGD(noise_multiplier=1.0, gradient_path="jacobian"), inputs, labels, 4)
    assert int(model.optimizer.noised_steps) == 2
