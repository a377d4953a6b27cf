"""Tests of `adaclip_tf.privacy.accountants`: what is registered is known everywhere, and by no other way."""

import dataclasses
import math
import pathlib
import re

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf

import adaclip_tf
from adaclip_tf.privacy import __main__ as command_line
from adaclip_tf.privacy import accountants, curve, statement
from adaclip_tf.privacy.ledger import Ledger
from adaclip_tf.privacy.mechanism import Mechanism
from adaclip_tf.privacy.meter import PrivacyMeter
from tests import models

RUN = {"num_examples": 1000, "batch_size": 100, "delta": 1e-4}
STEP = Mechanism(2.0, 1000, 100)


def releases(event):
    """(noise multiplier, how often), sampling left out of account."""
    if isinstance(event, dp_accounting.ComposedDpEvent):
        return [pair for part in event.events for pair in releases(part)]
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        return [(z, count * event.count) for z, count in releases(event.event)]
    if isinstance(event, dp_accounting.PoissonSampledDpEvent):
        return releases(event.event)
    return [] if isinstance(event, dp_accounting.NoOpDpEvent) else [(event.noise_multiplier, 1)]


@dataclasses.dataclass(frozen=True)
class Toy:
    """Adds up 1 / z and subtracts delta: no privacy is meant by it, and a sum can be worked out by hand."""

    name: str = "toy"
    quick: bool = True

    def of_event(self, event):
        return lambda delta: sum(count / z if z else math.inf for z, count in releases(event)) - delta

    def prepare(self, release, other):
        return accountants.afresh(self, release, other)

    def approach(self, target_epsilon):
        return ()


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setattr(accountants, "REGISTERED", dict(accountants.REGISTERED))
    return accountants.register(Toy())


def by_toy(steps, z=2.0):
    return steps / z - 1e-4


def test_epsilon(toy):
    assert adaclip_tf.epsilon(noise_multiplier=2.0, steps=30, accountant="toy", **RUN) == by_toy(30)
    event = dp_accounting.ComposedDpEvent([STEP.event(steps=30), dp_accounting.GaussianDpEvent(0.5)])
    assert adaclip_tf.epsilon_of(event, delta=1e-4, accountant="toy") == by_toy(30) + 2.0


def test_calibration(toy):
    z = adaclip_tf.noise_multiplier(target_epsilon=5.0, steps=30, accountant="toy", **RUN)
    assert z == pytest.approx(30 / (5.0 + 1e-4), rel=1e-3)
    split = adaclip_tf.split_budget(target_epsilon=5.0, steps=30, pca_fraction=0.5, accountant="toy", **RUN)
    assert (split.pca_noise_multiplier, split.training_noise_multiplier) == pytest.approx((0.4, 12.0), rel=1e-3)


def test_curve(toy):
    epsilon_at = curve.EpsilonCurve(STEP, delta=1e-4, accountant="toy")
    assert [epsilon_at(steps) for steps in (1, 30)] == [by_toy(1), by_toy(30)]
    assert epsilon_at.largest_steps(10.0) == 20


def test_statement(toy):
    report = statement.privacy_report(noise_multiplier=2.0, steps=30, **RUN)
    assert list(report["guarantee"]) == ["rdp", "pld", "toy"]
    assert report["guarantee"]["toy"] == by_toy(30)
    text = adaclip_tf.privacy_statement(noise_multiplier=2.0, steps=30, **RUN)
    assert re.search(r"RDP +PLD +TOY\n.* 14.9999  <- this run", text)


def test_ledger(toy, tmp_path):
    ledger = Ledger(tmp_path / "ledger.json")
    ledger.add("training", STEP.event(steps=30))
    assert ledger.epsilon(delta=1e-4, accountant="toy") == by_toy(30)
    assert "by TOY: 14.9999" in ledger.describe(delta=1e-4)


def test_budget_and_tensorboard(toy, tmp_path):
    """A budget of 4 steps; TensorBoard asks for epsilon at every step, as the accountant says that it is quick."""
    model = models.softmax_regression()
    model.compile(
        adaclip_tf.DPFixedClipSGD(l2_norm_clip=1.0, noise_multiplier=2.0, expected_batch_size=100),
        models.per_example_loss(),
    )
    batches = adaclip_tf.poisson_batches(models.data(1000), expected_batch_size=100, steps=9, seed=0)
    budget = adaclip_tf.PrivacyBudget(**RUN, accountant="toy", target_epsilon=2.0)
    board = adaclip_tf.PrivacyTensorBoard(tmp_path, budget=budget, update_freq=1, image_freq=0)
    history = model.fit(batches, epochs=1, verbose=0, callbacks=[budget, board]).history
    assert history["epsilon"] == [by_toy(4)]
    assert list(budget.report()["guarantee"]) == ["rdp", "pld", "toy"]
    (file,) = tmp_path.glob("*tfevents*")
    written = {}
    for event in tf.compat.v1.train.summary_iterator(str(file)):
        for value in event.summary.value:
            if value.tag == "1_overview/epsilon":
                written[event.step] = float(tf.make_ndarray(value.tensor))
    assert written == pytest.approx({steps: by_toy(steps) for steps in (1, 2, 3, 4)}, rel=1e-6)


