"""examples/tabular: the default in NumPy is that of the library, and its changes do what they say."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import PrivateScales
from examples.tabular import competitors, default, problems, study, study_problems, study_scales, study_table
from examples.tabular.tables import Table

PROBLEM = problems.Problem("toy", "toy", lambda _: None, "softmax", "accuracy", 4.0, 50, 4, outputs=3)


def table(rows=600):
    """A column that is small, two rare levels, one that is neither."""
    rng = np.random.default_rng(0)
    rare = rng.random([rows, 2]) < 0.05
    x = np.hstack([rng.normal(size=[rows, 2]) * [0.05, 1.0], rare]).astype(np.float32)
    y = np.argmax(x[:, 1:] + 0.3 * rng.normal(size=[rows, 3]), axis=1).astype(np.int32)
    return Table(x[:-100], y[:-100], x[-100:], y[-100:])


def warm_up(change, hidden=0, noise=0.0):
    """C and h; without noise, they are a function of the data."""
    problem, data = dataclasses.replace(PROBLEM, hidden=hidden), table()
    plan = dataclasses.replace(
        study._plan(PROBLEM, len(data.x_train), 3, change.settings), rows_noise=noise, counts_noise=noise
    )
    weights = competitors.initial_weights(problem, data.x_train.shape[1], np.random.default_rng(0))
    x = competitors.with_ones(data.x_train)
    return study.Warmup(problem, weights, x, data.y_train, plan, change, np.random.default_rng(0)).learn()


def test_the_warm_up_is_that_of_the_library():
    data, (clip, shapes) = table(), warm_up(study.CHANGES["default"])
    model = default.build(PROBLEM, data.x_train.shape[1])
    scales = PrivateScales(noise_multiplier=0.0, count_noise=0.0, classes=3)
    scales.fit(model, default.loss_of(PROBLEM), (data.x_train, data.y_train))
    np.testing.assert_allclose(np.concatenate(scales.shapes_, axis=None), shapes[0][:, 0], rtol=1e-4)
    assert scales.clip_ == pytest.approx(clip, rel=1e-4)
    tf.keras.backend.clear_session()


def test_floors():
    """In its own variable the small column is below the median, as the two rare ones are."""
    names = ("default", "no_floor", "rare_known", "rare_counted", "rare_count_asked")
    h = {name: warm_up(study.CHANGES[name])[1][0][:-1, 0] for name in names}
    small, dense, *rare = h["no_floor"]
    assert max(small, *rare) < 0.5 * dense
    lowest = np.sort(h["default"])
    assert lowest[0] == lowest[1] > 1.1 * np.sort(h["no_floor"])[1] / dense * lowest[-1]
    for name in ("rare_known", "rare_counted", "rare_count_asked"):  # the last one without noise here
        changed = h[name] / h[name][1]
        assert changed[0] == pytest.approx(small / dense, rel=0.35)
        assert min(changed[2:]) > 1.5 * max(rare) / dense


@pytest.mark.parametrize(
    "name, hidden",
    [
        ("default", 3),
        ("last_judged", 3),
        ("default", 0),
        ("last_judged", 0),
        ("rate_05", 0),
        ("rare_asked", 0),
        ("rare_count_asked", 0),
    ],
)
def test_every_change_trains(name, hidden):
    outcome = study.train(dataclasses.replace(PROBLEM, hidden=hidden), table(), study.EVERY[name], seed=1)
    assert outcome["metric"] > 40.0
    assert np.isfinite(outcome["loss"])


def test_one_more_round_is_paid_for():
    names = ("default", "rare_count_asked", "last_judged")
    plans = [study._plan(PROBLEM, 500, 3, study.EVERY[name].settings) for name in names]
    for plan in plans[1:]:
        assert plans[0].rows_noise == pytest.approx(plan.rows_noise)
        assert plans[0].noise_multiplier < plan.noise_multiplier == plans[1].noise_multiplier


def test_the_rate_of_a_squared_loss_alone_is_changed():
    for kind, now in (("linear", True), ("softmax", False)):
        problem = dataclasses.replace(PROBLEM, kind=kind, outputs=1 if kind == "linear" else 3, epsilon=0.5)
        names = ("default", "last_judged")
        found = [study.train(problem, table(), study.EVERY[name], seed=1)["learning_rate"] for name in names]
        assert (found[1] < found[0]) == now
    assert [study_scales.squared_factor(t, 10) for t in (1e3, 250.0, 125.0, 1.0)] == [1.0, 1.0, 0.5**0.5, 0.5]


@pytest.mark.parametrize("median", [1e-6, 1.0, 1e6])
def test_a_search_that_believes_finds_a_median_however_far_it_is(median):
    rng = np.random.default_rng(0)
    norms = median * rng.lognormal(0.0, 0.7, 10_001)
    search = study_scales.BelievingSearch(1.0, 1.75, 0.005)
    for _ in range(12):
        search.move(float((norms <= search.clip).mean()) + 0.005 * rng.normal())
    assert search.clip == pytest.approx(median, rel=0.25)


def apart(m, f, signal, noise=0.0, **constants):
    """h of one variable over that of its last row."""
    settings = study_scales.Apart(power=0.5, **constants)
    (h,) = study_scales.shapes([np.array(m)], [np.array(f)], [1], noise, signal, settings)
    return h / h[-1]


def test_what_is_small_and_what_is_rare_are_told_apart():
    """m = 4, 1, 1 and f = 1, 1/4, 1 are sizes 4, 4, 1. s0 is 0 in a long training, 9/8 at t = 5 d + 10, and infinite
    at t = 5 d: n0 = 9/4."""
    m, f = [4.0, 1.0, 1.0], [8.0, 2.0, 8.0]
    np.testing.assert_allclose(apart(m, f, 1e12), [2.0, 2.0 * 0.25**0.1, 1.0])
    np.testing.assert_allclose(apart(m, f, 15.0), [2.0, 2.0 * 0.25**0.4, 1.0])
    rare, often = (share**0.1 * (share / (share + 1.125)) ** 0.3 for share in (0.25, 1.0))
    np.testing.assert_allclose(apart(m, f, 25.0), [2.0, 2.0 * rare / often, 1.0])


def test_a_row_that_is_tiny_or_never_there_gets_no_enormous_steps():
    np.testing.assert_allclose(apart([1e-6, 4.0, 4.0], [8.0, 8.0, 8.0], 1e12), [0.1**0.5, 1.0, 1.0])
    np.testing.assert_allclose(apart([1e-12, 4.0, 4.0], [0.0, 8.0, 8.0], 1e12), [1e-4**0.1, 1.0, 1.0])


def test_problems_of_the_comparison_are_judged_on_held_out_parts_alone():
    guessed = {problem.name for problem in study_problems.GUESSED}
    fresh = {
        problem.name
        for problem in (*problems.FRESH, *problems.RESERVED, *problems.RESERVED_AGAIN, *problems.RESERVED_LAST)
    }
    assert set(study_problems.PROBLEMS) & fresh == guessed


def test_the_table_says_what_is_clear():
    found = {"toy": {"default": [50.0, 52.0], "one": [51.0, 53.0], "two": [50.0, 53.0]}}
    assert study_table.table(found).splitlines()[2] == "| toy | 51.00 ± 1.00 | **+1.00 ± 0.00** | +0.50 ± 0.50 |"
