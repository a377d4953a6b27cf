"""Tests of `adaclip_tf.gradients.divisors`: what a sum over a batch may be divided by."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.gradients import reduced

X = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5]], np.float32)


def real(count):
    return tf.cast(count, tf.float32)


def losses(x):
    return tf.square(x[:, 0])


def of_one(x):
    return losses(x)[:, tf.newaxis]


def taken_apart(loss, data=X, spec=(None, 2), **options):
    signature = [tf.TensorSpec(spec)]
    return tf.function(lambda x: reduced.per_example(loss(x), **options), input_signature=signature, autograph=False)(
        data
    ).numpy()


def over_own_length(x):
    values = losses(x)
    return tf.reduce_sum(values) / real(tf.shape(values)[0])


def over_own_length_of_64_bits(x):
    values = losses(x)
    return tf.reduce_sum(values) / real(tf.shape(values, out_type=tf.int64)[-1])


def over_own_extents(x):
    return tf.reduce_sum(x) / real(tf.shape(x)[0] * tf.shape(x)[1])


def over_own_first(x):
    return tf.reduce_sum(x) / real(tf.shape(x)[0])


def average(values):
    return lambda x: tf.nn.compute_average_loss(values(x))


ACCEPTED = {
    "own length": (over_own_length, X[:, 0] ** 2),
    "own length of 64 bits": (over_own_length_of_64_bits, X[:, 0] ** 2),
    "own size": (lambda x: tf.reduce_sum(x) / real(tf.size(x)), X.mean(1)),
    "own extents": (over_own_extents, X.mean(1)),
    "own first axis": (over_own_first, X.sum(1)),
    "length of inputs": (lambda x: tf.reduce_sum(losses(x)) / real(tf.shape(x)[0]), X[:, 0] ** 2),
    "length of something between": (
        lambda x: tf.reduce_sum(losses(x)) / real(tf.shape(tf.reduce_sum(x, 1))[0]),
        X[:, 0] ** 2,
    ),
    "rows of several": (lambda x: tf.reduce_sum(x * x) / real(tf.shape(x)[0]), (X**2).sum(1)),
    "a multiple of a sum": (lambda x: -0.5 * tf.reduce_sum(losses(x)) / real(tf.shape(x)[0]), -0.5 * X[:, 0] ** 2),
    "average": (average(losses), X[:, 0] ** 2),
    "average of columns": (average(of_one), X[:, 0] ** 2),
    "average of rows": (average(lambda x: x), X.sum(1)),
}


@pytest.mark.parametrize("rows", [3, 0])
@pytest.mark.parametrize("spec", [(None, 2), (3, 2), (None, None), (3, None)])
@pytest.mark.parametrize(("loss", "expected"), ACCEPTED.values(), ids=list(ACCEPTED))
def test_a_sum_over_the_number_of_examples_is_a_mean(loss, expected, spec, rows):
    if spec[0] == 3 and rows == 0:
        spec = (0, spec[1])
    np.testing.assert_allclose(taken_apart(loss, X[:rows], spec), expected[:rows], rtol=1e-6)


MULTIPLES = {
    "size of inputs": (lambda x: tf.reduce_sum(losses(x)) / real(tf.size(x)), X[:, 0] ** 2 / 2),
    "one at least": (lambda x: tf.reduce_sum(losses(x)) / real(tf.maximum(tf.shape(x)[0], 1)), X[:, 0] ** 2),
    "twice as many": (lambda x: tf.reduce_sum(losses(x)) / real(2 * tf.shape(x)[0]), X[:, 0] ** 2 / 2),
    "several rows each": (lambda x: tf.reduce_sum(tf.reshape(x, [-1])) / real(tf.shape(x)[0]), 2 * X.reshape([-1])),
}


@pytest.mark.parametrize(("loss", "expected"), MULTIPLES.values(), ids=list(MULTIPLES))
def test_a_multiple_of_the_number_of_examples_is_a_factor(loss, expected):
    np.testing.assert_allclose(taken_apart(loss), expected, rtol=1e-6)


@pytest.mark.parametrize("spec", [(None, 2), (3, 2)])
@pytest.mark.parametrize("rows", [3, 2])
def test_a_sum_over_the_expected_batch_is_the_mean_of_such_a_batch(spec, rows):
    spec = (rows, 2) if spec[0] else spec
    loss = lambda x: tf.nn.compute_average_loss(losses(x), global_batch_size=7)  # noqa: E731
    found = taken_apart(loss, X[:rows], spec, batch_size=7)
    np.testing.assert_allclose(found, X[:rows, 0] ** 2, rtol=1e-6)
    shared = taken_apart(loss, X[:rows], spec, batch_size=7, replicas=2)  # the caller multiplies by 2
    np.testing.assert_allclose(shared, X[:rows, 0] ** 2 / 2, rtol=1e-6)
    for batch_size in (None, 6, 8):
        with pytest.raises(ValueError, match="not known to be the number of its entries"):
            taken_apart(loss, X[:rows], spec, batch_size=batch_size)


@pytest.mark.parametrize("spec", [(None, 2), (3, 2)])
def test_replicas_share_a_mean(spec):
    times = taken_apart(lambda x: tf.reduce_sum(losses(x)) / real(tf.shape(x)[0] * 2), spec=spec, replicas=2)
    np.testing.assert_allclose(times, X[:, 0] ** 2 / 2, rtol=1e-6)
    entries = taken_apart(lambda x: tf.reduce_sum(x) / real(tf.size(x) * 2), spec=spec, replicas=2)
    np.testing.assert_allclose(entries, X.mean(1) / 2, rtol=1e-6)


def kept(x):
    return tf.boolean_mask(x, x[:, 0] > 0.9)


def flat(x):
    return tf.reshape(x, [-1])


def of_a_byte(x):
    return real(tf.cast(tf.shape(x)[0], tf.uint8))


REFUSED = {
    "width": lambda x: tf.reduce_sum(losses(x)) / real(tf.shape(x)[1]),
    "own width": lambda x: tf.reduce_sum(x) / real(tf.shape(x)[1]),
    "width of another type": lambda x: tf.reduce_sum(losses(x)) / real(tf.shape(x, tf.int64)[1]),
    "a swapped shape": lambda x: tf.reduce_sum(x) / real(tf.stack([tf.shape(x)[1], tf.shape(x)[0]])[0]),
    "kept": lambda x: tf.reduce_sum(losses(x)) / real(tf.shape(kept(x))[0]),
    "all but one": lambda x: tf.reduce_sum(losses(x)) / real(tf.shape(x[1:])[0]),
    "one less": lambda x: tf.reduce_sum(losses(x)) / real(tf.shape(x)[0] - 1),
    "square": lambda x: tf.reduce_sum(losses(x)) / real(tf.shape(x)[0] * tf.shape(x)[0]),
    "root": lambda x: tf.reduce_sum(losses(x)) / tf.sqrt(real(tf.shape(x)[0])),
    "ones": lambda x: tf.reduce_sum(losses(x)) / tf.reduce_sum(tf.ones_like(x[:, 0]) * x[:, 1]),
    "weights": lambda x: tf.reduce_sum(losses(x)) / tf.reduce_sum(x[:, 1]),
    "not zero": lambda x: tf.reduce_sum(losses(x)) / real(tf.math.count_nonzero(x[:, 1])),
    "a byte": lambda x: tf.reduce_sum(x) / of_a_byte(x),
    "a number": lambda x: tf.reduce_sum(losses(x)) / 8.0,
    "twice": lambda x: tf.reduce_sum(losses(x)) / real(tf.shape(x)[0]) / real(tf.shape(x)[0]),
    "kept of the kept": lambda x: tf.reduce_sum(kept(x)) / real(tf.shape(x)[0]),
    "a mean": lambda x: tf.reduce_mean(losses(x)) / real(tf.shape(x)[0]),
    "another sum's": lambda x: tf.reduce_sum(losses(x)) / real(tf.size(flat(x)[1:])),
}


@pytest.mark.parametrize("loss", REFUSED.values(), ids=list(REFUSED))
def test_a_sum_over_any_other_count_is_refused(loss):
    with pytest.raises(ValueError, match=r"not known to be the number of its entries|not a plain mean"):
        taken_apart(loss, spec=(None, 2))
    with pytest.raises(ValueError, match=r"not known to be the number of its entries|not a plain mean"):
        taken_apart(loss, spec=(None, None))


@pytest.mark.parametrize("other", [True, False])
def test_a_count_of_data_that_the_sum_does_not_depend_on_is_refused(other):
    """Nothing would ask of that data that there is a row for each example."""

    @tf.function(input_signature=[tf.TensorSpec([None, 2]), tf.TensorSpec([None, 3])], autograph=False)
    def step(x, z):
        values = losses(x) + (0.0 if other else tf.reduce_sum(z, 1))
        return reduced.per_example(tf.reduce_sum(values) / real(tf.shape(z)[0]))

    z = np.zeros([3, 3], np.float32)
    if not other:
        np.testing.assert_allclose(step(X, z), X[:, 0] ** 2)
        return
    with pytest.raises(ValueError, match="not known to be the number of its entries"):
        step(X, z)


def test_a_count_that_is_left_to_the_run_is_refused():
    """Of as many rows as somebody says."""

    @tf.function(input_signature=[tf.TensorSpec([None, 2]), tf.TensorSpec([], tf.int32)], autograph=False)
    def step(x, count):
        part = tf.slice(x, [0, 0], tf.stack([count, -1]))
        return reduced.per_example(tf.reduce_sum(losses(x)) / real(tf.shape(part)[0]))

    with pytest.raises(ValueError, match="not known to be the number of its entries"):
        step(X, 2)
