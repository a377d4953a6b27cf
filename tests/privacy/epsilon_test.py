"""Tests of epsilon, events and group privacy against tensorflow-privacy, dp_accounting and closed forms."""

import doctest
import itertools
import math
import re
import sys
import types

import dp_accounting
import numpy as np
import pytest
import scipy.special
import scipy.stats

import adaclip_tf
from adaclip_tf.privacy import calibration, events
from adaclip_tf.privacy import past_steps as past
from adaclip_tf.privacy.mechanism import Mechanism
from tests import tfp

MNIST = {"num_examples": 60000, "batch_size": 600, "epochs": 10}
RUN = {**MNIST, "noise_multiplier": 1.1, "delta": 1e-5}


def their_lib():
    return tfp.module("analysis.compute_dp_sgd_privacy_lib")


GRID = list(itertools.product((61440, 4096), (256,), (1, 7.5), (1.0, 3.0)))


@pytest.mark.parametrize("n,batch,epochs,z", GRID)
def test_rdp_is_that_of_tensorflow_privacy(n, batch, epochs, z):
    run = {"noise_multiplier": z, "delta": 1e-5, "num_examples": n, "batch_size": batch, "epochs": epochs}
    poisson = their_lib()._compute_dp_sgd_example_privacy(epochs, z, 1e-5, False, batch / n)
    assert adaclip_tf.epsilon(**run) == pytest.approx(poisson, rel=1e-6, abs=1e-6)
    without = their_lib()._compute_dp_sgd_example_privacy(epochs, z, 1e-5, False)
    assert adaclip_tf.epsilon(**run, sampling="shuffled") == pytest.approx(without, rel=1e-6)
    grouped = their_lib()._compute_dp_sgd_example_privacy(epochs, z, 1e-5, True, batch / n)
    assert adaclip_tf.epsilon(**run, microbatch_sensitivity=2.0) == pytest.approx(grouped, rel=1e-6)
    assert grouped > poisson * 1.01


@pytest.mark.parametrize("n,batch,epochs", [(60000, 256, 1), (60000, 256, 7.5), (1500, 1000, 20), (1000, 999, 3)])
def test_where_b_does_not_divide_n_epochs_are_those_that_are_trained(n, batch, epochs):
    """An epoch of `poisson_batches`, or of `fit`, has ceil(n / B) steps. tensorflow-privacy counts n / B of them."""
    run = {"noise_multiplier": 2.0, "delta": 1e-5, "num_examples": n, "batch_size": batch}
    taken = math.ceil(epochs * math.ceil(n / batch))
    ours = adaclip_tf.epsilon(**run, epochs=epochs)
    assert ours == adaclip_tf.epsilon(**run, steps=taken)
    theirs = their_lib()._compute_dp_sgd_example_privacy(epochs, 2.0, 1e-5, False, batch / n)
    assert ours >= theirs * (1 - 1e-9)
    assert (ours > theirs * (1 + 1e-4)) == (taken > math.ceil(epochs * n / batch))


def test_an_epsilon_that_was_too_small():
    """20 epochs of 1500 examples in batches of 1000 are 40 steps. Counted as 30, epsilon 1.17 passes for 1."""
    run = {"delta": 1e-5, "num_examples": 1500, "batch_size": 1000}
    z = calibration.noise_multiplier(target_epsilon=1.0, steps=30, **run)
    assert adaclip_tf.epsilon(noise_multiplier=z, epochs=20, **run) == pytest.approx(1.169, abs=1e-3)
    z = calibration.noise_multiplier(target_epsilon=1.0, epochs=20, **run)
    assert adaclip_tf.epsilon(noise_multiplier=z, steps=40, **run) <= 1.0


@pytest.mark.parametrize("n,batch,epochs,z", GRID[::3])
def test_rdp_is_that_of_the_older_function_with_its_own_orders(n, batch, epochs, z):
    orders = [1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 3.0, 3.5, 4.0, 4.5, *range(5, 64), 128, 256, 512]
    expected, _ = their_lib().compute_dp_sgd_privacy(n, batch, z, epochs, 1e-5)
    actual = adaclip_tf.epsilon(
        noise_multiplier=z,
        delta=1e-5,
        num_examples=n,
        batch_size=batch,
        epochs=epochs,
        accountant=lambda: dp_accounting.rdp.RdpAccountant(orders),
    )
    assert actual == pytest.approx(expected, rel=1e-6)


