"""Everyday models that are right, by ways of computing that no other file here takes."""

import numpy as np
import tensorflow as tf

from adaclip_tf._internal import keras as generation
from tests.attack.case import (
    Apply,
    PerExample,
    Problem,
    case,
    copies,
    cross_entropy,
    features,
    floats,
    mse,
    net,
    regression,
    scce,
    tagged,
    tokens,
)

L = tf.keras.layers


class Own(L.Layer):
    """A function of the input and of weights of given shapes."""

    def __init__(self, function, *shapes, initializer="glorot_uniform"):
        super().__init__()
        self._function, self._shapes, self._initializer = function, shapes, initializer

    def build(self, shape):
        self.own = [
            self.add_weight(shape=s, initializer=self._initializer, name=f"own{i}") for i, s in enumerate(self._shapes)
        ]

    def call(self, x):
        return self._function(x, *[tf.convert_to_tensor(w) for w in self.own])


def _linear_attention(x, q, k, v):
    """Causal: sums of outer products so far."""
    query, key, value = (tf.einsum("btf,fd->btd", x, w) for w in (q, k, v))
    query, key = tf.nn.elu(query) + 1.0, tf.nn.elu(key) + 1.0
    state = tf.cumsum(tf.einsum("btd,bte->btde", key, value), axis=1)
    norm = tf.cumsum(key, axis=1)
    return tf.einsum("btd,btde->bte", query, state) / tf.reduce_sum(query * norm, -1, keepdims=True)


@case("accepted")
def causal_linear_attention():
    return net([Own(_linear_attention, (3, 4), (3, 4), (3, 4)), L.Flatten(), L.Dense(3)], features(5, 3))


def _state_space(x, a, b, c):
    """Mamba's selective scan, by TensorFlow's: the step hangs on the input."""
    step = tf.nn.softplus(tf.einsum("btf,fd->btd", x, b))
    decay, inputs = tf.exp(-step * tf.nn.softplus(a)), step * tf.einsum("btf,fd->btd", x, c)
    major = [tf.transpose(part, [1, 0, 2]) for part in (decay, inputs)]
    states = tf.scan(lambda state, now: now[0] * state + now[1], tuple(major), tf.zeros_like(major[1][0]))
    return tf.transpose(states, [1, 0, 2])


@case("accepted")
def selective_state_space():
    return net([Own(_state_space, (4,), (3, 4), (3, 4)), L.GlobalAveragePooling1D(), L.Dense(3)], features(5, 3))


@case("accepted")
def channels_as_examples():
    """PatchTST: each channel of a series is a sequence of patches of its own, with the same weights."""

    def model(x):
        rows = Apply(lambda s: tf.reshape(tf.transpose(s, [0, 2, 1]), [-1, 4, 2]))(x)
        h = L.Dense(4)(rows)
        h = L.LayerNormalization()(h + L.MultiHeadAttention(1, 4)(h, h))
        h = L.Dense(2)(L.Flatten()(h))
        return Apply(lambda s: tf.reshape(s, [-1, 6]))(h)

    return net(model, regression(8, 3, outputs=6), mse())


@case("accepted")
def decomposed_linear():
    """DLinear: a moving average and what is left of it, each by one layer over time."""

    def model(x):
        trend = L.AveragePooling1D(3, 1, "same")(x)
        parts = [L.Dense(2)(L.Permute((2, 1))(part)) for part in (trend, x - trend)]
        return L.Flatten()(parts[0] + parts[1])

    return net(model, regression(6, 2, outputs=4), mse())


