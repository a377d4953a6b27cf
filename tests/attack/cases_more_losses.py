"""More losses: those that weigh, rank or compare the examples of a batch, and some that do not."""

import numpy as np
import tensorflow as tf

from tests.attack.case import PerExample, case, cross_entropy, features, net

L = tf.keras.layers


@case("refused", own_step_only=True)
def loss_with_a_neighbour():
    """Each example against the one before it, in a step of one's own."""
    problem = net([L.Dense(4, "tanh"), L.Dense(3)], features())

    def loss_fn(batch):
        x, y = batch
        p = problem.model(x, training=True)
        return cross_entropy(y, p) + 0.1 * tf.reduce_sum(p * tf.roll(p, 1, 0), axis=1)

    problem.loss_fn = loss_fn
    return problem


def _loss(expect, name, function, data=None, outputs=3, **options):
    def build():
        return net([L.Dense(4, "tanh"), L.Dense(outputs)], data or features(), PerExample(function))

    build.__name__ = name
    case(expect, **options)(build)


def _weights_that_sum_to_one(y, p):
    weights = tf.nn.softmax(tf.cast(tf.reshape(y, [-1]), tf.float32))
    return weights * cross_entropy(tf.reshape(y, [-1]), p)


def _distance(p):
    squares = tf.reduce_sum(p * p, 1)
    return squares[:, None] - 2 * tf.matmul(p, p, transpose_b=True) + squares[None]


def _semi_hard(y, p):
    y = tf.reshape(y, [-1])
    d = _distance(p)
    same = tf.cast(y[:, None] == y[None], tf.float32)
    return tf.reduce_max(d * same, 1) + tf.maximum(0.0, 1 - tf.reduce_min(d + 1e3 * same, 1))


def _ranking(y, p):
    order = tf.argsort(p[:, 0])
    return cross_entropy(tf.reshape(y, [-1]), p) * tf.cast(1 + tf.argsort(order), tf.float32)


def _quantile(y, p):
    loss = cross_entropy(tf.reshape(y, [-1]), p)
    kept = tf.math.top_k(loss, tf.minimum(3, tf.shape(loss)[0])).values[-1]
    return tf.where(loss >= kept, loss, 0.0)


def _covariance_penalty(y, p):
    centred = p - tf.reduce_mean(p, 0)
    covariance = tf.einsum("bi,bj->ij", centred, centred)
    return cross_entropy(tf.reshape(y, [-1]), p) + tf.reduce_sum(tf.square(covariance)) * 0.01


def _class_counts(y, p):
    y = tf.reshape(tf.cast(y, tf.int32), [-1])
    counts = tf.cast(tf.math.bincount(y, minlength=3, maxlength=3), tf.float32)
    return cross_entropy(y, p) / tf.gather(counts, y)


def _mean_teacher(y, p):
    return cross_entropy(tf.reshape(y, [-1]), p) + tf.reduce_sum(tf.square(p - tf.reduce_mean(p, 0, keepdims=True)), 1)


def _label_smoothed(y, p):
    target = 0.9 * tf.one_hot(tf.reshape(tf.cast(y, tf.int32), [-1]), 3) + 0.1 / 3
    return tf.nn.softmax_cross_entropy_with_logits(target, p)


def _smoothed_by_the_batch(y, p):
    target = tf.one_hot(tf.reshape(tf.cast(y, tf.int32), [-1]), 3)
    target = 0.9 * target + 0.1 * tf.reduce_mean(target, 0, keepdims=True)
    return tf.nn.softmax_cross_entropy_with_logits(target, p)


def _centred(y, p):
    loss = cross_entropy(tf.reshape(y, [-1]), p)
    return loss - tf.reduce_mean(loss)


_loss("refused", "loss_weights_sum_to_one", _weights_that_sum_to_one)
_loss("refused", "loss_semi_hard_triplet", _semi_hard)
_loss("refused", "loss_by_rank", _ranking)
_loss("refused", "loss_of_the_worst", _quantile)
_loss("refused", "loss_vicreg", _covariance_penalty)
_loss("refused", "loss_by_class_counts", _class_counts)
_loss("refused", "loss_to_the_mean", _mean_teacher)
_loss("accepted", "loss_smoothed_labels", _label_smoothed)
_loss("refused", "loss_smoothed_by_the_batch", _smoothed_by_the_batch)
_loss("refused", "loss_cosine_over_the_batch", lambda y, p: -tf.reduce_sum(tf.nn.l2_normalize(p, 0), 1))
_loss("refused", "loss_centred", _centred)


@case("accepted")
def loss_ctc():
    """Connectionist temporal classification, Keras's batch cost."""

    def loss(y, p):
        y = tf.cast(y, tf.int32)
        lengths = tf.reduce_sum(tf.cast(y > 0, tf.int32), 1)
        return tf.nn.ctc_loss(y, p, lengths, tf.fill([tf.shape(p)[0]], 6), logits_time_major=False, blank_index=0)

    def data(rng, n):
        x = rng.normal(size=(n, 6, 3)).astype(np.float32)
        return x, rng.integers(1, 4, (n, 2))

    return net([L.Dense(4, "tanh"), L.Dense(5)], data, PerExample(loss))
