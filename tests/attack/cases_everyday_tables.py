"""Tables and recommendations as people train them: losses by name, preprocessing inside of the model."""

import numpy as np
import tensorflow as tf

from adaclip_tf._internal import keras
from tests.attack.case import Apply, PerExample, Problem, case, features, floats, minimize, mse, net, regression

L = tf.keras.layers
CITIES = np.array(["oslo", "rome", "lima", "bern", "kyiv"])
SCCE, BCE = "sparse_categorical_crossentropy", "binary_crossentropy"


def _yes_no(rng, n):
    return rng.integers(0, 2, (n, 1)).astype(np.float32)


def _census(rng, n):
    """A dictionary of columns, as Keras's own example of a table has them."""
    x = {
        "age": floats(rng, n, 1),
        "income": floats(rng, n, 1),
        "city": rng.choice(CITIES, (n, 1)),
        "grade": rng.integers(1, 5, (n, 1)),
    }
    return x, _yes_no(rng, n)


def _encoded(x):
    """Every column as numbers, by Keras's preprocessing layers."""
    statistics = {"mean": [0.1], "variance": [2.0]}
    age = L.Normalization(axis=-1, **statistics)(x["age"])
    income = L.Normalization(axis=-1, **statistics)(x["income"])
    city = L.StringLookup(vocabulary=list(CITIES[:4]), output_mode="one_hot")(x["city"])
    grade = L.CategoryEncoding(5, "one_hot")(L.IntegerLookup(vocabulary=[1, 2, 3, 4])(x["grade"]))
    return [age, income, city, grade]


@case("accepted")
def census_of_a_dictionary():
    def build(x):
        h = L.Dropout(0.0)(L.Dense(8, "relu")(L.Concatenate()(_encoded(x))))
        return L.Dense(1, "sigmoid")(h)

    return net(build, _census, BCE)


@case("accepted")
def census_wide_and_deep():
    def build(x):
        columns = L.Concatenate()(_encoded(x))
        city = L.Embedding(6, 3)(L.StringLookup(vocabulary=list(CITIES))(x["city"]))
        deep = L.Dense(4, "relu")(L.Dense(6, "relu")(L.Concatenate()([columns, L.Flatten()(city)])))
        return L.Dense(1, "sigmoid")(L.Concatenate()([columns, deep]))

    return net(build, _census, BCE)


@case("accepted")
def census_hashed_crossing():
    """Two columns crossed by hashing."""

    def build(x):
        crossed = L.HashedCrossing(7, output_mode="one_hot")(
            (x["city"], L.Lambda(_as_text, output_shape=(1,))(x["grade"]))
        )
        return L.Dense(1, "sigmoid")(L.Dense(4, "relu")(L.Concatenate()([crossed, x["age"]])))

    return net(build, _census, BCE)


def _as_text(x):
    return tf.strings.as_string(x) if keras.GENERATION == 2 else x


@case("accepted")
def gradient_free_normalization():
    """A Normalization layer that was adapted, in front of an MLP for a price."""
    layer = L.Normalization()
    layer.adapt(np.random.default_rng(3).normal(2.0, 3.0, (64, 5)).astype(np.float32))
    return net([layer, L.Dense(8, "relu"), L.Dense(8, "relu"), L.Dense(1)], regression(5), "mean_absolute_error")


@case("accepted")
def deep_and_cross():
    """DCN v2: x0 * (W x + b) + x."""

    def build(x):
        h = x
        for _ in range(2):
            h = L.Add()([L.Multiply()([x, L.Dense(5)(h)]), h])
        return L.Dense(1, "sigmoid")(L.Concatenate()([h, L.Dense(4, "relu")(x)]))

    return net(build, lambda rng, n: (floats(rng, n, 5), _yes_no(rng, n)), BCE)


def _fields(rng, n):
    return rng.integers(0, 6, (n, 4)), _yes_no(rng, n)


