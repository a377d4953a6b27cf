"""Tests of `adaclip_tf.gradients.reduced`: a mean over the batch taken apart, and what is none refused."""

import doctest

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.gradients import reduced

X = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5]], np.float32)


def taken_apart(loss, data=X, static=False):
    """`per_example` of the scalar that `loss` makes of the data, in a graph."""
    spec = tf.TensorSpec(data.shape if static else [None, *data.shape[1:]])
    return tf.function(lambda x: reduced.per_example(loss(x)), input_signature=[spec], autograph=False)(data).numpy()


PARTS = [
    (lambda x: tf.reduce_mean(tf.reshape(x, [-1])), np.mean(X, axis=1)),
    (lambda x: tf.reduce_mean(tf.reshape(tf.tile(x, [1, 3]), [-1, 2])), np.mean(X, axis=1)),
    (lambda x: tf.reduce_mean(tf.reshape(x * x[:, :1], [-1])), np.mean(X * X[:, :1], axis=1)),
]


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize(("part", "expected"), PARTS)
def test_a_mean_of_several_entries_for_each_example_is_added_to_one_of_one(part, expected, static):
    """As a layer adds it, by `add_loss`."""
    added = taken_apart(lambda x: keras_loss()(x) + part(x), static=static)
    np.testing.assert_allclose(added, np.mean(X**2, axis=1) + expected, rtol=1e-6)


def test_so_is_one_of_as_many_entries_as_only_the_run_tells():
    @tf.function(input_signature=[tf.TensorSpec([None, None])], autograph=False)
    def step(x):
        return reduced.per_example(tf.reduce_mean(tf.reduce_sum(x, 1)) + tf.reduce_mean(tf.reshape(x, [-1])))

    np.testing.assert_allclose(step(X), X.sum(axis=1) + X.mean(axis=1), rtol=1e-6)


def keras_loss(**options):
    squares = tf.keras.losses.MeanSquaredError(**options)
    return lambda x: squares(tf.zeros_like(x), x)


def over_time(x):
    """Losses of shape [batch, 2]."""
    return tf.reduce_mean(tf.square(x))


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize(
    "loss,expected",
    [
        (keras_loss(), np.mean(X**2, axis=1)),
        (over_time, np.mean(X**2, axis=1)),
        (lambda x: tf.reduce_sum(x) / tf.cast(tf.size(x), tf.float32), np.mean(X, axis=1)),
        (lambda x: 0.5 * tf.identity(keras_loss()(x)), 0.5 * np.mean(X**2, axis=1)),
        (lambda x: sum([keras_loss()(x), 3.0 * tf.reduce_mean(x)]), np.mean(X**2 + 3 * X, axis=1)),
        (lambda x: tf.reduce_sum([keras_loss()(x), tf.reduce_mean(x[:, 0])]), np.mean(X**2, axis=1) + X[:, 0]),
        (lambda x: tf.add_n([keras_loss()(x), tf.reduce_mean(x)]), np.mean(X**2 + X, axis=1)),
        (lambda x: tf.reduce_sum(tf.reduce_mean(x)), np.mean(X, axis=1)),
        (lambda x: -tf.reduce_mean(x), -np.mean(X, axis=1)),
        (lambda x: keras_loss()(x) - 2.0 * tf.reduce_mean(x), np.mean(X**2 - 2 * X, axis=1)),
        (lambda x: (keras_loss()(x) - tf.reduce_mean(x)) / 4.0, np.mean(X**2 - X, axis=1) / 4),
        (lambda x: tf.reduce_mean([keras_loss()(x), tf.reduce_mean(x[:, 0])]), (np.mean(X**2, axis=1) + X[:, 0]) / 2),
    ],
    ids=[
        *("keras", "over time", "sum over size", "factor", "python sum", "packed", "add_n"),
        *("sum of one", "negative", "difference", "quotient", "mean of two"),
    ],
)
def test_a_mean_is_taken_apart(loss, expected, static):
    np.testing.assert_allclose(taken_apart(loss, static=static), expected, rtol=1e-6)


def test_weights_of_examples_stay():
    weights = tf.constant([0.0, 2.0, 1.0])
    loss = tf.keras.losses.MeanSquaredError()
    apart = taken_apart(lambda x: loss(tf.zeros_like(x), x, sample_weight=weights), static=True)
    np.testing.assert_allclose(apart, np.mean(X**2, axis=1) * weights, rtol=1e-6)


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize(
    "loss,message",
    [
        (tf.reduce_sum, "not a plain mean over examples"),
        (lambda x: tf.reduce_sum(x) / 8.0, "not known to be the number of its entries"),
        (lambda x: tf.reduce_sum(x) / tf.cast(tf.shape(x)[0], tf.float32), "not known to be the number of its entries"),
        (lambda x: tf.reduce_sum(x) / tf.cast(tf.size(x[1:]), tf.float32), "not known to be the number of its entries"),
        (
            lambda x: tf.reduce_sum(x) / tf.cast(tf.reduce_prod(tf.shape(x[1:])), tf.float32),
            "not known to be the number of its entries",
        ),
        (lambda x: tf.reduce_sum(x) / tf.reduce_sum(x**2), "not known to be the number of its entries"),
        (tf.reduce_max, "not a plain mean over examples"),
        (lambda x: keras_loss()(x) + tf.reduce_max(x), "use the optimizer's `weight_decay`"),
        (lambda x: keras_loss()(x) + 1.0, "not a plain mean over examples"),
        (lambda x: tf.sqrt(tf.reduce_mean(x**2)), "not a plain mean over examples"),
        (lambda x: tf.reduce_mean(x) * tf.reduce_mean(x), "not a plain mean over examples"),
        (lambda x: tf.constant(0.0), "is a constant"),
    ],
)
def test_what_is_no_plain_mean_is_refused(loss, message, static):
    with pytest.raises(ValueError, match=message):
        taken_apart(loss, static=static)


def test_examples():
    assert doctest.testmod(reduced).failed == 0
