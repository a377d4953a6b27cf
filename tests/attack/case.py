"""What a case is: a model or a loss, its data, and what the library should do with it. See README.md."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import adaclip_tf
from adaclip_tf._internal import keras

EXPECTATIONS = ("accepted", "refused", "either")


@dataclasses.dataclass
class Problem:
    """Something to train. `model` with `loss` goes through `compile`; `players` through a loop of one's own."""

    model: tf.keras.Model
    data: Callable[[np.random.Generator, int], tuple]  # (rng, n) -> (x, y) or (x, y, weights)
    loss: Any = None  # what `compile` gets; a loss with reduction="none"
    derive: Callable | None = None  # what the dataset does to a batch: (*batch) -> batch
    loss_fn: Callable | None = None  # batch -> loss per example, if it is not the compiled one
    mean: Callable | None = None  # (batch of one, its loss) -> the example's loss, if that is not the plain mean of it
    players: list | None = None  # [(loss_fn, variables)], each with an optimizer of its own, in one step
    compile: dict = dataclasses.field(default_factory=dict)  # more arguments of `compile`
    memory: Callable[[], list] | None = None  # what else a step could write to, as arrays
    reset: Callable[[], None] | None = None  # empties that memory

    def all_players(self) -> list:
        """[(loss per example of a batch, variables)]."""
        if self.players:
            return self.players
        return [(self.loss_fn or self._compiled_loss, self.model.trainable_variables)]

    def _compiled_loss(self, batch):
        x, y, weights = tf.keras.utils.unpack_x_y_sample_weight(batch)
        return self.model.compute_loss(x, y, self.model(x, training=True), weights)


@dataclasses.dataclass(frozen=True)
class Case:
    """A way to make a problem, and what is right."""

    name: str
    build: Callable[[], Problem]
    expect: str
    fast: tuple = ()  # the modes in which the default tests run it
    random: bool = False  # the loss draws numbers: no two runs are alike
    clip: float = 0.5  # C over the median norm of single-example gradients
    tolerance: float = 1e-3  # allowed |sum - reference| per example, of a sum of vectors of norm up to 1
    fixed: int | None = None  # a model of one batch size: an example is replaced, not removed
    size_only: bool = False  # hangs on the number of examples alone: a constant where TensorFlow knows it beforehand
    policy: str = "float32"  # the global Keras policy
    hostile: bool = True  # whether features may also be scaled by 1000
    saturates: bool = False  # scaled ones have gradients that are rounding alone, so that moves alone count
    infinite: bool = True  # whether they may be infinite; not where an op of TensorFlow raises an error for that
    own_step_only: bool = False  # has no `compile`


CASES: dict[str, Case] = {}


def case(expect: str, **options) -> Callable:
    """Registers a function without arguments that returns a `Problem`."""
    if expect not in EXPECTATIONS:
        raise ValueError(f"`expect` must be one of {EXPECTATIONS}; got {expect!r}.")

    def register(build):
        name = build.__name__
        if name in CASES:
            raise ValueError(f"Two cases are called {name!r}.")
        CASES[name] = Case(name, build, expect, **options)
        return build

    return register


# ----------------------------------------------------------------------------------------------------------------
# Data. Examples differ strongly in size and direction, so that one that is missing is seen.


def _sizes(rng, n, rank):
    return np.exp(rng.uniform(-1.5, 1.5, size=n)).reshape([n] + [1] * rank)


def floats(rng, n, *shape):
    """Normal numbers, each example with a size of its own."""
    return (rng.normal(size=(n, *shape)) * _sizes(rng, n, len(shape))).astype(np.float32)


def features(*shape, classes=3):
    """(x of the given shape per example, class)."""
    return lambda rng, n: (floats(rng, n, *(shape or (5,))), rng.integers(0, classes, n))


def regression(*shape, outputs=1):
    """(x, real numbers)."""
    return lambda rng, n: (floats(rng, n, *(shape or (5,))), floats(rng, n, outputs))


def binary(*shape):
    """(x, 0. or 1. of shape [n, 1])."""
    return lambda rng, n: (floats(rng, n, *(shape or (5,))), rng.integers(0, 2, (n, 1)).astype(np.float32))


def copies(*shape):
    """(x, x), for autoencoders."""

    def make(rng, n):
        x = floats(rng, n, *(shape or (5,)))
        return x, x

    return make


