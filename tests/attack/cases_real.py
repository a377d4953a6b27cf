"""Real architectures in small: several inputs and outputs, retrieval, sets, graphs, GAN, VAE, contrastive learning."""

import numpy as np
import tensorflow as tf

from tests.attack.case import (
    Apply,
    PerExample,
    bce,
    case,
    copies,
    features,
    floats,
    mse,
    net,
    scce,
)

L = tf.keras.layers


@case("accepted", fast=("graph",))
def several_inputs_and_outputs():
    def data(rng, n):
        x = {"wide": floats(rng, n, 3), "ids": rng.integers(0, 7, (n, 2))}
        return x, {"kind": rng.integers(0, 3, n), "size": floats(rng, n, 1)}

    def build(x):
        h = L.Concatenate()([x["wide"], L.Flatten()(L.Embedding(7, 3)(x["ids"]))])
        h = L.Dense(5, "tanh")(h)
        return {"kind": L.Dense(3, name="kind")(h), "size": L.Dense(1, name="size")(h)}

    return net(build, data, {"kind": scce(), "size": mse()})


@case("accepted")
def wide_and_deep():
    def data(rng, n):
        return (floats(rng, n, 4), rng.integers(0, 5, n)), rng.integers(0, 2, (n, 1)).astype(np.float32)

    def build(x):
        numbers, category = x
        deep = L.Dense(4, "relu")(L.Concatenate()([numbers, L.Embedding(5, 2)(category)]))
        return L.Dense(1)(deep) + L.Dense(1)(L.CategoryEncoding(5, "one_hot")(category))

    return net(build, data, bce())


@case("accepted")
def siamese():
    def data(rng, n):
        return (floats(rng, n, 5), floats(rng, n, 5)), rng.integers(0, 2, (n, 1)).astype(np.float32)

    def build(x):
        tower = tf.keras.Sequential([L.Dense(4, "tanh"), L.Dense(3)])
        return L.Dense(1)(Apply(lambda t: tf.abs(t[0] - t[1]))([tower(x[0]), tower(x[1])]))

    return net(build, data, bce())


@case("accepted")
def shared_layer():
    def build(x):
        layer = L.Dense(5, "tanh")
        return L.Dense(3)(layer(layer(x)))

    return net(build, features())


@case("accepted", own_step_only=True)
def triplet():
    """Anchor, positive and negative belong to the example."""

    def data(rng, n):
        return floats(rng, n, 3, 5), rng.integers(0, 3, n)

    problem = net([L.Dense(4, "tanh"), L.Dense(3)], data)

    def loss_fn(batch):
        anchor, positive, negative = tf.unstack(problem.model(batch[0], training=True), axis=1)
        near, far = (tf.reduce_sum(tf.square(anchor - other), 1) for other in (positive, negative))
        return tf.nn.relu(near - far + 1.0) + 0.01 * near

    problem.loss_fn = loss_fn
    return problem


@case("accepted")
def contrastive_own_negatives():
    """Each example brings its own negatives."""

    def data(rng, n):
        return (floats(rng, n, 5), floats(rng, n, 4, 5)), np.zeros(n, np.int64)

    def build(x):
        query, keys = L.Dense(3)(x[0]), L.Dense(3)(x[1])
        return Apply(lambda t: tf.einsum("bd,bkd->bk", t[0], t[1]))([query, keys])

    return net(build, data)


@case("accepted")
def two_tower_pointwise():
    def data(rng, n):
        ids = (rng.integers(0, 6, n), rng.integers(0, 9, n))
        return ids, rng.integers(0, 2, (n, 1)).astype(np.float32)

    def build(x):
        return L.Dot(1)([L.Embedding(6, 3)(x[0]), L.Embedding(9, 3)(x[1])])

    return net(build, data, bce())


@case("refused")
def two_tower_in_batch():
    """Retrieval as in TensorFlow Recommenders: the other items of the batch are the negatives."""

    def data(rng, n):
        return (rng.integers(0, 6, n), rng.integers(0, 9, n)), np.zeros(n)

    def build(x):
        users, items = L.Embedding(6, 3)(x[0]), L.Embedding(9, 3)(x[1])
        return Apply(lambda t: tf.matmul(t[0], t[1], transpose_b=True))([users, items])

    def loss(y, scores):
        del y
        return tf.nn.softmax_cross_entropy_with_logits(tf.eye(tf.shape(scores)[0]), scores)

    return net(build, data, PerExample(loss))


