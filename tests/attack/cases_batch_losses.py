"""Losses that people do use and that compare the examples of a batch: no bound holds for one example of these."""

import numpy as np
import tensorflow as tf

from tests.attack.case import (
    PerExample,
    Problem,
    binary,
    case,
    copies,
    cross_entropy,
    features,
    floats,
    net,
    regression,
)

L = tf.keras.layers


def _times(rng, n):
    """Features; (time until the event, or until nobody looked any more; whether it happened)."""
    y = np.stack([rng.exponential(size=n) + 0.1, rng.integers(0, 2, n)], -1).astype(np.float32)
    return floats(rng, n, 5), y


def _scalar(loss, data=None, outputs=1):
    return net([L.Dense(4, "tanh"), L.Dense(outputs)], data or regression(), PerExample(loss))


@case("refused", fast=("graph",))
def cox_by_sorting():
    """The partial likelihood: who is at risk is found by sorting, their hazards are cumulated."""

    def loss(y, risk):
        order = tf.argsort(y[:, 0], direction="DESCENDING")
        risk, happened = tf.gather(risk[:, 0], order), tf.gather(y[:, 1], order)
        return -happened * (risk - tf.math.cumulative_logsumexp(risk))

    return _scalar(loss, _times)


@case("refused", fast=("graph",))
def cox_by_a_mask():
    """The same by a mask of all pairs, which leaves the examples in their places."""

    def loss(y, risk):
        at_risk = tf.cast(y[:, :1] <= y[:, 0][None], tf.float32)
        total = tf.reduce_sum(at_risk * tf.exp(tf.transpose(risk)), axis=1)
        return -y[:, 1] * (risk[:, 0] - tf.math.log(total))

    return _scalar(loss, _times)


@case("refused")
def concordance_of_pairs():
    def loss(y, risk):
        later = tf.cast(y[:, :1] < tf.transpose(y[:, :1]), tf.float32)
        return tf.reduce_mean(later * tf.sigmoid(tf.transpose(risk) - risk), axis=1)

    return _scalar(loss, _times)


@case("refused")
def rank_net_of_the_batch():
    def loss(y, score):
        better = tf.cast(y > tf.transpose(y), tf.float32)
        return tf.reduce_sum(better * tf.nn.softplus(tf.transpose(score) - score), 1)

    return _scalar(loss)


@case("refused")
def list_net_of_the_batch():
    def loss(y, score):
        return -tf.nn.softmax(y, axis=0)[:, 0] * tf.nn.log_softmax(score, axis=0)[:, 0]

    return _scalar(loss)


@case("refused")
def correlation_of_the_batch():
    def loss(y, out):
        y, out = y[:, 0] - tf.reduce_mean(y), out[:, 0] - tf.reduce_mean(out)
        return -y * out / (tf.norm(y) * tf.norm(out) + 1e-3)

    return _scalar(loss)


@case("refused")
def concordance_correlation():
    def loss(y, out):
        (my, vy), (mo, vo) = tf.nn.moments(y, [0]), tf.nn.moments(out, [0])
        return 1.0 - (2.0 * (y - my) * (out - mo) / (vy + vo + tf.square(my - mo) + 1e-3))[:, 0]

    return _scalar(loss)


@case("refused")
def r_squared():
    def loss(y, out):
        return tf.square(y - out)[:, 0] / (tf.math.reduce_variance(y) + 1e-3)

    return _scalar(loss)


@case("refused")
def explained_by_ranks():
    """Spearman: ranks of the targets within the batch."""

    def loss(y, out):
        rank = tf.cast(tf.argsort(tf.argsort(y[:, 0])), tf.float32)
        return tf.square(out[:, 0] - rank / tf.cast(tf.size(rank), tf.float32))

    return _scalar(loss)


@case("refused")
def soft_f1_of_the_batch():
    def loss(y, out):
        p = tf.sigmoid(out)
        hit = tf.reduce_sum(p * y, 0)
        return 1.0 - 2.0 * (p * y)[:, 0] / (hit + tf.reduce_sum(p, 0) + 1e-3)

    return _scalar(loss, binary())


@case("refused")
def demographic_parity():
    """A penalty on the gap between two groups' mean scores."""

    def loss(y, out):
        group = tf.cast(y[:, :1] > 0, tf.float32)
        p = tf.sigmoid(out)
        means = [tf.reduce_sum(p * g) / (tf.reduce_sum(g) + 1.0) for g in (group, 1.0 - group)]
        return tf.square(y - out)[:, 0] + tf.abs(means[0] - means[1])

    return _scalar(loss)