def tokens(length=6, vocabulary=11, classes=3):
    """(token ids, zero after the end of each example, class)."""

    def make(rng, n):
        ids = rng.integers(1, vocabulary, (n, length))
        ends = rng.integers(2, length + 1, (n, 1))
        return np.where(np.arange(length) < ends, ids, 0), rng.integers(0, classes, n)

    return make


def tagged(*shape, classes=3):
    """(sequence of shape [time, ...], a class for every time)."""
    return lambda rng, n: (floats(rng, n, *shape), rng.integers(0, classes, (n, shape[0])))


# ----------------------------------------------------------------------------------------------------------------
# Losses, one number per example.


class PerExample(tf.keras.losses.Loss):
    """A function of (y_true, y_pred) that returns one number per example."""

    def __init__(self, function):
        super().__init__(reduction="none")
        self._function = function

    def call(self, y_true, y_pred):
        return self._function(y_true, y_pred)


def scce():
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")


def mse():
    return tf.keras.losses.MeanSquaredError(reduction="none")


def bce():
    return tf.keras.losses.BinaryCrossentropy(from_logits=True, reduction="none")


def cross_entropy(y, logits):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(y, tf.int32), logits)


# ----------------------------------------------------------------------------------------------------------------
# Models.


def minimize(optimizer, loss, variables, tape):
    """One step; Keras 3's own optimizers have no `minimize`."""
    if isinstance(optimizer, adaclip_tf.DPOptimizer) or keras.GENERATION == 2:
        optimizer.minimize(loss, variables, tape=tape)
    else:
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))


def mean_of_tokens(batch, loss):
    """The mean over the places that Keras's mask leaves: those with a token that is not 0."""
    return tf.reduce_sum(loss) / tf.reduce_sum(tf.cast(batch[0] != 0, loss.dtype))


def inputs_like(x):
    """Keras inputs for a structure of arrays, ragged or sparse tensors."""
    return tf.nest.map_structure(_input, x)


def _input(leaf):
    if isinstance(leaf, tf.RaggedTensor):
        return tf.keras.Input(leaf.shape[1:], dtype=leaf.dtype, ragged=True)
    if isinstance(leaf, tf.SparseTensor):
        return tf.keras.Input(leaf.shape[1:], dtype=leaf.dtype, sparse=True)
    leaf = tf.convert_to_tensor(leaf)
    return tf.keras.Input(leaf.shape[1:], dtype=leaf.dtype)


def net(function, data, loss=None, **options) -> Problem:
    """A functional model: `function` of the inputs, or a list of layers."""
    x = data(np.random.default_rng(0), 2)[0]
    if keras.GENERATION == 3 and any(isinstance(leaf, tf.RaggedTensor) for leaf in tf.nest.flatten(x)):
        return Problem(Chain(function), data, loss or scce(), **options)
    inputs = inputs_like(x)
    outputs = inputs
    if callable(function):
        outputs = function(inputs)
    else:
        for layer in function:
            outputs = layer(outputs)
    return Problem(tf.keras.Model(inputs, outputs), data, loss or scce(), **options)


class Chain(tf.keras.Model):
    """One layer after the other, of whatever they are given: Keras 3's functional models take no ragged tensors."""

    def __init__(self, layers):
        super().__init__()
        self._chained = list(layers)

    def call(self, x):
        for layer in self._chained:
            x = layer(x)
        return x


class Lookup(tf.keras.layers.Layer):
    """An embedding, of ragged tokens too."""

    def __init__(self, size, width):
        super().__init__()
        self.table = self.add_weight(shape=(size, width), initializer="uniform", name="table")

    def call(self, x):
        return tf.ragged.map_flat_values(lambda ids: tf.gather(keras.native(self.table), ids), x)


class Apply(tf.keras.layers.Layer):
    """A layer that applies a TensorFlow function: like Lambda, but never serialized."""

    def __init__(self, function, **kwargs):
        super().__init__(**kwargs)
        self._function = function

    def call(self, inputs):
        return self._function(inputs)


def mlp_around(function, data=None, loss=None, **options) -> Problem:
    """Dense, the function, Dense: where most mixing ones are hidden."""
    dense = tf.keras.layers.Dense
    return net([dense(4, "tanh"), Apply(function), dense(3)], data or features(), loss, **options)
