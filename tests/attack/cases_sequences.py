"""Right models of text and time: recurrent networks, attention, masks, text and sparse features."""

import numpy as np
import tensorflow as tf

from adaclip_tf._internal import keras
from tests.attack.case import (
    Apply,
    Lookup,
    bce,
    binary,
    case,
    features,
    floats,
    mean_of_tokens,
    mse,
    net,
    regression,
    scce,
    tagged,
    tokens,
)

L = tf.keras.layers
WORDS = np.array(["the", "cat", "sat", "on", "a", "mat", "and", "then", "it", "ran", "far", "away"])


def sentences(rng, n):
    """(strings of several words, class)."""
    return np.array([" ".join(rng.choice(WORDS, rng.integers(2, 6))) for _ in range(n)]), rng.integers(0, 3, n)


def ragged_tokens(rng, n):
    rows = [rng.integers(1, 11, rng.integers(1, 6)) for _ in range(n)]
    return tf.ragged.constant(rows, dtype=tf.int64), rng.integers(0, 3, n)


def ragged_floats(rng, n):
    rows = [rng.normal(size=rng.integers(1, 6)).tolist() for _ in range(n)]
    return tf.ragged.constant(rows, dtype=tf.float32), rng.integers(0, 3, n)


def sparse_features(rng, n):
    x = floats(rng, n, 7) * (rng.uniform(size=(n, 7)) < 0.5)
    x[:, 0] = 1.0
    return tf.sparse.from_dense(x.astype(np.float32)), rng.integers(0, 3, n)


def _text_cases():
    """One plain recurrent classifier per kind of cell and loss."""
    kinds = {
        "lstm": lambda: L.LSTM(4),
        "gru": lambda: L.GRU(4),
        "simple_rnn": lambda: L.SimpleRNN(4),
        "lstm_unrolled": lambda: L.LSTM(3, unroll=True),
        "gru_reset_before": lambda: L.GRU(3, reset_after=False),
        "bidirectional": lambda: L.Bidirectional(L.LSTM(3)),
        "stacked_cells": lambda: L.RNN([L.LSTMCell(3), L.GRUCell(3)]),
    }
    for name, make in kinds.items():

        def softmax(make=make):
            return net([make(), L.Dense(3)], features(5, 2))

        def logistic(make=make):
            return net([make(), L.Dense(1)], binary(5, 2), bce())

        softmax.__name__, logistic.__name__ = name, f"{name}_binary"
        case("accepted", fast=("graph",) if name == "lstm" else ())(softmax)
        case("accepted", fast=("graph",) if name == "simple_rnn" else ())(logistic)


_text_cases()


@case("accepted")
def lstm_mse():
    return net([L.LSTM(3, return_sequences=True), L.LSTM(3), L.Dense(1)], regression(5, 2), mse())


@case("accepted", clip=0.02)
def lstm_tagger():
    """A loss of shape [batch, time]."""
    return net([L.LSTM(3, return_sequences=True), L.Dense(3)], tagged(5, 2))


@case("accepted", random=True)
def lstm_recurrent_dropout():
    return net([L.LSTM(4, dropout=0.2, recurrent_dropout=0.2), L.Dense(3)], features(5, 2))


@case("accepted")
def conv_lstm_1d():
    return net([L.ConvLSTM1D(2, 2), L.Flatten(), L.Dense(3)], features(3, 4, 1))


@case("accepted")
def conv_lstm_2d():
    return net([L.ConvLSTM2D(2, 2), L.Flatten(), L.Dense(3)], features(3, 4, 4, 1))


@case("accepted")
def masked_lstm():
    return net([L.Embedding(11, 4, mask_zero=True), L.LSTM(4), L.Dense(3)], tokens())


@case("accepted")
def masked_tagger():
    """A loss of shape [batch, time] with a mask."""

    def data(rng, n):
        x, _ = tokens()(rng, n)
        return x, rng.integers(0, 3, x.shape)

    layers = [L.Embedding(11, 4, mask_zero=True), L.GRU(4, return_sequences=True), L.Dense(3)]
    return net(layers, data, mean=mean_of_tokens)


@case("accepted")
def masking_layer():
    return net([L.Masking(0.0), L.GRU(3), L.Dense(3)], features(5, 2))


@case("accepted")
def encoder_decoder():
    """The decoder starts from the encoder's state."""

    def build(x):
        _, h, c = L.LSTM(3, return_state=True)(x)
        return L.Dense(3)(L.LSTM(3)(x, initial_state=[h, c]))

    return net(build, features(4, 2))


@case("accepted")
def embedding_mean():
    return net([L.Embedding(11, 4), L.GlobalAveragePooling1D(), L.Dense(3)], tokens())


@case("accepted")
def embedding_masked_mean():
    return net([L.Embedding(11, 4, mask_zero=True), L.GlobalAveragePooling1D(), L.Dense(3)], tokens())


@case("accepted")
def embedding_text_cnn():
    def build(x):
        h = L.Embedding(11, 4)(x)
        return L.Dense(3)(
            L.Concatenate()([L.GlobalMaxPooling1D()(L.Conv1D(3, k, activation="relu")(h)) for k in (2, 3)])
        )

    return net(build, tokens())


