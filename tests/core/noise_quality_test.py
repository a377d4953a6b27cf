"""Whether the draws of `NoiseSource` look like independent N(0, 1): 10^6 by default, 10^8 and 10^9 in the slow tests.

Every statistic is a z-score (standard normal where the draws are good), so that one threshold does for all; negative
controls break the draws in ways that a wrong key schedule or a wrong scale would, and must be found out.
"""

import numpy as np
import pytest
import scipy.special
import scipy.stats
import tensorflow as tf

from adaclip_tf.core import noise

LAGS = (1, 2, 3, 4, 7, 16, 64, 255, 256, 1000, 1024)
THRESHOLD = 4.5  # two-sided 7e-6, for some 70 z-scores
TAILS = (3.0, 4.0, 5.0, 5.68, 6.0)
BINS = 1000


class _Steps:
    """The draws of `number` steps of two replicas, for two variables of side^2 coordinates and small ones."""

    def __init__(self, number, side, seed=1, jit_compile=None):
        self.shapes = [(side, side), (side, side), (side,), ()]
        self.number = number
        self.sources = [noise.NoiseSource(seed), noise.NoiseSource(seed, stream=1)]
        self._step = tf.function(self._draw, jit_compile=jit_compile)

    def _draw(self):
        first, second = self.sources
        return first.fresh_normals(self.shapes), second.fresh_normals(self.shapes), self._terms(second)

    def _terms(self, source):
        """What a source with two terms would add up, for a variable of the first shape."""
        size = int(np.prod(self.shapes[0]))
        starts, blocks = noise.layout([size], terms=2)
        key, counters = source._take(starts.ravel(), blocks)
        return noise._draw([size, size], key, counters[0])

    def __iter__(self):
        for _ in range(self.number):
            first, second, terms = self._step()
            yield (
                {
                    "one": np.ravel(first[0]),
                    "another variable": np.ravel(first[1]),
                    "another replica": np.ravel(second[0]),
                    "a term": np.ravel(terms[0]),
                    "another term": np.ravel(terms[1]),
                },
                np.concatenate([np.ravel(draw) for draw in (*first, *second, *terms)]),
            )


