"""Scalar losses of steps of one's own: sums that were divided by hand, trained factors, terms of unlike lengths."""

import tensorflow as tf

from tests.attack.case import Problem, case, cross_entropy, features, net, regression
from tests.attack.modes import EXPECTED_BATCH_SIZE

L = tf.keras.layers


class Weighing(tf.keras.Model):
    """Two outputs, with a trained variance for each."""

    def __init__(self):
        super().__init__()
        self.hidden, self.first, self.second = L.Dense(4, "tanh"), L.Dense(3), L.Dense(1)
        self.variances = self.add_weight(shape=(2,), initializer="zeros", name="variances")

    def call(self, x):
        h = self.hidden(x)
        return self.first(h), self.second(h)


def _problem(scalar, data=None, **options):
    """A small network under `scalar`, a function of (x, y, losses)."""
    problem = net([L.Dense(4, "tanh"), L.Dense(3)], data or features(), **options)

    def loss_fn(batch):
        x, y = batch
        return scalar(x, y, cross_entropy(y, problem.model(x)))

    problem.loss_fn = loss_fn
    return problem


def _real(count):
    return tf.cast(count, tf.float32)


def _last(x, y, losses):
    """Over another count of the batch for the last example than for the others."""
    return tf.reduce_sum(losses) / tf.maximum(_real(tf.shape(x)[0]), 100.0 * x[-1, 0])


_ACCEPTED = {
    "sum_over_its_own_length": lambda x, y, losses: tf.reduce_sum(losses) / _real(tf.shape(losses)[0]),
    "sum_over_the_length_of_inputs": lambda x, y, losses: tf.reduce_sum(losses) / _real(tf.shape(x)[0]),
    "sum_over_the_length_of_labels": lambda x, y, losses: tf.reduce_sum(losses) / _real(tf.shape(y)[0]),
    "sum_over_its_size": lambda x, y, losses: tf.reduce_sum(losses) / _real(tf.size(losses)),
    "sum_of_rows_over_examples": lambda x, y, losses: -0.5 * tf.reduce_sum(losses[:, None] * x) / _real(tf.shape(x)[0]),
    "average_loss": lambda x, y, losses: tf.nn.compute_average_loss(losses),
    "average_loss_of_weighted": lambda x, y, losses: tf.nn.compute_average_loss(losses, 1.0 + _real(y)),
    "terms_of_one_length": lambda x, y, losses: tf.reduce_mean(losses) + tf.reduce_mean(losses[:20]),
}
_FAST = ("average_loss", "sum_over_the_length_of_inputs")
for _name, _scalar in _ACCEPTED.items():

    def _build(scalar=_scalar):
        return _problem(scalar)

    _build.__name__ = _name
    case("accepted", own_step_only=True, fast=("graph",) if _name in _FAST else ())(_build)

