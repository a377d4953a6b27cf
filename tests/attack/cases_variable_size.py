"""Padding, masks and lengths that hang on the whole batch; ragged and sparse data that mixes."""

import tensorflow as tf

from adaclip_tf._internal import keras
from tests.attack.case import Apply, Lookup, PerExample, case, cross_entropy, features, net, tokens
from tests.attack.cases_sequences import ragged_floats, ragged_tokens, sparse_features

L = tf.keras.layers


@case("refused", fast=("graph",))
def padded_to_longest():
    """The mean over time of a tensor that is as long as the batch's longest example."""
    return net([Lookup(11, 4), Apply(lambda x: tf.reduce_mean(x.to_tensor(), axis=1)), L.Dense(3)], ragged_tokens)


@case("refused")
def sequence_mask_of_longest():
    """A mask as long as the longest, whose length then counts."""

    def lengths(x):
        mask = tf.sequence_mask(tf.math.count_nonzero(x, axis=1), dtype=tf.float32)
        return tf.cast(x[:, :2], tf.float32) / tf.cast(tf.shape(mask)[1], tf.float32)

    return net([Apply(lengths), L.Dense(4, "tanh"), L.Dense(3)], tokens())


@case("refused")
def ragged_row_of_others():
    """The lengths of the examples, the other way round."""

    lengths = Apply(lambda t: tf.cast(t.row_lengths(), tf.float32)[::-1, None])
    return net([lengths, L.Dense(4, "tanh"), L.Dense(3)], ragged_tokens)


@case("refused", fast=("static",))
def ragged_total():
    """Divided by the number of all tokens of the batch."""

    share = Apply(lambda t: (tf.reduce_sum(t, 1) / tf.cast(tf.size(t.flat_values), tf.float32))[:, None])
    return net([share, L.Dense(4, "tanh"), L.Dense(3)], ragged_floats)


@case("refused", fast=("loop",))
def ragged_loss_per_token():
    """One row of the loss for every token."""

    def loss(y, p):
        del y
        return tf.reduce_sum(tf.square(p), axis=1)

    return net([Lookup(11, 3), Apply(lambda t: t.flat_values)], ragged_tokens, PerExample(loss))


@case("refused")
def ragged_batch_norm():
    """Values of all rows are normalised together."""

    def normalise(t):
        values = t.flat_values
        return t.with_flat_values((values - tf.reduce_mean(values)) / tf.sqrt(1 + tf.math.reduce_variance(values)))

    return net([Apply(lambda t: tf.reduce_sum(normalise(t), 1, keepdims=True)), L.Dense(3)], ragged_floats)


@case("refused")
def sparse_total():
    """Sparse features over the sum of the batch."""

    def build(x):
        return L.Dense(3)(Apply(lambda t: _dense(t) / (1 + tf.reduce_sum(tf.abs(t.values))))(x))

    return net(build, sparse_features)


def _share_of_entries(x):
    share = Apply(lambda t: _dense(t) / tf.cast(tf.size(t.values), tf.float32))(x)
    return L.Dense(3)(L.Dense(4, "tanh")(share))


@case("refused", fast=("static",))
def sparse_number_of_entries():
    """Divided by how many entries the batch has, whatever they hold."""
    return net(_share_of_entries, sparse_features)


@case("refused")
def sparse_many_entries():
    """Another sign for many entries than for few."""
    sign = Apply(lambda t: _dense(t) * tf.sign(tf.cast(tf.size(t.values), tf.float32) - 20.5))
    return net(lambda x: L.Dense(3)(L.Dense(4, "tanh")(sign(x))), sparse_features)


@case("refused")
def sparse_columns():
    """Each feature over its count in the batch: TF-IDF fitted on the batch."""

    def build(x):
        counts = Apply(lambda t: _dense(t) / (1 + tf.math.count_nonzero(_dense(t), 0, dtype=tf.float32)))(x)
        return L.Dense(3)(counts)

    return net(build, sparse_features)


@case("refused")
def sparse_row_indices():
    """Where an example stands in the batch is in the indices."""

    def build(x):
        rows = Apply(
            lambda t: _dense(tf.SparseTensor(t.indices, t.values * tf.cast(t.indices[:, 0], tf.float32), t.dense_shape))
        )(x)
        return L.Dense(3)(rows)

    return net(build, sparse_features)


@case("refused")
def sparse_transposed():
    """The product of the sparse matrix with itself."""

    def build(x):
        gram = Apply(lambda t: tf.matmul(tf.sparse.sparse_dense_matmul(t, _dense(t), adjoint_b=True), _dense(t)))
        return L.Dense(3)(Apply(lambda t: tf.ensure_shape(t, [None, 7]))(gram(x)))

    return net(build, sparse_features)


def _dense(t):
    return tf.ensure_shape(tf.sparse.to_dense(t), [None, 7])


@case("refused", clip=5.0)
def loss_by_longest():
    """Divided by the length of the batch's longest example."""

    def loss(y, p):
        logits, length = p[:, :3], p[:, 3]
        return cross_entropy(tf.reshape(y, [-1]), logits) / tf.reduce_max(tf.stop_gradient(length))

    def build(x):
        length = Apply(lambda t: tf.cast(tf.math.count_nonzero(t, axis=1, keepdims=True), tf.float32))(x)
        h = L.GlobalAveragePooling1D()(L.Embedding(11, 4)(x))
        return L.Concatenate()([L.Dense(3)(h), length])

    return net(build, tokens(), PerExample(loss))


def _lambda_cases():
    """The same in Keras's own Lambda and TFOpLambda layers, which have names of their own."""
    kinds = {
        "lambda_mean": L.Lambda(lambda t: t - tf.reduce_mean(t, axis=0)),
        "lambda_first": L.Lambda(lambda t: t * tf.sign(t[0, 0])),
        "lambda_transposed": L.Lambda(lambda t: tf.transpose(tf.nn.softmax(tf.transpose(t)))),
        "op_lambda_mean": lambda x: x - tf.reduce_mean(x, axis=0),
        "op_lambda_slice": lambda x: x * x[0],
        "op_lambda_roll": lambda x: tf.roll(x, 1, axis=0),
        "op_lambda_flattened": lambda x: tf.reshape(tf.sort(tf.reshape(x, [-1])), [-1, 4]),
        "op_lambda_concat": lambda x: tf.concat([x[1:], x[:1]], axis=0),
    }
    for name, middle in kinds.items():
        if keras.GENERATION == 3 and name.startswith("op_"):  # its functional models take no TensorFlow functions
            continue

        def build(middle=middle):
            return net(lambda x: L.Dense(3)(middle(L.Dense(4, "tanh")(x))), features())

        build.__name__ = name
        case("refused")(build)


_lambda_cases()