@case("refused")
def simclr():
    """Two views of each example, 2B rows against each other."""

    def loss(y, z):
        del y
        z = tf.math.l2_normalize(tf.concat([z[:, 0], z[:, 1]], 0), axis=1)
        size = tf.shape(z)[0] // 2
        scores = tf.matmul(z, z, transpose_b=True) - 1e9 * tf.eye(2 * size)
        partner = tf.concat([tf.range(size) + size, tf.range(size)], 0)
        both = tf.nn.sparse_softmax_cross_entropy_with_logits(partner, scores)
        return both[:size] + both[size:]

    return net([L.Dense(4, "tanh"), L.Dense(3)], lambda rng, n: (floats(rng, n, 2, 5), np.zeros(n)), PerExample(loss))


@case("accepted")
def deep_sets():
    """Sets of up to six points with a mask: the sum over an example's own points."""

    def data(rng, n):
        mask = (np.arange(6) < rng.integers(1, 7, (n, 1))).astype(np.float32)
        return (floats(rng, n, 6, 2), mask), rng.integers(0, 3, n)

    def build(x):
        h = L.Dense(4, "tanh")(x[0])
        return L.Dense(3)(L.Dense(4, "relu")(Apply(lambda t: tf.reduce_sum(t[0] * t[1][:, :, None], 1))([h, x[1]])))

    return net(build, data)


def _graphs(rng, n):
    edges = (rng.uniform(size=(n, 5, 5)) < 0.4).astype(np.float32) + np.eye(5, dtype=np.float32)
    return (floats(rng, n, 5, 3), edges), rng.integers(0, 3, n)


@case("accepted")
def graph_network():
    """One graph per example, with its own adjacency matrix."""

    def build(x):
        h = x[0]
        for _ in range(2):
            h = L.Dense(4, "tanh")(Apply(lambda t: tf.matmul(t[1], t[0]) / tf.reduce_sum(t[1], -1, True))([h, x[1]]))
        return L.Dense(3)(L.GlobalAveragePooling1D()(h))

    return net(build, _graphs)


@case("refused")
def graph_over_batch():
    """The examples are the nodes of one graph."""

    def build(x):
        h = L.Dense(4, "tanh")(x)
        near = Apply(lambda t: tf.nn.softmax(-tf.reduce_sum(tf.square(t[:, None] - t[None]), -1)))(h)
        return L.Dense(3)(Apply(lambda t: tf.matmul(t[0], t[1]))([near, h]))

    return net(build, features())


@case("accepted", random=True)
def variational_autoencoder():
    def build(x):
        mean, spread = L.Dense(2)(x), L.Dense(2)(x)
        draw = Apply(lambda t: t[0] + tf.exp(0.5 * t[1]) * tf.random.normal(tf.shape(t[0])))
        decoded = L.Dense(5)(L.Dense(4, "tanh")(draw([mean, spread])))
        return L.Concatenate()([decoded, mean, spread])

    def loss(x, out):
        decoded, mean, spread = tf.split(out, [5, 2, 2], axis=1)
        divergence = 0.5 * tf.reduce_sum(tf.square(mean) + tf.exp(spread) - spread - 1, axis=1)
        return tf.reduce_sum(tf.square(x - decoded), axis=1) + divergence

    return net(build, copies(), PerExample(loss))


@case("accepted")
def u_net():
    def build(x):
        down = L.Conv2D(2, 3, padding="same", activation="relu")(x)
        deep = L.Conv2D(3, 3, padding="same", activation="relu")(L.MaxPooling2D()(down))
        up = L.Concatenate()([down, L.UpSampling2D()(deep)])
        return L.GlobalAveragePooling2D()(L.Conv2D(3, 1)(up))

    return net(build, features(4, 4, 1))


@case("accepted")
def squeeze_and_excite():
    def build(x):
        h = L.Conv2D(4, 3, padding="same")(x)
        gate = L.Dense(4, "sigmoid")(L.Dense(2, "relu")(L.GlobalAveragePooling2D()(h)))
        return L.Dense(3)(L.GlobalAveragePooling2D()(h * L.Reshape((1, 1, 4))(gate)))

    return net(build, features(4, 4, 2))


@case("accepted")
def mixture_of_experts():
    """Every expert on every example, mixed by its gate."""

    def build(x):
        gate = L.Dense(3, "softmax")(x)
        experts = Apply(lambda t: tf.stack(t, 1))([L.Dense(3, "tanh")(x) for _ in range(3)])
        return L.Dense(3)(Apply(lambda t: tf.einsum("be,bed->bd", t[0], t[1]))([gate, experts]))

    return net(build, features())


@case("refused")
def mixture_with_capacity():
    """Switch routing: an expert takes the first two examples that ask for it and drops the rest."""

    def route(t):
        gate, h = t
        chosen = tf.one_hot(tf.argmax(gate, 1), 3)
        place = tf.cumsum(chosen, axis=0) * chosen
        return h * tf.reduce_sum(tf.cast((place > 0) & (place <= 2), tf.float32), 1, keepdims=True)

    return net(lambda x: L.Dense(3)(Apply(route)([L.Dense(3)(x), L.Dense(4, "tanh")(x)])), features())
