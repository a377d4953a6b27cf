"""Tests of `adaclip_tf.privacy.curve`: the same numbers as from scratch, without the work of starting again."""

import doctest

import dp_accounting
import pytest
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import rdp_privacy_accountant

import adaclip_tf
from adaclip_tf.privacy import curve, events
from adaclip_tf.privacy.mechanism import Mechanism


def epsilon_curve(accountant="rdp", examples_per_user=1, delta=1e-5, other_event=None, paid_before=0, **mechanism):
    return curve.EpsilonCurve(
        Mechanism(**mechanism),
        accountant=accountant,
        examples_per_user=examples_per_user,
        delta=delta,
        other_event=other_event,
        paid_before=paid_before,
    )


RUN = {"noise_multiplier": 2.5, "delta": 1e-5, "num_examples": 60000, "batch_size": 600}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"microbatch_sensitivity": 2.0},
        {"sampling": "shuffled"},
        {"examples_per_user": 3},
        {"accountant": "pld"},
        {"accountant": "pld", "sampling": "shuffled"},
    ],
)
def test_equals_epsilon_from_scratch(options):
    epsilon_at = epsilon_curve(**RUN, **options)
    for steps in (1, 700):
        assert epsilon_at(steps) == pytest.approx(adaclip_tf.epsilon(**RUN, **options, steps=steps), rel=1e-6)
    assert epsilon_at(0) == 0.0


def test_steps_that_are_paid_for_without_being_counted():
    plain = epsilon_curve(**RUN)
    more, fewer = epsilon_curve(**RUN, paid_before=40), epsilon_curve(**RUN, paid_before=-40)
    assert (more(60), fewer(140), fewer(40), fewer(3)) == (plain(100), plain(100), 0.0, 0.0)
    assert more.largest_steps(0.5) == plain.largest_steps(0.5) - 40
    assert fewer.largest_steps(0.5) == plain.largest_steps(0.5) + 40


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_adds_what_else_was_spent(accountant):
    other = events.gaussian_event(6.0)
    epsilon_at = epsilon_curve(**RUN, accountant=accountant, other_event=other)
    both = [other, adaclip_tf.training_event(noise_multiplier=2.5, num_examples=60000, batch_size=600, steps=90)]
    expected = adaclip_tf.epsilon_of(dp_accounting.ComposedDpEvent(both), delta=1e-5, accountant=accountant)
    assert epsilon_at(90) == pytest.approx(expected, rel=1e-6)
    assert epsilon_at(0) == pytest.approx(adaclip_tf.epsilon_of(other, delta=1e-5, accountant=accountant), rel=1e-6)


@pytest.mark.parametrize("options", [{}, {"sampling": "shuffled"}, {"examples_per_user": 2}])
@pytest.mark.parametrize("target", [0.3, 3.0])
def test_largest_steps_is_the_last_within_the_target(options, target):
    epsilon_at = epsilon_curve(**RUN, **options)
    steps = epsilon_at.largest_steps(target)
    assert steps == 0 or epsilon_at(steps) <= target
    assert epsilon_at(steps + 1) > target


def test_largest_steps_by_pld():
    epsilon_at = epsilon_curve(**{**RUN, "noise_multiplier": 4.0}, accountant="pld")
    steps = epsilon_at.largest_steps(0.2)
    assert epsilon_at(steps) <= 0.2 < epsilon_at(steps + 1)
    assert steps > epsilon_curve(**{**RUN, "noise_multiplier": 4.0}).largest_steps(0.2)


def test_largest_steps_where_nothing_or_nearly_everything_is_allowed():
    assert epsilon_curve(**RUN).largest_steps(1e-4) == 0
    assert epsilon_curve(**RUN, other_event=events.gaussian_event(1.0)).largest_steps(1.0) == 0
    assert epsilon_curve(**{**RUN, "noise_multiplier": 0.0}).largest_steps(1e6) == 0
    assert epsilon_curve(**{**RUN, "noise_multiplier": 5e3}).largest_steps(100.0) == curve.UNLIMITED_STEPS


def test_one_release_is_analysed_once(monkeypatch):
    calls = []

    def counted(module, name):
        original = getattr(module, name)

        def wrapper(*args, **kwargs):
            calls.append(name)
            return original(*args, **kwargs)

        monkeypatch.setattr(module, name, wrapper)

    counted(rdp_privacy_accountant, "_compute_rdp_poisson_subsampled_gaussian")
    counted(privacy_loss_distribution, "from_gaussian_mechanism")
    for accountant in ("rdp", "pld"):
        calls.clear()
        epsilon_at = epsilon_curve(**{**RUN, "noise_multiplier": 4.0}, accountant=accountant)
        for epoch in range(1, 6):
            epsilon_at(100 * epoch)
        assert len(calls) == 1


def test_a_number_of_steps_is_converted_once(monkeypatch):
    epsilon_at = epsilon_curve(**RUN)
    calls = []
    original = curve.group.group_epsilon
    monkeypatch.setattr(curve.group, "group_epsilon", lambda *args: calls.append(args) or original(*args))
    for _ in range(100):
        epsilon_at(600)
    assert len(calls) == 1


def test_examples_in_the_docstrings():
    assert doctest.testmod(curve).failed == 0


@pytest.mark.parametrize(
    "change,message",
    [
        ({"accountant": "gdp"}, "accountant"),
        ({"delta": 0.0}, "delta"),
        ({"batch_size": 70000}, "batch_size"),
        ({"examples_per_user": 0}, "examples_per_user"),
    ],
)
def test_bad_arguments_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        epsilon_curve(**{**RUN, **change})
