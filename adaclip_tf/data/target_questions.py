"""What `PrivateTargetScaling` asks of targets: three searches by noised counts, then one pair of noised sums.

For each column of targets y, in this order, c and R starting at 0 and 1, with s = z sqrt(28):

    8 times: #{k: |y_k - c| <= R} - n/2  + N(0, (s/2)^2)              R moves to where a share p of them is within
    8 times: #{k: y_k <= c} - n/2        + N(0, (s/2)^2)              c moves to the median, which is within 2 R of 0
    8 times: #{k: |y_k - c| <= R} - n/2  + N(0, (s/2)^2)              R as above, from the new c; then R <- w R
    once:    sum_k (v_k, v_k^2 - 1/2)    + N(0, 5/4 (s/2)^2) on both  mean and deviation

where v_k = (y_k - c) / R limited to [-1, 1]. The first half finds where the targets are, the second how wide: years
around 1990 have a deviation of some years, not of 1990. p is .98, or as much less as noise asks for: four of its
deviations below 1, so that a target that is within is not taken for one that is not. w then makes up for it: of
normal targets .98 are within w R. What is beyond is limited to w R, so that of a long tail the deviation is that of
the rest.

Formal guarantee. n is public, as everywhere in the library. Adding or removing an example moves a count by 1/2, and the
two sums, in L2 norm, by at most

    max over |v| <= 1 of (v^2 + (v^2 - 1/2)^2)^(1/2)  =  max of (v^4 + 1/4)^(1/2)  =  (5/4)^(1/2).

Of k columns that are asked together all of it moves by sqrt(k) times as much, and the noise is larger by that. So
each of the 24 counts is one Gaussian mechanism of noise multiplier s, and the sums are one of s/2. That is

    24 / s^2 + (2 / s)^2  =  28 / s^2  =  1 / z^2,

what one Gaussian mechanism of noise multiplier z costs: `event`. Each question depends on earlier answers, which
composition allows, and everything else is computed from noised answers.
"""

from __future__ import annotations

import math
import statistics

import numpy as np

COUNTS = 8  # in each of the three searches
SUM_NOISE = 0.5  # of the noise of the counts, over the sensitivity of each
WORTH = 3 * COUNTS + 1 / SUM_NOISE**2  # 28
_WITHIN, _LEAST_WITHIN = 0.98, 0.5  # p: of the targets that are to be within R
_CLEAR = 4.0  # deviations
_ACCURATE = 0.01  # deviation of a count's noise, over n, that is little enough
FIRST_SPAN, LAST_SPAN, _LEAST_SPAN = 1024.0, 32.0, 1.1
LARGEST = FIRST_SPAN**COUNTS  # R, where it never turned


def noise_for(wanted: float, num_examples: int, columns: int) -> float:
    """A z for so many targets: what is `wanted`, but no less than is of use, and no more than lets them be seen.

    >>> noise_for(40.0, 1000, 1), round(noise_for(40.0, 400, 1), 1), round(noise_for(40.0, 100_000, 1), 1)
    (40.0, 18.9, 378.0)
    """
    enough = _ACCURATE * num_examples / (_MOVES_COUNT * math.sqrt(WORTH * columns))
    return min(max(wanted, enough), most_noise(num_examples, columns))


def most_noise(num_examples: int, columns: int) -> float:
    """The largest z at which targets can be seen."""
    return (1.0 - _LEAST_WITHIN) / _CLEAR * num_examples / (_MOVES_COUNT * math.sqrt(WORTH * columns))


def within_share(noise: float, num_examples: int, columns: int) -> float:
    """p: a share of the targets that noise can tell from all of them."""
    return min(_WITHIN, 1.0 - _CLEAR * noise * _MOVES_COUNT * math.sqrt(columns) / num_examples)