def test_statement_of_tensorflow_privacy_prints_the_same_numbers():
    text = their_lib().compute_dp_sgd_privacy_statement(60000, 600, 10, 1.1, 1e-5, False, max_examples_per_user=3)
    numbers = [float(number) for number in re.findall(r":\s+(\d+\.\d{3})", text)]
    ours = [
        adaclip_tf.epsilon(**RUN, sampling=sampling, examples_per_user=users)
        for users in (1, 3)
        for sampling in ("shuffled", "poisson")
    ]
    assert numbers == pytest.approx(ours, abs=5e-4)


@pytest.mark.parametrize("z,q,steps", [(2.5, 0.01, 600), (4.0, 0.05, 100), (20.0, 1.0, 30)])
def test_pld_is_that_of_dp_accounting(z, q, steps):
    event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z))
    direct = dp_accounting.pld.PLDAccountant().compose(event, steps).get_epsilon(1e-6)
    run = {"noise_multiplier": z, "delta": 1e-6, "num_examples": 10000, "batch_size": int(10000 * q)}
    assert adaclip_tf.epsilon(**run, steps=steps, accountant="pld") == pytest.approx(direct, rel=1e-6)
    assert direct < adaclip_tf.epsilon(**run, steps=steps) < 1.3 * direct


@pytest.mark.parametrize("users,z", [(2, 1.1), (5, 3.0), (40, 30.0)])
def test_group_privacy_is_that_of_tensorflow_privacy(users, z):
    expected = their_lib()._compute_dp_sgd_user_privacy(10, z, 1e-5, users, False, 0.01)
    run = {**RUN, "noise_multiplier": z}
    assert adaclip_tf.epsilon(**run, examples_per_user=users) == pytest.approx(expected, rel=1e-6)
    assert expected > adaclip_tf.epsilon(**run) * users


def test_group_privacy_out_of_reach_is_infinite():
    assert adaclip_tf.epsilon(**{**RUN, "noise_multiplier": 0.4}, examples_per_user=10000) == math.inf


def test_epsilon_is_just_below_the_closed_form_at_whole_orders():
    # Mironov, Talwar, Zhang 2019, equation (6), at whole orders, and the conversion of Canonne et al. 2020.
    z, q, steps, delta = 1.1, 0.01, 1000, 1e-5
    bounds = []
    for order in range(2, 60):
        k = np.arange(order + 1)
        logs = (
            np.log(scipy.special.comb(order, k))
            + k * math.log(q)
            + (order - k) * math.log1p(-q)
            + k * (k - 1) / (2 * z**2)
        )
        rdp = steps * scipy.special.logsumexp(logs) / (order - 1)
        bounds.append(rdp + math.log1p(-1 / order) - math.log(delta * order) / (order - 1))
    # The accountant has fractional orders too: a little better, never worse.
    assert 0.98 * min(bounds) < adaclip_tf.epsilon(**RUN) <= min(bounds)


# ---------------------------------------------------------------------------------------------------
# Events.


def test_a_run_is_one_event():
    event = adaclip_tf.training_event(noise_multiplier=1.1, **MNIST)
    step = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.1))
    assert event == dp_accounting.SelfComposedDpEvent(step, 1000)


def test_events_compose_in_any_accountant():
    parts = [events.gaussian_event(20.0), adaclip_tf.training_event(noise_multiplier=1.1, **MNIST)]
    both = dp_accounting.ComposedDpEvent(parts)
    for accountant in ("rdp", dp_accounting.rdp.RdpAccountant, lambda: dp_accounting.rdp.RdpAccountant([8.0, 16.0])):
        alone = [adaclip_tf.epsilon_of(part, delta=1e-5, accountant=accountant) for part in parts]
        together = adaclip_tf.epsilon_of(both, delta=1e-5, accountant=accountant)
        assert max(alone) < together < sum(alone)


def test_what_the_optimizers_own_state_says_is_accounted():
    seen = past.PastSteps(1000, 2.2, 2.0, 600, "phase")
    # The arguments of the constructor are those of the future.
    optimizer = types.SimpleNamespace(
        past_steps=lambda: seen, other_past_steps=list, noise_multiplier=5.0, microbatch_sensitivity=1.0
    )
    where = {"num_examples": 60000, "batch_size": 600}
    assert adaclip_tf.optimizer_event(optimizer, **where) == adaclip_tf.training_event(noise_multiplier=1.1, **MNIST)
    with pytest.raises(ValueError, match="batches of 600"):
        adaclip_tf.optimizer_event(optimizer, num_examples=60000, batch_size=60)
    seen = seen._replace(steps=0)
    assert adaclip_tf.optimizer_event(optimizer, **where) == dp_accounting.NoOpDpEvent()


