"""The numbers of a training: within the target, by the composition written out."""

import dataclasses

import dp_accounting
import pytest

from adaclip_tf.data import target_questions
from adaclip_tf.privacy.calibration import noise_multiplier
from adaclip_tf.scales.method import DEFAULT
from adaclip_tf.training import plan as planning

PUBLIC = {"num_examples": 8000, "batch_size": 256, "epochs": 5, "target_epsilon": 1.0, "delta": 1e-5}


def make(**options):
    return planning.make_plan(
        **{**PUBLIC, "classes": 10, "kernels": 1, "accountant": "rdp", "before": None, "settings": DEFAULT, **options}
    )


def composed(plan, *others):
    """Everything, query by query and step by step."""
    accountant = dp_accounting.rdp.RdpAccountant()
    for event in others:
        accountant.compose(event)
    accountant.compose(dp_accounting.GaussianDpEvent(plan.rows_noise), 3)
    accountant.compose(dp_accounting.GaussianDpEvent(plan.counts_noise / 0.5), 24)
    step = dp_accounting.PoissonSampledDpEvent(256 / 8000, dp_accounting.GaussianDpEvent(plan.noise_multiplier))
    return accountant.compose(step, plan.steps).get_epsilon(1e-5)


def test_scales_and_training_together_meet_the_target():
    plan = make()
    assert plan.steps == 5 * 32
    assert 0.999 < composed(plan) <= 1.0
    assert plan.noise_alone == noise_multiplier(**PUBLIC)
    assert 1.0 < plan.noise_multiplier / plan.noise_alone < 1.05


def test_noise_of_the_queries_and_the_rate_go_by_the_noise_of_training_alone():
    plan = make()
    noise = DEFAULT.noise(plan.noise_alone, 256 / 8000, 160)
    assert (plan.rows_noise, plan.counts_noise) == tuple(noise)
    assert plan.learning_rate == DEFAULT.learning_rate(plan.noise_alone, 256, 160, 10)
    assert plan.learning_rate > make(kernels=4).learning_rate == DEFAULT.deep_rate


def test_what_was_spent_before_is_within_the_target():
    before = dp_accounting.GaussianDpEvent(8.0)  # epsilon .48
    plan = make(before=before)
    assert 0.999 < composed(plan, before) <= 1.0
    assert plan.noise_multiplier > make().noise_multiplier
    with pytest.raises(ValueError, match=r"the ledger holds 1\.\d+ already"):
        make(before=dp_accounting.GaussianDpEvent(3.8))


def test_targets_are_within_the_target_too():
    """Noise of the questions: 2 % of the squared budget, but what few examples need, and no more than many do."""
    plan = make(target_columns=2)
    asked = dp_accounting.GaussianDpEvent(plan.targets_noise)
    assert 0.999 < composed(plan, asked) <= 1.0
    assert plan.targets_noise**-2 == pytest.approx(0.02 * 160 * (256 / 8000 / plan.noise_alone) ** 2)
    assert make().targets_noise is None
    assert plan.noise_alone == make().noise_alone
    assert plan.noise_multiplier > make().noise_multiplier
    few = make(target_columns=1, num_examples=700, batch_size=64, target_epsilon=0.5)
    assert few.targets_noise == target_questions.most_noise(700, 1)
    with pytest.raises(ValueError, match=r"`scale_targets`: .* of the squared budget"):
        make(target_columns=3, num_examples=300, batch_size=32, target_epsilon=0.3)


def test_a_plan_is_remembered_for_the_same_training_alone():
    plan = make()
    assert planning.Plan.from_notes(plan.notes(), PUBLIC) == plan
    for name, value in (("epochs", 6), ("target_epsilon", 2.0), ("num_examples", 8001)):
        with pytest.raises(ValueError, match=f"{name}={PUBLIC[name]!r}, and not {value!r}"):
            planning.Plan.from_notes(plan.notes(), {**PUBLIC, name: value})
    with pytest.raises(ValueError, match="it holds no plan"):
        planning.Plan.from_notes({}, PUBLIC)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.epochs = 7


def test_bad_arguments_are_named():
    for name, value in (("epochs", 0), ("epochs", 1.5), ("target_epsilon", -1.0), ("delta", 2.0), ("batch_size", 9000)):
        with pytest.raises(ValueError, match=f"`{name}`"):
            make(**{name: value})
