"""`PrivateTargetScaling`: its sensitivity on neighbouring data, its noise, its accounting, and what it finds."""

import copy
import json
import math
import pathlib

import dp_accounting
import hypothesis
import hypothesis.extra.numpy
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from hypothesis import strategies as st

import adaclip_tf
from adaclip_tf.data import target_questions as questions
from adaclip_tf.data.targets import PrivateTargetScaling

ANY_FLOAT = st.floats(allow_nan=True, allow_infinity=True, width=64)
CENTERS = st.floats(-1e30, 1e30)
RADII = st.floats(2.0**-90, 2.0**90)
QUESTIONS = {  # each with the most that one example may move its answer, for one column
    "count_within": (questions.count_within, 0.5),
    "count_up_to": (lambda y, c, r: questions.count_up_to(y, c), 0.5),
    "moments": (questions.moments, math.sqrt(5.0 / 4.0)),
}


def scaling(noise_multiplier=20.0, **options):
    return PrivateTargetScaling(noise_multiplier=noise_multiplier, **options)


# ---------------------------------------------------------------------------------------------------
# Privacy.


@pytest.mark.parametrize("question", QUESTIONS)
@hypothesis.given(st.data())
def test_one_example_moves_no_answer_by_more_than_is_said(question, data):
    ask, most = QUESTIONS[question]
    columns = data.draw(st.integers(1, 4))
    arrays = hypothesis.extra.numpy.arrays
    y = data.draw(arrays(np.float64, (6, columns), elements=st.floats(-1e3, 1e3)))
    another = data.draw(arrays(np.float64, (1, columns), elements=ANY_FLOAT))
    center = data.draw(arrays(np.float64, columns, elements=CENTERS))
    radius = data.draw(arrays(np.float64, columns, elements=RADII))
    moved = ask(np.concatenate([y, another]), center, radius) - ask(y, center, radius)
    assert np.linalg.norm(moved) <= most * math.sqrt(columns) + 1e-9


@pytest.mark.parametrize("question, target", [("count_within", 9.0), ("count_up_to", -9.0), ("moments", 9.0)])
def test_the_sensitivity_is_reached(question, target):
    ask, most = QUESTIONS[question]
    y, ones = np.zeros([5, 3]), np.ones(3)
    moved = ask(np.concatenate([y, [[target] * 3]]), 0.0 * ones, ones) - ask(y, 0.0 * ones, ones)
    assert np.linalg.norm(moved) == pytest.approx(most * math.sqrt(3))


def asked(monkeypatch, y, noise_multiplier, seed):
    """Every answer that leaves the data in a fit: what it was, and the noise on it."""
    seen = []
    real = questions.Asked._noised

    def noised(self, answer, moves):
        released = real(self, answer, moves)
        seen.append((np.array(answer), released - answer))
        return released

    monkeypatch.setattr(questions.Asked, "_noised", noised)
    scaling(noise_multiplier, seed=seed).fit(y)
    return seen


def test_what_is_asked_costs_what_one_gaussian_of_the_noise_multiplier_costs(monkeypatch, rng):
    """The questions as they are asked, by sensitivities worked out here, from the noise as it is drawn."""
    columns, z = 2, 3.0
    y = rng.normal(size=[500, columns])
    deviations = []
    for seed in range(300):
        with monkeypatch.context() as patched:
            seen = asked(patched, y, z, seed)
        assert [answer.shape for answer, _ in seen] == 24 * [(columns,)] + [(2, columns)]
        deviations.append([np.mean(noise**2) for _, noise in seen])
    variances = np.mean(deviations, axis=0)
    squares = np.array(24 * [columns / 4.0] + [columns * 5.0 / 4.0])  # of the sensitivities, over all columns
    # The 24 counts have half of the noise over sensitivity of the sums each: 24 / s^2 + 4 / s^2 = 1 / z^2.
    assert np.sum(squares / variances) == pytest.approx(1.0 / z**2, rel=0.03)
    np.testing.assert_allclose(squares / variances, np.array(24 * [1.0] + [4.0]) / 28.0 / z**2, rtol=0.3)


def test_noise_is_normal_and_of_the_stated_size(monkeypatch):
    z = 2.0
    found = {"counts": [], "sums": []}
    for seed in range(60):
        with monkeypatch.context() as patched:
            seen = asked(patched, np.linspace(-1.0, 1.0, 300), z, seed)
        found["counts"] += [np.asarray(noise).item() for _, noise in seen[:24]]
        found["sums"] += [float(value) for value in seen[24][1].ravel()]
    s = z * math.sqrt(28.0)
    for draws, deviation in ((found["counts"], s / 2.0), (found["sums"], s / 2.0 * math.sqrt(1.25))):
        assert scipy.stats.kstest(np.array(draws) / deviation, "norm").pvalue > 0.001
    for wrong in (2 / 3, 3 / 2):
        assert scipy.stats.kstest(wrong * np.array(found["counts"]) / (s / 2.0), "norm").pvalue < 1e-6


