"""Recurrent layers on the ghost path, against every example's own gradient."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import core
from adaclip_tf._internal import keras
from adaclip_tf.gradients import paths

L = tf.keras.layers
SLOW = pytest.mark.slow
LAYERS = {
    "lstm": lambda: [L.LSTM(3)],
    "gru": lambda: [L.GRU(3)],
    "simple": lambda: [L.SimpleRNN(3)],
    "gru_reset_before": lambda: [L.GRU(3, reset_after=False)],
    "sequences": lambda: [L.LSTM(3, return_sequences=True), L.GlobalMaxPooling1D()],
    "stacked": lambda: [L.LSTM(2, return_sequences=True), L.GRU(3)],
    "both_ways": lambda: [L.Bidirectional(L.LSTM(2))],
    "cells": lambda: [L.RNN([L.LSTMCell(2), L.SimpleRNNCell(3)])],
    "masked": lambda: [L.LSTM(3)],
    "twice": lambda: [Twice()],
    "tagged": lambda: [L.GRU(3, return_sequences=True), L.TimeDistributed(L.Dense(2)), L.Flatten()],
    "masked_and_tagged": lambda: [L.LSTM(2, return_sequences=True), L.Dense(2), L.Flatten()],
    "encoder_and_decoder": lambda: [Decoded(), L.Flatten()],
    "gathered": lambda: [Gathered()],
    "sorted": lambda: [Sorted()],
    "columns": lambda: [Columns()],
    "queries": lambda: [Queries()],
    "joined_in_a_cell": lambda: [L.RNN(JoiningCell())],
    "negated_in_a_cell": lambda: [L.RNN(NegatingCell())],
    "pictures": lambda: [L.Reshape([4, 2, 2, 1]), L.ConvLSTM2D(2, 2, padding="same"), L.Flatten()],
    "called": lambda: [Called(), L.Flatten()],
}
FAST = ("lstm", "gathered", "sorted", "columns", "queries", "negated_in_a_cell", "pictures", "called")


class Twice(L.Layer):
    """One recurrent layer on a sequence and on what it made of it."""

    def __init__(self):
        super().__init__()
        self.rnn = L.SimpleRNN(4, return_sequences=True)

    def call(self, inputs):
        return self.rnn(self.rnn(inputs))[:, -1]


class Decoded(L.Layer):
    """A decoder whose state starts where the encoder's ended."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = L.GRU(3, return_state=True), L.GRU(3, return_sequences=True)

    def call(self, inputs):
        _, state = self.encoder(inputs)
        return self.decoder(inputs[:, 1:], initial_state=state)


class Gathered(L.Layer):
    """Entries that each example chooses by itself, from a matrix and from a vector; some are chosen twice."""

    def __init__(self):
        super().__init__()
        self.dense, self.scores = L.Dense(3), L.Dense(1)

    def call(self, inputs):
        chosen = tf.argmax(inputs, axis=2)  # of four places, [batch, 4]
        rows = tf.gather(self.dense(inputs), chosen, batch_dims=1)
        scores = self.scores(inputs)[:, :, 0]
        first, all_chosen = tf.gather(scores, chosen[:, 0], batch_dims=1), tf.gather(scores, chosen, batch_dims=1)
        return tf.reduce_sum(tf.square(rows), axis=1) * first[:, tf.newaxis] + tf.reduce_sum(all_chosen, 1, True)


class Sorted(L.Layer):
    """Weights of the two largest of three scores, and all of them sorted."""

    def __init__(self):
        super().__init__()
        self.scores, self.more = L.Dense(3), L.Dense(3)

    def call(self, inputs):
        best, places = tf.math.top_k(self.scores(inputs), 2)
        chosen = tf.reduce_sum(tf.one_hot(places, 3) * best[..., tf.newaxis], axis=2)
        return tf.reduce_sum(chosen * tf.sort(self.more(inputs), axis=-1) * tf.constant([1.0, -2.0, 0.5]), axis=1)


