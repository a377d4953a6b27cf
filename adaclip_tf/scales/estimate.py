"""From noised answers to C and the shapes h: post-processing, in NumPy and float64.

Nothing in here sees data. Symbols: M_i the noised sum of the norms of row i, z_w the standard deviation of its noise, h
the shapes and C the clip that it was asked with.

    m_i  = M_i h_i,   e_i = z_w h_i                              in units that do not depend on h
    per variable of N rows:
      mu   = max(mean m, sqrt(sum e^2) / N)                      the mean, not below its own standard error
      t^2  = max(0, mean (m - mu)^2 - mean e^2)                  how far rows differ beyond noise
      k_i  = t^2 / (t^2 + e_i^2)                                 how far each is believed
      m^_i = max(mu + k_i (m_i - mu), sqrt(k_i) e_i)
    h    = (max(m^, median m^) / w^(1/2))^r, scaled to a root mean square of 1    w coordinates in a row
    C   <- C with sum m^ / (C h) as it was

The mean square of h is over all coordinates; h is of one coordinate's size. Rows below the median of their variable are
raised to it: rare ones (a level that few examples have) would get steps, and with them noise, of no use to them.

A variable of which nothing is seen while others are seen well (a layer below an output that starts at zero has no
gradient at first) would get a tiny h, and with it enormous steps once there is something. It is taken to be like the
others: `unseen`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from adaclip_tf.core.scales import LARGEST, LEAST

_UNSEEN, _SEEN = 2.0, 5.0  # standard errors of a variable's sum over all its rows
_SMALL = 0.5  # of the others' typical h: what is not below needs no help
_LEAST_RATIO = 1e-12  # of m^ to the largest, so that h stays above 0


@dataclasses.dataclass
class MedianSearch:
    """Moves C towards the median of |g_k / h|: by `span`, and by its root once it has turned."""

    clip: float
    span: float
    least_span: float
    went_up: bool | None = None

    def move(self, fraction_within: float) -> None:
        """One answer: about this fraction of the examples is within C."""
        up = fraction_within < 0.5
        if self.went_up is not None and up != self.went_up:
            self.span = max(math.sqrt(self.span), self.least_span)
        self.went_up = up
        self.clip = _within(self.clip * (self.span if up else 1.0 / self.span))


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
) -> Shaped:
    """C and h after a round.

    Args:
      clip, shapes: C and h that the round was asked with.
      noised: M, per variable.
      widths: w, per variable.
      noise: z_w.
      power: r.
    """
    believed = [shrunk(m * h, noise * h) for m, h in zip(noised, shapes)]
    largest = max(float(m.max()) for m in believed)
    if not largest > 0.0:  # no noise and no gradients
        return Shaped(clip, [np.array(h, np.float64) for h in shapes], ())
    believed = [np.maximum(m, _LEAST_RATIO * largest) for m in believed]
    new = [(np.maximum(m, np.median(m)) / math.sqrt(width)) ** power for m, width in zip(believed, widths)]
    hidden = unseen_variables(noised, noise)
    typical = _root_mean_square(new, widths, without=hidden)
    unseen = tuple(index for index in hidden if _root_mean_square([new[index]], [1]) < _SMALL * typical)
    typical = _root_mean_square(new, widths, without=unseen)
    new = [np.ones_like(h) if index in unseen else h / typical for index, h in enumerate(new)]
    before, after = (_spent(believed, by, unseen) for by in (shapes, new))
    return Shaped(_within(clip * after / before), new, unseen)


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