@case("accepted")
def deep_fm():
    """First order, pairs of factors, and a deep part over the same embeddings."""

    def build(ids):
        vectors = L.Embedding(6, 3)(ids)
        pairs = Apply(lambda v: 0.5 * tf.reduce_sum(tf.square(tf.reduce_sum(v, 1)) - tf.reduce_sum(v * v, 1), 1, True))
        first = Apply(lambda v: tf.reduce_sum(v, 1))(L.Embedding(6, 1)(ids))
        deep = L.Dense(1)(L.Dense(4, "relu")(L.Flatten()(vectors)))
        return L.Activation("sigmoid")(L.Add()([pairs(vectors), first, deep]))

    return net(build, _fields, BCE)


def _block(h, heads=2, width=4):
    h = L.Add()([h, L.MultiHeadAttention(heads, 2)(h, h)])
    h = L.LayerNormalization(epsilon=1e-5)(h)
    return L.LayerNormalization(epsilon=1e-5)(L.Add()([h, L.Dense(width)(L.Dense(2 * width, "gelu")(h))]))


@case("accepted", saturates=True)
def tab_transformer():
    def data(rng, n):
        return (rng.integers(0, 6, (n, 3)), floats(rng, n, 4)), _yes_no(rng, n)

    def build(x):
        columns = L.Embedding(3, 4)(Apply(lambda ids: tf.zeros_like(ids) + tf.range(3, dtype=ids.dtype))(x[0]))
        h = _block(L.Add()([L.Embedding(6, 4)(x[0]), columns]))
        h = L.Concatenate()([L.Flatten()(h), L.LayerNormalization()(x[1])])
        return L.Dense(1, "sigmoid")(L.Dense(5, "selu")(h))

    return net(build, data, BCE)


class Tokenizer(L.Layer):
    """FT-Transformer: a vector for each number, and one for the answer in front."""

    def __init__(self, numbers, width):
        super().__init__()
        self.kernel = self.add_weight(shape=(numbers, width), initializer="glorot_uniform", name="kernel")
        self.bias = self.add_weight(shape=(numbers, width), initializer="zeros", name="bias")
        self.answer = self.add_weight(shape=(1, 1, width), initializer="glorot_uniform", name="answer")

    def call(self, x):
        tokens = x[:, :, tf.newaxis] * self.kernel + self.bias
        return tf.concat([tf.tile(self.answer, [tf.shape(x)[0], 1, 1]), tokens], axis=1)


@case("accepted", saturates=True)
def ft_transformer():
    def build(x):
        return L.Dense(3, "softmax")(_block(Tokenizer(5, 4)(x))[:, 0])

    return net(build, features(), SCCE)


@case("accepted")
def several_tasks_with_weights():
    """A shared trunk and two heads, one counted a tenth."""

    def data(rng, n):
        return floats(rng, n, 5), {"price": floats(rng, n, 1), "sold": _yes_no(rng, n)}

    def build(x):
        h = L.Dense(6, "relu")(x)
        return {"price": L.Dense(1, name="price")(h), "sold": L.Dense(1, "sigmoid", name="sold")(h)}

    losses, weights = {"price": "huber", "sold": BCE}, {"price": 0.1, "sold": 1.0}
    return net(build, data, losses, compile={"loss_weights": weights})


@case("accepted")
def experts_for_several_tasks():
    """MMoE: experts that all tasks share, a gate for each task."""

    def data(rng, n):
        return floats(rng, n, 5), (_yes_no(rng, n), floats(rng, n, 1))

    def build(x):
        experts = Apply(lambda t: tf.stack(t, 1))([L.Dense(4, "relu")(x) for _ in range(3)])
        mixed = [L.Dot(axes=1)([L.Dense(3, "softmax")(x), experts]) for _ in range(2)]
        return [L.Dense(1, "sigmoid")(mixed[0]), L.Dense(1)(mixed[1])]

    return net(build, data, [BCE, "mse"])


# ----------------------------------------------------------------------------------------------------------------
# Recommendation.


def _ratings(rng, n):
    return {"user": rng.integers(0, 6, (n, 1)), "film": rng.integers(0, 9, (n, 1))}, floats(rng, n, 1)