@case("accepted")
def tied_embeddings():
    """The output layer is the embedding table itself; a language model's loss is per time, here of the last."""

    def build(x):
        table = L.Embedding(11, 4)
        h = L.GRU(4)(table(x))
        return TiedOutput(table)(h)

    return net(build, tokens(classes=11))


class TiedOutput(L.Layer):
    """Logits by the table of an embedding."""

    def __init__(self, table):
        super().__init__()
        self.table = table

    def call(self, h):
        return tf.matmul(h, self.table.embeddings, transpose_b=True)


@case("accepted")
def time_distributed():
    return net([L.TimeDistributed(L.Dense(4, "relu")), L.GlobalMaxPooling1D(), L.Dense(3)], features(5, 3))


@case("accepted")
def time_distributed_convolution():
    layers = [L.TimeDistributed(L.Conv2D(2, 2)), L.TimeDistributed(L.Flatten()), L.GRU(3), L.Dense(3)]
    return net(layers, features(3, 4, 4, 1))


@case("accepted", saturates=True, fast=("static",))
def attention():
    """Scaled features saturate its softmax: TensorFlow's own gradient of eight copies of an example is then 2.7 times
    off that of the example alone, which agrees with float64."""

    def build(x):
        h = L.Dense(4)(x)
        return L.Dense(3)(L.Flatten()(L.Concatenate()([L.Attention()([h, h]), L.AdditiveAttention()([h, h])])))

    return net(build, features(5, 3))


@case("accepted", saturates=True)
def transformer():
    def build(x):
        h = L.Dense(4)(x)
        h = L.LayerNormalization()(h + L.MultiHeadAttention(2, 2)(h, h))
        h = L.LayerNormalization()(h + L.Dense(4)(L.Dense(8, "gelu")(h)))
        return L.Dense(3)(L.GlobalAveragePooling1D()(h))

    return net(build, features(5, 3))


@case("accepted")
def causal_transformer_with_masks():
    def build(x):
        h = L.Embedding(11, 4, mask_zero=True)(x) + L.Embedding(6, 4)(tf.range(6))
        h = h + L.MultiHeadAttention(2, 2)(h, h, use_causal_mask=True)
        return L.Dense(3)(L.GlobalAveragePooling1D()(h))

    return net(build, tokens())


@case("accepted")
def text_vectorization():
    """Strings are looked up inside the model."""
    layer = L.TextVectorization(output_mode="int", output_sequence_length=6, vocabulary=list(WORDS))
    return net([layer, L.Embedding(15, 4), L.GlobalAveragePooling1D(), L.Dense(3)], sentences)


@case("accepted")
def text_vectorization_counts():
    layer = L.TextVectorization(output_mode="count", vocabulary=list(WORDS))
    return net([layer, L.Dense(3)], sentences)


@case("accepted")
def string_lookup():
    def data(rng, n):
        return rng.choice(WORDS, (n, 2)), rng.integers(0, 3, n)

    return net([L.StringLookup(vocabulary=list(WORDS)), L.Embedding(15, 3), L.Flatten(), L.Dense(3)], data)


@case("accepted")
def integer_lookup_and_one_hot():
    def data(rng, n):
        return rng.integers(0, 9, (n, 3)), rng.integers(0, 3, n)

    return net([L.IntegerLookup(vocabulary=list(range(6)), output_mode="multi_hot"), L.Dense(3)], data)


@case("accepted")
def hashing_and_category_encoding():
    def data(rng, n):
        return rng.choice(WORDS, (n, 3)), rng.integers(0, 3, n)

    return net([L.Hashing(7), L.CategoryEncoding(7, "count"), L.Dense(3)], data)


@case("accepted")
def discretization():
    return net([L.Discretization([-1.0, 0.0, 1.0]), L.Embedding(4, 3), L.Flatten(), L.Dense(3)], features())


@case("accepted", fast=("graph",))
def ragged_text():
    """Ragged input, mean of the embeddings of each row."""
    return net([Lookup(11, 4), Apply(lambda x: tf.reduce_mean(x, axis=1)), L.Dense(3)], ragged_tokens)


def ragged_lstm():
    return net([L.Embedding(11, 4), L.LSTM(3), L.Dense(3)], ragged_tokens)


if keras.GENERATION == 2:  # Keras 3's layers take no ragged tensors
    case("accepted")(ragged_lstm)


@case("accepted")
def ragged_to_fixed_length():
    """Padded to a length that does not hang on the batch."""
    to_dense = Apply(lambda x: x.to_tensor(shape=[None, 6]))
    return net([to_dense, L.Embedding(11, 3), L.Flatten(), L.Dense(3)], ragged_tokens)


@case("accepted")
def ragged_reals_sum():
    return net([Apply(lambda x: tf.reduce_sum(x, axis=1, keepdims=True)), L.Dense(3)], ragged_floats)


@case("accepted", fast=("graph",))
def sparse_dense():
    """Sparse features into a Dense layer."""
    return net([L.Dense(4, "tanh"), L.Dense(3)], sparse_features)


@case("accepted")
def sparse_to_dense():
    to_dense = Apply(lambda x: tf.ensure_shape(tf.sparse.to_dense(x), [None, 7]))
    return net([to_dense, L.Dense(4, "tanh"), L.Dense(3)], sparse_features, scce())