class Columns(L.Layer):
    """Pairs of places, by numbers that are fixed, some of them twice."""

    def __init__(self):
        super().__init__()
        self.dense = L.Dense(3)

    def call(self, inputs):
        rows = self.dense(inputs)
        return tf.reduce_sum(tf.gather(rows, [0, 0, 1], axis=1) * tf.gather(rows, [1, 2, 3], axis=1), axis=1)


class Queries(L.Layer):
    """Two queries that are repeated for each example ask it for its places."""

    def __init__(self):
        super().__init__()
        self.dense, self.queries = L.Dense(4), self.add_weight(shape=(1, 2, 4), name="queries")

    def call(self, inputs):
        queries = self.dense(tf.repeat(self.queries, tf.shape(inputs)[0], axis=0))
        weights = tf.nn.softmax(tf.einsum("bqd,btd->bqt", queries, inputs))
        return tf.reduce_sum(tf.einsum("bqt,btd->bqd", weights, inputs), axis=1)


class JoiningCell(L.Layer):
    """A cell that joins what it gets, its state and a product of both, and scales its state by a variable."""

    state_size = output_size = 3

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1] + 3, 3), name="kernel")
        self.decay = self.add_weight(shape=(3,), name="decay")

    def call(self, inputs, states):
        state = states[0] * self.decay
        state = tf.tanh(tf.matmul(tf.concat([inputs, state], axis=1), tf.convert_to_tensor(self.kernel)))
        return state, [state]


class NegatingCell(L.Layer):
    """A cell that takes its kernel's sign away, so that what a step adds to the gradient is no bare product."""

    state_size = output_size = 3

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 3), name="kernel")

    def call(self, inputs, states):
        state = tf.tanh(states[0] + tf.matmul(inputs, -tf.convert_to_tensor(self.kernel)))
        return state, [state]


