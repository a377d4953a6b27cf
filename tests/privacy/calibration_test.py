"""Tests of `adaclip_tf.privacy.calibration`: the inverse inverts, and parts add up to the whole."""

import doctest

import dp_accounting
import pytest

import adaclip_tf
from adaclip_tf.privacy import calibration, events

MNIST = {"num_examples": 60000, "batch_size": 600, "epochs": 10, "delta": 1e-5}


@pytest.mark.parametrize("target,batch,epochs", [(0.1, 64, 20), (1.0, 1024, 20), (10.0, 64, 1)])
def test_inverse(target, batch, epochs):
    run = {"num_examples": 60000, "batch_size": batch, "epochs": epochs, "delta": 1e-5}
    z = calibration.noise_multiplier(target_epsilon=target, **run)
    assert adaclip_tf.epsilon(noise_multiplier=z, **run) <= target
    assert adaclip_tf.epsilon(noise_multiplier=z * (1 - 2e-4), **run) > target


@pytest.mark.parametrize("target", [0.002, 0.5])
def test_inverse_by_pld(target):
    run = {**MNIST, "accountant": "pld"}
    z = calibration.noise_multiplier(target_epsilon=target, **run)
    assert adaclip_tf.epsilon(noise_multiplier=z, **run) <= target
    assert adaclip_tf.epsilon(noise_multiplier=z * (1 - 5e-4), **run) > target


@pytest.mark.parametrize(
    "options",
    [
        {"sampling": "shuffled"},
        {"microbatch_sensitivity": 2.0},
        {"examples_per_user": 3},
    ],
)
def test_inverse_with_options(options):
    run = {**MNIST, **options}
    z = calibration.noise_multiplier(target_epsilon=2.0, **run)
    assert adaclip_tf.epsilon(noise_multiplier=z, **run) == pytest.approx(2.0, rel=1e-3)
    assert adaclip_tf.epsilon(noise_multiplier=z, **run) <= 2.0


def test_what_else_is_paid_for_is_within_the_target():
    pca = events.gaussian_event(6.0)
    z = calibration.noise_multiplier(target_epsilon=1.5, other_event=pca, **MNIST)
    run = {name: value for name, value in MNIST.items() if name != "delta"}
    both = dp_accounting.ComposedDpEvent([pca, adaclip_tf.training_event(noise_multiplier=z, **run)])
    found = adaclip_tf.epsilon_of(both, delta=MNIST["delta"])
    assert found == pytest.approx(1.5, rel=1e-3) and found <= 1.5


def test_agrees_with_dp_accountings_own_calibration():
    expected = dp_accounting.calibrate_dp_mechanism(
        dp_accounting.rdp.RdpAccountant,
        lambda z: adaclip_tf.training_event(noise_multiplier=z, num_examples=60000, batch_size=600, epochs=10),
        target_epsilon=1.0,
        target_delta=1e-5,
        bracket_interval=dp_accounting.ExplicitBracketInterval(0.5, 4.0),
    )
    assert calibration.noise_multiplier(target_epsilon=1.0, **MNIST) == pytest.approx(expected, rel=1.1e-4)


@pytest.mark.parametrize(
    "change,message",
    [
        ({"target_epsilon": 0.0}, "target_epsilon"),
        ({"target_epsilon": -1.0}, "target_epsilon"),
        ({"target_epsilon": 1e-6}, "out of reach"),
        ({"target_epsilon": 1e-6, "accountant": "pld"}, "out of reach"),
        ({"target_epsilon": 1e9}, "no privacy"),
        ({"target_epsilon": 1e9, "accountant": "pld"}, "no privacy"),
        ({"epochs": 0}, "epochs"),
        ({"batch_size": 70000}, "batch_size"),
        ({"delta": 2.0}, "delta"),
        ({"accountant": "gdp"}, "accountant"),
    ],
)
def test_bad_arguments_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        calibration.noise_multiplier(**{"target_epsilon": 1.0, **MNIST, **change})


@pytest.mark.parametrize("fraction", [0.1, 0.7])
def test_split_budget_meets_the_target(fraction):
    split = calibration.split_budget(target_epsilon=2.0, pca_fraction=fraction, **MNIST)
    pca = events.gaussian_event(split.pca_noise_multiplier)
    training = adaclip_tf.training_event(
        noise_multiplier=split.training_noise_multiplier, num_examples=60000, batch_size=600, epochs=10
    )
    together = dp_accounting.ComposedDpEvent([pca, training])
    assert split.event == together
    assert adaclip_tf.epsilon_of(together, delta=1e-5) == split.epsilon
    assert 2.0 * (1 - 1e-3) < split.epsilon <= 2.0
    assert adaclip_tf.epsilon_of(pca, delta=1e-5) == pytest.approx(2.0 * fraction, rel=1e-3)
    # Composition is better than splitting epsilon along a line.
    assert adaclip_tf.epsilon_of(training, delta=1e-5) > 2.0 * (1 - fraction)


def test_split_budget_protects_users_with_several_examples():
    run = {**MNIST, "epochs": 2}
    split = calibration.split_budget(target_epsilon=2.0, pca_fraction=0.3, examples_per_user=3, **run)
    alone = calibration.split_budget(target_epsilon=2.0, pca_fraction=0.3, **run)
    total = adaclip_tf.epsilon_of(split.event, delta=1e-5, examples_per_user=3)
    assert split.epsilon == total
    assert 2.0 * (1 - 1e-3) < total <= 2.0
    pca = events.gaussian_event(split.pca_noise_multiplier)
    assert adaclip_tf.epsilon_of(pca, delta=1e-5, examples_per_user=3) == pytest.approx(0.6, rel=1e-3)
    # Three examples need more noise than one, in both parts.
    assert split.pca_noise_multiplier > 3.0 * alone.pca_noise_multiplier
    assert split.training_noise_multiplier > 1.5 * alone.training_noise_multiplier


def test_split_budget_by_pld_needs_less_noise():
    run = {"target_epsilon": 0.5, "pca_fraction": 0.3, **MNIST}
    pld, rdp = calibration.split_budget(accountant="pld", **run), calibration.split_budget(**run)
    assert pld.epsilon <= 0.5
    assert pld.training_noise_multiplier < rdp.training_noise_multiplier


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1])
def test_split_budget_refuses_fractions_that_leave_nothing(fraction):
    with pytest.raises(ValueError, match="pca_fraction"):
        calibration.split_budget(target_epsilon=2.0, pca_fraction=fraction, **MNIST)


def test_examples_in_the_docstrings():
    assert doctest.testmod(calibration).failed == 0