def test_noise_is_fresh_in_every_fit_and_deaf_to_ordinary_seeds():
    found = []
    for _ in range(2):
        np.random.seed(0)
        made = scaling()
        found += [made.fit(np.arange(2000.0)).mean_, made.fit(np.arange(2000.0)).mean_]
    assert len({float(mean[0]) for mean in found}) == 4


def test_the_event_is_the_composition_of_all_questions():
    made = scaling(7.0)
    s = 7.0 * math.sqrt(28.0)
    for fits in (1, 1, 2):
        accountant = dp_accounting.rdp.RdpAccountant()
        accountant.compose(dp_accounting.GaussianDpEvent(s), 24 * fits)
        accountant.compose(dp_accounting.GaussianDpEvent(s / 2.0), fits)
        told = adaclip_tf.epsilon_of(made.event, delta=1e-5)
        assert told == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-9)
        if fits == 1:
            assert told == pytest.approx(adaclip_tf.epsilon_of(dp_accounting.GaussianDpEvent(7.0), delta=1e-5))
        made.fit(np.arange(1000.0))


def test_a_fit_that_fails_after_it_has_looked_is_paid_for():
    made = scaling(10.0)
    made.fit(np.arange(2000.0))
    with pytest.raises(ValueError, match="seem to be 0"):
        made.fit(np.zeros(2000))
    with pytest.raises(ValueError, match="values that are not finite"):
        made.fit(np.full(2000, np.nan))
    assert made.event.events[0].events[0].count == 3 * 24
    with pytest.raises(ValueError, match="hides the spread"):
        made.fit(np.arange(50.0))  # refused by n alone
    assert made.event.events[0].events[0].count == 3 * 24


def test_copies_are_paid_for():
    made = scaling()
    copied = copy.deepcopy(made)
    assert made.fit(np.arange(2000.0)).name != copied.fit(np.arange(2000.0)).name
    assert made.mean_ != copied.mean_


def test_the_noise_of_what_was_fitted_stays():
    with pytest.raises(AttributeError):
        scaling().noise_multiplier = 1e6


# ---------------------------------------------------------------------------------------------------
# What it finds.


def oracle(y):
    """The procedure without noise, in plain Python."""

    def search(center, radius, span):
        before = None
        for _ in range(8):
            up = sum(abs(value - center) <= radius for value in y) / len(y) < 0.98
            if before is not None and up != before:
                span = max(span**0.5, 1.1)
            radius, before = radius * span if up else radius / span, up
        return radius

    step = 2.0 * search(0.0, 1.0, 1024.0)
    radius, center = step / 2.0, 0.0
    for _ in range(8):
        step /= 2.0
        center += step if sum(value <= center for value in y) < 0.5 * len(y) else -step
    radius = search(center, radius, 32.0)
    limited = [min(max((value - center) / radius, -1.0), 1.0) for value in y]
    mean = sum(limited) / len(y)
    variance = sum(value**2 for value in limited) / len(y) - mean**2
    return center + radius * mean, radius * variance**0.5


@pytest.mark.parametrize("kind", ["normal", "years", "prices", "tiny", "counts"])
def test_without_noise_it_is_the_procedure_written_anew(kind, rng):
    y = {
        "normal": rng.normal(size=300),
        "years": 1990.0 + 5.0 * rng.normal(size=300),
        "prices": np.exp(rng.normal(8.0, 1.0, size=300)),
        "tiny": -1e-6 * (3.0 + rng.normal(size=300)),
        "counts": rng.integers(0, 4, size=300).astype(float),
    }[kind]
    made = scaling(0.0).fit(y)
    np.testing.assert_allclose([made.mean_[0], made.std_[0]], oracle(y.tolist()), rtol=1e-9)


@pytest.mark.parametrize("mean, std", [(0.0, 1.0), (1990.0, 5.0), (3e-6, 1e-6), (-4e8, 3e7)])
def test_with_noise_it_finds_mean_and_deviation(mean, std, rng):
    """Of 3,000 examples at z = 30: a few percent of noise in each count."""
    y = mean + std * rng.normal(size=3000)
    made = scaling(30.0, seed=3).fit(y)
    assert abs(made.mean_[0] - mean) < 0.5 * std
    assert 0.6 < made.std_[0] / std < 1.6


def test_columns_are_scaled_one_by_one(rng):
    y = rng.normal(size=[20_000, 3]) * [1.0, 500.0, 0.01] + [0.0, 4000.0, -1.0]
    made = scaling(20.0, seed=0).fit(y)
    assert (np.abs(made.mean_ - [0.0, 4000.0, -1.0]) < [0.2, 100.0, 0.002]).all()
    np.testing.assert_allclose(made.std_, [1.0, 500.0, 0.01], rtol=0.3)
    moved = made.transform(y)
    assert (moved.shape, moved.dtype) == (y.shape, np.float32)
    np.testing.assert_allclose(made.inverse_transform(moved), y, rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match="3 columns"):
        made.transform(y[:, :2])


