"""Recurrent and shared layers, right and wrong: what the loops and the several uses of a variable may hide."""

import tensorflow as tf

from tests.attack.case import Apply, case, features, net, tokens

L = tf.keras.layers


class Cell(L.SimpleRNNCell):
    """A simple cell whose state goes through `function` in every step."""

    def __init__(self, units, function):
        super().__init__(units)
        self._function = function

    def call(self, sequence, states, training=False):
        output, _ = super().call(sequence, states, training=training)
        output = self._function(output)
        return output, [output]


def _by_cell(name, expect, function):
    def build():
        return net([L.RNN(Cell(3, function)), L.Dense(3)], features(4, 2))

    build.__name__ = name
    case(expect)(build)


_by_cell("cell_scaled", "accepted", lambda h: 0.5 * h)
_by_cell("cell_softmax", "accepted", lambda h: tf.nn.softmax(h, axis=1))
_by_cell("cell_minus_batch_mean", "refused", lambda h: h - tf.reduce_mean(h, 0, keepdims=True))
_by_cell("cell_rolled", "refused", lambda h: tf.roll(h, 1, axis=0))
_by_cell("cell_reversed", "refused", lambda h: tf.reverse(h, [0]))
_by_cell("cell_softmax_over_batch", "refused", lambda h: tf.nn.softmax(h, axis=0))
_by_cell("cell_plus_stopped_mean", "refused", lambda h: h + tf.stop_gradient(tf.reduce_mean(h, 0, keepdims=True)))


@tf.custom_gradient
def _gradient_of_the_neighbour(h):
    return tf.identity(h), lambda dy: tf.roll(dy, 1, axis=0)


@tf.custom_gradient
def _gradient_of_all(h):
    return tf.identity(h), lambda dy: tf.zeros_like(dy) + tf.reduce_sum(dy, axis=0, keepdims=True)


_by_cell("cell_gradient_rolled", "refused", _gradient_of_the_neighbour)
_by_cell("cell_gradient_summed", "refused", _gradient_of_all)


@case("accepted")
def shared_recurrent_layer():
    """One LSTM on both halves of a sequence."""

    def build(x):
        lstm = L.LSTM(3)
        return L.Dense(3)(L.Concatenate()([lstm(x[:, :3]), lstm(x[:, 3:])]))

    return net(build, features(6, 2))


@case("refused")
def shared_layer_after_a_roll():
    """The second use of the layer sees the neighbour."""

    def build(x):
        dense = L.Dense(4, "tanh")
        return L.Dense(3)(dense(Apply(lambda h: tf.roll(h, 1, axis=0))(dense(x))[:, :4]))

    return net(build, features(4))


class _Table(L.Layer):
    """Logits by the table of an embedding, of an input that went through `function`."""

    def __init__(self, table, function):
        super().__init__()
        self.table, self._function = table, function

    def call(self, h):
        return tf.matmul(self._function(h), self.table.embeddings, transpose_b=True)


def _tied(function):
    def build(x):
        table = L.Embedding(11, 4)
        return _Table(table, function)(L.GlobalAveragePooling1D()(table(x)))

    return net(build, tokens(classes=11))


@case("accepted")
def tied_without_a_loop():
    return _tied(tf.tanh)


@case("refused")
def tied_to_the_neighbour():
    return _tied(lambda h: tf.reverse(h, [0]))


@case("refused")
def tied_to_the_mean():
    return _tied(lambda h: h - tf.reduce_mean(h, 0))
