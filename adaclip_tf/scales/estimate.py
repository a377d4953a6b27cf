"""From noised answers to C and the shapes h: post-processing, in NumPy and float64.

Nothing in here sees data. Symbols: M_i the noised sum of the norms of row i, z_w the standard deviation of its noise, h
the shapes and C the clip that it was asked with.

    m_i  = M_i h_i,   e_i = z_w h_i                              in units that do not depend on h
    per variable of N rows:
      mu   = max(mean m, sqrt(sum e^2) / N)                      the mean, not below its own standard error
      t^2  = max(0, mean (m - mu)^2 - mean e^2)                  how far rows differ beyond noise
      k_i  = t^2 / (t^2 + e_i^2)                                 how far each is believed
      m^_i = max(mu + k_i (m_i - mu), sqrt(k_i) e_i)

    of N, the noised frequencies, per variable, with the same z_w:
      f_i  = N_i, shrunk likewise                                in units of the largest: from 0.0001 to 1
      r_i  = m^_i / f_i                                          the row's size where it is not 0
      r*   = median of r_i, each counted f_i times
      k'_i = f_i^2 / (f_i^2 + (l z_w)^2)                         how far r_i is believed
      size = max(r_i^k' r*^(1 - k'), a r*)
      s_i  = f_i / max f
      s0   = c n0 / (t - c d)                                    n0 = sum w s: not 0 at once; infinite if t <= c d
    h    = (size / w^(1/2))^r s^b (s / (s + s0))^(e_1 - b)       scaled to a root mean square of 1
    C   <- C with sum m^ / (C h) as it was

The mean square of h is over all coordinates; h is of one coordinate's size. A step in row i, by 1 / h^2, brings it
s size^2 / h^2 closer per example. So h ~ (s size^2)^(1/2) has all rows learn equally fast. That is right for what is
small because of its units. What is small because it is rare wants less: its noise is seen as rarely. But each row must
come to its place. With s / h^2 ~ s + s0 a row of frequency 0 has s0, which is the part c / t of the sum of (s + s0)
over all coordinates; t is how long training is (`scales.method`). With s0 infinite, all rows learn equally fast. That is the
thought; b > 0 and e_1 < 1/2, and r < 1, are nearer to each other than it says, and were better.

Without frequencies, h = (max(m^, median m^) / w^(1/2))^r: rows below the median of their variable are raised to it.

A variable of which nothing is seen while others are seen well (a layer below an output that starts at zero has no
gradient at first) would get a tiny h, and with it enormous steps once there is something. It is taken to be like the
others: `unseen`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from adaclip_tf.core.scales import LARGEST, LEAST

_UNSEEN, _SEEN = 2.0, 5.0  # standard errors of a variable's sum over all its rows
_SMALL = 0.5  # of the others' typical h: what is not below needs no help
_LEAST_RATIO = 1e-12  # of m^ to the largest, so that h stays above 0
_LEAST_FREQUENCY = 1e-4  # of the largest
_FARTHEST, _PLACES = 28.0, 2241  # log C is looked for so far from the first guess, on so many places


class MedianSearch:
    """Asks at the median of what is believed of log C, and believes each answer as far as its noise allows.

    Where log |g / h| is normal around log C with a standard deviation of w, a fraction Phi((log c - log C) / w) is
    within c. An answer is that plus noise, and doubt of the model. The first guess is Cauchy's: it may be wrong by a factor of
    1e9, as raw units are. With few examples, whose answers are mostly noise, C stays near it.
    """

    def __init__(self, clip: float, *, spread: float, noise: float, norm_spread: float = 1.0, doubt: float = 0.05):
        """
        Args:
          clip, spread: the first guess, and how wide it is, in log C.
          noise: of an answer, a standard deviation as a fraction of the examples.
          norm_spread, doubt: w, and of the model.
        """
        self.clip, self.spread = clip, spread
        self._places = math.log(clip) + np.linspace(-_FARTHEST, _FARTHEST, _PLACES)
        self._belief = -np.log1p(((self._places - math.log(clip)) / spread) ** 2)
        self._variance, self._norm_spread = noise**2 + doubt**2, norm_spread

    def move(self, fraction_within: float) -> None:
        """One answer: about this fraction of the examples is within C."""
        expected = special.ndtr((math.log(self.clip) - self._places) / self._norm_spread)
        self._belief -= (fraction_within - expected) ** 2 / (2.0 * self._variance)
        below = np.cumsum(np.exp(self._belief - self._belief.max()))
        lower, median, upper = np.interp(np.array([0.16, 0.5, 0.84]) * below[-1], below, self._places)
        self.clip, self.spread = _within(math.exp(median)), (upper - lower) / 2.0


@dataclasses.dataclass(frozen=True)
class Frequencies:
    """How often rows are not 0, and what is made of it.

    Attributes:
      noised: N, per variable.
      signal: t.
      power, most_power, least_time, visible, least_size: b, e_1, c, l and a.
    """

    noised: Sequence[np.ndarray]
    signal: float
    power: float
    most_power: float
    least_time: float
    visible: float
    least_size: float


@dataclasses.dataclass(frozen=True)
class Shaped:
    """What a round ends with."""

    clip: float
    shapes: list[np.ndarray]
    unseen: tuple[int, ...]  # variables of which nothing was seen


def next_shapes(
    clip: float,
    shapes: Sequence[np.ndarray],
    noised: Sequence[np.ndarray],
    widths: Sequence[int],
    noise: float,
    power: float,
    frequencies: Frequencies | None = None,
) -> Shaped:
    """C and h after a round.

    Args:
      clip, shapes: C and h that the round was asked with.
      noised: M, per variable.
      widths: w, per variable.
      noise: z_w.
      power: r.
      frequencies: N and its constants, where it was asked for.
    """
    believed = [shrunk(m * h, noise * h) for m, h in zip(noised, shapes)]
    largest = max(float(m.max()) for m in believed)
    if not largest > 0.0:  # no noise and no gradients
        return Shaped(clip, [np.array(h, np.float64) for h in shapes], ())
    believed = [np.maximum(m, _LEAST_RATIO * largest) for m in believed]
    if frequencies is None:
        new = [(np.maximum(m, np.median(m)) / math.sqrt(width)) ** power for m, width in zip(believed, widths)]
    else:
        new = _by_frequency(believed, widths, noise, power, frequencies)
    hidden = unseen_variables(noised, noise)
    typical = _root_mean_square(new, widths, without=hidden)
    unseen = tuple(index for index in hidden if _root_mean_square([new[index]], [1]) < _SMALL * typical)
    typical = _root_mean_square(new, widths, without=unseen)
    new = [np.ones_like(h) if index in unseen else h / typical for index, h in enumerate(new)]
    before, after = (_spent(believed, by, unseen) for by in (shapes, new))
    return Shaped(_within(clip * after / before), new, unseen)


def _by_frequency(
    believed: Sequence[np.ndarray], widths: Sequence[int], noise: float, power: float, asked: Frequencies
) -> list[np.ndarray]:
    """h of each variable, not yet scaled."""
    shares = [shrunk(part, np.full(part.shape, noise)) for part in asked.noised]
    most = max(float(f.max()) for f in shares)
    if not most > 0.0:  # no noise, and all that there is was left out by weights
        return [(m / math.sqrt(width)) ** power for m, width in zip(believed, widths)]
    least = _LEAST_FREQUENCY * most
    shares = [np.maximum(f, least) for f in shares]
    together = sum(width * float(f.sum()) for f, width in zip(shares, widths)) / most  # n0
    coordinates = sum(width * f.size for f, width in zip(shares, widths))
    left = asked.signal - asked.least_time * coordinates
    boosted = asked.least_time * together / left if left > 0.0 else math.inf  # s0
    new = []
    for m, f, width in zip(believed, shares, widths):
        size = _sizes(m / f, f, (asked.visible * noise) ** 2, least, asked.least_size)
        share = f / most
        rare = (share / (share + boosted) if math.isfinite(boosted) else share) ** (asked.most_power - asked.power)
        new.append((size / math.sqrt(width)) ** power * share**asked.power * rare)
    return new


def _sizes(ratios: np.ndarray, frequencies: np.ndarray, hidden: float, least: float, least_size: float) -> np.ndarray:
    """Of one variable's rows where they are not 0; a row that is (nearly) never there is like the others."""
    belief = np.where(frequencies > least, frequencies**2 / (frequencies**2 + hidden), 0.0)
    order = np.argsort(ratios, axis=None)
    below = np.cumsum(frequencies.ravel()[order])
    typical = float(ratios.ravel()[order][np.searchsorted(below, below[-1] / 2.0)])
    return np.maximum(ratios**belief * typical ** (1.0 - belief), least_size * typical)


