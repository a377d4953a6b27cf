"""Models of medicine and finance: missing values, times until something happens, quantiles, tables of numbers."""

import numpy as np
import tensorflow as tf

from tests.attack.case import Apply, PerExample, case, features, floats, net, regression

L = tf.keras.layers


class DecayCell(L.Layer):
    """GRU-D: what is missing decays from the last value to the mean, by the time since it was seen."""

    def __init__(self, units, width, **kwargs):
        super().__init__(**kwargs)
        self.units, self.width = units, width
        self.state_size = [units, width]
        self.output_size = units

    def build(self, shape):
        self.input_decay = self.add_weight(shape=(self.width,), name="input_decay")
        self.hidden_decay = self.add_weight(shape=(self.width, self.units), name="hidden_decay")
        self.mean = self.add_weight(shape=(self.width,), initializer="zeros", name="mean")
        self.gates, self.candidate = L.Dense(2 * self.units, "sigmoid"), L.Dense(self.units, "tanh")
        self.gates.build((None, self.units + 2 * self.width))
        self.candidate.build((None, self.units + 2 * self.width))

    def call(self, x, states, training=None):
        value, seen, since = tf.split(x, 3, axis=-1)
        hidden, last = states
        decay = tf.exp(-tf.nn.relu(since * self.input_decay))
        last = seen * value + (1.0 - seen) * last
        value = seen * value + (1.0 - seen) * (decay * last + (1.0 - decay) * self.mean)
        hidden = hidden * tf.exp(-tf.nn.relu(tf.matmul(since, self.hidden_decay)))
        reset, update = tf.split(self.gates(tf.concat([value, hidden, seen], -1)), 2, axis=-1)
        new = self.candidate(tf.concat([value, reset * hidden, seen], -1))
        hidden = (1.0 - update) * hidden + update * new
        return hidden, [hidden, last]


def _vital_signs(rng, n):
    seen = rng.integers(0, 2, (n, 6, 3)).astype(np.float32)
    since = rng.uniform(0, 2, (n, 6, 3)).astype(np.float32)
    return np.concatenate([floats(rng, n, 6, 3) * seen, seen, since], -1), rng.integers(0, 3, n)


@case("accepted")
def missing_values_by_decay():
    return net([L.RNN(DecayCell(4, 3)), L.Dense(3)], _vital_signs)


@case("accepted")
def missing_values_by_nan():
    """NaN in the table: replaced by a learned value, with a column that tells."""

    class Impute(L.Layer):
        def build(self, shape):
            self.fill = self.add_weight(shape=(shape[-1],), initializer="uniform", name="fill")

        def call(self, x):
            missing = tf.math.is_nan(x)
            return tf.concat([tf.where(missing, tf.ones_like(x) * self.fill, x), tf.cast(missing, x.dtype)], -1)

    def data(rng, n):
        x = floats(rng, n, 5)
        x[rng.uniform(size=x.shape) < 0.3] = np.nan
        return x, rng.integers(0, 3, n)

    return net([Impute(), L.Dense(4, "tanh"), L.Dense(3)], data)


def _survival(rng, n):
    """Features; (which of four spans, whether it happened)."""
    y = np.stack([rng.integers(0, 4, n), rng.integers(0, 2, n)], -1).astype(np.float32)
    return floats(rng, n, 5), y


def _hazards(y, logits):
    """Discrete-time survival: the likelihood of the spans until the event, or until nobody looked any more."""
    spans = tf.range(4, dtype=tf.float32)[None]
    survived = tf.cast(spans < y[:, :1], tf.float32)
    happened = tf.cast(tf.equal(spans, y[:, :1]), tf.float32) * y[:, 1:]
    return -tf.reduce_sum(survived * tf.math.log_sigmoid(-logits) + happened * tf.math.log_sigmoid(logits), axis=-1)


@case("accepted", fast=("graph",))
def survival_in_spans():
    return net([L.Dense(4, "tanh"), L.Dense(4)], _survival, PerExample(_hazards))


def _times(rng, n):
    y = np.stack([rng.exponential(size=n) + 0.1, rng.integers(0, 2, n)], -1).astype(np.float32)
    return floats(rng, n, 5), y


def _weibull(y, out):
    scale, shape = tf.exp(tf.clip_by_value(out[:, 0], -5.0, 5.0)), tf.nn.softplus(out[:, 1]) + 0.1
    hazard = tf.pow(y[:, 0] / scale, shape)
    density = tf.math.log(shape) - tf.math.log(scale) + (shape - 1.0) * tf.math.log(y[:, 0] / scale)
    return hazard - y[:, 1] * density


