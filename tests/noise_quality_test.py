"""Whether the draws of `NoiseSource` look like independent N(0, 1): 10^6 of them by default, 10^8 in the slow test.

Every statistic is a z-score (standard normal where the draws are good), so that one threshold does for all; negative
controls break the draws in ways that a wrong key schedule or a wrong scale would, and must be found out.
"""

import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf

from adaclip_tf import noise

LAGS = (1, 2, 3, 4, 7, 16, 64, 255, 256, 1000, 1024)
THRESHOLD = 4.5  # two-sided 7e-6, for some 60 z-scores
BINS = 1000


def _steps(number, side, seed=1, jit_compile=None):
    """The draws of `number` steps of two sources, for two variables of side^2 coordinates and small ones."""
    shapes = [(side, side), (side, side), (side,), ()]
    sources = [noise.NoiseSource(seed), noise.NoiseSource(seed + 1)]

    @tf.function(jit_compile=jit_compile)
    def step():
        return [source.fresh_normals(shapes) for source in sources]

    for _ in range(number):
        first, second = step()
        yield (
            [np.ravel(first[0]), np.ravel(first[1]), np.ravel(second[0])],
            np.concatenate([np.ravel(draw) for draw in (*first, *second)]),
        )


class _Statistics:
    """Adds up, step by step, what the z-scores are made of."""

    def __init__(self):
        self.counts = np.zeros(BINS)
        self.tails = dict.fromkeys((3.0, 4.0, 5.0), 0)
        self.sums, self.terms = {}, {}
        self.number = 0
        self._last = []

    def add(self, variables, everything):
        self.number += everything.size
        uniform = scipy.special.ndtr(everything)
        self.counts += np.bincount(np.minimum((uniform * BINS).astype(np.int64), BINS - 1), minlength=BINS)
        for threshold in self.tails:
            self.tails[threshold] += np.count_nonzero(np.abs(everything) > threshold)
        self._sum("mean", everything)
        self._sum("variance", (everything**2 - 1) / np.sqrt(2))
        one, two, other_key = variables
        for lag in LAGS:
            self._product(f"lag {lag}", one[:-lag], one[lag:])
        self._product("across variables", one, two)
        self._product("across keys", one, other_key)
        for ago, earlier in enumerate(self._last, start=1):
            self._product(f"across steps, {ago} ago", one, earlier)
        self._last = [one, *self._last[:2]]

    def _product(self, name, x, y):
        self._sum(f"{name}: values", x * y)
        self._sum(f"{name}: squares", (x**2 - 1) * (y**2 - 1) / 2)

    def _sum(self, name, terms):
        self.sums[name] = self.sums.get(name, 0.0) + np.sum(terms, dtype=np.float64)
        self.terms[name] = self.terms.get(name, 0) + terms.size

    def z_scores(self):
        scores = {name: total / np.sqrt(self.terms[name]) for name, total in self.sums.items()}
        expected = self.number / BINS
        chi_square = np.sum((self.counts - expected) ** 2) / expected
        scores["chi-square"] = scipy.stats.norm.isf(scipy.stats.chi2.sf(chi_square, BINS - 1))
        for threshold, count in self.tails.items():
            mean = self.number * 2 * scipy.stats.norm.sf(threshold)
            # The Poisson count's p-value, as a z-score.
            low, high = scipy.stats.poisson.cdf(count, mean), scipy.stats.poisson.sf(count - 1, mean)
            scores[f"beyond {threshold}"] = scipy.stats.norm.isf(min(low, high)) * (1 if high < low else -1)
        return scores


def _suspicious(steps, change=lambda *draws: draws, at_least=10**6):
    """The z-scores beyond the threshold."""
    statistics = _Statistics()
    for variables, everything in steps:
        statistics.add(*change([v.copy() for v in variables], everything.copy()))
    assert statistics.number >= at_least
    return {name: score for name, score in statistics.z_scores().items() if not abs(score) < THRESHOLD}


def _scaled(by):
    return lambda variables, everything: (variables, everything * np.float32(by))


def _same_stream(variables, everything):
    return [variables[0], variables[0], variables[2]], everything


def _same_key(variables, everything):
    return [variables[0], variables[1], variables[0]], everything


def _one_in_a_hundred_repeated(variables, everything):
    one = variables[0]
    one[100::100] = one[99:-1:100]
    return variables, everything


def _no_tail(variables, everything):
    return variables, np.clip(everything, -4, 4)


class _Replayed:
    """Every step adds the noise of the first."""

    def __init__(self):
        self._first = None

    def __call__(self, variables, everything):
        self._first = self._first or (variables, everything)
        return self._first


CONTROLS = [
    (_scaled(1.01), "variance"),
    (_scaled(0.99), "variance"),
    (_same_stream, "across variables: values"),
    (_same_key, "across keys: values"),
    (_one_in_a_hundred_repeated, "lag 1: values"),
    (_no_tail, "beyond 4.0"),
    (_Replayed(), "across steps, 1 ago: values"),
]


@pytest.fixture(scope="module")
def million():
    """10 steps of 10^5 draws."""
    return list(_steps(10, 183))


def test_a_million_draws(million):
    assert not _suspicious(million)


@pytest.mark.parametrize(("change", "found_by"), CONTROLS, ids=lambda x: x if isinstance(x, str) else "")
def test_a_million_bad_draws_are_found_out(million, change, found_by):
    found = _suspicious(million, change)
    assert found_by in found, found


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [None, True])
def test_a_hundred_million_draws(jit_compile):
    assert not _suspicious(_steps(100, 577, jit_compile=jit_compile), at_least=10**8)


@pytest.mark.slow
def test_a_hundred_million_draws_that_are_a_thousandth_too_large_are_found_out():
    assert {"variance", "chi-square"} <= set(_suspicious(_steps(100, 577), _scaled(1.001)))
