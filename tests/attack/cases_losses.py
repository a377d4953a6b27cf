"""Losses: rows that are no examples, sums over the batch, weights that hang on the batch or on the position."""

import numpy as np
import tensorflow as tf

from adaclip_tf._internal import keras
from tests.attack.case import (
    Apply,
    PerExample,
    binary,
    case,
    cross_entropy,
    features,
    net,
    regression,
    scce,
    tagged,
)

L = tf.keras.layers


def _loss_case(expect, name, function, data=None, outputs=3, **options):
    """A small network under a loss function."""

    def build():
        return net([L.Dense(4, "tanh"), L.Dense(outputs)], data or features(), PerExample(function))

    build.__name__ = name
    case(expect, **options)(build)


def _size(y):
    return tf.cast(tf.shape(y)[0], tf.float32)


def _positives(y):
    return tf.reduce_sum(tf.cast(tf.equal(y, 1), tf.float32))


def _class_balanced(y, p):
    """Each example weighted by how many of its class are in the batch."""
    counts = tf.math.bincount(tf.cast(tf.reshape(y, [-1]), tf.int32), minlength=3, maxlength=3, dtype=tf.float32)
    return cross_entropy(tf.reshape(y, [-1]), p) / tf.gather(counts, tf.cast(tf.reshape(y, [-1]), tf.int32))


def _hard_examples(y, p):
    """Only the examples whose loss is above the batch's median (online hard example mining)."""
    losses = cross_entropy(tf.reshape(y, [-1]), p)
    middle = tf.sort(losses)[tf.shape(losses)[0] // 2]
    return tf.where(losses >= middle, losses, 0.0)


def _in_batch_negatives(y, p):
    """Retrieval with in-batch negatives: the other examples are the wrong answers."""
    del y
    scores = tf.matmul(p, p, transpose_b=True)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(tf.shape(p)[0]), scores)


def _covariance(y, p):
    """Barlow-like decorrelation added to every row."""
    centred = p - tf.reduce_mean(p, axis=0)
    return cross_entropy(tf.reshape(y, [-1]), p) + tf.norm(tf.matmul(centred, centred, transpose_a=True)) / _size(p)


_POSITIONS = tf.constant(np.arange(64.0, dtype=np.float32))


def _plain(y, p):
    return cross_entropy(tf.reshape(y, [-1]), p)