def shrunk(m: np.ndarray, error: np.ndarray) -> np.ndarray:
    """m^ of one variable, from its rows' values and their standard errors."""
    mean_error = math.sqrt(float(np.sum(error**2))) / error.size
    mean = max(float(m.mean()), mean_error)
    spread = max(0.0, float(np.mean((m - mean) ** 2) - np.mean(error**2)))
    belief = np.divide(spread, spread + error**2, out=np.ones_like(m), where=spread + error**2 > 0.0)
    return np.maximum(mean + belief * (m - mean), np.sqrt(belief) * error)


def unseen_variables(noised: Sequence[np.ndarray], noise: float) -> tuple[int, ...]:
    """Variables whose sum over all rows is no more than noise, where another's is far above it."""
    if noise == 0.0:
        sums = [math.inf if float(m.sum()) > 0.0 else 0.0 for m in noised]
    else:
        sums = [float(m.sum()) / (noise * math.sqrt(m.size)) for m in noised]
    if max(sums) < _SEEN:
        return ()
    return tuple(index for index, total in enumerate(sums) if total < _UNSEEN)


def _root_mean_square(arrays: Sequence[np.ndarray], widths: Sequence[int], without: Sequence[int] = ()) -> float:
    """Over all coordinates, of which a row has `widths`; variables in `without` are left out."""
    chosen = [(h, width) for index, (h, width) in enumerate(zip(arrays, widths)) if index not in without]
    total = sum(width * float(np.sum(h**2)) for h, width in chosen)
    return math.sqrt(total / sum(width * h.size for h, width in chosen))


def _spent(values: Sequence[np.ndarray], shapes: Sequence[np.ndarray], without: Sequence[int]) -> float:
    return sum(float(np.sum(m / h)) for index, (m, h) in enumerate(zip(values, shapes)) if index not in without)


def _within(clip: float) -> float:
    """C stays where mu C h is within the range of `core.Scales`: h is 1e-6 to 1e3 or so, and mu about 1."""
    return min(max(clip, LEAST * 1e7), LARGEST / 1e4)
