"""What is claimed of a run against what an optimizer's state says: each fact by itself."""

import dataclasses
import warnings

import pytest

from adaclip_tf.privacy import claims, events
from adaclip_tf.privacy.claims import Given
from adaclip_tf.privacy.drawn import Drawn
from adaclip_tf.privacy.mechanism import Mechanism
from adaclip_tf.privacy.meter import PrivacyMeter
from tests.privacy.saying import Optimizer

CLAIMED = Mechanism(2.0, 1000, 100)
SHUFFLED = dataclasses.replace(CLAIMED, sampling="shuffled")


def test_steps_to_come_are_counted_as_the_worst_of_those_before():
    meter = PrivacyMeter(CLAIMED, delta=1e-5)
    assert meter.mechanism(Optimizer()) == CLAIMED
    worse = {"noise_multiplier": 1.5, "batch_size": 200, "microbatch_sensitivity": 2.0}
    better = {"noise_multiplier": 2.5, "batch_size": 50, "microbatch_sensitivity": 1.0}
    for name, value in worse.items():
        found = meter.mechanism(Optimizer({name: value}))
        assert found == dataclasses.replace(CLAIMED, **{name: value})
        assert meter.mechanism(Optimizer({name: value, "steps": 0})) == CLAIMED  # there were none
        assert meter.mechanism(Optimizer({name: better[name]})) == CLAIMED
    assert meter.mechanism(Optimizer({"batch_size": 2000})).batch_size == 1000  # all, every time


def test_past_steps_are_an_event_of_their_own_noise_sensitivity_and_number():
    past = {"steps": 7, "noise_multiplier": 1.5, "microbatch_sensitivity": 2.0, "batch_size": 50}
    found = events.optimizer_event(Optimizer(past), num_examples=1000, batch_size=100)
    assert found == Mechanism(1.5, 1000, 100, microbatch_sensitivity=2.0).event(steps=7)
    with pytest.raises(ValueError, match="on batches of 101"):
        events.optimizer_event(Optimizer({"batch_size": 101}), num_examples=1000, batch_size=100)


@pytest.mark.parametrize(
    ("past", "words"),
    [
        ({"microbatch_sensitivity": 2.0}, "a microbatch has held several"),
        ({"noise_multiplier": 1.9}, "a noise multiplier of 1.9, and PrivacyBudget planned for 2"),
        ({"batch_size": 101}, "a batch of 101 has come"),
    ],
)
def test_steps_that_turn_out_worse_are_told_and_paid_for(past, words):
    assert words in (claims.false_claim(Optimizer(past), CLAIMED) or "")
    assert claims.false_claim(Optimizer({**past, "steps": 0}), CLAIMED) is None
    assert claims.worse(Optimizer(past), CLAIMED) == dataclasses.replace(CLAIMED, **past)


def test_steps_that_turn_out_better_are_paid_for_as_planned():
    better = {"noise_multiplier": 3.0, "batch_size": 50}
    planned = dataclasses.replace(CLAIMED, microbatch_sensitivity=2.0)
    assert claims.false_claim(Optimizer(better), planned) is None
    assert claims.worse(Optimizer(better), planned) == planned
    assert claims.worse(Optimizer({"batch_size": 5000}), planned).batch_size == 1000


@pytest.mark.parametrize(
    ("past", "options", "claimed", "words"),
    [
        ({"noise_multiplier": 1.9}, {}, CLAIMED, "`noise_multiplier`=2, and the 10 noised steps"),
        ({"noise_multiplier": 2.1}, {}, CLAIMED, "taken with 2.1"),
        ({"batch_size": 50}, {}, CLAIMED, "`expected_batch_size`=100, and the 10 noised steps"),
        ({"batch_size": 101}, {"size": None}, CLAIMED, "taken steps on batches of 101"),
        ({"steps": 15}, {}, SHUFFLED, "was broken off"),
        ({}, {"iterations": 11}, CLAIMED, "updated the weights 11 times and counts 10 noised steps"),
    ],
)
def test_a_past_that_does_not_go_with_the_present_is_refused(past, options, claimed, words):
    claims.check_past(Optimizer(iterations=10), claimed, Given())
    with pytest.raises(ValueError, match=words):
        claims.check_past(Optimizer(past, **options), claimed, Given())