class Asked:
    """What is asked of the targets `y` [examples, columns]; `noise` is s, over the sensitivity of a count."""

    def __init__(self, y: np.ndarray, noise: float, generator: np.random.Generator):
        self._y, self._noise, self._generator = y, noise, generator
        self.within = within_share(noise, *y.shape)

    @property
    def wider(self) -> float:
        """w."""
        normal = statistics.NormalDist()
        return normal.inv_cdf((1.0 + _WITHIN) / 2.0) / normal.inv_cdf((1.0 + self.within) / 2.0)

    @property
    def least_variance(self) -> float:
        """In units of R^2: one standard error of the noised sum of squares, and not 0 without noise."""
        return max(self._deviation(SUM_NOISE * _MOVES_MOMENTS) / len(self._y), 1e-12)

    def radius(self, center: np.ndarray, radius: np.ndarray, span: float) -> np.ndarray:
        """R of each column, after a search: by `span`, and by its root once it has turned."""
        spans, went_up = np.full(radius.shape, span), np.zeros(radius.shape)
        for _ in range(COUNTS):
            up = np.where(self._share(count_within(self._y, center, radius)) < self.within, 1.0, -1.0)
            spans = np.where(up * went_up < 0.0, np.maximum(np.sqrt(spans), _LEAST_SPAN), spans)
            radius, went_up = radius * spans**up, up
        return radius

    def median(self, most: np.ndarray) -> np.ndarray:
        """c of each column, between -`most` and `most`: half of that, a quarter, and so on to either side."""
        center, step = np.zeros(most.shape), most
        for _ in range(COUNTS):
            step = step / 2.0
            center = center + np.where(self._share(count_up_to(self._y, center)) < 0.5, step, -step)
        return center

    def moments(self, center: np.ndarray, radius: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The means of v and of v^2, per column."""
        first, second = self._noised(moments(self._y, center, radius), SUM_NOISE * _MOVES_MOMENTS) / len(self._y)
        return first, second + 0.5

    def _share(self, count: np.ndarray) -> np.ndarray:
        """Of all targets, from a count less half of them, with noise."""
        return self._noised(count, _MOVES_COUNT) / len(self._y) + 0.5

    def _noised(self, answer: np.ndarray, moves: float) -> np.ndarray:
        """The only way out of the data: an answer with noise."""
        return answer + self._generator.normal(scale=self._deviation(moves), size=answer.shape)

    def _deviation(self, moves: float) -> float:
        """Of the noise on an answer that one example moves by `moves` in each column."""
        return self._noise * moves * math.sqrt(self._y.shape[1])


# Questions, with an answer for each column; and by how much one example moves the answer of one, in L2 norm.

_MOVES_COUNT, _MOVES_MOMENTS = 0.5, math.sqrt(1.25)


def count_within(y: np.ndarray, center: np.ndarray, radius: np.ndarray) -> np.ndarray:
    """How many targets are within R of c, less half of all. Moves by `_MOVES_COUNT`."""
    return ((np.abs(y - center) <= radius) - 0.5).sum(axis=0)


def count_up_to(y: np.ndarray, center: np.ndarray) -> np.ndarray:
    """How many are c or less, less half of all. Moves by `_MOVES_COUNT`."""
    return ((y <= center) - 0.5).sum(axis=0)


def moments(y: np.ndarray, center: np.ndarray, radius: np.ndarray) -> np.ndarray:
    """The sums of v and of v^2 - 1/2. Moves by `_MOVES_MOMENTS`."""
    limited = _limited(y, center, radius)
    return np.stack([limited.sum(axis=0), (limited**2 - 0.5).sum(axis=0)])


def _limited(y: np.ndarray, center: np.ndarray, radius: np.ndarray) -> np.ndarray:
    """v."""
    with np.errstate(over="ignore", invalid="ignore"):  # 1e308 over a small R is infinite, and limited to 1
        return np.clip(np.where(np.isfinite(y), (y - center) / radius, 0.0), -1.0, 1.0)
