"""Everyday models that are right, by ways of computing that no other file here takes."""

import numpy as np
import tensorflow as tf

from adaclip_tf._internal import keras as generation
from tests.attack.case import (
    Apply,
    PerExample,
    Problem,
    case,
    cross_entropy,
    features,
    floats,
    mse,
    net,
    regression,
    scce,
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


@case("accepted")
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
        return 0.5 * cross_entropy(tf.reshape(y, [-1]), student) + 2.0 * divergence

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


@case("accepted", fast=("graph",))
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


if generation.GENERATION == 3:
    _keras3()