@case("refused")
def worst_group_first():
    """Group DRO: groups weigh by their mean loss in the batch."""

    def loss(y, out):
        own = tf.square(y - out)[:, 0]
        group = tf.cast(y[:, 0] > 0, tf.int32)
        means = tf.math.unsorted_segment_mean(own, group, 2)
        return own * tf.gather(tf.nn.softmax(tf.stop_gradient(means)), group)

    return _scalar(loss)


@case("refused")
def area_under_the_curve():
    """Squared hinge over all pairs of a positive and a negative."""

    def loss(y, out):
        return tf.reduce_mean(y * tf.transpose(1.0 - y) * tf.square(tf.nn.relu(1.0 - out + tf.transpose(out))), 1)

    return _scalar(loss, binary())


def _embeddings(loss, data=None):
    return net([L.Dense(4, "tanh"), L.Dense(3)], data or features(), PerExample(loss))


def _distances(z):
    square = tf.reduce_sum(z * z, 1)
    return tf.nn.relu(square[:, None] - 2.0 * tf.matmul(z, z, transpose_b=True) + square[None])


@case("refused")
def triplets_batch_hard():
    def loss(y, z):
        same = tf.equal(tf.reshape(y, [-1, 1]), tf.reshape(y, [1, -1]))
        d = _distances(z)
        hardest = tf.reduce_max(tf.where(same, d, tf.zeros_like(d)), 1)
        return tf.nn.softplus(hardest - tf.reduce_min(tf.where(same, d + 1e3, d), 1))

    return _embeddings(loss)


@case("refused")
def supervised_contrast():
    def loss(y, z):
        z = tf.math.l2_normalize(z, 1)
        similar = tf.matmul(z, z, transpose_b=True) / 0.5
        similar -= 1e3 * tf.eye(tf.shape(z)[0])
        positive = tf.cast(tf.equal(tf.reshape(y, [-1, 1]), tf.reshape(y, [1, -1])), tf.float32)
        return -tf.reduce_mean(positive * tf.nn.log_softmax(similar, 1), 1)

    return _embeddings(loss)


@case("refused")
def n_pairs():
    """The other examples' targets are the wrong answers: softmax of [batch, batch] with labels 0, 1, 2, ..."""

    def loss(y, z):
        del y
        logits = tf.matmul(z, tf.stop_gradient(z), transpose_b=True)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(tf.shape(z)[0]), logits)

    return _embeddings(loss)


@case("refused")
def barlow_twins():
    def loss(y, z):
        del y
        a = (z - tf.reduce_mean(z, 0)) / (tf.math.reduce_std(z, 0) + 1e-2)
        c = tf.matmul(a, a, transpose_a=True) / tf.cast(tf.shape(a)[0], tf.float32)
        return tf.reduce_sum(tf.square(a), 1) * tf.reduce_sum(tf.square(c - tf.eye(3)))

    return _embeddings(loss)


@case("refused")
def balanced_assignments():
    """SwAV: codes by Sinkhorn's rounds over the batch, behind a stop_gradient."""

    def loss(y, z):
        del y
        q = tf.exp(tf.stop_gradient(z) / 0.5)
        for _ in range(3):
            q /= tf.reduce_sum(q, 0, keepdims=True)
            q /= tf.reduce_sum(q, 1, keepdims=True)
        return -tf.reduce_sum(q * tf.nn.log_softmax(z), 1)

    return _embeddings(loss)


@case("refused")
def mean_discrepancy():
    """MMD between two domains in the batch."""

    def loss(y, z):
        kernel = tf.exp(-_distances(z))
        sign = 2.0 * tf.cast(tf.reshape(y, [-1]) > 0, tf.float32) - 1.0
        return sign * tf.linalg.matvec(kernel, sign)

    return _embeddings(loss)


@case("refused")
def correlation_alignment():
    def loss(y, z):
        weight = tf.cast(tf.reshape(y, [-1, 1]) > 0, tf.float32)
        one, two = (tf.einsum("bi,bj->ij", z * w, z * w) for w in (weight, 1.0 - weight))
        return cross_entropy(tf.reshape(y, [-1]), z) + tf.reduce_sum(tf.square(one - two))

    return _embeddings(loss)


@case("refused")
def centres_of_the_batch():
    """Centre loss with the batch's own means of classes, by segment sums over sorted labels."""

    def loss(y, z):
        y = tf.cast(tf.reshape(y, [-1]), tf.int32)
        order = tf.argsort(y)
        means = tf.math.segment_mean(tf.gather(z, order), tf.gather(y, order))
        return tf.reduce_sum(tf.square(z - tf.gather(means, y)), 1)

    return _embeddings(loss)