_MIXING = {
    "loss_over_batch_size": lambda y, p: _plain(y, p) / _size(y),
    "loss_over_size": lambda y, p: _plain(y, p) / tf.cast(tf.size(y), tf.float32),
    "loss_over_positives": lambda y, p: _plain(y, p) / (1e-3 + _positives(y)),
    "loss_over_dim": lambda y, p: _plain(y, p) / (float(p.shape[0]) if p.shape[0] else _size(p)),
    "loss_class_balanced": _class_balanced,
    "loss_hard_examples": _hard_examples,
    "loss_in_batch_negatives": _in_batch_negatives,
    "loss_covariance": _covariance,
    "loss_by_position": lambda y, p: _plain(y, p) * tf.cast(tf.range(tf.shape(p)[0]), tf.float32),
    "loss_by_position_constant": lambda y, p: _plain(y, p) * _POSITIONS[: p.shape[0] or tf.shape(p)[0]],
    "loss_mean_for_all": lambda y, p: tf.reduce_mean(_plain(y, p)) * tf.ones_like(p[:, 0]),
    "loss_filled": lambda y, p: tf.fill([tf.shape(p)[0]], tf.reduce_sum(_plain(y, p))),
    "loss_mean_kept_rank": lambda y, p: tf.reduce_mean(_plain(y, p), keepdims=True),
    "loss_minus_mean": lambda y, p: _plain(y, p) - tf.reduce_mean(_plain(y, p)),
    "loss_softmax_weights": lambda y, p: _plain(y, p) * tf.stop_gradient(tf.nn.softmax(_plain(y, p))),
    "loss_rolled": lambda y, p: cross_entropy(tf.roll(tf.reshape(y, [-1]), 1, 0), p),
    "loss_reversed": lambda y, p: _plain(y, p)[::-1],
    "loss_sorted": lambda y, p: tf.sort(_plain(y, p)),
    "loss_cumulated": lambda y, p: tf.cumsum(_plain(y, p)),
    "loss_of_half": lambda y, p: _plain(y, p)[: (tf.shape(p)[0] + 1) // 2],
    "loss_without_first": lambda y, p: _plain(y, p)[1:],
    "loss_twice": lambda y, p: tf.concat([_plain(y, p)] * 2, 0),
    "loss_repeated": lambda y, p: tf.repeat(_plain(y, p), 8),
    "loss_transposed": lambda y, p: tf.reduce_sum(tf.transpose(p * tf.cast(y, tf.float32)[:, None]), axis=1),
    "loss_per_class": lambda y, p: tf.reduce_sum(p * tf.one_hot(tf.cast(tf.reshape(y, [-1]), tf.int32), 3), axis=0),
    "loss_pairs": lambda y, p: tf.reshape(tf.reduce_sum(tf.square(p[:, None] - p[None]), -1), [-1]),
    "loss_nonzero_rows": lambda y, p: tf.boolean_mask(_plain(y, p), tf.reshape(y, [-1]) > 0),
    "loss_cond_on_labels": lambda y, p: tf.cond(
        tf.reduce_any(tf.equal(y, 2)), lambda: 3 * _plain(y, p), lambda: _plain(y, p)
    ),
    "loss_first_label": lambda y, p: _plain(y, p) * (1 + tf.cast(tf.reshape(y, [-1])[0], tf.float32)),
}
for _name, _function in _MIXING.items():
    # Rows in another order, or chosen by the example's own label, harm nobody where each is clipped by itself.
    _expect = "either" if _name in ("loss_nonzero_rows", "loss_reversed", "loss_sorted") else "refused"
    # Where the loss of others only changes in size, unclipped gradients show it best.
    _size_only = _name in ("loss_over_batch_size", "loss_over_size", "loss_over_dim")
    _clip = 5.0 if _size_only or _name == "loss_cond_on_labels" else 0.5
    _fast = ("graph",) if _name in ("loss_over_positives", "loss_repeated", "loss_reversed") else ()
    _loss_case(_expect, _name, _function, fast=_fast, clip=_clip, size_only=_size_only)


@case("refused", fast=("graph",))
def loss_per_time_as_rows():
    """[B, T, F] reshaped to [B T, F]: T rows per example."""
    layers = [L.Dense(4, "tanh"), Apply(lambda x: tf.reshape(x, [-1, 4])), L.Dense(3)]
    return net(layers, tagged(5, 2), PerExample(lambda y, p: cross_entropy(tf.reshape(y, [-1]), p)))


@case("refused")
def loss_of_augmented_views():
    """Eight noisy views of each example, each with a row of its own."""
    layers = [Apply(lambda x: tf.repeat(x, 8, axis=0)), L.Dense(4, "tanh"), L.Dense(3)]
    return net(layers, features(), PerExample(lambda y, p: cross_entropy(tf.repeat(tf.reshape(y, [-1]), 8), p)))


@case("refused")
def loss_of_tiled_views():
    layers = [Apply(lambda x: tf.tile(x, [8, 1])), L.Dense(4, "tanh"), L.Dense(3)]
    return net(layers, features(), PerExample(lambda y, p: cross_entropy(tf.tile(tf.reshape(y, [-1]), [8]), p)))


@case("accepted")
def views_averaged_per_example():
    """Augmentation multiplicity done right: views along an axis of their own, one loss per example."""

    def loss(y, p):
        return tf.reduce_mean(cross_entropy(tf.repeat(y[:, None] if y.shape.rank == 1 else y, 4, 1), p), axis=1)

    views = Apply(lambda x: x[:, None] * tf.constant([0.9, 1.0, 1.1, 1.2])[:, None])
    return net([views, L.Dense(4, "tanh"), L.Dense(3)], features(), PerExample(loss))


@case("refused")
def loss_of_regression_broadcast():
    """The well-known slip: [B] - [B, 1] is [B, B]."""

    def loss(y, p):
        return tf.reduce_mean(tf.square(tf.reshape(y, [-1]) - p), axis=1)

    return net([L.Dense(4, "tanh"), L.Dense(1)], regression(), PerExample(loss))


# ---- Right ones.

_loss_case("accepted", "loss_focal", lambda y, p: _plain(y, p) * tf.square(1 - tf.exp(-_plain(y, p))), fast=("graph",))
_loss_case("accepted", "loss_where", lambda y, p: tf.where(tf.reshape(y, [-1]) > 0, _plain(y, p), 0.3 * _plain(y, p)))
_loss_case("accepted", "loss_clipped", lambda y, p: tf.minimum(_plain(y, p), 2.0))
_loss_case("accepted", "loss_of_sums", lambda y, p: _plain(y, p) + tf.reduce_sum(tf.abs(p), axis=-1))
_loss_case("accepted", "loss_reshaped", lambda y, p: tf.reshape(tf.reshape(_plain(y, p), [-1, 1]), [-1]))
_loss_case(
    "accepted",
    "loss_label_smoothed",
    lambda y, p: tf.keras.losses.categorical_crossentropy(
        tf.one_hot(tf.cast(tf.reshape(y, [-1]), tf.int32), 3), p, from_logits=True, label_smoothing=0.1
    ),
)
_loss_case(
    "accepted",
    "loss_contrastive_pairs",
    lambda y, p: tf.where(y[:, 0] > 0, tf.square(p[:, 0]), tf.square(tf.maximum(1 - p[:, 0], 0.0))),
    data=binary(),
    outputs=1,
)
_loss_case(
    "accepted",
    "loss_quantile",
    lambda y, p: tf.reduce_mean(tf.maximum(0.9 * (y - p), -0.1 * (y - p)), axis=-1),
    data=regression(),
    outputs=1,
)


@case("accepted")
def sample_weights():
    def data(rng, n):
        return *features()(rng, n), rng.uniform(0, 3, n).astype(np.float32)

    return net([L.Dense(4, "tanh"), L.Dense(3)], data, scce())


@case("accepted", clip=0.02)
def sample_weights_per_time():
    def data(rng, n):
        return *tagged(5, 2)(rng, n), rng.uniform(0.1, 3, (n, 5)).astype(np.float32)

    return net([L.Dense(4, "tanh"), L.Dense(3)], data, scce())


@case("refused", fast=("jit",))
def scalar_from_the_dataset():
    """The dataset hands out a number computed from the whole batch beside the examples."""
    problem = net([L.Dense(3)], features())
    problem.model = ScalarFed()
    problem.derive = lambda x, y: ((x, tf.reduce_max(tf.abs(x))), y)
    return problem


class ScalarFed(tf.keras.Model):
    """Takes (features, a number for the whole batch)."""

    def __init__(self):
        super().__init__()
        self.first, self.last = L.Dense(4, "tanh"), L.Dense(3)
        self.first.build([None, 5])
        self.last.build([None, 4])
        self.built = True

    def call(self, inputs):
        x, scale = inputs
        return self.last(self.first(x) / scale)


def _with_losses_of_layers(*layers):
    """The model's own losses, which Keras has reduced, added to each example's."""
    problem = net([*layers, L.Dense(3)], features())

    def loss_fn(batch):
        x, y = batch
        return cross_entropy(y, problem.model(x, training=True)) + tf.add_n(problem.model.losses)

    problem.loss_fn = loss_fn
    return problem


@case("refused", own_step_only=True)
def activity_regularizer():
    return _with_losses_of_layers(L.Dense(4, "tanh", activity_regularizer="l2"))


@case("refused", own_step_only=True)
def added_loss():
    class AddsLoss(L.Layer):
        def call(self, x):
            self.add_loss(tf.reduce_mean(tf.square(x)))
            return x

    return _with_losses_of_layers(L.Dense(4, "tanh"), AddsLoss())


@case("accepted", own_step_only=True)
def weight_regularizer():
    """Hangs on no example: the same for all."""
    return _with_losses_of_layers(L.Dense(4, "tanh", kernel_regularizer="l2"))


def added_loss_per_example():
    class AddsLoss(L.Layer):
        def call(self, x):
            self.add_loss(0.1 * tf.reduce_sum(tf.square(x), axis=1))
            return x

    return net([L.Dense(4, "tanh"), AddsLoss(), L.Dense(3)], features())


if keras.GENERATION == 2:  # Keras 3 takes scalars only
    case("either")(added_loss_per_example)


@case("refused")
def loss_reduced_by_keras():
    return net([L.Dense(3)], features(), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
