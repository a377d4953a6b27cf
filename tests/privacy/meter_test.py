"""Tests of `adaclip_tf.privacy.meter`, for any optimizer that counts its noised steps."""

import doctest
import types
import warnings

import dp_accounting
import pytest
import tensorflow as tf

import adaclip_tf
from adaclip_tf.privacy import claims, events, meter, private_optimizer
from adaclip_tf.privacy.drawn import Drawn
from adaclip_tf.privacy.mechanism import Mechanism
from adaclip_tf.privacy.meter import Before, PrivacyMeter
from adaclip_tf.privacy.past_steps import PastSteps

CLAIMED = Mechanism(1.0, 1000, 100)
WHERE = {"num_examples": 1000, "batch_size": 100, "delta": 1e-5}


class Homemade:
    """A private optimizer that shares no code with the library's."""

    name = "homemade"
    num_microbatches = seed = None
    expected_batch_size = 100
    accumulation_steps = 1
    microbatch_sensitivity = 1.0
    prior = None

    def __init__(self, noise_multiplier=2.0, steps=0, past_noise=None):
        self.noise_multiplier, self.noised_steps, self.iterations = noise_multiplier, steps, steps
        self._past_noise = past_noise or noise_multiplier

    def past_steps(self):
        return PastSteps(self.noised_steps, self._past_noise, 1.0, 100, "phase")

    def other_past_steps(self):
        return []

    def drop_unfinished(self):
        pass

    def start_phase(self, phase):
        raise NotImplementedError

    def build(self, var_list):
        raise NotImplementedError


def test_counts_for_an_optimizer_of_any_class():
    by_hand = {steps: adaclip_tf.epsilon(noise_multiplier=2.0, steps=steps, **WHERE) for steps in (30, 31)}
    found = PrivacyMeter(CLAIMED, delta=1e-5)
    assert found.epsilon(Homemade(steps=30)) == pytest.approx(by_hand[30], rel=1e-9)
    assert found.epsilon_at(Homemade(), 31) == pytest.approx(by_hand[31], rel=1e-9)
    assert found.largest_steps(Homemade(), (by_hand[30] + by_hand[31]) / 2) == 30
    report = found.report(Homemade(steps=30), ("rdp",))
    assert report["guarantee"]["rdp"] == pytest.approx(by_hand[30], rel=1e-9)
    assert (report["steps"], report["noise_multiplier"]) == (30, 2.0)
    assert found.report(Homemade()) is None
    assert adaclip_tf.optimizer_event(Homemade(steps=3), num_examples=1000, batch_size=100).count == 3


def test_a_users_examples_count_together_everywhere():
    by_hand = adaclip_tf.epsilon(noise_multiplier=2.0, steps=30, examples_per_user=3, **WHERE)
    found = PrivacyMeter(CLAIMED, delta=1e-5, examples_per_user=3)
    assert found.epsilon(Homemade(steps=30)) == pytest.approx(by_hand, rel=1e-9)
    report = found.report(Homemade(steps=30), ("rdp",))
    assert report["guarantee"]["rdp"] == pytest.approx(by_hand, rel=1e-9)


def test_nothing_was_spent_before_unless_somebody_says_so():
    assert Before() == (0, None)


@pytest.mark.parametrize(
    ("microbatches", "parts", "warns"), [(100, 1, False), (50, 2, False), (50, 1, True), (200, 2, True)]
)
def test_microbatches_of_one_example_each_are_all_parts_together(microbatches, parts, warns):
    optimizer = Homemade()
    optimizer.num_microbatches, optimizer.accumulation_steps = microbatches, parts
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        claims.check_optimizer(optimizer, CLAIMED, None)
    assert bool(caught) == warns


def test_noise_is_what_the_state_says_if_that_was_less():
    found = PrivacyMeter(CLAIMED, delta=1e-5)
    assert found.mechanism(Homemade(2.0, 30, past_noise=1.5)).noise_multiplier == 1.5
    assert found.mechanism(Homemade(2.0, 30, past_noise=2.5)).noise_multiplier == 2.0
    assert found.mechanism(Homemade(2.0, 0, past_noise=1.5)).noise_multiplier == 2.0


def test_what_was_spent_before_is_added():
    pca = events.gaussian_event(5.0)
    both = dp_accounting.ComposedDpEvent([pca, CLAIMED.with_noise(2.0).event(steps=40)])
    expected = pytest.approx(adaclip_tf.epsilon_of(both, delta=1e-5), rel=1e-9)
    assert PrivacyMeter(CLAIMED, delta=1e-5, other_event=pca).epsilon(Homemade(steps=40)) == expected
    kept = PrivacyMeter(CLAIMED, delta=1e-5, before=lambda optimizer: Before(10, pca))
    assert kept.epsilon(Homemade(steps=30)) == expected
    assert kept.report(Homemade(steps=30), ("rdp",))["guarantee"]["rdp"] == expected


