"""The study's second round: rows that are small apart from rows that are rare, a search that knows its noise, a rate.

    per variable, of N, the noised frequencies, and m, the noised norms, both shrunk as `estimate.shrunk` does:
      f_i  = N_i                                 in units of the largest from 0.0001 to 1;  s_i = f_i / max f
      r_i  = m_i / f_i                           a row's size where it is not 0;  r* its median, each counted f_i times
      k_i  = f_i^2 / (f_i^2 + (l z_w)^2)         how far it is believed
      size = max(r_i^k r*^(1 - k), a r*)
      s0   = c n0 / (t - c d)                    n0 = sum w s: not 0 at once; infinite if t <= c d
    h    = (size / w^(1/2))^r s^b (s / (s + s0))^(e - b)

with t = n q sqrt T / z0, a sum over all examples over all noise of training. A step in row i, by 1 / h^2, brings it
s size^2 / h^2 closer per example: h ~ (s size^2)^(1/2) has all rows learn equally fast. That is right for what is small
because of its units. What is rare wants less, its noise is seen as rarely, but enough to come to its place: with
s / h^2 ~ s + s0 a row of frequency 0 has the part c / t of the sum of (s + s0) over all coordinates.

N is a sum of vectors 1[row i of g_k is not 0] over the root of how many are not: sensitivity 1, noise z_w; one more
round.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from adaclip_tf.scales import estimate

_LEAST_FREQUENCY = 1e-4  # of the largest
_FARTHEST, _PLACES = 28.0, 2241  # log C is looked for so far from the first guess, on so many places
NORM_SPREAD, DOUBT = 1.0, 0.05  # of norms in log C, as the search takes them to be; of that, as a fraction
FIRST_SPREAD, LAST_SPREAD = 1.75, 0.5  # of the two searches' first guesses
SQUARED_TIME, LEAST_SQUARED = 25.0, 0.5


@dataclasses.dataclass(frozen=True)
class Apart:
    """r, b, e, c, l and a."""

    power: float = 0.4
    frequency_power: float = 0.1
    most_power: float = 0.4
    least_time: float = 5.0
    visible: float = 3.0
    least_size: float = 0.1


class BelievingSearch:
    """Asks at the median of what is believed of log C, and believes each answer as far as its noise allows.

    Where log |g / h| is normal around log C, a fraction Phi((log c - log C) / w) is within c. An answer is that plus
    noise, and doubt of the model. The first guess is Cauchy's.
    """

    def __init__(self, clip: float, spread: float, noise: float):
        self.clip, self.spread, self._variance = clip, spread, noise**2 + DOUBT**2
        self._places = math.log(clip) + np.linspace(-_FARTHEST, _FARTHEST, _PLACES)
        self._belief = -np.log1p(((self._places - math.log(clip)) / spread) ** 2)

    def move(self, fraction_within: float) -> None:
        """One answer: about this fraction of the examples is within C."""
        expected = special.ndtr((math.log(self.clip) - self._places) / NORM_SPREAD)
        self._belief -= (fraction_within - expected) ** 2 / (2.0 * self._variance)
        below = np.cumsum(np.exp(self._belief - self._belief.max()))
        lower, median, upper = np.interp(np.array([0.16, 0.5, 0.84]) * below[-1], below, self._places)
        self.clip, self.spread = math.exp(median), (upper - lower) / 2.0


def shapes(
    believed: Sequence[np.ndarray],
    frequencies: Sequence[np.ndarray],
    widths: Sequence[int],
    noise: float,
    signal: float,
    settings: Apart,
) -> list[np.ndarray]:
    """h of each variable, not yet scaled, from m as it is believed, N, w, z_w and t."""
    found = [estimate.shrunk(np.asarray(part), np.full(part.shape, noise)) for part in frequencies]
    most = max(float(f.max()) for f in found)
    found = [np.maximum(f, _LEAST_FREQUENCY * most) for f in found]
    together = sum(width * float(f.sum()) for f, width in zip(found, widths)) / most  # n0
    left = signal - settings.least_time * sum(width * f.size for f, width in zip(found, widths))
    boosted = settings.least_time * together / left if left > 0.0 else math.inf  # s0
    new = []
    for m, f, width in zip(believed, found, widths):
        size, share = _sizes(m / f, f, settings.visible * noise, settings.least_size, most), f / most
        rare = (share / (share + boosted)) if math.isfinite(boosted) else share
        power = settings.most_power - settings.frequency_power
        new.append((size / math.sqrt(width)) ** settings.power * share**settings.frequency_power * rare**power)
    return new


def _sizes(ratios: np.ndarray, f: np.ndarray, hidden: float, least_size: float, most: float) -> np.ndarray:
    """Of one variable's rows where they are not 0; a row that is (nearly) never there is like the others."""
    belief = np.where(f > _LEAST_FREQUENCY * most, f**2 / (f**2 + hidden**2), 0.0)
    order = np.argsort(ratios, axis=None)
    below = np.cumsum(f.ravel()[order])
    typical = float(ratios.ravel()[order][np.searchsorted(below, below[-1] / 2.0)])
    return np.maximum(ratios**belief * typical ** (1.0 - belief), least_size * typical)


def squared_factor(signal: float, coordinates: int) -> float:
    """Of the learning rate of a squared loss, where noise sets it: by t / d.

    As t / d grows, each coordinate has time to come to its place many times over, and what noise moved it before is
    forgotten. With t / d small all noise of training stays in the weights.
    """
    return min(max(math.sqrt(signal / (SQUARED_TIME * coordinates)), LEAST_SQUARED), 1.0)