@case("accepted")
def survival_by_weibull():
    return net([L.Dense(4, "tanh"), L.Dense(2)], _times, PerExample(_weibull))


@case("accepted")
def deep_hit_likelihood():
    """Two risks, four spans each: one softmax over all, the tail where the end was not seen."""

    def loss(y, probabilities):
        joint = tf.reshape(probabilities, [-1, 2, 4])
        span, risk = tf.cast(y[:, 0], tf.int32), tf.cast(y[:, 1], tf.int32)
        own = tf.gather(tf.gather(joint, risk, axis=1, batch_dims=1), span, axis=1, batch_dims=1)
        after = 1.0 - tf.gather(tf.cumsum(tf.reduce_sum(joint, 1), axis=-1), span, axis=1, batch_dims=1)
        return -tf.math.log(tf.where(y[:, 1] > 0, own, after) + 1e-3)

    return net([L.Dense(4, "tanh"), L.Dense(8, "softmax")], _survival, PerExample(loss))


class AttentiveStep(L.Layer):
    """TabNet: masks of features by sparsemax, with a prior that keeps what was used out."""

    def __init__(self, steps=2, width=4):
        super().__init__()
        self.steps, self.width = steps, width

    def build(self, shape):
        count = shape[-1]
        self.shared = L.Dense(2 * self.width)
        self.masks = [L.Dense(count) for _ in range(self.steps)]
        self.own = [L.Dense(2 * self.width) for _ in range(self.steps)]
        self.norm = L.LayerNormalization()
        for layer, size in [(self.shared, count), (self.norm, count)]:
            layer.build((None, size))
        for mask, own in zip(self.masks, self.own):
            mask.build((None, self.width))
            own.build((None, self.width))

    @staticmethod
    def glu(x):
        a, b = tf.split(x, 2, axis=-1)
        return a * tf.sigmoid(b)

    @staticmethod
    def sparsemax(z):
        ordered = tf.sort(z, axis=-1, direction="DESCENDING")
        sums, count = tf.cumsum(ordered, axis=-1), tf.range(1, z.shape[-1] + 1, dtype=z.dtype)
        support = tf.cast(1.0 + count * ordered > sums, z.dtype)
        size = tf.reduce_sum(support, -1, keepdims=True)
        threshold = (tf.reduce_sum(ordered * support, -1, keepdims=True) - 1.0) / size
        return tf.nn.relu(z - threshold)

    def call(self, x):
        x = self.norm(x)
        prior, total = tf.ones_like(x), 0.0
        hidden = self.glu(self.shared(x))
        for mask, own in zip(self.masks, self.own):
            chosen = self.sparsemax(mask(hidden) * prior)
            prior = prior * (1.3 - chosen)
            hidden = self.glu(own(self.glu(self.shared(chosen * x))))
            total = total + tf.nn.relu(hidden)
        return total


@case("accepted")
def tab_net():
    return net([AttentiveStep(), L.Dense(3)], features())


@case("accepted")
def oblivious_trees():
    """NODE: soft decisions on chosen features, every leaf by an outer product."""

    class Trees(L.Layer):
        def build(self, shape):
            self.choose = self.add_weight(shape=(shape[-1], 3, 2), name="choose")
            self.threshold = self.add_weight(shape=(3, 2), initializer="zeros", name="threshold")
            self.response = self.add_weight(shape=(3, 4, 3), name="response")

        def call(self, x):
            picked = tf.einsum("bf,ftd->btd", x, tf.nn.softmax(tf.convert_to_tensor(self.choose), axis=0))
            right = tf.sigmoid(picked - self.threshold)
            pair = tf.stack([right, 1.0 - right], -1)
            leaves = tf.einsum("bti,btj->btij", pair[:, :, 0], pair[:, :, 1])
            return tf.einsum("btl,tlo->bo", tf.reshape(leaves, [-1, 3, 4]), self.response)

    return net([Trees()], features())


@case("accepted")
def sharpe_of_own_windows():
    """A portfolio: weights over assets, the loss is the ratio of mean and deviation over the example's own days."""

    def loss(returns, weights):
        daily = tf.einsum("bda,ba->bd", returns, weights)
        mean, variance = tf.nn.moments(daily, axes=[1])
        return -mean / tf.sqrt(variance + 1e-2)

    def data(rng, n):
        returns = floats(rng, n, 7, 3)
        return returns, returns

    layers = [L.LSTM(4), L.Dense(3, "softmax")]
    return net(layers, data, PerExample(loss))


