"""Time series, graphs, sets and capsules as people train them."""

import numpy as np
import tensorflow as tf

from tests.attack.case import Apply, PerExample, Problem, case, features, floats, net, tagged

L = tf.keras.layers
SCCE = "sparse_categorical_crossentropy"


def series(length=12, channels=2, ahead=3):
    return lambda rng, n: (floats(rng, n, length, channels), floats(rng, n, ahead))


@case("accepted")
def wave_net():
    """Gated, dilated, causal convolutions with skips."""

    def build(x):
        h, skips = L.Conv1D(3, 1)(x), []
        for rate in (1, 2, 4):
            gate, value = (
                L.Conv1D(3, 2, padding="causal", dilation_rate=rate, activation=kind)(h) for kind in ("sigmoid", "tanh")
            )
            part = L.Multiply()([gate, value])
            skips.append(L.Conv1D(4, 1)(part))
            h = L.Add()([h, L.Conv1D(3, 1)(part)])
        return L.Dense(3)(L.ReLU()(L.Add()(skips))[:, -1])

    return net(build, series(), "mse")


@case("accepted")
def temporal_convolutions():
    """TCN: residual blocks with LayerNormalization and SpatialDropout."""

    def build(x):
        h = x
        for rate in (1, 2):
            left = L.Conv1D(4, 3, padding="causal", dilation_rate=rate)(h)
            left = L.SpatialDropout1D(0.0)(L.Activation("relu")(L.LayerNormalization()(left)))
            h = L.Activation("relu")(L.Add()([left, L.Conv1D(4, 1, padding="same")(h)]))
        return L.Dense(3)(L.Lambda(lambda t: t[:, -1, :], output_shape=(4,))(h))

    return net(build, series(), "huber")


@case("accepted")
def n_beats():
    """Blocks that each take away what they explain."""

    def build(x):
        rest, forecast = L.Flatten()(x), None
        for _ in range(2):
            h = L.Dense(6, "relu")(L.Dense(6, "relu")(rest))
            rest = L.Subtract()([rest, L.Dense(12)(h)])
            own = L.Dense(3)(h)
            forecast = own if forecast is None else L.Add()([forecast, own])
        return forecast

    return net(build, series(channels=1), "mae")


@case("accepted")
def lstm_forecast():
    """Several steps ahead by one dense layer."""
    return net([L.LSTM(5, return_sequences=True), L.Dropout(0.0), L.LSTM(4), L.Dense(3)], series(), "mse")


@case("accepted")
def lstm_forecast_repeated():
    """Encoder, RepeatVector, decoder, TimeDistributed: the classic from many blogs."""

    def data(rng, n):
        return floats(rng, n, 6, 2), floats(rng, n, 4, 1)

    layers = [
        L.LSTM(4, activation="relu"),
        L.RepeatVector(4),
        L.LSTM(4, return_sequences=True),
        L.TimeDistributed(L.Dense(1)),
    ]
    return net(layers, data, "mse")


