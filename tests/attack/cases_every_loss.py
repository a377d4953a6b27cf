"""Every loss that Keras has, with its own reduction and without; what `compile` and `fit` can do to losses."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from adaclip_tf._internal import keras as generation
from tests.attack.case import case, features, floats, mse, net, scce

L = tf.keras.layers
K = tf.keras.losses


def _one_hot(rng, n):
    return floats(rng, n, 5), np.eye(3, dtype=np.float32)[rng.integers(0, 3, n)]


def _positive(rng, n):
    return floats(rng, n, 5), np.abs(floats(rng, n, 3)) + 0.1


def _signs(rng, n):
    return floats(rng, n, 5), np.sign(floats(rng, n, 3))


def _bits(rng, n):
    return floats(rng, n, 5), rng.integers(0, 2, (n, 3)).astype(np.float32)


def _masks(rng, n):
    return floats(rng, n, 4, 4, 2), rng.integers(0, 2, (n, 4, 4, 3)).astype(np.float32)


def _dense(activation=None):
    return lambda: [L.Dense(4, "tanh"), L.Dense(3, activation)]


def _pixels():
    return [L.Conv2D(3, 3, padding="same", activation="tanh"), L.Conv2D(3, 1, activation="sigmoid")]


# Loss by name: (arguments, layers, data).
_LOSSES = {
    "BinaryCrossentropy": ({"label_smoothing": 0.1}, _dense("sigmoid"), _bits),
    "BinaryFocalCrossentropy": ({"apply_class_balancing": True}, _dense("sigmoid"), _bits),
    "CategoricalCrossentropy": ({"from_logits": True, "label_smoothing": 0.1}, _dense(), _one_hot),
    "CategoricalFocalCrossentropy": ({}, _dense("softmax"), _one_hot),
    "CategoricalGeneralizedCrossEntropy": (
        {},
        _dense("softmax"),
        lambda rng, n: (floats(rng, n, 5), rng.integers(0, 3, n)),
    ),
    "CategoricalHinge": ({}, _dense(), _one_hot),
    "Circle": ({}, lambda: [L.Dense(4), L.UnitNormalization()], features()),
    "CosineSimilarity": ({}, _dense(), _one_hot),
    "Dice": ({}, _pixels, _masks),
    "Hinge": ({}, _dense(), _signs),
    "Huber": ({"delta": 0.5}, _dense(), _bits),
    "KLDivergence": ({}, _dense("softmax"), _one_hot),
    "LogCosh": ({}, _dense(), _bits),
    "MeanAbsoluteError": ({}, _dense(), _bits),
    "MeanAbsolutePercentageError": ({}, _dense(), _positive),
    "MeanSquaredError": ({}, _dense(), _bits),
    "MeanSquaredLogarithmicError": ({}, _dense("softplus"), _positive),
    "Poisson": ({}, _dense("softplus"), _positive),
    "SparseCategoricalCrossentropy": ({"from_logits": True, "ignore_class": 1}, _dense(), features()),
    "SquaredHinge": ({}, _dense(), _signs),
    "Tversky": ({"alpha": 0.3}, _pixels, _masks),
}
_AXES = {
    "CosineSimilarity_axis_0": (K.CosineSimilarity, {"axis": 0}, _dense(), _one_hot),
    "CategoricalCrossentropy_axis_0": (K.CategoricalCrossentropy, {"axis": 0}, _dense("softmax"), _one_hot),
    "BinaryCrossentropy_axis_0": (K.BinaryCrossentropy, {"axis": 0}, _dense("sigmoid"), _bits),
    "Huber_of_all": (K.Huber, {"reduction": "sum"}, _dense(), _bits),
}
if generation.GENERATION == 3:
    _AXES["Dice_of_each"] = (K.Dice, {"axis": (1, 2, 3)}, _pixels, _masks)
    _AXES["Dice_over_batch"] = (K.Dice, {"axis": (0, 1, 2)}, _pixels, _masks)
    _AXES["Tversky_of_each"] = (K.Tversky, {"axis": (1, 2, 3)}, _pixels, _masks)
    _AXES["Tversky_over_batch"] = (K.Tversky, {"axis": 0}, _pixels, _masks)


def _register(name, kind, arguments, layers, data):
    def build():
        return net(layers(), data, kind(**arguments))

    build.__name__ = f"keras_loss_{name}"
    case("either", hostile=False, size_only=False)(build)


for _name, (_arguments, _layers, _data) in _LOSSES.items():
    if hasattr(K, _name):
        _register(_name, getattr(K, _name), {**_arguments, "reduction": "none"}, _layers, _data)
for _name, (_kind, _arguments, _layers, _data) in _AXES.items():
    _register(_name, _kind, {"reduction": "none", **_arguments}, _layers, _data)


def left_out() -> set[str]:
    """The losses of this Keras that have no case here."""
    found = {name for name in dir(K) if isinstance(getattr(K, name), type) and issubclass(getattr(K, name), K.Loss)}
    names = {getattr(K, name).__name__ for name in found} - {"Loss", "CTC"}  # CTC: `loss_keras_ctc`
    return names - set(_LOSSES)


# ----------------------------------------------------------------------------------------------------------------
# What `compile` does with several.


def _two_outputs(**options):
    def data(rng, n):
        return floats(rng, n, 5), {"one": rng.integers(0, 3, n), "two": floats(rng, n, 2)}

    def build(x):
        h = L.Dense(4, "tanh")(x)
        return {"one": L.Dense(3, name="one")(h), "two": L.Dense(2, name="two")(h)}

    return net(build, data, {"one": scce(), "two": mse()}, **options)


@case("either", hostile=False)
def compile_a_loss_for_each_name():
    return _two_outputs()


@case("either", hostile=False)
def compile_loss_weights_by_name():
    return _two_outputs(compile={"loss_weights": {"one": 0.3, "two": 2.0}})


@case("either", hostile=False)
def compile_weighted_metrics():
    def data(rng, n):
        return floats(rng, n, 5), rng.integers(0, 3, n), rng.uniform(0.1, 1.0, n).astype(np.float32)

    return net(_dense()(), data, scce(), compile={"weighted_metrics": ["accuracy"], "metrics": ["accuracy"]})


@case("either", hostile=False)
def weights_above_one_and_zero():
    def data(rng, n):
        return floats(rng, n, 5), rng.integers(0, 3, n), rng.choice([0.0, 0.5, 1.0, 3.0], n).astype(np.float32)

    return net(_dense()(), data, scce())


@case("either", hostile=False)
def weights_of_a_column():
    """[N, 1]: Keras squeezes them."""

    def data(rng, n):
        return floats(rng, n, 5), rng.integers(0, 3, n), rng.uniform(0.1, 1.0, (n, 1)).astype(np.float32)

    return net(_dense()(), data, scce())