@case("accepted")
def matrix_factorisation_with_biases():
    def build(x):
        factors = [L.Flatten()(L.Embedding(9, 3)(x[key])) for key in ("user", "film")]
        biases = [L.Flatten()(L.Embedding(9, 1)(x[key])) for key in ("user", "film")]
        return L.Add()([L.Dot(1)(factors), *biases])

    return net(build, _ratings, "mse")


@case("accepted")
def neural_collaborative_filtering():
    def build(x):
        users, films = (L.Flatten()(L.Embedding(9, 3)(x[key])) for key in ("user", "film"))
        more = [L.Flatten()(L.Embedding(9, 4)(x[key])) for key in ("user", "film")]
        deep = L.Dense(3, "relu")(L.Dense(5, "relu")(L.Concatenate()(more)))
        return L.Dense(1, "sigmoid")(L.Concatenate()([L.Multiply()([users, films]), deep]))

    return net(build, lambda rng, n: (_ratings(rng, n)[0], _yes_no(rng, n)), BCE)


@case("accepted")
def two_towers_of_strings():
    def data(rng, n):
        return {"from": rng.choice(CITIES, n), "to": rng.choice(CITIES, n), "km": floats(rng, n, 2)}, _yes_no(rng, n)

    def build(x):
        names = [L.Embedding(6, 3)(L.StringLookup(vocabulary=list(CITIES))(x[key])) for key in ("from", "to")]
        towers = [L.Dense(4)(L.Dense(5, "relu")(L.Concatenate()([name, x["km"]]))) for name in names]
        return L.Dense(1, "sigmoid")(L.Dot(axes=1, normalize=True)(towers))

    return net(build, data, BCE)


@case("accepted")
def films_seen_so_far():
    """The mean of the films that a user has seen, padded with zeros."""

    def data(rng, n):
        seen = np.where(np.arange(5) < rng.integers(1, 6, (n, 1)), rng.integers(1, 9, (n, 5)), 0)
        return seen, rng.integers(0, 9, n)

    layers = [L.Embedding(9, 4, mask_zero=True), L.GlobalAveragePooling1D(), L.Dense(6, "relu"), L.Dense(9, "softmax")]
    return net(layers, data, SCCE)


@case("accepted", saturates=True)
def sequence_recommendation():
    """SASRec: the next film at every place, causal attention, logits by the table of films."""

    def data(rng, n):
        seen = rng.integers(1, 9, (n, 6))
        return seen[:, :-1], seen[:, 1:]

    def build(x):
        table = L.Embedding(9, 4)
        h = L.Add()(
            [table(x), L.Embedding(5, 4)(Apply(lambda ids: tf.zeros_like(ids) + tf.range(5, dtype=ids.dtype))(x))]
        )
        h = L.LayerNormalization()(L.Add()([h, L.MultiHeadAttention(1, 4)(h, h, use_causal_mask=True)]))
        return ByTable(table)(h)

    return net(build, data, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))


class ByTable(L.Layer):
    """Logits by the table of an embedding, at every place."""

    def __init__(self, table):
        super().__init__()
        self.table = table

    def call(self, h):
        return tf.matmul(h, tf.convert_to_tensor(self.table.embeddings), transpose_b=True)


# ----------------------------------------------------------------------------------------------------------------
# Losses.


def _loss(name, function, data=None, outputs=3, activation=None, **options):
    def build():
        return net([L.Dense(6, "relu"), L.Dense(outputs, activation)], data or features(), function, **options)

    build.__name__ = name
    case("accepted")(build)


def _quantiles(y, p):
    error, levels = y - p, tf.constant([0.1, 0.5, 0.9])
    return tf.reduce_mean(tf.maximum(levels * error, (levels - 1.0) * error), axis=-1)


def _plain_quantiles(y_true, y_pred):
    return _quantiles(y_true, y_pred)


def _tweedie(y, p):
    mean = tf.nn.softplus(p) + 1e-3
    return tf.reduce_mean(-tf.abs(y) * mean**-0.5 / -0.5 + mean**0.5 / 0.5, axis=-1)


