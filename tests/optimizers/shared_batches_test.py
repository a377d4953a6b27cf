"""Several private steps on one batch: counted together, or refused."""

import math
import types

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import DPFixedClipSGD, PrivacyBudget, epsilon, epsilon_of, optimizer_event, poisson_batches
from adaclip_tf.optimizers import shared_batches

N, B, DELTA = 60, 6, 1e-3


def _optimizer(noise_multiplier=1.0):
    return DPFixedClipSGD(0.1, l2_norm_clip=1.0, noise_multiplier=noise_multiplier, expected_batch_size=B)


def _loss(model, batch):
    return tf.reduce_mean(tf.square(model(batch[0], training=True) - batch[1]), axis=1)


class Players(tf.keras.Sequential):
    """Two layers, each with an optimizer of its own; or one optimizer that takes two steps."""

    def train_step(self, data):
        first, second = (layer.trainable_variables for layer in self.layers)
        if self.other is None:
            self.optimizer.minimize(_loss(self, data), self.trainable_variables)
            self.optimizer.minimize(_loss(self, data), self.trainable_variables)
        else:
            losses = _loss(self, data)
            self.optimizer.minimize(losses, first)
            self.other.minimize(losses, second)
        return {"loss": tf.constant(0.0)}


def _model(other):
    model = Players([tf.keras.Input([3]), tf.keras.layers.Dense(2), tf.keras.layers.Dense(1)])
    model.other = other
    model.compile(_optimizer())
    return model


def _batches():
    x = np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32)
    return poisson_batches((x, x[:, :1]), expected_batch_size=B, steps=3, seed=1)


def test_one_optimizer_takes_one_step_on_a_batch():
    with pytest.raises(ValueError, match="two steps on the same batch"):
        _model(None).fit(_batches(), verbose=0)


def test_two_optimizers_on_one_batch_are_counted_together():
    """z = 1 and z = 2 on one batch are z = 1 / sqrt(1 + 1/4); the epsilon of one alone would be too small."""
    other = _optimizer(2.0)
    model = _model(other)
    model.fit(_batches(), verbose=0)
    together = 1.0 / math.sqrt(1.0 + 0.25)
    for optimizer in (model.optimizer, other):
        assert optimizer.past_steps().steps == 3
        assert optimizer.past_steps().noise_multiplier == pytest.approx(together)
    run = {"delta": DELTA, "num_examples": N, "batch_size": B, "steps": 3}
    counted = epsilon_of(optimizer_event(model.optimizer, num_examples=N, batch_size=B), delta=DELTA)
    assert counted == pytest.approx(epsilon(noise_multiplier=together, **run))
    assert counted > 1.1 * epsilon(noise_multiplier=1.0, **run)


def test_a_budget_of_one_of_them_says_so():
    batches = _batches()
    with pytest.raises(ValueError, match="Another private optimizer trains on the same batches"):
        _model(_optimizer(2.0)).fit(batches, callbacks=[PrivacyBudget.of(batches, delta=DELTA)], verbose=0)


@pytest.mark.parametrize(
    ("multipliers", "together"), [((1.5,), 1.5), ((3.0, 4.0), 2.4), ((2.0, 2.0, 2.0, 2.0), 1.0), ((2.0, 0.0), 0.0)]
)
def test_the_noise_of_several_releases_of_one_batch(multipliers, together):
    steps = [types.SimpleNamespace(settings=types.SimpleNamespace(noise_multiplier=z)) for z in multipliers]
    assert shared_batches.noise_together(steps) == pytest.approx(together)


# ---------------------------------------------------------------------------------------------------
# What one batch is, without Keras: inputs and labels are of the same examples, and functions are called with them.

ROWS, LABELS = np.ones((4, 3), np.float32), np.ones((4, 2), np.float32)


def _two():
    """Two optimizers of noise 1, each with a weight of its own."""
    made = [(_optimizer(), tf.Variable(1.0)) for _ in range(2)]
    for optimizer, weight in made:
        optimizer.build([weight])
    return made


def _step(optimizer, weight, rows):
    optimizer.minimize(lambda: tf.reduce_sum(rows, axis=1) * weight, [weight])
    return tf.constant(0)


def _run(step, times=1):
    signature = [tf.TensorSpec([None, 3]), tf.TensorSpec([None, 2])]
    traced = tf.function(step, input_signature=signature, autograph=False)
    for _ in range(times):
        traced(ROWS, LABELS)