class Called(L.Layer):
    """A function of its own, which tells its gradient in what order it laid out the axes."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 3), name="kernel")

    def call(self, inputs):
        kernel = tf.convert_to_tensor(self.kernel)
        laid_out = tf.function(lambda v: tf.transpose(tf.tanh(v @ kernel), [0, 2, 1]), autograph=False)
        return laid_out(inputs)


def problem(name, rng):
    masked = name.startswith("masked")
    stack = [tf.keras.Input([4], dtype=tf.int32), L.Embedding(6, 4, mask_zero=masked), *LAYERS[name](), L.Dense(2)]
    model = tf.keras.Sequential(stack)
    for variable in model.trainable_variables:  # zero biases would hide mistakes
        variable.assign_add(tf.constant(rng.normal(size=variable.shape, scale=0.3), tf.float32))
    return model


def loss_of(model, x):
    return tf.reduce_sum(tf.square(model(x) - tf.constant([1.0, -2.0])), axis=1)


def variables_of(model):
    return [keras.native(variable) for variable in model.trainable_variables]


def expected(model, x, centers, scales):
    """sum_k u_k and |w_k|^2 in NumPy, from gradients of single examples."""
    variables = variables_of(model)
    totals, norms = [np.zeros(v.shape) for v in variables], []
    for k in range(len(x)):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(loss_of(model, x[k : k + 1]))
        gradients = [np.asarray(tf.convert_to_tensor(g), np.float64) for g in tape.gradient(loss, variables)]
        record = [(g - a) / b for g, a, b in zip(gradients, centers, scales)]
        norms.append(sum(np.square(w).sum() for w in record))
        for total, w in zip(totals, record):
            total += w / max(1.0, np.sqrt(norms[-1]))
    return totals, np.array(norms)


def clipped(model, centers, scales, signature, **options):
    variables = variables_of(model)

    def step(x):
        with tf.GradientTape() as tape:
            loss = loss_of(model, x)
        transform = core.Transform([tf.constant(a) for a in centers], [tf.constant(b) for b in scales])
        result = paths.clipped_sum(loss, variables, tape, transform, path="ghost", num_microbatches=None)
        return result.total, result.squared_norms

    return tf.function(step, input_signature=[signature], autograph=False, **options)


def check(name, rng, sizes=(5, 1), static=None, **options):
    model = problem(name, rng)
    shapes = [v.shape for v in model.trainable_variables]
    centers = [rng.normal(size=shape, scale=0.05).astype(np.float32) for shape in shapes]
    scales = [rng.uniform(0.5, 3.0, size=shape).astype(np.float32) for shape in shapes]
    step = clipped(model, centers, scales, tf.TensorSpec([static, 4], tf.int32), **options)
    for size in sizes:
        x = rng.integers(1, 6, size=[size, 4]).astype(np.int32)
        x[: size // 2, 2:] = 0  # shorter ones, if 0 is masked
        totals, norms = expected(model, x, centers, scales)
        ours, squares = step(x)
        np.testing.assert_allclose(squares, norms, rtol=1e-3)
        for mine, total in zip(ours, totals):
            np.testing.assert_allclose(mine, total, atol=2e-4 * max(1.0, np.abs(total).max()))


@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=SLOW) for n in LAYERS])
def test_recurrent_layers_have_handles_and_are_exact(name, rng):
    check(name, rng)


@SLOW
@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_batches_of_a_fixed_size(name, rng):
    check(name, rng, sizes=(3,), static=3)


@SLOW
def test_under_xla(rng):
    check("lstm", rng, sizes=(3,), static=3, jit_compile=True)


def test_an_example_that_is_not_finite_leaves_the_others_alone(rng):
    """Its rows lie between theirs in every list."""
    kernel = tf.Variable(rng.normal(size=[3, 3]).astype(np.float32))

    def loss_of_rows(x):
        steps = tf.transpose(x, [1, 0, 2])
        state = tf.scan(lambda h, x_t: tf.tanh(tf.matmul(x_t + h, kernel)), steps, tf.zeros_like(x[:, 0]))[-1]
        return tf.reduce_sum(tf.square(state - 0.3), axis=1)

    @tf.function(input_signature=[tf.TensorSpec([None, 2, 3])], autograph=False)
    def step(x):
        with tf.GradientTape() as tape:
            loss = loss_of_rows(x)
        transform = core.Transform([tf.constant(0.0)], [tf.constant(2.0)])
        result = paths.clipped_sum(loss, [kernel], tape, transform, path="ghost", num_microbatches=None)
        return result.total[0], result.squared_norms

    x = rng.normal(size=[4, 2, 3]).astype(np.float32)
    bad = x.copy()
    bad[1, 0, 0] = np.nan
    total, norms = step(bad)
    rest, clean = step(np.delete(x, 1, axis=0))
    np.testing.assert_allclose(np.delete(norms, 1), clean, rtol=1e-5)
    np.testing.assert_allclose(total, rest, atol=1e-5)


def mixed_by_step(h):
    return h - tf.reduce_mean(h, axis=0)


def rolled_by_step(h):
    return tf.roll(h, 1, axis=0)


def reversed_by_step(h):
    return tf.reverse(h, [0])


@pytest.mark.parametrize("mix", [mixed_by_step, rolled_by_step, reversed_by_step], ids=lambda f: f.__name__)
def test_loops_that_bring_examples_together_are_never_on_the_ghost_path(mix, rng):
    kernel = tf.Variable(rng.normal(size=[3, 3]).astype(np.float32))

    @tf.function(input_signature=[tf.TensorSpec([None, 2, 3])], autograph=False)
    def step(x):
        with tf.GradientTape() as tape:
            steps = tf.transpose(x, [1, 0, 2])
            state = tf.scan(lambda h, x_t: mix(tf.tanh(tf.matmul(x_t + h, kernel))), steps, tf.zeros_like(x[:, 0]))[-1]
            loss = tf.reduce_sum(tf.square(state - 0.3), axis=1)
        transform = core.Transform([tf.constant(0.0)], [tf.constant(2.0)])
        return paths.clipped_sum(loss, [kernel], tape, transform, path="ghost", num_microbatches=None).total

    with pytest.raises(ValueError, match=r"No ghost rule|so that one example changes others"):
        step(rng.normal(size=[4, 2, 3]).astype(np.float32))