def _ordinal(y, p):
    """A logit for each "more than class k"."""
    above = tf.cast(tf.reshape(y, [-1, 1]) > tf.cast(tf.range(3), y.dtype), tf.float32)
    return tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(labels=above, logits=p), axis=-1)


def _focal(y, p):
    chance = tf.nn.sigmoid(p)
    right = y * chance + (1.0 - y) * (1.0 - chance)
    cross = tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=p)
    return tf.reduce_mean(0.25 * tf.square(1.0 - right) * cross, axis=-1)


def _gaussian(y, p):
    """Mean and log of the variance."""
    return 0.5 * (p[:, 1] + tf.square(y[:, 0] - p[:, 0]) * tf.exp(-p[:, 1]))


def _counts(rng, n):
    return floats(rng, n, 5), rng.poisson(2.0, (n, 1)).astype(np.float32)


def _one_hot(rng, n):
    return floats(rng, n, 5), np.eye(3, dtype=np.float32)[rng.integers(0, 3, n)]


def _many_labels(rng, n):
    return floats(rng, n, 5), rng.integers(0, 2, (n, 4)).astype(np.float32)


_loss("table_quantiles", PerExample(_quantiles), regression(5))
_loss("table_quantiles_as_a_function", _plain_quantiles, regression(5))
_loss("table_tweedie", PerExample(_tweedie), _counts, 1)
_loss("table_poisson", "poisson", _counts, 1, "exponential")
_loss("table_ordinal", PerExample(_ordinal), features(classes=4))
_loss("table_focal", PerExample(_focal), lambda rng, n: (floats(rng, n, 5), _yes_no(rng, n)), 1)
_loss("table_gaussian", PerExample(_gaussian), regression(5), 2)
_loss("table_label_smoothing", tf.keras.losses.CategoricalCrossentropy(label_smoothing=0.1), _one_hot, 3, "softmax")
_loss("table_many_labels", BCE, _many_labels, 4, "sigmoid")
_loss("table_many_labels_focal", tf.keras.losses.BinaryFocalCrossentropy(), _many_labels, 4, "sigmoid")
_loss("table_hinge", "categorical_hinge", _one_hot)
_loss("table_log_cosh", "log_cosh", regression(5), 1)
_loss("table_cosine", tf.keras.losses.CosineSimilarity(), regression(5, outputs=3))
_loss("table_divergence", "kl_divergence", _one_hot, 3, "softmax")


@case("accepted")
def classes_with_weights():
    """What `class_weight` becomes: a weight for each example."""

    def data(rng, n):
        y = rng.integers(0, 3, n)
        return floats(rng, n, 5), y, np.array([0.2, 1.0, 0.5], np.float32)[y]

    return net([L.Dense(6, "relu"), L.Dense(3, "softmax")], data, SCCE)


def apply_gradients(model, loss, tape):
    """How a `train_step` ends. On Keras 2 nobody but `minimize` sees a loss, and a message says so."""
    variables = model.trainable_variables
    if keras.GENERATION == 2:
        minimize(model.optimizer, loss, variables, tape)
    else:
        model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))


@case("accepted")
def own_model_with_train_step():
    """A subclass with a `train_step` as Keras's guides write it."""

    class Own(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.first, self.second = L.Dense(6, "relu"), L.Dense(1)

        def call(self, x):
            return self.second(self.first(x))

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x, y, self(x, training=True))
                if keras.GENERATION == 3:
                    loss = self.optimizer.scale_loss(loss)
            apply_gradients(self, loss, tape)
            return {"loss": loss}

    return Problem(Own(), regression(5), "mse")


@case("accepted", tolerance=3e-2, hostile=False)
def nested_models_in_half_precision():
    """A Sequential trunk inside of a functional model, bfloat16 activations with float32 kernels."""
    trunk = tf.keras.Sequential(
        [L.Dense(6, "relu", dtype="mixed_bfloat16"), L.Dense(4, "relu", dtype="mixed_bfloat16")]
    )
    return net(lambda x: L.Dense(1, dtype="float32")(trunk(x)), regression(5), mse())
