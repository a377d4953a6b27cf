"""Rarer layers and idioms that people use all the same: gathers, functions within functions, newer transformers."""

import numpy as np
import tensorflow as tf

from adaclip_tf._internal import keras
from tests.attack.case import Apply, PerExample, Problem, case, features, floats, net, regression, tokens

L = tf.keras.layers
SCCE = "sparse_categorical_crossentropy"


def _logits(**options):
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)


class Root(L.Layer):
    """RMS normalisation."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, x):
        return x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + 1e-6) * self.scale


def _rotated(x):
    """Rotary embeddings of places, over the last axis of [batch, time, heads, width]."""
    half = x.shape[-1] // 2
    angles = tf.cast(tf.range(tf.shape(x)[1]), tf.float32)[:, None] * (10.0 ** -tf.range(half, dtype=tf.float32))
    sin, cos = tf.sin(angles)[:, None], tf.cos(angles)[:, None]
    first, second = tf.split(x, 2, axis=-1)
    return tf.concat([first * cos - second * sin, first * sin + second * cos], axis=-1)


class Llama(L.Layer):
    """A block with rotary places, shared keys and values, SwiGLU."""

    def __init__(self, width=4, heads=2):
        super().__init__()
        self.heads, self.width = heads, width
        self.query, self.key, self.value = (
            L.Dense(width, use_bias=False),
            L.Dense(width // heads),
            L.Dense(width // heads),
        )
        self.out, self.gate, self.up, self.down = L.Dense(width), L.Dense(6, "swish"), L.Dense(6), L.Dense(width)
        self.before, self.after = Root(), Root()

    def call(self, x):
        h = self.before(x)
        each = self.width // self.heads
        batch, time = tf.shape(x)[0], tf.shape(x)[1]
        query = _rotated(tf.reshape(self.query(h), [batch, time, self.heads, each]))
        key = _rotated(self.key(h)[:, :, None])[:, :, 0]
        scores = tf.einsum("bthd,bsd->bhts", query, key) / tf.sqrt(float(each))
        past = tf.linalg.band_part(tf.ones([time, time]), -1, 0)
        weights = tf.nn.softmax(scores + (1.0 - past) * -1e9)
        mixed = tf.reshape(tf.einsum("bhts,bsd->bthd", weights, self.value(h)), [batch, time, self.width])
        x = x + self.out(mixed)
        h = self.after(x)
        return x + self.down(self.gate(h) * self.up(h))


@case("accepted", saturates=True)
def llama():
    def data(rng, n):
        ids = rng.integers(1, 11, (n, 6))
        return ids[:, :-1], ids[:, 1:]

    return net([L.Embedding(11, 4), Llama(), Root(), L.Dense(11)], data, _logits())


@case("accepted")
def last_word_of_each():
    """The state behind the last word, by a gather within each example."""

    def build(ids):
        h = L.GRU(4, return_sequences=True)(L.Embedding(11, 3)(ids))
        last = Apply(lambda t: tf.maximum(tf.math.count_nonzero(t, axis=1, dtype=tf.int32) - 1, 0))(ids)
        return L.Dense(3)(Apply(lambda t: tf.gather(t[0], t[1], batch_dims=1))([h, last]))

    return net(build, tokens(), _logits())


@case("accepted", saturates=True)
def masked_words():
    """BERT's pre-training: answers at given places only."""

    def data(rng, n):
        places = np.sort(np.stack([rng.permutation(6)[:2] for _ in range(n)]), 1)
        return (rng.integers(1, 11, (n, 6)), places), rng.integers(1, 11, (n, 2))

    def build(x):
        h = L.Embedding(11, 4)(x[0])
        h = L.LayerNormalization()(L.Add()([h, L.MultiHeadAttention(2, 2)(h, h)]))
        return L.Dense(11)(Apply(lambda t: tf.gather(t[0], t[1], batch_dims=1))([h, x[1]]))

    return net(build, data, _logits())


