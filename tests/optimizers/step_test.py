"""Parts of a private step by themselves: what replicas draw and note, and what waits between parts of a batch."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import core, gradients
from adaclip_tf.optimizers import replicas, unnoised
from adaclip_tf.optimizers import step as step_module
from adaclip_tf.optimizers.settings import Settings
from adaclip_tf.optimizers.step import PrivateStep


def built(**settings):
    step, saved = PrivateStep(core.FixedClip(1.0), Settings(**{"noise_multiplier": 1.0, **settings})), []

    def add(value, name, like=None):
        del like
        saved.append(tf.Variable(value, trainable=False, name=name))
        return saved[-1]

    step.build([tf.Variable(tf.zeros([3]))], ["w"], add)
    return step, saved


@pytest.mark.parametrize("terms", [1, 3])
def test_replicas_of_one_seed_draw_for_themselves(terms):
    step, _ = built(seed=1, noise_terms=terms)
    one, other, again = (step.noise_sources._make(number) for number in (0, 1, 1))
    draws = [source.fresh_normals([[5]])[0].numpy() for source in (one, other, again)]
    assert np.all(draws[0] != draws[1])
    np.testing.assert_array_equal(draws[1], draws[2])
    assert one._terms == other._terms == terms


def test_without_a_seed_each_replica_has_a_key_of_its_own():
    step, _ = built()
    keys = [step.noise_sources._make(0)._state.numpy()[1:].tolist() for _ in range(3)]
    assert len({tuple(key) for key in keys}) == 3


def test_the_noise_of_all_replicas_adds_up_to_z(monkeypatch):
    step, _ = built(noise_multiplier=1.5, accumulation_steps=4)
    assert step._share == 1.5
    monkeypatch.setattr(replicas, "count", lambda: 4)
    assert step._share * 4**0.5 == pytest.approx(1.5)


@pytest.mark.parametrize(("replicas_of_it", "sensitivity"), [(1, 1.0), (2, 2.0)])
def test_of_parts_on_replicas_nothing_is_claimed(replicas_of_it, sensitivity, monkeypatch):
    """Parts may differ in size: four microbatches of four examples are one each only where nobody cuts them."""
    step, _ = built(num_microbatches=4)
    monkeypatch.setattr(replicas, "count", lambda: replicas_of_it)
    step._see_microbatches(tf.zeros([4 // replicas_of_it]))
    step.noised_steps.assign(1)
    assert step.microbatch_sensitivity == sensitivity


def test_what_accounting_hangs_on_is_saved_and_sums_without_noise_are_not():
    step, saved = built(accumulation_steps=2, nonprivate_metrics=True)
    assert any(step.noised_steps is variable for variable in saved)
    names = [variable.name.split(":")[0] for variable in saved]
    assert names == ["noised_steps", "divisor", "past_noise", "largest_batch", "largest_microbatch", "phase"]
    assert len(step.accumulator._totals) == 1  # made when it is needed, and by nobody else
    assert [variable.name.split(":")[0] for variable in saved] == names


def test_parts_add_up_until_the_last_one_and_then_all_begins_anew():
    sums = unnoised.Accumulator([[2], []], accumulation_steps=3)
    for _ in range(2):
        for part in (1, 2, 3):
            totals, records, complete = sums.add([tf.constant([1.0, 10.0]), tf.constant(-5.0)], tf.constant(4))
            np.testing.assert_allclose(totals[0], [part, 10.0 * part])
            assert (float(totals[1]), int(records), bool(complete)) == (-5.0 * part, 4 * part, part == 3)
        sums.reset()


def test_each_set_of_variables_has_sums_of_its_own():
    sums = unnoised.Accumulators(2)
    first, second = sums.here((0, 1), [[2], []]), sums.here((1,), [[]])
    assert first is sums.here((0, 1), [[2], []]) and first is not second
    assert [len(each._totals) for each in sums.all()] == [2, 1]


def test_parts_that_were_begun_are_dropped_wherever_they_are():
    step, _ = built(accumulation_steps=2)
    step.accumulator.add([tf.ones([3])], tf.constant(4))
    step.drop_unfinished()
    totals, records, complete = step.accumulator.add([tf.ones([3])], tf.constant(4))
    np.testing.assert_allclose(totals[0], tf.ones([3]))
    assert (int(records), bool(complete)) == (4, False)
    PrivateStep(core.FixedClip(1.0), Settings(noise_multiplier=1.0)).drop_unfinished()  # there is nothing yet


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("poisoned", [0, 1])
def test_a_batch_that_must_be_refused_makes_all_of_its_step_no_number(parts, poisoned, monkeypatch):
    """XLA drops assertions. Noise alone in the place of such a batch would look like a batch without its examples."""
    step, _ = built(accumulation_steps=parts, expected_batch_size=8)

    def clipped(loss, variables, tape, transform, **options):
        poison = tf.where(loss[0] > 0.0, np.nan, 0.0)
        sums = [tf.zeros(variable.shape) for variable in variables]
        data = tuple(tensor for tensor in loss.graph.inputs if tensor.shape.rank)
        return gradients.ClippedSum(
            sums, tf.size(loss), tf.ones_like(loss), tf.zeros_like(loss), data=data, poison=poison
        )

    monkeypatch.setattr(step_module.gradients, "clipped_sum", clipped)
    weights = tf.Variable(tf.zeros([3]))
    take = tf.function(lambda loss: step.take(loss, [weights], None), autograph=False)
    means = [take(tf.fill([4], 1.0 if part == poisoned else 0.0))[0][0].numpy() for part in range(parts)]
    assert np.all(np.isnan(means[-1])) == (poisoned < parts)


class Counting(core.FixedClip):
    """Steps by the number of the step, whatever the gradient."""

    def initial_state(self, specs):
        return tf.constant(0.0)

    def next_state(self, state, published):
        return state + 1.0

    def direction(self, state, mean):
        return [tf.fill(part.shape, state) for part in mean]


def test_the_direction_is_of_the_state_after_the_step():
    step = PrivateStep(Counting(1.0), Settings(noise_multiplier=1.0))
    transform = core.Transform([tf.constant(0.0)], [tf.constant(1.0)])
    (direction,), state = step._published_step(tf.constant(4.0), transform, [tf.zeros([3])], tf.constant(8.0))
    np.testing.assert_array_equal(direction, [5.0, 5.0, 5.0])
    assert float(state) == 5.0