def test_noise_has_the_columns_share():
    """Four columns that are alike are asked with twice the noise of one."""
    deviations = [questions.Asked(np.zeros([100, k]), 1.0, np.random.default_rng(0))._deviation(0.5) for k in (1, 4)]
    assert deviations[1] == 2.0 * deviations[0]


def test_what_is_not_finite_is_left_out(rng):
    y = rng.normal(5.0, 2.0, size=5000)
    y[:50] = np.repeat([np.nan, np.inf, -np.inf, 1e308, -1e308], 10)
    made = scaling(0.0).fit(y)
    assert (abs(made.mean_[0] - 5.0) < 0.2) & (abs(made.std_[0] - 2.0) < 0.3)


def test_targets_that_are_all_one_number_give_no_chance_deviation():
    """What noise lets see is divided by, not what happens to be left of 0."""
    for seed in range(20):
        made = scaling(20.0, seed=seed).fit(np.full(2000, 7.0))
        assert made.std_[0] > 1e-3
        assert abs(made.mean_[0] - 7.0) < 3.0


@pytest.mark.parametrize("kind", [list, tf.constant, np.float32, np.asarray])
def test_kinds_of_arrays(kind):
    y = [float(value) for value in range(500)]
    made = scaling(5.0, seed=1).fit(kind(y))
    again = scaling(5.0, seed=1).fit(np.array(y)[:, None])
    np.testing.assert_allclose([made.mean_, made.std_], [again.mean_, again.std_])
    assert made.transform(y).shape == (500,)
    assert made.transform(3.0).shape == ()


def test_the_noise_for_a_number_of_examples():
    """Few examples: what lets a fit be tried at all; many: no more accuracy than is of use."""
    assert questions.noise_for(40.0, 1000, 1) == 40.0
    few = questions.noise_for(40.0, 200, 2)
    scaling(few).fit(np.random.default_rng(0).normal(size=[200, 2]) + 3.0)
    with pytest.raises(ValueError, match=f"use at most {questions.most_noise(200, 2):.3g}"):
        scaling(1.02 * few).fit(np.ones([200, 2]))
    assert questions.noise_for(1.0, 10**6, 1) > 1000.0


# ---------------------------------------------------------------------------------------------------
# Files.


def test_save_and_load(tmp_path):
    made = scaling(9.0).fit(np.arange(900.0)).fit(np.arange(900.0))
    made.save(tmp_path / "targets.npz")
    again = PrivateTargetScaling.load(tmp_path / "targets.npz")
    assert (again.event, again.name, again.noise_multiplier) == (made.event, made.name, 9.0)
    np.testing.assert_array_equal(again.transform(np.arange(9.0)), made.transform(np.arange(9.0)))
    assert again.fit(np.arange(900.0)).event.events[0].events[0].count == 3 * 24
    assert again.mean_ != made.mean_
    assert again.name != made.name


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (pathlib.Path.touch, (self.path,))


def changed(path, **values):
    notes = json.loads(np.load(path)["targets"].item())
    np.savez(path, targets=np.array(json.dumps({**notes, **values})))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:100]),
        lambda path: np.savez(path, a=1),
        lambda path: np.savez(path, targets=np.array("[1]")),
        lambda path: np.savez(path, targets=np.array([Bomb(path.parent / "went_off")], object)),
        lambda path: changed(path, std=[0.0]),
        lambda path: changed(path, std=[-1.0]),
        lambda path: changed(path, mean=[float("nan")]),
        lambda path: changed(path, mean=[1.0, 2.0]),
        lambda path: changed(path, mean=[], std=[]),
        lambda path: changed(path, fits=0),
        lambda path: changed(path, noise_multiplier=-1.0),
    ],
)
def test_files_that_are_spoilt_or_something_else(tmp_path, spoil):
    path = tmp_path / "targets.npz"
    scaling().fit(np.arange(2000.0)).save(path)
    spoil(path)
    with pytest.raises(ValueError, match=r"targets\.npz.*damaged"):
        PrivateTargetScaling.load(path)
    assert not (tmp_path / "went_off").exists()


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: scaling(-1.0), "noise_multiplier"),
        (lambda: scaling(seed=1.5), "seed"),
        (lambda: scaling().fit(["a", "b"]), "real numbers.*Classes"),
        (lambda: scaling().fit([True, False]), "real numbers.*bool"),
        (lambda: scaling().fit([]), r"\[0\]"),
        (lambda: scaling().fit(np.zeros([2, 2, 2])), r"\[2, 2, 2\]"),
        (lambda: scaling().fit([[1.0], [1.0, 2.0]]), "different lengths"),
        (lambda: scaling().fit(np.arange(100.0)), "use at most"),
        (lambda: scaling().transform([1.0]), "call `fit` first"),
        (lambda: scaling().save("x"), "call `fit` first"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
