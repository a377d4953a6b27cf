"""Tests of `adaclip_tf.gradients.reduced`: a mean over the batch taken apart, and what is none refused."""

import doctest

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.gradients import reduced
from adaclip_tf.gradients.proof.labels import Rows
from adaclip_tf.gradients.proof.walk import Walk

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
        (lambda x: tf.reduce_sum(x) / tf.cast(tf.shape(x)[1], tf.float32), "not known to be the number of its entries"),
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


LOG, OTHER, MANY = tf.Variable(0.3), tf.Variable(0.2), tf.Variable([0.5, -0.1])
RATE = np.exp(-0.3)
TRAINED = {
    "variance": (lambda x: tf.reduce_mean(x[:, 0]) * tf.exp(-LOG) + LOG, X[:, 0] * RATE + 0.3),
    "half of it": (lambda x: 0.5 * (tf.reduce_mean(x) / tf.exp(LOG) + LOG), 0.5 * (np.mean(X, axis=1) * RATE + 0.3)),
    "two tasks": (
        lambda x: sum(tf.exp(-MANY[i]) * tf.reduce_mean(x[:, i]) + MANY[i] for i in range(2)),
        X @ np.exp([-0.5, 0.1]) + 0.4,
    ),
    "their sum": (
        lambda x: sum(tf.exp(-MANY[i]) * tf.reduce_mean(x[:, i]) for i in range(2)) + tf.reduce_sum(MANY),
        X @ np.exp([-0.5, 0.1]) + 0.4,
    ),
    "a sum over a count": (
        lambda x: LOG * tf.reduce_sum(x[:, 0]) / tf.cast(tf.shape(x)[0], tf.float32),
        X[:, 0] * 0.3,
    ),
    "a rate": (lambda x: keras_loss()(x) + OTHER * tf.reduce_mean(x[:, 0]), np.mean(X**2, axis=1) + 0.2 * X[:, 0]),
}


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize(("loss", "expected"), TRAINED.values(), ids=list(TRAINED))
def test_a_factor_may_be_trained_and_so_may_what_is_added_for_it(loss, expected, static):
    np.testing.assert_allclose(taken_apart(loss, static=static), expected, rtol=1e-5)


NOT_PUBLIC = {
    "the data's": lambda x: tf.reduce_mean(x) * tf.exp(-tf.reduce_mean(x**2)),
    "their number": lambda x: tf.reduce_mean(x) * tf.reduce_sum(tf.ones(tf.shape(x)[:1])),
    "the root of their number": lambda x: tf.reduce_mean(x) * tf.sqrt(tf.cast(tf.shape(x)[0], tf.float32)),
    "drawn": lambda x: tf.reduce_mean(x) * tf.random.uniform([]),
    "a regularizer": lambda x: tf.reduce_mean(x) + 0.1 * tf.square(OTHER),
    "beside a factor": lambda x: tf.reduce_mean(x) * tf.exp(-LOG) + LOG + 0.1 * tf.square(OTHER),
    "of both": lambda x: tf.reduce_mean(x) * tf.exp(-LOG) + LOG * OTHER,
    "of both, the other way round": lambda x: tf.reduce_mean(x) * tf.exp(-LOG) + OTHER * LOG,
    "a weighted one": lambda x: tf.reduce_mean(x) + OTHER * tf.reduce_sum(MANY**2),
    "a constant": lambda x: tf.reduce_mean(x) * LOG + 1.0,
    "below": lambda x: LOG / tf.reduce_mean(x),
}


@pytest.mark.parametrize("loss", NOT_PUBLIC.values(), ids=list(NOT_PUBLIC))
def test_what_is_no_public_factor_nor_belongs_to_one_is_refused(loss):
    with pytest.raises(ValueError, match="not a plain mean over examples"):
        taken_apart(loss)


def test_a_mean_without_examples_is_refused():
    with pytest.raises((ValueError, tf.errors.OpError), match=r"in which there are no examples.*weight_decay"):
        taken_apart(lambda x: keras_loss()(x) + tf.reduce_mean(tf.abs(MANY)))


def first_two(x):
    return tf.reduce_mean(x[:, 0]) + tf.reduce_mean(x[:2, 0])


def test_means_over_unlike_numbers_of_entries_are_refused():
    with pytest.raises((ValueError, tf.errors.OpError), match=r"over unlike numbers of entries.* 2 and 3 entries"):
        taken_apart(first_two, static=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"assertion failed.*over unlike numbers of entries"):
        taken_apart(first_two)


def test_lengths_that_are_left_to_the_run_are_asked_for():
    @tf.function(input_signature=[tf.TensorSpec([None, 2]), tf.TensorSpec([], tf.int32)], autograph=False)
    def step(x, count):
        part = tf.slice(x, [0, 0], tf.stack([count, -1]))
        loss = reduced.per_example(tf.reduce_mean(x[:, 0]) + tf.reduce_mean(part[:, 1]))
        assert isinstance(Walk(loss.graph).label(loss), Rows)
        return loss

    np.testing.assert_allclose(step(X, 3), X.sum(axis=1), rtol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        step(X, 2)
    assert "over unlike numbers of entries" in str(caught.value)


def test_they_are_no_loss_of_a_batch_where_assertions_are_dropped():
    step = tf.function(lambda x: reduced.per_example(first_two(x)), jit_compile=True, autograph=False)
    spec = tf.TensorSpec([None, 2])
    assert step.get_concrete_function(spec)(tf.constant(X)).shape[0] == 0
    np.testing.assert_allclose(step.get_concrete_function(spec)(tf.constant(X[:2])), 2 * X[:2, 0])


def test_of_unknown_terms_of_one_length_nothing_is_lost():
    def loss(x):
        return tf.reduce_mean(x[:, 0]) + tf.reduce_mean(tf.sort(x, axis=0)[:, 1]) + tf.reduce_mean(x[:4, 0])

    np.testing.assert_allclose(taken_apart(loss), 2 * X[:, 0] + np.sort(X[:, 1]), rtol=1e-6)
    assert taken_apart(loss, X[:0]).shape == (0,)


def test_examples():
    assert doctest.testmod(reduced).failed == 0