class _Statistics:
    """Adds up, step by step, what the z-scores are made of."""

    def __init__(self):
        self.counts = np.zeros(BINS)
        self.tails = dict.fromkeys(TAILS, 0)
        self.sums, self.terms = {}, {}
        self.number = 0
        self._last = []

    def add(self, draws, everything):
        self.add_each(everything)
        one = draws["one"]
        for lag in LAGS:
            self._product(f"lag {lag}", one[:-lag], one[lag:])
        self._product("cosines and sines", one[0::2][: one.size // 2], one[1::2])
        self._product("across variables", one, draws["another variable"])
        self._product("across replicas", one, draws["another replica"])
        self._product("across terms", draws["a term"], draws["another term"])
        for ago, earlier in enumerate(self._last, start=1):
            self._product(f"across steps, {ago} ago", one, earlier)
        self._last = [one, *self._last[:2]]

    def add_each(self, everything):
        """The part that looks at each number by itself."""
        self.number += everything.size
        uniform = scipy.special.ndtr(everything)
        self.counts += np.bincount(np.minimum((uniform * BINS).astype(np.int64), BINS - 1), minlength=BINS)
        size = np.abs(everything)
        for threshold in self.tails:
            self.tails[threshold] += np.count_nonzero(size > threshold)
        square = everything**2
        self._sum("mean", everything)
        self._sum("variance", (square - 1) / np.sqrt(2))
        self._sum(
            "skewness", everything * (square - 3) / np.sqrt(6)
        )  # Hermite polynomials: no correlation between them
        self._sum("kurtosis", (square * (square - 6) + 3) / np.sqrt(24))

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
        distance = np.abs(np.cumsum(self.counts / self.number) - np.arange(1, BINS + 1) / BINS).max()
        scores["Kolmogorov-Smirnov"] = scipy.stats.norm.isf(scipy.stats.kstwobign.sf(distance * np.sqrt(self.number)))
        for threshold, count in self.tails.items():
            mean = self.number * 2 * scipy.stats.norm.sf(threshold)
            # The Poisson count's p-value, as a z-score.
            low, high = scipy.stats.poisson.cdf(count, mean), scipy.stats.poisson.sf(count - 1, mean)
            scores[f"beyond {threshold}"] = max(0.0, scipy.stats.norm.isf(min(low, high))) * (1 if high < low else -1)
        return scores


def _suspicious(steps, change=lambda *draws: draws, at_least=10**6):
    """The z-scores beyond the threshold."""
    statistics = _Statistics()
    for draws, everything in steps:
        statistics.add(*change({name: draw.copy() for name, draw in draws.items()}, everything.copy()))
    assert statistics.number >= at_least
    return {name: score for name, score in statistics.z_scores().items() if not abs(score) < THRESHOLD}


def _scaled(by):
    return lambda draws, everything: (draws, everything * np.float32(by))


def _same(one, other):
    return lambda draws, everything: ({**draws, other: draws[one]}, everything)


def _same_radii(draws, everything):
    """Uncorrelated, but not independent: as if two variables shared their radii and not their angles."""
    one, other = draws["one"], draws["another variable"]
    return {**draws, "another variable": np.sign(other) * np.abs(one)}, everything


def _same_angles(draws, everything):
    """Cosines and sines of angles that take four values."""
    one = draws["one"]
    one[1::2] = np.sign(one[1::2]) * np.abs(one[0::2][: one.size // 2])
    return draws, everything


def _one_in_fifty_repeated(draws, everything):
    one = draws["one"]
    one[50::50] = one[49:-1:50]
    return draws, everything


def _no_tail(end):
    return lambda draws, everything: (draws, np.clip(everything, -end, end))


def _rounded(draws, everything):
    return draws, np.float32(0.01) * np.round(everything * 100)


class _Replayed:
    """Every step adds the noise of the first."""

    def __init__(self):
        self._first = None

    def __call__(self, draws, everything):
        self._first = self._first or (draws, everything)
        return self._first


CONTROLS = [
    (_scaled(1.01), "variance"),
    (_scaled(0.99), "variance"),
    (_scaled(1.03), "Kolmogorov-Smirnov"),
    (_same("one", "another variable"), "across variables: values"),
    (_same_radii, "across variables: squares"),
    (_same("one", "another replica"), "across replicas: values"),
    (_same("a term", "another term"), "across terms: values"),
    (_same_angles, "cosines and sines: squares"),
    (_one_in_fifty_repeated, "lag 1: values"),
    (_no_tail(4.0), "beyond 4.0"),
    (_no_tail(3.0), "kurtosis"),
    (_rounded, "chi-square"),
    (_Replayed(), "across steps, 1 ago: values"),
]


@pytest.fixture(scope="module", params=[None, True], ids=["graph", "xla"])
def million(request):
    """10 steps of 10^5 draws."""
    return list(_Steps(10, 130, jit_compile=request.param))


def test_a_million_draws(million):
    assert not _suspicious(million)


@pytest.mark.parametrize(("change", "found_by"), CONTROLS, ids=lambda x: x if isinstance(x, str) else "")
def test_a_million_bad_draws_are_found_out(million, change, found_by):
    found = _suspicious(million, change)
    assert found_by in found, found


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [None, True])
def test_a_hundred_million_draws(jit_compile):
    assert not _suspicious(_Steps(100, 409, jit_compile=jit_compile), at_least=10**8)


@pytest.mark.slow
def test_a_hundred_million_draws_that_are_two_thousandths_too_large_are_found_out():
    found = set(_suspicious(_Steps(100, 409), _scaled(1.002)))
    assert {"variance", "chi-square", "Kolmogorov-Smirnov"} <= found


@pytest.mark.slow
def test_a_thousand_million_draws():
    """Each by itself. Some 13 lie beyond 5.68, where the normal numbers of TensorFlow end."""
    source, statistics = noise.NoiseSource(seed=5), _Statistics()
    draw = tf.function(lambda: source.fresh_normals([(10**7,)])[0])
    for _ in range(100):
        statistics.add_each(draw().numpy())
    assert statistics.number == 10**9
    scores = statistics.z_scores()
    assert {name: score for name, score in scores.items() if not abs(score) < THRESHOLD} == {}
    statistics.tails[5.68] = 0
    assert abs(statistics.z_scores()["beyond 5.68"]) > THRESHOLD