def test_inputs_and_labels_are_one_batch():
    """By one tensor each, the two would be counted as two draws: 4.22 in the place of 7.03, of ten steps at q = .1."""
    one = _two()[0]
    with pytest.raises(ValueError, match="two steps on the same batch"):
        _run(lambda x, y: [_step(*one, x), _step(*one, y)])
    first, second = _two()
    _run(lambda x, y: [_step(*first, x), _step(*second, y)])
    for optimizer, _ in (first, second):
        assert optimizer.past_steps().noise_multiplier == pytest.approx(math.sqrt(0.5))


def _nested(optimizer, weight):
    return tf.function(lambda x: _step(optimizer, weight, x), autograph=False)


@pytest.mark.parametrize("further_out", [False, True], ids=["at once", "further out"])
def test_steps_in_functions_that_get_one_batch_are_counted_together(further_out):
    first, second = _two()
    one, other = _nested(*first), _nested(*second)
    if further_out:
        other = tf.function(lambda x, inner=other: inner(tf.identity(x)), autograph=False)
    _run(lambda x, y: [one(x), other(x[:, :2])], times=2)
    for optimizer, _ in (first, second):
        assert optimizer.past_steps().steps == 2
        assert optimizer.past_steps().noise_multiplier == pytest.approx(math.sqrt(0.5))


def test_a_function_with_a_step_gets_a_batch_once():
    step = _nested(*_two()[0])
    with pytest.raises(ValueError, match="two steps on the same batch"):
        _run(lambda x, y: [step(x), step(x + 1.0)])


def test_of_two_branches_one_is_run():
    one, flag = _two()[0], tf.Variable(True)
    both = [lambda x: _step(*one, x), lambda x: _step(*one, 2.0 * x)]
    _run(lambda x, y: tf.cond(flag, lambda: both[0](x), lambda: both[1](x)))
    assert one[0].past_steps().steps == 1


def test_two_draws_are_two_batches():
    one = _two()[0]
    datasets = [tf.data.Dataset.from_tensor_slices(ROWS).batch(2) for _ in range(2)]
    tf.function(lambda *draws: [_step(*one, next(draw)) for draw in draws])(*map(iter, datasets))
    assert one[0].past_steps().steps == 2
    assert one[0].past_steps().noise_multiplier == 1.0


class Alternating(tf.keras.Sequential):
    """One optimizer steps on every batch, the model's own on every second one; or the two take turns."""

    def train_step(self, data):
        first, second = (layer.trainable_variables for layer in self.layers)
        self.count.assign_add(1)

        def own():
            self.optimizer.minimize(lambda: _loss(self, data), first)
            return 0

        def other():
            self.other.minimize(lambda: _loss(self, data), second)
            return 0

        tf.cond(self.count % 2 == 0, own, other if self.in_turns else lambda: 0)
        if not self.in_turns:
            other()
        return {"loss": tf.constant(0.0)}


@pytest.mark.parametrize("in_turns", [False, True], ids=["every second", "in turns"])
def test_an_optimizer_that_steps_more_often_is_counted(in_turns):
    """Six batches: three steps of both and three of the other; or three of each. The model's own alone are three."""
    model = Alternating([tf.keras.Input([3]), tf.keras.layers.Dense(2), tf.keras.layers.Dense(1)])
    model.count, model.in_turns, model.other = tf.Variable(0, trainable=False), in_turns, _optimizer()
    own = _optimizer()
    for optimizer, layer in ((own, model.layers[0]), (model.other, model.layers[1])):
        optimizer.build(layer.trainable_variables)
    model.compile(own)
    x = np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32)
    batches = poisson_batches((x, x[:, :1]), expected_batch_size=B, steps=6, seed=1)
    run = {"delta": DELTA, "num_examples": N, "batch_size": B}
    budget = PrivacyBudget.of(batches, delta=DELTA)
    with pytest.raises(ValueError, match="taken by another private optimizer"):
        model.fit(batches, callbacks=[budget], verbose=0)  # in the first batch, where the other one steps alone
    assert (int(own.noised_steps), int(model.other.noised_steps)) == (0, 1)
    noise = 1.0 if in_turns else math.sqrt(0.5)
    assert budget.epsilon == pytest.approx(epsilon(noise_multiplier=noise, **run, steps=1))
    model.fit(batches, verbose=0)
    steps = [int(optimizer.noised_steps) for optimizer in (own, model.other)]
    assert steps == ([3, 4] if in_turns else [3, 7])
    for optimizer, taken in zip((own, model.other), steps):
        event = optimizer_event(optimizer, num_examples=N, batch_size=B)
        expected = epsilon(noise_multiplier=noise, **run, steps=taken if in_turns else 7)
        assert epsilon_of(event, delta=DELTA) == pytest.approx(expected)