@case("accepted")
def quantiles_that_do_not_cross():
    """Increments by softplus, added up; pinball loss of nine quantiles."""

    def loss(y, q):
        levels = tf.linspace(0.1, 0.9, 9)
        error = y - q
        return tf.reduce_mean(tf.maximum(levels * error, (levels - 1.0) * error), -1)

    def increasing(x):
        return tf.concat([x[:, :1], x[:, :1] + tf.cumsum(tf.nn.softplus(x[:, 1:]), axis=1)], 1)

    return net([L.Dense(4, "tanh"), L.Dense(9), Apply(increasing)], regression(), PerExample(loss))


@case("accepted")
def expected_shortfall():
    """Value at risk and expected shortfall together (Fissler and Ziegel's loss)."""

    def loss(y, out):
        var, shortfall = out[:, 0], -tf.nn.softplus(out[:, 1]) - 0.1
        hit = tf.cast(y[:, 0] <= var, tf.float32)
        return -(1.0 / (0.05 * shortfall)) * hit * (var - y[:, 0]) + var / shortfall + tf.math.log(-shortfall) - 1.0

    return net([L.Dense(4, "tanh"), L.Dense(2)], regression(), PerExample(loss))


@case("accepted")
def gaussian_with_full_covariance():
    """A Cholesky factor for each example; its negative log likelihood by a triangular solve."""

    def loss(y, out):
        mean, entries = out[:, :3], out[:, 3:]
        diagonal = tf.nn.softplus(entries[:, :3]) + 0.1
        a, b, c = tf.unstack(entries[:, 3:], axis=1)
        zero = tf.zeros_like(a)
        below = tf.stack([zero, zero, zero, a, zero, zero, b, c, zero], 1)
        factor = tf.reshape(below, [-1, 3, 3]) + tf.linalg.diag(diagonal)
        solved = tf.linalg.triangular_solve(factor, (y - mean)[..., None])[..., 0]
        return 0.5 * tf.reduce_sum(solved**2, -1) + tf.reduce_sum(tf.math.log(diagonal), -1)

    return net([L.Dense(4, "tanh"), L.Dense(9)], regression(outputs=3), PerExample(loss))


@case("accepted")
def student_t_likelihood():
    def loss(y, out):
        mean, scale, degrees = out[:, 0], tf.nn.softplus(out[:, 1]) + 0.1, tf.nn.softplus(out[:, 2]) + 2.0
        z = (y[:, 0] - mean) / scale
        normaliser = tf.math.lgamma(degrees / 2) - tf.math.lgamma((degrees + 1) / 2) + 0.5 * tf.math.log(degrees)
        return normaliser + tf.math.log(scale) + (degrees + 1) / 2 * tf.math.log1p(z**2 / degrees)

    return net([L.Dense(4, "tanh"), L.Dense(3)], regression(), PerExample(loss))


@case("accepted")
def zero_inflated_counts():
    def loss(y, out):
        zero, rate = out[:, 0], tf.nn.softplus(out[:, 1]) + 1e-2
        log_poisson = y[:, 0] * tf.math.log(rate) - rate - tf.math.lgamma(y[:, 0] + 1.0)
        some = tf.math.log_sigmoid(-zero) + log_poisson
        none = tf.reduce_logsumexp(tf.stack([tf.math.log_sigmoid(zero), some], -1), -1)
        return -tf.where(y[:, 0] > 0, some, none)

    def data(rng, n):
        return floats(rng, n, 5), rng.poisson(1.0, (n, 1)).astype(np.float32)

    return net([L.Dense(4, "tanh"), L.Dense(2)], data, PerExample(loss))


@case("accepted")
def electrocardiograms():
    """Residual 1-D convolutions, squeeze and excitation, attention over time, several diagnoses."""

    def model(x):
        h = L.Conv1D(4, 5, strides=2, padding="same", activation="relu")(x)
        for dilation in (1, 2):
            r = L.GroupNormalization(groups=2)(h)
            r = L.Conv1D(4, 3, padding="same", dilation_rate=dilation, activation="relu")(r)
            gate = L.Dense(4, "sigmoid")(L.Dense(2, "relu")(L.GlobalAveragePooling1D()(r)))
            h = L.Add()([h, L.Multiply()([r, L.Reshape((1, 4))(gate)])])
        score = L.Softmax(axis=1)(L.Dense(1)(h))
        return L.Dense(3)(L.Flatten()(L.Dot(axes=1)([score, h])))

    def data(rng, n):
        return floats(rng, n, 16, 2), rng.integers(0, 2, (n, 3)).astype(np.float32)

    return net(model, data, tf.keras.losses.BinaryCrossentropy(from_logits=True, reduction="none"))