@case("accepted")
def interpolated_stacks():
    """N-HiTS: pooled inputs, forecasts at fewer points, stretched."""

    def model(x):
        total, rest = 0.0, x
        for pool in (1, 2, 4):
            pooled = L.Flatten()(L.MaxPooling1D(pool)(L.Reshape((8, 1))(rest)))
            theta = L.Dense(8 // pool + 4 // pool)(L.Dense(4, "relu")(pooled))
            back, ahead = Apply(lambda t, p=pool: t[:, : 8 // p])(theta), Apply(lambda t, p=pool: t[:, 8 // p :])(theta)
            rest = rest - Apply(lambda t: tf.image.resize(t[:, :, None, None], [8, 1])[:, :, 0, 0])(back)
            total = total + Apply(lambda t: tf.image.resize(t[:, :, None, None], [4, 1])[:, :, 0, 0])(ahead)
        return total

    return net(model, regression(8, outputs=4), mse())


@case("accepted")
def scaled_by_own_mean():
    """DeepAR: an example's series over its own mean, a negative binomial with that scale put back."""

    def model(x):
        scale = Apply(lambda s: 1.0 + tf.reduce_mean(tf.abs(s), 1))(x)
        out = L.Dense(2, "softplus")(L.LSTM(4)(x / L.Reshape((1, 1))(scale)))
        return L.Concatenate()([L.Multiply()([out, scale]), scale])

    def loss(y, out):
        mean, alpha = out[:, 0] + 1e-2, out[:, 1] / out[:, 2] + 1e-2
        r, count = 1.0 / alpha, tf.abs(y[:, 0])
        ratio = alpha * mean / (1.0 + alpha * mean)
        likelihood = tf.math.lgamma(count + r) - tf.math.lgamma(count + 1.0) - tf.math.lgamma(r)
        return -(likelihood - r * tf.math.log1p(alpha * mean) + count * tf.math.log(ratio))

    return net(model, regression(5, 1), PerExample(loss))


class _Gated(L.Layer):
    """TFT's gated residual network."""

    def __init__(self, width, out):
        super().__init__()
        self.first, self.second, self.gate = L.Dense(width, "elu"), L.Dense(out), L.Dense(out, "sigmoid")
        self.skip, self.norm = L.Dense(out), L.LayerNormalization()

    def call(self, x):
        h = self.second(self.first(x))
        return self.norm(self.skip(x) + self.gate(h) * h)


@case("accepted")
def chosen_variables():
    """TFT's variable selection: a network for each variable, weighed by another over all."""

    def model(x):
        weights = L.Softmax()(_Gated(4, 3)(L.Flatten()(x)))
        parts = [_Gated(4, 4)(Apply(lambda s, i=i: s[:, i])(x)) for i in range(3)]
        stacked = Apply(lambda s: tf.stack(s, 1))(parts)
        return L.Dense(3)(Apply(lambda s: tf.reduce_sum(s[0] * s[1][..., None], 1))([stacked, weights]))

    return net(model, features(3, 2))


@case("accepted")
def fourier_neural_operator():
    """Complex weights on a few frequencies of a field."""

    def spectral(x, real, imaginary):
        modes = tf.signal.rfft(tf.transpose(x, [0, 2, 1]))[:, :, :3]
        mixed = tf.einsum("bim,iom->bom", modes, tf.complex(real, imaginary))
        padded = tf.pad(mixed, [[0, 0], [0, 0], [0, 2]])
        return tf.transpose(tf.signal.irfft(padded, [8]), [0, 2, 1])

    def model(x):
        h = L.Dense(3)(x)
        h = L.Activation("gelu")(Own(spectral, (3, 3, 3), (3, 3, 3))(h) + L.Conv1D(3, 1)(h))
        return L.Dense(1)(h)

    return net(model, lambda rng, n: (floats(rng, n, 8, 2), floats(rng, n, 8, 1)), mse())


@case("accepted")
def graph_of_own_neighbours():
    """DGCNN: points are joined to those nearest to them, found anew."""

    def edges(x):
        distance = tf.reduce_sum((x[:, :, None] - x[:, None]) ** 2, -1)
        nearest = tf.math.top_k(-distance, 2).indices
        found = tf.gather(x, nearest, batch_dims=1)
        centre = tf.broadcast_to(x[:, :, None], tf.shape(found))
        return tf.concat([centre, found - centre], -1)

    def model(x):
        h = Apply(lambda s: tf.reduce_max(s, 2))(L.Dense(4, "relu")(Apply(edges)(x)))
        return L.Dense(3)(L.GlobalMaxPooling1D()(h))

    return net(model, features(5, 3))


@case("accepted")
def distances_by_radial_bases():
    """SchNet: filters made of the distances within a molecule."""

    def bases(x):
        distance = tf.sqrt(tf.reduce_sum((x[:, :, None, :3] - x[:, None, :, :3]) ** 2, -1) + 1e-3)
        return tf.exp(-2.0 * (distance[..., None] - tf.linspace(0.0, 3.0, 4)) ** 2)

    def model(x):
        filters = L.Dense(4)(L.Dense(4, "softplus")(Apply(bases)(x)))
        h = L.Dense(4)(x)
        h = h + L.Dense(4)(Apply(lambda s: tf.einsum("bijd,bjd->bid", s[0], s[1]))([filters, h]))
        return L.Dense(1)(Apply(lambda s: tf.reduce_sum(s, 1))(h))

    return net(model, regression(4, 5), mse())


@case("accepted", saturates=True)
def rays_through_a_volume():
    """NeRF: densities along a ray, what light is left by an exclusive product."""

    def render(out):
        density, colour = tf.nn.softplus(out[..., :1]), tf.sigmoid(out[..., 1:])
        alpha = 1.0 - tf.exp(-0.3 * density)
        left = tf.math.cumprod(1.0 - alpha + 1e-6, axis=1, exclusive=True)
        return tf.reduce_sum(alpha * left * colour, 1)

    layers = [L.Dense(6, "relu"), L.Dense(4), Apply(render)]
    return net(layers, lambda rng, n: (floats(rng, n, 5, 3), floats(rng, n, 3)), mse())


@case("accepted")
def splines_as_weights():
    """KAN: a spline on every edge."""

    def layer(x, coefficients):
        knots = tf.linspace(-2.0, 2.0, 6)
        hats = tf.nn.relu(1.0 - tf.abs(x[..., None] - knots) / 0.8)
        return tf.einsum("bfk,fko->bo", hats, coefficients)

    layers = [Own(layer, (5, 6, 4)), L.LayerNormalization(), Own(layer, (4, 6, 3))]
    return net(layers, features())


@case("accepted")
def latents_that_read():
    """Perceiver: learnt latents read the input, then each other, with the same weights twice."""

    class Latents(L.Layer):
        def __init__(self):
            super().__init__()
            self.cross, self.own = L.MultiHeadAttention(1, 4), L.MultiHeadAttention(1, 4)
            self.norm = L.LayerNormalization()

        def build(self, shape):
            self.latents = self.add_weight(shape=(2, 4), name="latents")

        def call(self, x):
            h = tf.tile(tf.convert_to_tensor(self.latents)[None], [tf.shape(x)[0], 1, 1])
            for _ in range(2):
                h = self.norm(h + self.cross(h, x))
                h = h + self.own(h, h)
            return h

    return net([Latents(), L.Flatten(), L.Dense(3)], features(5, 3))


@case("accepted")
def two_experts_of_four():
    """Each example takes its two best experts, by a mask; no capacity that others fill."""

    def model(x):
        scores = L.Dense(4)(x)

        def gates(s):
            best = tf.math.top_k(s, 2)
            mask = tf.reduce_sum(tf.one_hot(best.indices, 4), 1)
            return tf.nn.softmax(tf.where(mask > 0, s, -1e9))

        chosen = Apply(gates)(scores)
        experts = Own(
            lambda h, w, v: tf.einsum("beh,eho->beo", tf.nn.relu(tf.einsum("bf,efh->beh", h, w)), v),
            (4, 5, 3),
            (4, 3, 3),
        )(x)
        return Apply(lambda s: tf.einsum("be,beo->bo", s[0], s[1]))([chosen, experts])

    return net(model, features())


@case("accepted")
def ensemble_in_one_batch():
    """BatchEnsemble: members are copies of the batch along a new axis, with a vector of their own."""

    def layer(x, kernel, r, s):
        return tf.einsum("bmf,fo->bmo", x * r, kernel) * s

    def model(x):
        h = L.RepeatVector(3)(x)
        h = L.Activation("tanh")(Own(layer, (5, 4), (3, 5), (3, 4), initializer="ones")(h) + L.Dense(4)(h))
        return Apply(lambda s: tf.reduce_mean(s, 1))(L.Dense(3)(h))

    return net(model, features())


@case("accepted")
def evidence_of_regression():
    """Deep evidential regression: a normal-inverse-gamma likelihood with its own penalty."""

    def loss(y, out):
        mean, (v, alpha, beta) = out[:, :1], tf.split(tf.nn.softplus(out[:, 1:]) + 1e-2, 3, 1)
        alpha, omega = alpha + 1.0, 2.0 * beta * (1.0 + v)
        likelihood = 0.5 * tf.math.log(np.pi / v) - alpha * tf.math.log(omega) + tf.math.lgamma(alpha)
        likelihood += (alpha + 0.5) * tf.math.log((y - mean) ** 2 * v + omega) - tf.math.lgamma(alpha + 0.5)
        return tf.reduce_sum(likelihood + 0.1 * tf.abs(y - mean) * (2.0 * v + alpha), -1)

    return net([L.Dense(4, "tanh"), L.Dense(4)], regression(), PerExample(loss))


@case("accepted")
def continuous_ranked_score():
    """CRPS of sorted quantiles, and of a normal by its error function."""

    def loss(y, out):
        mean, deviation = out[:, 0], tf.nn.softplus(out[:, 1]) + 0.1
        z = (y[:, 0] - mean) / deviation
        density = tf.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
        return deviation * (z * tf.math.erf(z / np.sqrt(2.0)) + 2.0 * density - 1.0 / np.sqrt(np.pi))

    return net([L.Dense(4, "tanh"), L.Dense(2)], regression(), PerExample(loss))


@case("accepted")
def distributional_projection():
    """C51: the target's atoms are spread over their neighbours, by floor and ceiling."""
    atoms = np.linspace(-1, 1, 5).astype(np.float32)

    def loss(y, logits):
        moved = tf.clip_by_value(y[:, :1] + 0.9 * atoms, -1.0, 1.0)
        near = 1.0 - tf.clip_by_value(tf.abs(moved[:, None] - atoms[None, :, None]) / 0.5, 0.0, 1.0)
        target = tf.reduce_mean(near, -1)
        return -tf.reduce_sum(target * tf.nn.log_softmax(logits), -1)

    return net([L.Dense(4, "tanh"), L.Dense(5)], regression(), PerExample(loss))


@case("accepted")
def clipped_policy():
    """PPO: ratio, advantage and value, an entropy bonus."""

    def loss(y, out):
        action, old, advantage = tf.cast(tf.abs(y[:, 0]), tf.int32) % 3, -tf.abs(y[:, 1]), y[:, 2]
        log_p = tf.nn.log_softmax(out[:, :3])
        ratio = tf.exp(tf.minimum(tf.gather(log_p, action, batch_dims=1) - old, 3.0))
        surrogate = tf.minimum(ratio * advantage, tf.clip_by_value(ratio, 0.8, 1.2) * advantage)
        entropy = -tf.reduce_sum(tf.exp(log_p) * log_p, -1)
        return -surrogate + 0.5 * (out[:, 3] - y[:, 2]) ** 2 - 0.01 * entropy

    return net([L.Dense(4, "tanh"), L.Dense(4)], regression(outputs=3), PerExample(loss))


@case("accepted")
def own_risk_set():
    """Cox with controls that come with the case: a softmax over the example's own set."""

    def loss(y, risk):
        at_risk = tf.cast(y > 0, tf.float32)
        return tf.math.log(tf.reduce_sum(at_risk * tf.exp(risk), 1) + tf.exp(risk[:, 0])) - risk[:, 0]

    layers = [L.Dense(4, "tanh"), L.Dense(1), L.Reshape((4,))]
    return net(layers, lambda rng, n: (floats(rng, n, 4, 3), floats(rng, n, 4)), PerExample(loss))


@case("accepted")
def soft_warping():
    """Soft-DTW of a forecast and a series: a table filled cell by cell, for each example."""

    def loss(y, out):
        cost = (y[:, :, None] - out[:, None, :]) ** 2
        big = tf.fill([tf.shape(cost)[0]], 1e4)
        above = [tf.zeros_like(big), *[big] * 4]
        for i in range(4):
            row = [big]
            for j in range(4):
                least = -tf.reduce_logsumexp(-tf.stack([above[j], above[j + 1], row[j]], -1), -1)
                row.append(cost[:, i, j] + least)
            above = row
        return above[-1]

    return net([L.Dense(4, "tanh"), L.Dense(4)], regression(outputs=4), PerExample(loss))


@case("accepted")
def start_and_end_of_an_answer():
    """Reading comprehension: two distributions over the places of a text, with padding masked."""

    def model(x):
        h = L.Bidirectional(L.GRU(3, return_sequences=True))(L.Embedding(11, 4)(x))
        scores = L.Dense(2)(h)
        return Apply(lambda s: tf.transpose(s[0] - 1e9 * tf.cast(s[1] == 0, tf.float32)[..., None], [0, 2, 1]))(
            [scores, x]
        )

    def loss(y, scores):
        return tf.reduce_mean(cross_entropy(y, scores), -1)

    def data(rng, n):
        return tokens()(rng, n)[0], rng.integers(0, 2, (n, 2))

    return net(model, data, PerExample(loss))


@case("accepted")
def biaffine_heads():
    """A dependency parser: every word scores every other as its head."""

    def model(x):
        h = L.Embedding(11, 4)(x)
        return Own(
            lambda s, u, v: tf.einsum("bif,fg,bjg->bij", s, u, s) + tf.einsum("bjf,f->bj", s, v)[:, None], (4, 4), (4,)
        )(h)

    def loss(y, scores):
        return tf.reduce_mean(cross_entropy(y, scores), -1)

    return net(model, lambda rng, n: (tokens()(rng, n)[0], rng.integers(0, 6, (n, 6))), PerExample(loss))


@case("accepted")
def copied_words():
    """Pointer-generator: a vocabulary's distribution, and that of the source's words, by a one-hot product."""

    def model(x):
        h = L.GRU(4, return_sequences=True)(L.Embedding(11, 4)(x))
        state = L.GlobalAveragePooling1D()(h)
        attention = L.Softmax()(L.Reshape((6,))(L.Dense(1)(h)))
        copied = Apply(lambda s: tf.einsum("bt,btv->bv", s[0], tf.one_hot(tf.cast(s[1], tf.int32), 11)))([attention, x])
        gate = L.Dense(1, "sigmoid")(state)
        return gate * L.Dense(11, "softmax")(state) + (1.0 - gate) * copied

    def loss(y, p):
        return -tf.math.log(tf.gather(p, tf.cast(y, tf.int32), batch_dims=1) + 1e-3)

    return net(model, tokens(classes=11), PerExample(loss))


@case("accepted")
def soft_keypoints():
    """Heat maps, and where they are largest by a softmax over places."""

    def where(h):
        weights = tf.nn.softmax(tf.reshape(h, [-1, 16, 2]), 1)
        y, x = np.meshgrid(np.linspace(0, 1, 4), np.linspace(0, 1, 4), indexing="ij")
        grid = tf.constant(np.stack([y.ravel(), x.ravel()], -1), tf.float32)
        return tf.reshape(tf.einsum("bpk,pc->bkc", weights, grid), [-1, 4])

    layers = [L.Conv2D(3, 3, padding="same", activation="relu"), L.Conv2D(2, 1), Apply(where)]
    return net(layers, regression(4, 4, 1, outputs=4), mse())


@case("accepted")
def shuffled_channels():
    """ShuffleNet: grouped convolutions, channels changing groups by a reshape."""

    def model(x):
        h = L.Conv2D(4, 1)(x)
        h = Apply(lambda s: tf.reshape(tf.transpose(tf.reshape(s, [-1, 4, 4, 2, 2]), [0, 1, 2, 4, 3]), [-1, 4, 4, 4]))(
            h
        )
        h = L.Concatenate()([L.DepthwiseConv2D(3, padding="same")(h), h])
        return L.Dense(3)(L.GlobalAveragePooling2D()(L.Activation("relu")(h)))

    return net(model, features(4, 4, 2))


@case("accepted", infinite=False)
def deformed_convolution():
    """Places learnt for each picture, read by their four neighbours."""

    def read(inputs):
        image, offsets = inputs
        grid = tf.stack(tf.meshgrid(tf.range(4.0), tf.range(4.0), indexing="ij"), -1)
        place = tf.clip_by_value(grid + offsets, 0.0, 2.999)
        low = tf.floor(place)
        share, total = place - low, 0.0
        flat = tf.reshape(image, [-1, 16, 2])
        for dy in (0, 1):
            for dx in (0, 1):
                at = tf.add(tf.cast(low, tf.int32), [dy, dx])
                index = tf.reshape(at[..., 0] * 4 + at[..., 1], [-1, 16])
                weight = tf.abs(1 - dy - share[..., 0]) * tf.abs(1 - dx - share[..., 1])
                total += tf.gather(flat, index, batch_dims=1) * tf.reshape(weight, [-1, 16, 1])
        return total

    def model(x):
        offsets = L.Conv2D(2, 3, padding="same", activation="tanh")(x)
        return L.Dense(3)(L.Flatten()(L.Dense(3)(Apply(read)([x, offsets]))))

    return net(model, features(4, 4, 2))


@case("accepted", fast=("graph",))
def teacher_inside():
    """Distillation: a frozen teacher with BatchNormalization beside the student, both in one model."""
    teacher = tf.keras.Sequential([L.Dense(4, "relu"), L.BatchNormalization(), L.Dense(3)])
    teacher.trainable = False

    def model(x):
        return L.Concatenate()([L.Dense(3)(L.Dense(4, "tanh")(x)), teacher(x, training=False)])

    def loss(y, out):
        student, soft = out[:, :3], tf.stop_gradient(out[:, 3:])
        divergence = tf.reduce_sum(
            tf.nn.softmax(soft / 2.0) * (tf.nn.log_softmax(soft / 2.0) - tf.nn.log_softmax(student / 2.0)), -1
        )
        return 0.5 * cross_entropy(y, student) + 2.0 * divergence

    return net(model, features(), PerExample(loss))


def _step(loss_of, model, data):
    return Problem(model, data, loss_fn=lambda batch: loss_of(model, *batch))


def _classifier():
    model = tf.keras.Sequential([L.Dense(4, "tanh"), L.Dense(3)])
    model(np.zeros((1, 5), np.float32))
    return model


@case("accepted", own_step_only=True)
def adversarial_step():
    """FGSM: each example is moved along the sign of its own gradient, then learnt from."""

    def loss(model, x, y):
        with tf.GradientTape() as tape:
            tape.watch(x)
            first = cross_entropy(y, model(x, training=True))
        moved = tf.stop_gradient(x + 0.1 * tf.sign(tape.gradient(first, x)))
        return first + cross_entropy(y, model(moved, training=True))

    return _step(loss, _classifier(), features())


@case("accepted", own_step_only=True)
def smooth_around_each():
    """Virtual adversarial training: a step towards each example's largest divergence, over its own norm."""

    def loss(model, x, y):
        p = tf.stop_gradient(tf.nn.softmax(model(x)))
        start = 0.1 * tf.ones_like(x)
        with tf.GradientTape() as tape:
            tape.watch(start)
            divergence = -tf.reduce_sum(p * tf.nn.log_softmax(model(x + start)), -1)
        direction = tape.gradient(divergence, start)
        direction = tf.stop_gradient(direction / (1e-3 + tf.norm(direction, axis=1, keepdims=True)))
        return cross_entropy(y, model(x)) - 0.5 * tf.reduce_sum(p * tf.nn.log_softmax(model(x + direction)), -1)

    return _step(loss, _classifier(), features())


@case("accepted", own_step_only=True)
def derivative_forwards():
    """Sobolev training: the directional derivative, forwards, matches what the example says."""

    def loss(model, x, y):
        with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as forward:
            out = model(x)
        return tf.reduce_sum((forward.jvp(out) - 0.5) ** 2, -1) + cross_entropy(y, out)

    return _step(loss, _classifier(), features())


@case("accepted", own_step_only=True)
def jacobian_of_each():
    """Contractive: the norm of each example's Jacobian, by `batch_jacobian`."""

    def loss(model, x, y):
        with tf.GradientTape() as tape:
            tape.watch(x)
            out = model(x)
        return cross_entropy(y, out) + 0.1 * tf.reduce_sum(tape.batch_jacobian(out, x) ** 2, [1, 2])

    return _step(loss, _classifier(), features())


@case("accepted")
def many_samples_of_one():
    """IWAE: several draws of each example's code, a log of their mean."""

    class Samples(L.Layer):
        def call(self, code):
            mean, spread = code[:, None, :2], code[:, None, 2:]
            return mean + tf.nn.softplus(spread) * 0.5 * tf.constant([[1.0, -1.0], [0.5, 0.2], [-1.0, 0.3]])

    def loss(y, out):
        return -tf.reduce_logsumexp(-tf.reduce_sum((y[:, None] - out) ** 2, -1), 1)

    return net([L.Dense(4), Samples(), L.Dense(4, "tanh"), L.Dense(5)], copies(), PerExample(loss))


@case("accepted", random=True)
def shape_parameters_that_are_drawn():
    """A Dirichlet by gammas whose gradient goes through the draws."""

    class Draw(L.Layer):
        def call(self, x):
            gamma = tf.random.gamma([], tf.nn.softplus(x) + 0.5)
            return gamma / tf.reduce_sum(gamma, -1, keepdims=True)

    return net([L.Dense(4), Draw(), L.Dense(3)], features())


@case("accepted")
def warm_up_by_a_count():
    """A term that comes in after some steps: a branch on a variable."""
    step = tf.Variable(3, trainable=False, dtype=tf.int64)

    class Warm(L.Layer):
        def call(self, x):
            return tf.cond(step > 2, lambda: tf.nn.relu(x), lambda: x)

    return net([L.Dense(4), Warm(), L.Dense(3)], features())


@case("accepted")
def kernels_with_a_norm():
    """A constraint on weights, an orthogonal start, a bias in one number."""
    layer = L.Dense(4, "relu", kernel_constraint=tf.keras.constraints.MaxNorm(1e3), kernel_initializer="orthogonal")
    return net([layer, L.PReLU(shared_axes=None), L.Dense(3)], features())


@case("accepted")
def spline_flow():
    """Rational bins: where an entry lies is looked up among its own widths."""

    def loss(y, out):
        widths = tf.nn.softmax(out[:, :4])
        heights = tf.nn.softmax(out[:, 4:])
        x = tf.sigmoid(y[:, :1])
        edges = tf.cumsum(widths, -1)
        place = tf.minimum(tf.reduce_sum(tf.cast(x > edges, tf.int32), -1), 3)
        width = tf.gather(widths, place, batch_dims=1)
        return -tf.math.log(tf.gather(heights, place, batch_dims=1) / width)

    return net([L.Dense(4, "tanh"), L.Dense(8)], regression(), PerExample(loss))


@case("accepted")
def matched_by_sinkhorn():
    """A transport plan between two sets of one example."""

    def loss(y, out):
        cost = tf.reduce_sum((y[:, :, None] - out[:, None]) ** 2, -1)
        plan = -cost
        for _ in range(3):
            plan -= tf.reduce_logsumexp(plan, 1, keepdims=True)
            plan -= tf.reduce_logsumexp(plan, 2, keepdims=True)
        return tf.reduce_sum(tf.exp(plan) * cost, [1, 2])

    data = lambda rng, n: (floats(rng, n, 3, 2), floats(rng, n, 3, 2))  # noqa: E731
    return net([L.Dense(4, "tanh"), L.Dense(2)], data, PerExample(loss))


@case("accepted")
def wrapped_cells():
    """Residual and dropout-free wrappers around cells, a state handed on between two layers."""

    def model(x):
        out, *states = L.RNN([L.LSTMCell(3), L.GRUCell(3)], return_sequences=True, return_state=True)(x)
        return L.Dense(3)(L.GRU(3)(out, initial_state=states[-1]))

    return net(model, features(4, 2))


@case("accepted")
def added_loss_of_parts():
    """A layer adds a mean over all its entries, several for each example."""

    class Sparse(L.Layer):
        def call(self, x):
            self.add_loss(0.1 * tf.reduce_mean(tf.abs(tf.reshape(x, [-1]))))
            return x

    return net([L.Dense(4, "tanh"), Sparse(), L.Dense(3)], features(), "sparse_categorical_crossentropy")


@case("accepted")
def added_loss_of_pairs():
    """Two layers add means: of all pairs within an example, and of what is left of each."""

    class Pairs(L.Layer):
        def call(self, x):
            pairs = tf.reshape(tf.einsum("bti,bsi->bts", x, x), [-1, 5])
            self.add_loss(0.1 * tf.reduce_mean(tf.square(pairs)))
            self.add_loss(0.1 * tf.reduce_mean(tf.abs(tf.reshape(x, [-1, 4]))))
            return x

    return net(
        [L.Dense(4, "tanh"), Pairs(), L.Flatten(), L.Dense(3)], features(5, 3), "sparse_categorical_crossentropy"
    )


@case("accepted")
def over_the_square_root_of_length():
    """Series of any length: attention by sums over time, over the root of how long the series are."""

    def model(x):
        h = L.Dense(4, "tanh")(x)
        length = Apply(lambda s: tf.reduce_sum(s, 1) / tf.sqrt(tf.cast(tf.shape(s)[1], tf.float32)))
        places = Apply(lambda s: s * tf.exp(-0.1 * tf.cast(tf.range(tf.shape(s)[1]), tf.float32))[:, None])
        return L.Dense(3)(length(places(h)))

    inputs = tf.keras.Input((None, 3))
    return Problem(tf.keras.Model(inputs, model(inputs)), features(5, 3), scce())


@case("accepted")
def words_of_a_table():
    """A static hash table within the model, ids beyond it hashed."""
    keys, values = tf.constant([b"a", b"b", b"c"]), tf.constant([1, 2, 3], tf.int64)
    table = tf.lookup.StaticVocabularyTable(tf.lookup.KeyValueTensorInitializer(keys, values - 1), 3)

    class Embedded(L.Layer):
        def build(self, shape):
            self.rows = self.add_weight(shape=(6, 4), name="rows")

        def call(self, x):
            return tf.gather(tf.convert_to_tensor(self.rows), table.lookup(x))

    def data(rng, n):
        return rng.choice([b"a", b"b", b"c", b"d", b"e"], (n, 3)).astype("S1"), rng.integers(0, 3, n)

    class Model(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.embedded, self.out = Embedded(), L.Dense(3)

        def call(self, x):
            return self.out(tf.reduce_mean(self.embedded(x), 1))

    return Problem(Model(), data, scce())


@case("accepted")
def tagged_with_a_window():
    """Local attention: a band around each place."""

    def band(x, q, k):
        scores = tf.einsum("btf,fd,bsd->bts", x, q, tf.einsum("bsf,fd->bsd", x, k))
        near = tf.linalg.band_part(tf.ones([5, 5]), 1, 1)
        return tf.matmul(tf.nn.softmax(scores - 1e9 * (1.0 - near)), x)

    return net(
        [Own(band, (3, 4), (3, 4)), L.Dense(3)],
        tagged(5, 3),
        PerExample(lambda y, p: tf.reduce_mean(cross_entropy(y, p), -1)),
    )


@case("accepted", policy="mixed_float16")
def halves_of_convolutions():
    """Half precision with a frozen BatchNormalization."""
    norm = L.BatchNormalization(trainable=False)
    layers = [L.Conv2D(4, 3), norm, L.Activation("relu"), L.GlobalAveragePooling2D(), L.Dense(3, dtype="float32")]
    return net(layers, features(4, 4, 1))


def _keras3():
    from keras import ops

    def scanned(x, a, b):
        """The same recurrence in a logarithmic number of rounds."""
        decay = ops.sigmoid(ops.matmul(x, a))
        _, states = ops.associative_scan(
            lambda a, b: (b[0] * a[0], b[0] * a[1] + b[1]), (decay, ops.matmul(x, b)), axis=1
        )
        return ops.reshape(states, (-1, 5, 4))

    @case("accepted")
    def scan_by_halves():
        return net([Own(scanned, (3, 4), (3, 4)), L.GlobalAveragePooling1D(), L.Dense(3)], features(5, 3))

    @case("accepted")
    def keras_lora():
        """Adapters as Keras makes them: the kernels stay."""
        problem = net([L.Embedding(11, 4), L.GlobalAveragePooling1D(), L.Dense(4, "tanh"), L.Dense(3)], tokens())
        for layer in problem.model.layers:
            if hasattr(layer, "enable_lora"):
                layer.enable_lora(2)
        return problem

    @case("accepted")
    def keras_lora_of_eight_bits():
        """The same on kernels of eight bits."""
        problem = net([L.Dense(4, "tanh"), L.Dense(3)], features())
        for layer in problem.model.layers[1:]:
            layer.quantize("int8")
            layer.enable_lora(2)
        return problem

    @case("accepted")
    def keras_resampled():
        """Pictures turned by a matrix that a layer makes for each."""

        class Turn(L.Layer):
            def call(self, inputs):
                image, t = inputs
                one, zero = ops.ones_like(t[:, :1]), ops.zeros_like(t[:, :1])
                matrix = ops.concatenate([one, 0.1 * t[:, :1], zero, 0.1 * t[:, 1:], one, zero, zero, zero], 1)
                return ops.image.affine_transform(image, matrix)

        def model(x):
            t = L.Dense(2, "tanh")(L.Flatten()(x))
            return L.Dense(3)(L.Flatten()(Turn()([x, t])))

        return net(model, features(4, 4, 1))


if generation.GENERATION == 3:
    _keras3()