@case("accepted")
def lstm_forecast_fed_back():
    """TensorFlow's tutorial: a cell called in a Python loop on its own forecasts."""

    class FeedBack(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.cell, self.dense = L.LSTMCell(4), L.Dense(2)
            self.rnn = L.RNN(self.cell, return_state=True)

        def call(self, x):
            h, *state = self.rnn(x)
            found = [self.dense(h)]
            for _ in range(2):
                h, state = self.cell(found[-1], states=state)
                found.append(self.dense(h))
            return tf.stack(found, axis=1)

    return Problem(FeedBack(), lambda rng, n: (floats(rng, n, 5, 2), floats(rng, n, 3, 2)), "mse")


@case("accepted")
def forecast_of_any_length():
    """An LSTM over series of unknown length."""

    def build(x):
        return L.Dense(1)(L.LSTM(4)(x))

    return _any_length(build, lambda rng, n: (floats(rng, n, 6, 2), floats(rng, n, 1)), "mse")


@case("accepted")
def tagger_of_any_length():
    """A bidirectional GRU with an answer at every time, on series of unknown length."""

    def build(x):
        return L.Dense(3, "softmax")(L.Bidirectional(L.GRU(3, return_sequences=True))(x))

    return _any_length(build, tagged(5, 2), SCCE)


def _any_length(build, data, loss):
    x = tf.keras.Input((None, 2))
    return Problem(tf.keras.Model(x, build(x)), data, loss)


@case("accepted")
def anomaly_detection():
    """A convolutional autoencoder of series."""

    def data(rng, n):
        x = floats(rng, n, 8, 1)
        return x, x

    layers = [
        L.Conv1D(4, 3, padding="same", strides=2, activation="relu"),
        L.Dropout(0.0),
        L.Conv1D(2, 3, padding="same", strides=2, activation="relu"),
        L.Conv1DTranspose(2, 3, padding="same", strides=2, activation="relu"),
        L.Conv1DTranspose(4, 3, padding="same", strides=2, activation="relu"),
        L.Conv1DTranspose(1, 3, padding="same"),
    ]
    return net(layers, data, "mse")


@case("accepted", saturates=True)
def series_transformer():
    """Classification of series by attention, as in Keras's example."""

    def build(x):
        h = L.LayerNormalization(epsilon=1e-6)(x)
        h = L.Add()([x, L.Dropout(0.0)(L.MultiHeadAttention(2, 3)(h, h))])
        f = L.LayerNormalization(epsilon=1e-6)(h)
        h = L.Add()([h, L.Conv1D(2, 1)(L.Conv1D(4, 1, activation="relu")(f))])
        return L.Dense(3, "softmax")(L.Dense(4, "relu")(L.GlobalAveragePooling1D(data_format="channels_last")(h)))

    return net(build, features(7, 2), SCCE)


# ----------------------------------------------------------------------------------------------------------------
# Sets and graphs.


def _graphs(rng, n):
    edges = (rng.uniform(size=(n, 5, 5)) < 0.4).astype(np.float32) + np.eye(5, dtype=np.float32)
    return (floats(rng, n, 5, 3), edges), rng.integers(0, 3, n)


@case("accepted", saturates=True)
def graph_attention():
    """GAT: scores of pairs of nodes, masked by the edges."""

    def build(x):
        h = L.Dense(4)(x[0])
        mine, theirs = L.Dense(1)(h), L.Dense(1)(h)
        mix = Apply(_attend)([mine, theirs, x[1], h])
        return L.Dense(3, "softmax")(L.GlobalMaxPooling1D()(L.Dense(4, "elu")(mix)))

    return net(build, _graphs, SCCE)


def _attend(t):
    mine, theirs, edges, h = t
    scores = tf.nn.leaky_relu(mine + tf.transpose(theirs, [0, 2, 1])) + (1.0 - tf.minimum(edges, 1.0)) * -1e9
    return tf.matmul(tf.nn.softmax(scores), h)


@case("accepted")
def message_passing():
    """Messages along edges, and a GRU cell that updates the nodes, twice."""

    def build(x):
        h, update, message = L.Dense(4)(x[0]), CellOnce(L.GRUCell(4)), L.Dense(4, "relu")
        flat = Apply(lambda t: tf.reshape(t, [-1, 4]))
        back = Apply(lambda t: tf.reshape(t, [-1, 5, 4]))
        for _ in range(2):
            arrived = Apply(lambda t: tf.matmul(t[0], t[1]))([x[1], message(h)])
            h = back(update([flat(arrived), flat(h)]))
        return L.Dense(3, "softmax")(L.GlobalAveragePooling1D()(h))

    return net(build, _graphs, SCCE)


class CellOnce(L.Layer):
    """One step of a recurrent cell."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def build(self, shapes):
        self.cell.build(shapes[0])

    def call(self, t):
        return self.cell(t[0], [t[1]])[0]


@case("accepted")
def point_net():
    """Points in any order: shared dense layers, a learnt rotation of each example, the largest of all points."""

    def build(x):
        turn = L.Dense(9, kernel_initializer="zeros", bias_initializer=_identity)(
            L.GlobalMaxPooling1D()(L.Conv1D(4, 1, activation="relu")(x))
        )
        h = L.Dot(axes=(2, 1))([x, L.Reshape((3, 3))(turn)])
        h = L.Conv1D(6, 1, activation="relu")(L.Conv1D(4, 1, activation="relu")(h))
        return L.Dense(3, "softmax")(L.Dropout(0.0)(L.GlobalMaxPooling1D()(h)))

    return net(build, features(7, 3), SCCE)


def _identity(shape, dtype=None):
    del shape
    return tf.reshape(tf.eye(3, dtype=dtype or tf.float32), [-1])


@case("accepted")
def point_net_time_distributed():
    """The same by TimeDistributed, with GroupNormalization."""

    def build(x):
        h = L.GroupNormalization(2)(L.TimeDistributed(L.Dense(4))(x))
        return L.Dense(3)(L.GlobalMaxPooling1D()(L.Activation("relu")(h)))

    return net(build, features(7, 3), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))


@case("accepted", saturates=True)
def set_transformer():
    """Attention from learnt seeds to the set, with a mask of who is there."""

    def data(rng, n):
        there = np.arange(6) < rng.integers(1, 7, (n, 1))
        return (floats(rng, n, 6, 3), there), rng.integers(0, 3, n)

    def build(x):
        h = L.Dense(4)(x[0])
        h = L.MultiHeadAttention(2, 2)(h, h, attention_mask=L.Reshape((1, 6))(x[1]))
        seeds = Seeds(2, 4)(h)
        return L.Dense(3, "softmax")(L.Flatten()(L.MultiHeadAttention(1, 4)(seeds, h)))

    return net(build, data, SCCE)


class Seeds(L.Layer):
    """Learnt vectors, the same for each example."""

    def __init__(self, count, width):
        super().__init__()
        self.seeds = self.add_weight(shape=(1, count, width), initializer="glorot_uniform", name="seeds")

    def call(self, x):
        return tf.repeat(tf.convert_to_tensor(self.seeds), tf.shape(x)[0], axis=0)


@case("accepted")
def capsules():
    """Routing by agreement: the loop of softmax and weighted sums is within each example."""

    def route(votes):
        logits = tf.zeros_like(votes[..., 0])
        for step in range(3):
            share = tf.nn.softmax(logits, axis=2)
            total = tf.reduce_sum(share[..., None] * votes, axis=1)
            squares = tf.reduce_sum(tf.square(total), -1, keepdims=True)
            out = squares / (1.0 + squares) * total / tf.sqrt(squares + 1e-7)
            if step < 2:
                logits += tf.reduce_sum(votes * out[:, None], axis=-1)
        return tf.sqrt(tf.reduce_sum(tf.square(out), -1) + 1e-7)

    def margin(y, lengths):
        wanted = tf.one_hot(tf.cast(tf.reshape(y, [-1]), tf.int32), 3)
        near = wanted * tf.square(tf.maximum(0.0, 0.9 - lengths))
        return tf.reduce_sum(near + 0.5 * (1 - wanted) * tf.square(tf.maximum(0.0, lengths - 0.1)), axis=1)

    def build(x):
        return Apply(route)(L.Reshape((4, 3, 2))(L.Dense(24)(x)))

    return net(build, features(), PerExample(margin))