@case("refused")
def prototypes_of_the_batch():
    """Prototypical networks: classes' means by a product with one-hot labels."""

    def loss(y, z):
        codes = tf.one_hot(tf.cast(tf.reshape(y, [-1]), tf.int32), 3)
        means = tf.matmul(codes, z, transpose_a=True) / (tf.reduce_sum(codes, 0)[:, None] + 1.0)
        return -tf.reduce_sum(codes * tf.nn.log_softmax(-tf.reduce_sum((z[:, None] - means[None]) ** 2, -1)), 1)

    return _embeddings(loss)


@case("refused")
def entropy_of_the_mean():
    """Information maximisation: the mean prediction should be spread."""

    def loss(y, z):
        mean = tf.reduce_mean(tf.nn.softmax(z), 0)
        return cross_entropy(tf.reshape(y, [-1]), z) + tf.reduce_sum(mean * tf.math.log(mean))

    return _embeddings(loss)


@case("refused")
def balanced_experts():
    """A load-balancing term by `add_loss`, over the batch's gates."""

    class Gated(L.Layer):
        def __init__(self):
            super().__init__()
            self.gate, self.experts = L.Dense(2, "softmax"), [L.Dense(3) for _ in range(2)]

        def call(self, x):
            gates = self.gate(x)
            self.add_loss(tf.reduce_sum(tf.square(tf.reduce_mean(gates, 0))))
            return tf.reduce_sum(gates[:, None] * tf.stack([expert(x) for expert in self.experts], -1), -1)

    return net([Gated()], features(), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))


@case("refused")
def mined_over_the_batch():
    """Online hard example mining: those above the batch's median loss count."""

    def loss(y, out):
        own = cross_entropy(tf.reshape(y, [-1]), out)
        kth = tf.sort(own)[tf.shape(own)[0] // 2]
        return own * tf.cast(own >= tf.stop_gradient(kth), tf.float32)

    return _embeddings(loss)


@case("refused")
def focal_by_the_mean_confidence():
    def loss(y, out):
        own = cross_entropy(tf.reshape(y, [-1]), out)
        return own * tf.pow(1.0 - tf.exp(-tf.reduce_mean(own)), 2.0)

    return _embeddings(loss)


@case("refused")
def covariance_of_factors():
    """Total correlation of a VAE, estimated within the batch (beta-TCVAE)."""

    def loss(x, z):
        del x
        pairs = -0.5 * tf.square(z[:, None] - z[None])
        joint = tf.reduce_logsumexp(tf.reduce_sum(pairs, 2), 1)
        return joint - tf.reduce_sum(tf.reduce_logsumexp(pairs, 1), 1)

    return net([L.Dense(4, "tanh"), L.Dense(3)], copies(), PerExample(loss))


@case("refused", own_step_only=True)
def penalty_on_the_whole_gradient():
    """A gradient by the inputs of the batch's summed norm: the example's slope is divided by all."""
    model = tf.keras.Sequential([L.Dense(4, "tanh", input_shape=(5,)), L.Dense(1)])

    def loss_of(batch):
        x = batch[0]
        with tf.GradientTape() as tape:
            tape.watch(x)
            out = model(x)
        slope = tape.gradient(out, x)
        return tf.square(out[:, 0]) * (tf.norm(slope) - 1.0)

    return Problem(model, features(), players=[(loss_of, model.trainable_variables)])


@case("refused", own_step_only=True)
def tasks_weighed_by_their_losses():
    """GradNorm-like: each task's weight is its mean loss in the batch."""
    model = tf.keras.Sequential([L.Dense(4, "tanh", input_shape=(5,)), L.Dense(4)])

    def loss_of(batch):
        out = model(batch[0])
        tasks = tf.stack([cross_entropy(batch[1], out[:, :3]), tf.square(out[:, 3])], 1)
        return tf.reduce_sum(tasks * tf.nn.softmax(tf.stop_gradient(tf.reduce_mean(tasks, 0))), 1)

    return Problem(model, features(), players=[(loss_of, model.trainable_variables)])


@case("refused")
def time_major_ctc():
    """Logits of [batch, time, classes] said to be [time, batch, classes]."""

    def loss(y, out):
        y = tf.cast(y, tf.int32)
        length = tf.fill([tf.shape(y)[0]], 4)
        steps = tf.fill([tf.shape(y)[0]], tf.shape(out)[0])
        square = tf.tile(out[:, :1], [1, tf.shape(y)[0], 1])
        return tf.nn.ctc_loss(y, square, length, steps, logits_time_major=True, blank_index=0)

    def data(rng, n):
        return floats(rng, n, 6, 3), np.stack([1 + np.arange(4) % 3 for _ in range(n)])

    return net([L.Dense(4, "tanh"), L.Dense(4)], data, PerExample(loss))