# ---------------------------------------------------------------------------------------------------
# Microbatches of several examples.


def pair_rdp(order, q, z):
    """RDP between a group's batch with u = 1 and with u' = -1, on a grid: the worst pair in one dimension."""
    edge = 12.0 * z + 2.0 * order
    x = np.linspace(-edge, edge, 20001)
    base, plus, minus = (scipy.stats.norm.logpdf(x, shift, z) for shift in (0.0, 1.0, -1.0))
    log_p = np.logaddexp(math.log1p(-q) + base, math.log(q) + plus)
    log_q = np.logaddexp(math.log1p(-q) + base, math.log(q) + minus)
    return scipy.special.logsumexp(order * log_p + (1 - order) * log_q + math.log(x[1] - x[0])) / (order - 1)


@pytest.mark.parametrize("q,z", itertools.product((0.001, 0.05, 0.4), (0.6, 1.5, 6.0)))
def test_whole_groups_cost_no_more_than_half_the_noise(q, z):
    def rdp(probability, noise):
        accountant = dp_accounting.rdp.RdpAccountant()
        event = dp_accounting.PoissonSampledDpEvent(probability, dp_accounting.GaussianDpEvent(noise))
        return accountant.compose(event).rdp

    larger, smaller = rdp(2 * q, z), rdp(q, z)

    event = Mechanism(z, num_examples=1000, batch_size=int(1000 * q), microbatch_sensitivity=2.0)
    used = dp_accounting.rdp.RdpAccountant().compose(event.release)
    whole = np.asarray(used.orders) == np.round(used.orders)  # at others dp_accounting 0.6 has bounds of varying slack
    assert whole.sum() > 50 and np.all(larger[whole] <= used.rdp[whole] * (1 + 1e-9))
    for order in (2.0, 4.0):
        at = int(np.flatnonzero(used.orders == order)[0])
        assert pair_rdp(order, q, z) <= larger[at] * (1 + 1e-6)
        # Were the sensitivity taken for 1, the pair would break the claim.
        assert pair_rdp(order, q, z) > smaller[at]


# ---------------------------------------------------------------------------------------------------
# Bad input, imports, examples.


@pytest.mark.parametrize(
    "change,message",
    [
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"delta": -1e-5}, "delta"),
        ({"delta": math.nan}, "delta"),
        ({"noise_multiplier": -1.0}, "noise_multiplier"),
        ({"batch_size": 60001}, "batch_size=60001 and num_examples=60000"),
        ({"batch_size": 0}, "batch_size"),
        ({"num_examples": 6e4}, "num_examples"),
        ({"epochs": 0}, "epochs"),
        ({"epochs": -1}, "epochs"),
        ({"epochs": None}, "either `epochs` or `steps`"),
        ({"steps": 5}, "either `epochs` or `steps`"),
        ({"epochs": None, "steps": 0}, "steps"),
        ({"accountant": "moments"}, "accountant"),
        ({"sampling": "uniform"}, "sampling"),
        ({"microbatch_sensitivity": 0.5}, "microbatch_sensitivity"),
        ({"examples_per_user": 0}, "examples_per_user"),
    ],
)
def test_bad_arguments_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        adaclip_tf.epsilon(**{**RUN, **change})


def test_large_delta_is_warned_about():
    with pytest.warns(UserWarning, match="not below 1 / num_examples"):
        adaclip_tf.epsilon(**{**RUN, "delta": 1 / 60000})


@pytest.mark.filterwarnings("error")
def test_small_delta_is_not():
    adaclip_tf.epsilon(**{**RUN, "delta": 1.6e-5})


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_no_noise_is_infinite(accountant):
    assert adaclip_tf.epsilon(**{**RUN, "noise_multiplier": 0.0}, accountant=accountant) == math.inf


def test_examples_in_the_docstrings():
    assert doctest.testmod(sys.modules[adaclip_tf.epsilon.__module__]).failed == 0
    assert doctest.testmod(events).failed == 0
