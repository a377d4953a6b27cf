"""examples/tabular: the default in NumPy is that of the library, and its changes do what they say."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import PrivateScales
from examples.tabular import competitors, default, problems, study, study_before, study_problems, study_table
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
    return study._Warmup(problem, weights, x, data.y_train, plan, change, np.random.default_rng(0)).learn()


def test_the_warm_up_is_that_of_the_library():
    data, (clip, shapes) = table(), warm_up(study.ROUND_2["now"])
    model = default.build(PROBLEM, data.x_train.shape[1])
    scales = PrivateScales(noise_multiplier=0.0, count_noise=0.0, classes=3)
    scales.fit(model, default.loss_of(PROBLEM), (data.x_train, data.y_train))
    np.testing.assert_allclose(np.concatenate(scales.shapes_, axis=None), shapes[0][:, 0], rtol=1e-4)
    assert scales.clip_ == pytest.approx(clip, rel=1e-4)
    tf.keras.backend.clear_session()


def test_floors():
    """In its own variable the small column is below the median, as the two rare ones are."""
    names = ("before", "no_floor", "rare_known", "rare_counted", "rare_count_asked")
    h = {name: warm_up(study.CHANGES[name])[1][0][:-1, 0] for name in names}
    small, dense, *rare = h["no_floor"]
    assert max(small, *rare) < 0.5 * dense
    lowest = np.sort(h["before"])
    assert lowest[0] == lowest[1] > 1.1 * np.sort(h["no_floor"])[1] / dense * lowest[-1]
    for name in ("rare_known", "rare_counted", "rare_count_asked"):  # the last one without noise here
        changed = h[name] / h[name][1]
        assert changed[0] == pytest.approx(small / dense, rel=0.35)
        assert min(changed[2:]) > 1.5 * max(rare) / dense


@pytest.mark.parametrize(
    "name, hidden",
    [("before", 3), ("now", 3), ("before", 0), ("now", 0), ("rate_05", 0), ("rare_asked", 0), ("rare_count_asked", 0)],
)
def test_every_change_trains(name, hidden):
    outcome = study.train(dataclasses.replace(PROBLEM, hidden=hidden), table(), study.EVERY[name], seed=1)
    assert outcome["metric"] > 40.0
    assert np.isfinite(outcome["loss"])


def test_one_more_round_is_paid_for():
    names = ("before", "rare_count_asked", "now")
    plans = [study._plan(PROBLEM, 500, 3, study.EVERY[name].settings) for name in names]
    for plan in plans[1:]:
        assert plans[0].rows_noise == pytest.approx(plan.rows_noise)
        assert plans[0].noise_multiplier < plan.noise_multiplier == plans[1].noise_multiplier


def test_the_rate_of_a_squared_loss_alone_is_changed():
    """By d = 5 and t = 50 sqrt(40) / z0: as `Method.learning_rate` has it."""
    for kind, now in (("linear", True), ("softmax", False)):
        problem = dataclasses.replace(PROBLEM, kind=kind, outputs=1 if kind == "linear" else 3, epsilon=0.5)
        found = [
            study.train(problem, table(), study.EVERY[name], seed=1)["learning_rate"] for name in ("search", "now")
        ]
        assert (found[1] < found[0]) == now


def test_a_search_by_spans():
    """Up by 32, up by 32, down by sqrt(32), down by sqrt(32), up by 32^(1/4): C = 32^(2 - 1 + 1/4)."""
    search = study_before.SpanSearch(1.0, 32.0)
    for fraction in (0.1, 0.3, 0.8, 0.5, 0.49):
        search.move(fraction)
    assert search.clip == pytest.approx(32.0**1.25)
    for _ in range(20):
        search.move(0.9)
        search.move(0.1)
    assert search.span == 1.05


def test_problems_of_the_comparison_are_judged_on_held_out_parts_alone():
    guessed = {problem.name for problem in study_problems.GUESSED}
    fresh = {
        problem.name
        for problem in (*problems.FRESH, *problems.RESERVED, *problems.RESERVED_AGAIN, *problems.RESERVED_LAST)
    }
    assert set(study_problems.PROBLEMS) & fresh == guessed


def test_the_table_says_what_is_clear():
    found = {"toy": {"before": [50.0, 52.0], "one": [51.0, 53.0], "two": [50.0, 53.0]}}
    assert study_table.table(found).splitlines()[2] == "| toy | 51.00 ± 1.00 | **+1.00 ± 0.00** | +0.50 ± 0.50 |"
