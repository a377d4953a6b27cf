"""Steps inside of other functions, branches and loops; what is read from metrics."""

import numpy as np
import pytest
import tensorflow as tf

import adaclip_tf
from adaclip_tf._internal import keras
from adaclip_tf.gradients import proof
from adaclip_tf.gradients.proof import seeds

W = tf.Variable(np.linspace(-1.0, 1.0, 3).astype(np.float32))


def _proven(x):
    return proof.prove(tf.reduce_sum(x * W, axis=1))


def _traced(function):
    tf.function(function, input_signature=[tf.TensorSpec([None, 3])], autograph=False).get_concrete_function()


def _in_a_function(change):
    """A step in a function that another one calls."""

    def step(rows):
        _proven(rows)
        return tf.reduce_sum(rows)

    return lambda x: tf.function(step, autograph=False)(change(x))


def _one_further_out(change):
    between = tf.function(_in_a_function(tf.identity), autograph=False)
    return lambda x: between(change(x))


CENTERED = lambda x: x - tf.reduce_mean(x, axis=0)  # noqa: E731


@pytest.mark.parametrize("nested", [_in_a_function, _one_further_out])
def test_data_is_passed_on_example_by_example(nested):
    _traced(nested(lambda x: tf.tanh(x) / 2.0))
    with pytest.raises(ValueError, match="is one example's alone"):
        _traced(nested(CENTERED))


def _branch(condition):
    def both(x):
        one = lambda: (_proven(x), tf.constant(1))[1]  # noqa: E731
        return tf.cond(condition(x), one, lambda: tf.constant(2))

    return both


def test_a_branch_is_chosen_by_something_public():
    public = tf.Variable(1.0)
    _traced(_branch(lambda x: public > 0.0))
    for condition in (lambda x: tf.reduce_max(x) > 0.0, lambda x: tf.shape(x)[0] > 3):
        with pytest.raises(ValueError, match="on which data decides"):
            _traced(_branch(condition))


def _loop(iterator, goes_on, more=0.0):
    """Rounds that each draw a batch."""

    def round_of(i, state):
        rows = tf.ensure_shape(next(iterator), [None, 3])
        _proven(rows)
        return i + 1, state + more * tf.reduce_max(rows)

    tf.while_loop(goes_on, round_of, (tf.constant(0), tf.constant(0.0)))


def test_a_loop_goes_on_for_as_long_as_something_public_says():
    batches = tf.data.Dataset.from_tensor_slices(np.ones([8, 3], np.float32)).batch(4)

    def traced(goes_on, more=0.0):
        iterator = iter(batches)
        tf.function(lambda: _loop(iterator, goes_on, more), autograph=False).get_concrete_function()

    traced(lambda i, state: i < 3)
    limit = tf.Variable(3)
    traced(lambda i, state: i < limit)
    with pytest.raises(ValueError, match="data decides how often"):
        traced(lambda i, state: state < 3.0, more=1.0)


def test_a_loop_takes_no_two_steps_on_one_batch():
    captured = lambda x: tf.while_loop(lambda i: i < 3, lambda i: (_proven(x), i + 1)[1], [tf.constant(0)])  # noqa: E731
    passed = lambda x: tf.while_loop(lambda z: True, lambda z: (_proven(z), z)[1], [x], maximum_iterations=3)  # noqa: E731
    for loop in (captured, passed):
        with pytest.raises(ValueError, match="several steps on one batch"):
            _traced(loop)


def test_a_step_may_be_in_a_loop_over_a_dataset_but_not_over_the_batch():
    batches = tf.data.Dataset.from_tensor_slices(np.ones([8, 3], np.float32)).batch(4)
    step = lambda state, rows: (_proven(rows), state)[1]  # noqa: E731
    tf.function(lambda: batches.reduce(0, step), autograph=False).get_concrete_function()
    with pytest.raises(ValueError, match="gets what was computed from data"):
        _traced(lambda x: tf.data.Dataset.from_tensors(CENTERED(x)).reduce(0, step))


def _data(n=8):
    rng = np.random.default_rng(1)
    return rng.normal(size=(n, 3)).astype(np.float32), rng.integers(0, 2, n)


def _model(rate=0.1, **options):
    model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(2, **options)])
    optimizer = adaclip_tf.DPFixedClipSGD(rate, l2_norm_clip=1.0, noise_multiplier=1.0, expected_batch_size=8)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    return model, optimizer, loss


class _Schedule(tf.keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, metric):
        self._metric = metric

    def __call__(self, step):
        return 1.0 + tf.convert_to_tensor(keras.native(self._metric.variables[0]))

    def get_config(self):
        return {}


@pytest.mark.parametrize("reader", ["a schedule", "a constraint"])
def test_what_a_metric_holds_reaches_no_weight(reader):
    """The metric is written by Keras, after the update that reads it, so that the next step would feel it."""
    metric = tf.keras.metrics.SparseCategoricalAccuracy()
    if reader == "a schedule":
        model, optimizer, loss = _model(_Schedule(metric))
    else:
        model, optimizer, loss = _model(kernel_constraint=lambda w: w + keras.native(metric.variables[0]))
    model.compile(optimizer, loss, metrics=[metric])
    with pytest.raises(ValueError, match="keeps what it saw of a batch"):
        model.fit(*_data(), batch_size=8, verbose=0)


def test_metrics_are_kept_as_before():
    """With metrics that read what they hold themselves."""
    model, optimizer, loss = _model()
    model.compile(optimizer, loss, metrics=["accuracy", tf.keras.metrics.MeanMetricWrapper(lambda y, p: p[:, 0])])
    history = model.fit(*_data(), batch_size=8, verbose=0)
    assert set(history.history) >= {"loss", "accuracy"}


def _dropout_step(seed=None, rate=0.5):
    model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dropout(rate, seed=seed)])

    class Runs(tf.keras.Model):
        """Whose method is being run, as `train_step` is in `fit`."""

        def __init__(self):
            super().__init__()
            self.inner = model

        def run(self, x):
            proof.prove(tf.reduce_sum(self.inner(x, training=True) * W, axis=1))

    return Runs().run


@pytest.mark.parametrize("seed", ["of the layer", "of the program", None])
def test_a_seed_that_masks_come_from_is_named(seed, monkeypatch):
    said = []
    monkeypatch.setattr(seeds.logging, "log_first_n", lambda level, text, times, why: said.append(why))
    step = _dropout_step(seed=1 if seed == "of the layer" else None)
    traced = tf.function(step, input_signature=[tf.TensorSpec([None, 3])], autograph=False)
    try:
        tf.random.set_seed(1 if seed == "of the program" else None)
        traced.get_concrete_function()
    finally:
        tf.random.set_seed(1)
    assert len(said) == (seed is not None)