@case("accepted")
def q_learning():
    """The value of the action that was taken."""

    def data(rng, n):
        return (floats(rng, n, 4), rng.integers(0, 3, n)), floats(rng, n, 1)

    def build(x):
        values = L.Dense(3)(L.Dense(6, "relu")(x[0]))
        return Apply(lambda t: tf.gather(t[0], t[1], batch_dims=1)[:, None])([values, x[1]])

    return net(build, data, "huber")


@case("accepted")
def policy_gradient():
    """log p(a) times an advantage, as a loss with two numbers per target."""

    def loss(y, logits):
        chosen = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(y[:, 0], tf.int32), logits)
        return chosen * y[:, 1]

    def data(rng, n):
        return floats(rng, n, 4), np.stack([rng.integers(0, 3, n), rng.normal(size=n)], 1).astype(np.float32)

    return net([L.Dense(6, "tanh"), L.Dense(3)], data, PerExample(loss))


@case("accepted")
def loss_in_a_function():
    @tf.function
    def loss(y, p):
        return tf.reduce_mean(tf.square(y - p), axis=-1)

    return net([L.Dense(6, "relu"), L.Dense(1)], regression(5), loss)


@case("accepted")
def layer_in_a_function():
    class Decorated(L.Layer):
        def __init__(self):
            super().__init__()
            self.first, self.second = L.Dense(6, "relu"), L.Dense(4)

        @tf.function
        def call(self, x):
            return self.second(self.first(x))

    return net([Decorated(), L.Dense(1)], regression(5), "mse")


@case("accepted")
def documents_of_sentences():
    """A hierarchical attention network: words to sentences to a document."""

    def build(x):
        word = tf.keras.Input((4,), dtype=x.dtype)
        sentence = tf.keras.Model(word, L.Bidirectional(L.GRU(2))(L.Embedding(11, 3)(word)))
        h = L.Bidirectional(L.GRU(2, return_sequences=True))(L.TimeDistributed(sentence)(x))
        weights = L.Softmax(axis=1)(L.Dense(1)(L.Dense(3, "tanh")(h)))
        return L.Dense(3, "softmax")(L.Flatten()(L.Dot(axes=1)([weights, h])))

    return net(build, lambda rng, n: (rng.integers(0, 11, (n, 3, 4)), rng.integers(0, 3, n)), SCCE)


@case("accepted")
def edges_as_lists():
    """A graph per example, its edges as pairs of nodes."""

    def data(rng, n):
        return (floats(rng, n, 5, 3), rng.integers(0, 5, (n, 7, 2))), rng.integers(0, 3, n)

    def along(t):
        h, edges = t
        messages = tf.gather(h, edges[..., 0], batch_dims=1)
        return tf.matmul(tf.one_hot(edges[..., 1], 5, axis=1), messages)

    def build(x):
        h = L.Dense(4, "relu")(x[0])
        h = L.Dense(4, "relu")(L.Add()([h, Apply(along)([h, x[1]])]))
        return L.Dense(3, "softmax")(L.GlobalAveragePooling1D()(h))

    return net(build, data, SCCE)


@case("accepted")
def mixture_density():
    def loss(y, p):
        weights, means, spreads = tf.split(p, 3, axis=1)
        log = -0.5 * tf.square((y - means) * tf.exp(-spreads)) - spreads
        return -tf.reduce_logsumexp(tf.nn.log_softmax(weights) + log, axis=1)

    return net([L.Dense(6, "tanh"), L.Dense(9)], regression(5), PerExample(loss))


@case("accepted")
def arc_face():
    """Cosines with classes whose vectors are normalised: the norm of a weight is no sum over examples."""

    class Cosines(L.Layer):
        def build(self, shape):
            self.classes = self.add_weight(shape=(shape[-1], 3), initializer="glorot_uniform", name="classes")

        def call(self, x):
            return 8.0 * tf.matmul(tf.nn.l2_normalize(x, 1), tf.nn.l2_normalize(tf.convert_to_tensor(self.classes), 0))

    return net([L.Dense(4), Cosines()], features(), _logits())


