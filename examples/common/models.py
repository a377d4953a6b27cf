"""The models that a config can name, each with its loss and its metric."""

from __future__ import annotations

from collections.abc import Sequence

import ml_collections
import tensorflow as tf

MODELS = ("softmax", "mlp", "cnn", "logistic", "linear")


def make_model(config: ml_collections.ConfigDict, shape: Sequence[int], num_classes: int | None) -> tf.keras.Model:
    """One of `MODELS`, with weights that `config.seed` decides (and nothing else: the noise does not)."""
    check_choice("model", config.model, MODELS)
    fits = {"linear": num_classes is None, "logistic": num_classes == 2}
    if not fits.get(config.model, num_classes is not None):
        raise ValueError(f"config.model={config.model!r} does not fit a data set of {num_classes or 'no'} classes.")
    seeds = iter(range(1000 * config.seed, 1000 * config.seed + 1000))

    def initializer():
        return tf.keras.initializers.GlorotUniform(seed=next(seeds))

    def dense(units, activation=None):
        return tf.keras.layers.Dense(units, activation, kernel_initializer=initializer())

    def conv(filters, size, padding):
        options = {"activation": config.activation, "kernel_initializer": initializer()}
        return tf.keras.layers.Conv2D(filters, size, 2, padding, **options)

    outputs = num_classes if num_classes and config.model != "logistic" else 1
    if config.model == "cnn":  # tensorflow-privacy's tutorial, and Papernot et al. 2020
        hidden = [conv(16, 8, "same"), tf.keras.layers.MaxPool2D(2, 1), conv(32, 4, "valid")]
        if (config.pixel_mean, config.pixel_std) != (0.0, 1.0):
            hidden.insert(0, tf.keras.layers.Rescaling(1.0 / config.pixel_std, -config.pixel_mean / config.pixel_std))
        hidden += [tf.keras.layers.MaxPool2D(2, 1), tf.keras.layers.Flatten(), dense(32, config.activation)]
    elif config.model == "mlp":
        hidden = [tf.keras.layers.Flatten(), dense(config.hidden, config.activation)]
    else:
        hidden = [tf.keras.layers.Flatten()]
    return tf.keras.Sequential([tf.keras.layers.InputLayer(tuple(shape)), *hidden, dense(outputs)])


def make_loss(config: ml_collections.ConfigDict) -> tf.keras.losses.Loss:
    """The model's loss: one number per example, or their mean for plain SGD."""
    reduction = "sum_over_batch_size" if config.optimizer == "sgd" else "none"
    if config.model == "linear":
        return tf.keras.losses.MeanSquaredError(reduction=reduction)
    if config.model == "logistic":
        return tf.keras.losses.BinaryCrossentropy(from_logits=True, reduction=reduction)
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction)


def make_metric(config: ml_collections.ConfigDict) -> tf.keras.metrics.Metric:
    """Accuracy, or the squared error of a regression."""
    if config.model == "linear":
        return tf.keras.metrics.MeanSquaredError(name="squared_error")
    if config.model == "logistic":
        return tf.keras.metrics.BinaryAccuracy(threshold=0.0, name="accuracy")  # of logits
    return tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")


def check_choice(name: str, value: str, choices: Sequence[str]) -> str:
    """The value of a field of the config, if it is one of `choices`."""
    if value not in choices:
        raise ValueError(f"config.{name} must be one of {', '.join(choices)}; got {value!r}.")
    return value