def test_a_curve_is_made_again_only_when_a_step_costs_another_sum(monkeypatch):
    made = []
    curve = meter.curve.EpsilonCurve
    monkeypatch.setattr(meter.curve, "EpsilonCurve", lambda *args, **kw: made.append(args) or curve(*args, **kw))
    found = PrivacyMeter(CLAIMED, delta=1e-5)
    for optimizer in (Homemade(), Homemade(steps=5), Homemade(2.0, 6), Homemade(1.0, 6), Homemade(1.0, 7)):
        found.epsilon(optimizer)
    assert len(made) == 2


def test_quick_is_the_accountants_word():
    assert PrivacyMeter(CLAIMED, delta=1e-5).quick
    assert not PrivacyMeter(CLAIMED, delta=1e-5, accountant="pld").quick


def test_false_claims_are_refused():
    found = PrivacyMeter(CLAIMED, delta=1e-5)
    found.check(Homemade(), claims.Given())
    with pytest.raises(ValueError, match=r"`num_examples` is 1000.* 900"):
        found.check(Homemade(), claims.Given(drawn=Drawn(900, 100, 1)))
    with pytest.raises(ValueError, match="come in 2 parts"):
        found.check(Homemade(), claims.Given(), Drawn(1000, 100, 2))
    with pytest.raises(ValueError, match="batches of fixed size"):
        found.check(Homemade(), claims.Given(batch_size=100))
    with pytest.raises(ValueError, match="batches of 50"):
        found.check(Homemade(), claims.Given(batch_size=50))


@pytest.mark.parametrize(
    "change,message",
    [
        ({"delta": 2.0}, "`delta`"),
        ({"accountant": "gdp"}, "`accountant`"),
        ({"examples_per_user": 0}, "`examples_per_user`"),
        ({"other_event": 3}, "`other_event`"),
    ],
)
def test_bad_arguments_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        PrivacyMeter(CLAIMED, **{"delta": 1e-5, **change})


class Forwards:
    """A wrapper that has every attribute of what it wraps, and takes steps of its own."""

    def __getattr__(self, name):
        return getattr(Homemade(), name)


@pytest.mark.parametrize(
    ("optimizer", "what"),
    [
        (tf.keras.optimizers.SGD(), "SGD"),
        (Forwards(), "Forwards"),
        (None, "none, before a model's `fit` has one"),
        (types.SimpleNamespace(past_steps=3), "SimpleNamespace"),
    ],
)
def test_other_optimizers_are_refused(optimizer, what):
    with pytest.raises(ValueError, match=f"counts its noised steps, such as DPAdaClipSGD; got {what}"):
        private_optimizer.require(optimizer, "PrivacyBudget")


def test_the_librarys_optimizers_have_all_that_is_asked_for():
    optimizer = adaclip_tf.DPAdaClipSGD(noise_multiplier=1.0)
    assert private_optimizer.require(optimizer, "it") is optimizer
    protocol = private_optimizer.PrivateOptimizer
    asked = {name for name in vars(protocol) if name[0] != "_"} | protocol.__annotations__.keys()
    assert {"past_steps", "seed", "iterations"} < asked
    assert [name for name in asked if not hasattr(Homemade(), name)] == []
    optimizer.build([tf.Variable([1.0])])
    assert [name for name in asked if not hasattr(optimizer, name)] == []


def test_the_count_of_steps():
    assert private_optimizer.noised_steps(Homemade(steps=7)) == 7
    optimizer = adaclip_tf.DPAdaClipSGD(noise_multiplier=1.0)
    assert private_optimizer.noised_steps(optimizer) == 0
    optimizer.build([tf.Variable([1.0])])
    optimizer.noised_steps.assign(5)
    assert private_optimizer.noised_steps(optimizer) == 5


def test_the_count_of_steps_under_a_strategy():
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        optimizer = adaclip_tf.DPAdaClipSGD(noise_multiplier=1.0)
        optimizer.build([tf.Variable([1.0])])
    optimizer.noised_steps.assign(5)
    assert private_optimizer.noised_steps(optimizer) == 5


def test_examples_in_the_docstrings():
    names = {"DPAdaClipSGD": adaclip_tf.DPAdaClipSGD}
    assert doctest.testmod(meter, extraglobs=names).failed == 0
