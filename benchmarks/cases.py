"""The models that the benchmark trains, with random data of the right shape: name -> (layers, data, batch size)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

layers = tf.keras.layers
CLASSES = 10


class Case(NamedTuple):
    """One model. `build` returns (input, output) so that any Keras model class can be made from them."""

    build: Callable[[], tuple[tf.Tensor, tf.Tensor]]
    inputs: Callable[[np.random.Generator, int], np.ndarray]
    batch_size: int


def _features(width):
    return lambda rng, batch: rng.normal(size=(batch, width)).astype(np.float32)


def _chain(shape, *stack, dtype=tf.float32):
    source = tf.keras.Input(shape, dtype=dtype)
    out = source
    for layer in stack:
        out = layer(out)
    return source, out


def softmax():
    """Softmax regression 784-10."""
    return _chain([784], layers.Dense(CLASSES))


def mlp(hidden=1000, width=60):
    """The paper's MLP 60-1000-10."""
    return _chain([width], layers.Dense(hidden, activation="relu"), layers.Dense(CLASSES))


def cnn():
    """The CNN of tensorflow-privacy's tutorial."""
    return _chain(
        [28, 28, 1],
        layers.Conv2D(16, 8, strides=2, padding="same", activation="relu"),
        layers.MaxPool2D(2, 1),
        layers.Conv2D(32, 4, strides=2, padding="valid", activation="relu"),
        layers.MaxPool2D(2, 1),
        layers.Flatten(),
        layers.Dense(32, activation="relu"),
        layers.Dense(CLASSES),
    )


def embedding():
    """A text classifier: vocabulary 10,000 x 64, length 128, average pooling."""
    return _chain(
        [128], layers.Embedding(10_000, 64), layers.GlobalAveragePooling1D(), layers.Dense(CLASSES), dtype=tf.int32
    )


def transformer():
    """One transformer block of width 64 on sequences of 32, over an embedding of 1,000 tokens."""
    source = tf.keras.Input([32], dtype=tf.int32)
    hidden = layers.Embedding(1000, 64)(source)
    attended = layers.MultiHeadAttention(4, 16)(hidden, hidden)
    hidden = layers.LayerNormalization()(hidden + attended)
    fed = layers.Dense(64)(layers.Dense(128, activation="relu")(hidden))
    hidden = layers.LayerNormalization()(hidden + fed)
    return source, layers.Dense(CLASSES)(layers.GlobalAveragePooling1D()(hidden))


def _text(layer):
    return _chain([100], layers.Embedding(5000, 32), layer, layers.Dense(CLASSES), dtype=tf.int32)


def lstm():
    """An LSTM of 32 units on texts of 100 words, over an embedding of 5,000 words."""
    return _text(layers.LSTM(32))


def gru():
    """The same with a GRU."""
    return _text(layers.GRU(32))


def unrolled():
    """A simple recurrent layer of 64 units, unrolled over 20 steps: every kernel is used 20 times."""
    return _chain([20, 32], layers.SimpleRNN(64, unroll=True), layers.Dense(CLASSES))


def shared():
    """One dense layer on three parts of the input, which are then compared."""
    source = tf.keras.Input([3, 256])
    dense = layers.Dense(512, activation="relu")
    parts = [dense(source[:, i]) for i in range(3)]
    return source, layers.Dense(CLASSES)(layers.Concatenate()(parts))


class _ByTable(tf.keras.layers.Layer):
    """Logits by the table of an embedding."""

    def __init__(self, table):
        super().__init__()
        self.table = table

    def call(self, inputs):
        return tf.matmul(inputs, self.table.embeddings, transpose_b=True)


def tied():
    """The table of 2,000 x 64 words is the output layer too; it reads 32 words and guesses the next."""
    source = tf.keras.Input([32], dtype=tf.int32)
    table = layers.Embedding(2000, 64)
    hidden = layers.Dense(64, activation="tanh")(layers.GlobalAveragePooling1D()(table(source)))
    return source, _ByTable(table)(hidden)


def train_function(model: tf.keras.Model) -> Callable:
    """What `fit` calls for each step, with an iterator. Keras 2 returns it, Keras 3 only keeps it."""
    return model.make_train_function() or model.train_function


def _tokens(vocabulary, length):
    return lambda rng, batch: rng.integers(0, vocabulary, size=(batch, length)).astype(np.int32)


CASES = {
    "softmax": Case(softmax, _features(784), 600),
    "mlp": Case(mlp, _features(60), 600),
    "cnn": Case(cnn, lambda rng, batch: rng.uniform(size=(batch, 28, 28, 1)).astype(np.float32), 250),
    "embedding": Case(embedding, _tokens(10_000, 128), 256),
    "transformer": Case(transformer, _tokens(1000, 32), 64),
    "lstm": Case(lstm, _tokens(5000, 100), 128),
    "gru": Case(gru, _tokens(5000, 100), 128),
    "unrolled": Case(unrolled, lambda rng, batch: rng.normal(size=(batch, 20, 32)).astype(np.float32), 128),
    "shared": Case(shared, lambda rng, batch: rng.normal(size=(batch, 3, 256)).astype(np.float32), 256),
    "tied": Case(tied, _tokens(2000, 32), 256),
}
# The MLP with 10^7 and 10^8 parameters: too many for those who form a gradient for every example.
LARGE = {
    "large": Case(functools.partial(mlp, 140_000), _features(60), 64),
    "huge": Case(functools.partial(mlp, 1_400_000), _features(60), 64),
}


def find(name: str) -> Case:
    """A model by its name."""
    return {**CASES, **LARGE}[name]
