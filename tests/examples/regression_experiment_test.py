"""Tests of the regression experiment: the loop is the oracle's, the checks can fail, the report is whole."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.core import noise
from examples.regression import experiment, report
from tests import oracle


@pytest.fixture
def eagerly():
    """XLA turns the same key into other normal draws, so the oracle can follow the loop only in eager mode."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.mark.parametrize("name", experiment.METHODS)
def test_the_loop_is_the_oracles(name, eagerly):
    """20 examples, 2 epochs, d = 3: the whole trajectory once more in NumPy, with the query's noise."""
    choice = experiment.METHODS[name].choice
    if name != "abadi":  # from the default start nothing moves within so few steps
        moments = dataclasses.replace(choice.moments, initial_std=0.5)
        choice = dataclasses.replace(choice, moments=moments)
    (ours,) = experiment.excess_risks(choice, dimension=3, seeds=[5], epochs=2, examples=20)
    options = {
        "abadi": {"kind": "fixed", "l2_norm_clip": 1.0},
        "literal": {"h2": 1.0, "initial_std": 0.5},
        "adaclip": {"h2": 1.0, "initial_std": 0.5, "beta_2": 0.99, "clamp": "after_average", "gamma": 0.5},
    }[name]
    truth = oracle.Oracle([(3,)], noise_multiplier=0.1, divisor=1.0, **options)
    source = noise.NoiseSource(3)
    rng = np.random.default_rng(5)
    y = rng.normal(1.0, 1.0, 20)
    order = np.concatenate([rng.permutation(20) for _ in range(2)])
    theta, risks = np.zeros(3), []
    for index in order:
        x = np.array([y[index], 0.0, 0.0])
        theta = theta - 0.01 * truth.step([(theta - x)[None]], [source.fresh_normals([(3,)])[0].numpy()])[0]
        risks.append(0.5 * np.sum((theta - [np.mean(y), 0.0, 0.0]) ** 2))
    assert ours == pytest.approx(np.mean(risks[-20:]), rel=1e-3)


def fake_results(adaclip, abadi):
    dimensions = (10, 100, 1000)
    return {
        "seeds": [0, 1],
        "settings": {"epochs": 10},
        "excess_risk": {
            "abadi": {d: [abadi(d), 1.2 * abadi(d)] for d in dimensions},
            "literal": {d: [1.0, 1.0] for d in dimensions},
            "adaclip": {d: [adaclip(d), 1.2 * adaclip(d)] for d in dimensions},
        },
    }


def test_slope_by_hand():
    assert experiment.slope({10: [1.0], 100: [3.0, 17.0], 1000: [100.0], 9: [7.0]}) == pytest.approx(1)
    assert experiment.slope({10: [2.0], 1000: [2.0]}) == pytest.approx(0)
    assert np.isnan(experiment.slope({10: [2.0]}))


def test_the_papers_figure_passes_the_check():
    said = experiment.check(fake_results(lambda d: 0.002, lambda d: 3e-5 * d))
    assert said.startswith("ok: from d = 10 to 1000 the error of AdaCliP grows as d^0.00 up to 0.0022")


def test_too_few_dimensions_are_not_a_figure():
    results = {"excess_risk": {name: {1: [1.0], 10: [1.0]} for name in experiment.METHODS}}
    assert experiment.check(results).startswith("not checked")


@pytest.mark.parametrize(
    ("adaclip", "abadi"),
    [
        (lambda d: 0.0002 * d**0.5, lambda d: 3e-5 * d),  # ours grows
        (lambda d: 0.002, lambda d: 0.002),  # theirs does not: something else is wrong
        (lambda d: 0.5, lambda d: 3e-5 * d),  # ours never moved
        (lambda d: float("nan"), lambda d: 3e-5 * d),
    ],
)
def test_any_other_figure_fails_it(adaclip, abadi):
    with pytest.raises(RuntimeError, match="did not come out"):
        experiment.check(fake_results(adaclip, abadi))


def test_the_report_is_written_whole(tmp_path):
    results = fake_results(lambda d: 0.002, lambda d: 3e-5 * d)
    paths = report.Paths.folder(str(tmp_path / "new"))
    report.write(results, paths, "python -m examples.regression")
    page = paths.page.read_text()
    assert "| 1,000 | 0.033 (0.004) | 1 (0) | 0.0022 (0.0003) |" in page
    assert "as d^1.00 for Abadi et al. and as d^0.00 for AdaCliP" in page
    assert paths.figure.read_bytes().startswith(b"\x89PNG")
    assert json.loads(paths.results.read_text())["command"] == "python -m examples.regression"


def test_one_small_run_has_every_method_and_dimension():
    results = experiment.run(dimensions=[2], seeds=[0], epochs=1)
    assert {name: list(risks) for name, risks in results["excess_risk"].items()} == {
        "abadi": [2],
        "literal": [2],
        "adaclip": [2],
    }
    assert all(np.isfinite(tf.nest.flatten(results["excess_risk"])))