_REFUSED = {
    "sum_over_the_width": lambda x, y, losses: tf.reduce_sum(losses) / _real(tf.shape(x)[1]),
    "sum_over_one_class": lambda x, y, losses: tf.reduce_sum(losses) / (1.0 + tf.reduce_sum(_real(y == 1))),
    "sum_over_the_kept": lambda x, y, losses: (
        tf.reduce_sum(losses) / (1.0 + _real(tf.shape(tf.boolean_mask(x, y > 0))[0]))
    ),
    "sum_of_the_kept_over_all": lambda x, y, losses: (
        tf.reduce_sum(tf.boolean_mask(losses, losses > tf.reduce_mean(losses))) / _real(tf.shape(x)[0])
    ),
    "sum_over_the_last": _last,
    "mean_times_a_statistic": lambda x, y, losses: tf.reduce_mean(losses) * tf.exp(-tf.reduce_mean(x)),
    "mean_over_a_statistic": lambda x, y, losses: tf.reduce_mean(losses) / (1.0 + tf.reduce_sum(x**2)),
    "mean_and_a_statistic": lambda x, y, losses: tf.reduce_mean(losses) + tf.exp(-tf.reduce_mean(losses)),
    "terms_of_unlike_lengths": lambda x, y, losses: tf.reduce_mean(losses) + tf.reduce_mean(losses[:3]),
    "terms_without_the_last": lambda x, y, losses: tf.reduce_mean(losses) + tf.reduce_mean(losses[:-1] * losses[1:]),
}
_BY_SIZE = {
    "sum_over_the_square_of_the_length": lambda x, y, losses: tf.reduce_sum(losses) / _real(tf.shape(x)[0]) ** 2,
    "sum_over_the_root_of_the_length": lambda x, y, losses: tf.reduce_sum(losses) / tf.sqrt(_real(tf.shape(x)[0])),
    "mean_times_the_length": lambda x, y, losses: tf.reduce_mean(losses) * _real(tf.shape(x)[0]),
    "mean_over_the_length": lambda x, y, losses: tf.reduce_mean(losses) / _real(tf.shape(x)[0]),
    "sum_over_a_byte": lambda x, y, losses: tf.reduce_sum(losses) / _real(tf.cast(tf.shape(losses)[0] * 37, tf.uint8)),
    "sum_over_a_number": lambda x, y, losses: tf.nn.compute_average_loss(losses, global_batch_size=7),
}
for _name, _scalar in [*_REFUSED.items(), *_BY_SIZE.items()]:

    def _build(scalar=_scalar):
        return _problem(scalar)

    _build.__name__ = _name
    _fast = ("graph",) if _name in ("terms_of_unlike_lengths", "mean_times_a_statistic") else ()
    case("refused", own_step_only=True, size_only=_name in _BY_SIZE, fast=_fast)(_build)


@case("accepted", own_step_only=True, fast=("graph",))
def average_loss_of_the_expected_batch():
    """Whatever the size of this one: the private step divides by that number, too."""
    return _problem(
        lambda x, y, losses: tf.nn.compute_average_loss(losses, global_batch_size=EXPECTED_BATCH_SIZE),
        mean=lambda batch, loss: loss * EXPECTED_BATCH_SIZE,
    )


def _weighing(combine):
    """`combine` gets the losses of two tasks and their variances' logarithms."""
    model = Weighing()

    def loss_fn(batch):
        x, y = batch
        logits, number = model(x)
        first = cross_entropy(tf.zeros_like(y[:, 0], tf.int32), logits)
        second = tf.square(y[:, 0] - number[:, 0])
        return combine(first, second, tf.convert_to_tensor(model.variances))

    return Problem(model, regression(), loss_fn=loss_fn)


@case("accepted", own_step_only=True, fast=("graph", "static"))
def trained_variances_of_tasks():
    """The tasks' weights are trained: each example has a say in them."""

    def combine(first, second, logs):
        weighted = tf.exp(-logs[0]) * tf.reduce_mean(first) + 0.5 * tf.exp(-logs[1]) * tf.reduce_mean(second)
        return weighted + logs[0] + 0.5 * logs[1]

    return _weighing(combine)


@case("accepted", own_step_only=True)
def trained_variance_as_a_divisor():
    def combine(first, second, logs):
        deviation = tf.exp(logs[0])
        whole = tf.reduce_sum(second) / _real(tf.shape(second)[0])
        return tf.reduce_mean(first) / (2.0 * deviation**2) + whole + tf.math.log(deviation)

    return _weighing(combine)


@case("refused", own_step_only=True)
def trained_variance_that_the_batch_has_a_part_in():
    def combine(first, second, logs):
        return tf.reduce_mean(first) * tf.exp(-logs[0] * tf.reduce_mean(second)) + logs[0]

    return _weighing(combine)


@case("refused", own_step_only=True)
def trained_variance_and_a_regularizer_of_the_batch():
    def combine(first, second, logs):
        return tf.reduce_mean(first) * tf.exp(-logs[0]) + logs[0] * tf.reduce_mean(second) ** 2

    return _weighing(combine)
