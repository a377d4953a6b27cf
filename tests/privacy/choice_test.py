"""The best of a random number of runs: its cost by hand, its laws, and where it is counted."""

import doctest
import math

import dp_accounting
import numpy as np
import pytest
import scipy.stats

import adaclip_tf
from adaclip_tf.privacy import __main__ as privacy
from adaclip_tf.privacy import choice, event_json, statement
from adaclip_tf.privacy.choice import PrivateChoice
from adaclip_tf.privacy.mechanism import Mechanism

RUN = {"noise_multiplier": 2.0, "delta": 1e-5, "num_examples": 60000, "batch_size": 600, "epochs": 10}


def by_hand(mean, noise=5.0, delta=1e-5):
    """Theorem 2 with eta = 1 on one Gaussian release, from the paper: no code of dp_accounting but its conversion.

    RDP at order a is a / (2 noise^2). With gamma = 1 / E[K] and any second order b,
    eps'(a) = eps(a) + 2 (1 - 1/b) eps(b) + 2 log(1 / gamma) / b + log(E[K]) / (a - 1).
    """
    orders = np.array(dp_accounting.rdp.rdp_privacy_accountant.DEFAULT_RDP_ORDERS, float)
    orders = orders[orders > 1]
    rdp = orders / (2 * noise**2)
    least = np.min(2 * (1 - 1 / orders) * rdp + 2 * math.log(mean) / orders)
    tuned = rdp + least + math.log(mean) / (orders - 1)
    return dp_accounting.rdp.compute_epsilon(orders, tuned, delta)[0]


def test_the_cost_of_a_choice_is_the_papers():
    one = dp_accounting.GaussianDpEvent(5.0)
    for mean in (2.0, 10.0, 100.0):
        found = adaclip_tf.epsilon_of(PrivateChoice(mean).event(one), delta=1e-5)
        assert found == pytest.approx(by_hand(mean), rel=1e-6)


def test_more_runs_cost_more_and_no_choice_costs_nothing():
    alone = adaclip_tf.epsilon(**RUN)
    found = [adaclip_tf.epsilon(**RUN, choice=PrivateChoice(mean)) for mean in (2, 10, 100)]
    assert alone < found[0] < found[1] < found[2] < 10 * alone
    # Far below what 10 runs cost that are all published.
    ten = dp_accounting.SelfComposedDpEvent(
        adaclip_tf.training_event(**{k: v for k, v in RUN.items() if k != "delta"}), 10
    )
    assert found[1] < adaclip_tf.epsilon_of(ten, delta=1e-5)


def test_the_noise_for_a_target_counts_the_choice():
    plan = {name: value for name, value in RUN.items() if name != "noise_multiplier"}
    z = adaclip_tf.noise_multiplier(target_epsilon=1.0, **plan, choice=PrivateChoice(5, "poisson"))
    cost = adaclip_tf.epsilon(**{**RUN, "noise_multiplier": z}, choice=PrivateChoice(5, "poisson"))
    assert 0.99 < cost <= 1.0
    assert z > adaclip_tf.noise_multiplier(target_epsilon=1.0, **plan)


@pytest.mark.parametrize(
    "law, distribution", [("geometric", scipy.stats.geom(1 / 6)), ("poisson", scipy.stats.poisson(6))]
)
def test_the_number_of_runs_has_its_law(law, distribution):
    drawn = [PrivateChoice(6, law).draw(seed) for seed in range(2000)]
    values = np.arange(0, 12)
    seen = np.array([drawn.count(value) for value in values])
    expected = 2000 * distribution.pmf(values)
    assert abs(np.mean(drawn) - 6.0) < 0.6  # five standard errors
    keep = expected > 10
    assert np.all(np.abs(seen[keep] - expected[keep]) < 5 * np.sqrt(expected[keep]))
    assert not np.all(np.abs(seen[keep] - 1.5 * expected[keep]) < 5 * np.sqrt(expected[keep]))
    assert len({PrivateChoice(1e6, law).draw() for _ in range(5)}) > 1  # another one every time


def test_only_renyi_accounting_counts_it():
    with pytest.raises(ValueError, match="`accountant`='pld' can't count a choice among runs"):
        adaclip_tf.epsilon(**RUN, accountant="pld", choice=PrivateChoice(3))
    with pytest.raises(ValueError, match="`accountant`='pld' can't count"):
        plan = {name: value for name, value in RUN.items() if name != "noise_multiplier"}
        adaclip_tf.noise_multiplier(target_epsilon=1.0, **plan, accountant="pld", choice=PrivateChoice(3))


def test_bad_arguments_are_named():
    for bad in (0.5, "many", math.nan, -1):
        with pytest.raises(ValueError, match="`mean_runs`"):
            PrivateChoice(bad)
    with pytest.raises(ValueError, match="`law` must be one of 'geometric', 'poisson'"):
        PrivateChoice(3, "uniform")
    with pytest.raises(ValueError, match="`choice` must be a `PrivateChoice`"):
        adaclip_tf.epsilon(**RUN, choice=10)


def test_the_statement_says_so():
    report = statement.report_on(Mechanism(2.0, 60000, 600), delta=1e-5, epochs=10, choice=PrivateChoice(10))
    assert list(report["guarantee"]) == ["rdp"]
    assert report["guarantee"]["rdp"] == pytest.approx(adaclip_tf.epsilon(**RUN, choice=PrivateChoice(10)))
    words = " ".join(statement.describe(report).split())
    assert "the best of a random number of such runs (geometric, 10 on average)" in words
    assert "Papernot and Steinke 2022" in words
    assert "number of runs that was drawn from that law and kept secret" in words
    assert statement.privacy_report(**RUN, choice=PrivateChoice(10)) == report
    alone = statement.report_on(Mechanism(2.0, 60000, 600), delta=1e-5, epochs=10, accountants=["rdp"])
    assert alone["choice"] is None
    assert "Papernot" not in statement.describe(alone)


def test_the_command_line_counts_it(capsys):
    flags = ["--num_examples=60000", "--batch_size=600", "--epochs=10", "--delta=1e-5", "--noise_multiplier=2"]
    assert privacy.main(["privacy", *flags, "--choice_runs=10", "--choice_law=poisson"]) == 0
    shown = capsys.readouterr().out
    assert f"{adaclip_tf.epsilon(**RUN, choice=PrivateChoice(10, 'poisson')):.4f}" in shown
    assert privacy.main(["privacy", *flags, "--choice_runs=0.5"]) == 2
    assert "`mean_runs` must be 1 or more" in capsys.readouterr().err
    assert privacy.main(["privacy", *flags, "--choice_runs=3", "--plot=x.png"]) == 2


@pytest.mark.parametrize("law", ["geometric", "poisson"])
def test_a_ledger_can_hold_it(law, tmp_path):
    event = PrivateChoice(4, law).event(dp_accounting.GaussianDpEvent(5.0))
    assert event_json.load(event_json.dump(event)) == event
    ledger = adaclip_tf.Ledger(tmp_path / "ledger.json")
    ledger.add("the best of a few", event)
    assert ledger.epsilon(delta=1e-5) == pytest.approx(adaclip_tf.epsilon_of(event, delta=1e-5))


def test_examples_in_the_docstrings():
    results = doctest.testmod(choice)
    assert results.attempted >= 3
    assert results.failed == 0