@case("accepted")
def volumes():
    layers = [
        L.Conv3D(2, 2, activation="relu"),
        L.MaxPooling3D(2),  # of numbers that differ: with two largest ones XLA has another gradient than TensorFlow
        L.UpSampling3D(2),
        L.Conv3D(3, 2, padding="same", activation="relu"),
        L.GlobalAveragePooling3D(),
        L.Dense(3, "softmax"),
    ]
    return net(layers, features(4, 4, 4, 1), SCCE)


@case("accepted")
def fourier_features():
    """A field: coordinates as sines and cosines of fixed random frequencies."""
    waves = tf.constant(np.random.default_rng(5).normal(size=(2, 4)).astype(np.float32))
    layers = [
        Apply(lambda x: tf.concat([tf.sin(tf.matmul(x, waves)), tf.cos(tf.matmul(x, waves))], -1)),
        L.Dense(6, "relu"),
        L.Dense(3, "sigmoid"),
    ]
    return net(layers, lambda rng, n: (floats(rng, n, 2), rng.uniform(size=(n, 3)).astype(np.float32)), "mse")


@case("accepted")
def physics_informed():
    """The residual of a differential equation: a derivative by the input, inside of the loss."""

    class Field(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.first, self.last = L.Dense(6, "tanh"), L.Dense(1)

        def call(self, x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                value = self.last(self.first(x))
            return tape.gradient(value, x)[:, :1] + value

    return Problem(Field(), regression(2), "mse")


@case("accepted")
def ordinary_differential_equation():
    """Runge and Kutta's steps through one layer."""

    class Flow(L.Layer):
        def __init__(self):
            super().__init__()
            self.field = L.Dense(5, "tanh")

        def call(self, x):
            for _ in range(2):
                first = self.field(x)
                second = self.field(x + 0.5 * first)
                x = x + second
            return x

    return net([Flow(), L.Dense(3)], features(), _logits())


if keras.GENERATION == 3:

    @case("accepted", saturates=True)
    def newer_layers():
        def build(x):
            h = L.Embedding(11, 8)(x)
            h = L.Add()([h, L.GroupQueryAttention(4, 4, 2)(L.RMSNormalization()(h), h)])
            return L.Dense(3)(L.GlobalAveragePooling1D()(L.Dense(8, "silu")(h)))

        return net(build, tokens(), _logits())

    @case("accepted")
    def patches_of_keras_ops():
        ops = tf.keras.ops

        class Patches(L.Layer):
            def call(self, x):
                patches = ops.image.extract_patches(x, 2)
                return ops.reshape(patches, (ops.shape(x)[0], 9, 12))

        layers = [L.Conv2D(3, 3, padding="same"), Patches(), L.Dense(4, "gelu"), L.Flatten(), L.Dense(3)]
        return net(layers, features(6, 6, 2), _logits())

    @case("accepted")
    def feature_space():
        """Keras's FeatureSpace in front of a model."""

        def data(rng, n):
            x = {"age": floats(rng, n, 1), "city": rng.choice(["oslo", "rome", "lima"], (n, 1))}
            return x, rng.integers(0, 2, (n, 1)).astype(np.float32)

        space = tf.keras.utils.FeatureSpace(
            {"age": "float_normalized", "city": "string_categorical"}, output_mode="concat"
        )
        space.adapt(tf.data.Dataset.from_tensor_slices(data(np.random.default_rng(9), 40)[0]))
        inputs = space.get_inputs()
        outputs = L.Dense(1, "sigmoid")(L.Dense(4, "relu")(space.get_encoded_features()))
        return Problem(tf.keras.Model(inputs, outputs), data, "binary_crossentropy")