@pytest.mark.parametrize(
    ("options", "claimed", "drawn", "words"),
    [
        ({"size": 50}, CLAIMED, None, "`expected_batch_size` is 50 and PrivacyBudget's `batch_size` is 100"),
        ({"size": None}, CLAIMED, None, "divides by each batch's own size"),
        ({"parts": 2}, CLAIMED, Drawn(1000, 100, 1), "come in 1 part each"),
        ({"parts": 1}, CLAIMED, Drawn(1000, 100, 2), "come in 2 parts each"),
    ],
)
def test_arguments_that_do_not_go_with_what_is_claimed_are_refused(options, claimed, drawn, words):
    claims.check_optimizer(Optimizer(), CLAIMED, Drawn(1000, 100, 1))
    claims.check_optimizer(Optimizer(size=None), SHUFFLED, None)  # sizes are public
    with pytest.raises(ValueError, match=words):
        claims.check_optimizer(Optimizer(**options), claimed, drawn)


def test_shared_microbatches_cost_twice():
    shared = Optimizer({"steps": 0}, microbatches=50, sensitivity=2.0)
    assert claims.sensitivity(shared, CLAIMED) == 2.0
    assert claims.sensitivity(Optimizer({"steps": 0}, microbatches=50, parts=2, sensitivity=2.0), CLAIMED) == 1.0
    assert claims.sensitivity(Optimizer({"steps": 0}, size=None, microbatches=100, sensitivity=2.0), SHUFFLED) == 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        claims.check_optimizer(shared, SHUFFLED, None)
        with pytest.raises(UserWarning, match="Microbatches hold several examples"):
            claims.check_optimizer(shared, CLAIMED, None)


@pytest.mark.parametrize(
    ("given", "claimed", "parts", "words"),
    [
        (Given(rows=999), CLAIMED, 1, "a dataset of 999 rows"),
        (Given(arrays=True, rows=999), SHUFFLED, 1, "arrays of 999 rows"),
        (Given(batch_size=50), SHUFFLED, 1, "batches of 50"),
        (Given(batch_size=100), SHUFFLED, 2, "in 2 parts"),
        (Given(batch_size=100), CLAIMED, 1, "batches of fixed size"),
        (Given(arrays=True), CLAIMED, 1, "arrays, which it cuts into batches of fixed size"),
        (Given(batch_size=100, mapped=True), CLAIMED, 1, "batches of fixed size"),
        (Given(num_batches=9), SHUFFLED, 1, "ends after 9 batches"),
        (Given(num_batches=19), SHUFFLED, 2, "ends after 19 batches"),
        (Given(passes_meet=True), SHUFFLED, 1, "Put `repeat` behind"),
        (Given(drawn=Drawn(1000, 50, 1)), CLAIMED, 1, "`batch_size` is 100.* 50"),
        (Given(drawn=Drawn(1000, 100, 1)), SHUFFLED, 1, "`sampling` is 'shuffled'"),
    ],
)
def test_data_that_does_not_go_with_what_is_claimed_is_refused(given, claimed, parts, words):
    with pytest.raises(ValueError, match=words):
        claims.check_data(given, claimed, parts)


@pytest.mark.parametrize(
    ("given", "claimed", "parts"),
    [
        (Given(), CLAIMED, 1),
        (Given(rows=1000, batch_size=100, num_batches=10), SHUFFLED, 1),
        (Given(rows=1000, batch_size=50, num_batches=20), SHUFFLED, 2),
        (Given(batch_size=200, mapped=True), CLAIMED, 1),
        (Given(drawn=Drawn(1000, 100, 1)), CLAIMED, 1),
        (Given(passes_meet=True), CLAIMED, 1),
        (Given(arrays=True, rows=1000, batch_size=2000), dataclasses.replace(CLAIMED, batch_size=1000), 1),
    ],
)
def test_data_that_goes_with_what_is_claimed_is_taken(given, claimed, parts):
    claims.check_data(given, claimed, parts)


def test_what_was_drawn_is_what_is_given():
    drawn = Drawn(1000, 100, 1)
    claims.check_is_drawn(Given(), drawn)  # not found
    claims.check_is_drawn(Given(drawn=drawn, found=True), drawn)
    with pytest.raises(ValueError, match="something else, in which no such draw can be seen"):
        claims.check_is_drawn(Given(found=True), drawn)