def test_the_command_line(toy, capsys, tmp_path):
    flags = ["privacy", "--num_examples=1000", "--batch_size=100", "--steps=30", "--delta=1e-4"]
    assert command_line.main([*flags, "--target_epsilon=5", "--accountant=toy", f"--plot={tmp_path}/p.png"]) == 0
    out, _ = capsys.readouterr()
    assert "noise_multiplier = 5.9" in out
    assert "by TOY" in out
    assert pathlib.Path(tmp_path, "p.png").stat().st_size > 0
    assert command_line.main([*flags, "--target_epsilon=5", "--accountant=no"]) == 2
    assert "'rdp', 'pld', 'toy'" in capsys.readouterr().err


def test_what_is_not_registered_is_refused_with_a_list():
    with pytest.raises(ValueError, match="`accountant` must be one of 'rdp', 'pld'; got 'toy'"):
        adaclip_tf.epsilon(noise_multiplier=2.0, steps=30, accountant="toy", **RUN)
    with pytest.raises(ValueError, match="'rdp', 'pld'"):
        PrivacyMeter(STEP, delta=1e-4, accountant="toy")
    with pytest.raises(ValueError, match="`accountant` is named 'rdp'"):
        accountants.register(accountants.Rdp())


@pytest.mark.parametrize("name", ["rdp", "pld"])
def test_preparing_changes_nothing(name):
    """What is prepared, composed anew and computed by the event as a whole is one and the same."""
    one, other = accountants.named(name), dp_accounting.GaussianDpEvent(3.0)
    for rest in (None, other):
        prepared, plain = one.prepare(STEP.release, rest), accountants.afresh(one, STEP.release, rest)
        for count in (0, 1, 40):
            assert prepared(count)(1e-5) == pytest.approx(plain(count)(1e-5), rel=1e-6, abs=1e-12)


def test_what_protects_against_different_things_is_never_added_up():
    fixed = Mechanism(2.0, 1000, 100, "without_replacement").event(steps=5)
    assert accountants.neighbours(fixed) is dp_accounting.NeighboringRelation.REPLACE_ONE
    assert accountants.neighbours(STEP.release) is dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    truth = dp_accounting.rdp.RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    truth.compose(fixed.event, 5)
    assert accountants.RDP.of_event(fixed)(1e-5) == truth.get_epsilon(1e-5)
    assert accountants.RDP.prepare(fixed.event, None)(5)(1e-5) == pytest.approx(truth.get_epsilon(1e-5), rel=1e-9)
    for other in (dp_accounting.GaussianDpEvent(3.0), STEP.release):  # dp_accounting itself refuses the second only
        with pytest.raises(ValueError, match="one epsilon can't hold both"):
            accountants.RDP.of_event(dp_accounting.ComposedDpEvent([fixed, other]))
        with pytest.raises(ValueError, match="one epsilon can't hold both"):
            accountants.RDP.prepare(fixed, other)
    with pytest.raises(ValueError, match="'pld' does not know sampling without replacement"):
        accountants.PLD.of_event(fixed)


def test_pld_prepares_any_release():
    """Not only a sampled Gaussian, for which it has a quick way."""
    release = dp_accounting.LaplaceDpEvent(4.0)
    epsilon = accountants.PLD.prepare(release, None)(3)(1e-5)
    whole = accountants.PLD.of_event(dp_accounting.SelfComposedDpEvent(release, 3))(1e-5)
    assert epsilon == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("target", [0.05, 2.0])
def test_cheaper_accountants_are_above(target):
    """Which is what lets a search by them end within the target."""
    event = STEP.event(steps=40)
    chain = [rough.accountant for rough in accountants.PLD.approach(target)]
    epsilons = [by.of_event(event)(1e-5) for by in [*chain, accountants.PLD]]
    assert len(chain) == (1 if target < 0.1 else 2)
    assert np.all(np.diff(epsilons) < 0.0)
