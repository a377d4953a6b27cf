"""From noised answers to C and the shapes h: post-processing, in NumPy and float64.

Nothing in here sees data. Symbols: V_i the noised sum of squares of row i, z_w the standard deviation of its noise, h
the shapes and C the clip that it was asked with.

    v_i  = V_i h_i^2,   e_i = z_w h_i^2                          in units that do not depend on h
    per variable of m rows:
      mu   = max(mean v, sqrt(sum e^2) / m)                      the mean, not below its own standard error
      t^2  = max(0, mean (v - mu)^2 - mean e^2)                  how far rows differ beyond noise
      k_i  = t^2 / (t^2 + e_i^2)                                 how far each is believed
      v^_i = max(mu + k_i (v_i - mu), sqrt(k_i) e_i)
    h    = v^^(p/2), scaled to a root mean square of 1 over all rows
    C   <- C with sum v^ / (C h)^2 as it was

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
_LEAST_RATIO = 1e-24  # of v^ to the largest: h spans 1e6 at p = 1/2, at most


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
    clip: float, shapes: Sequence[np.ndarray], noised: Sequence[np.ndarray], noise: float, power: float
) -> Shaped:
    """C and h after a round.

    Args:
      clip, shapes: C and h that the round was asked with.
      noised: V, per variable.
      noise: z_w.
      power: p.
    """
    believed = [shrunk(v * h**2, noise * h**2) for v, h in zip(noised, shapes)]
    largest = max(float(v.max()) for v in believed)
    if not largest > 0.0:  # no noise and no gradients
        return Shaped(clip, [np.array(h, np.float64) for h in shapes], ())
    believed = [np.maximum(v, _LEAST_RATIO * largest) for v in believed]
    new = [v ** (power / 2.0) for v in believed]
    hidden = unseen_variables(noised, noise)
    typical = _root_mean_square([h for index, h in enumerate(new) if index not in hidden])
    unseen = tuple(index for index in hidden if _root_mean_square([new[index]]) < _SMALL * typical)
    typical = _root_mean_square([h for index, h in enumerate(new) if index not in unseen])
    new = [np.ones_like(h) if index in unseen else h / typical for index, h in enumerate(new)]
    before, after = (_spent(believed, by, unseen) for by in (shapes, new))
    return Shaped(_within(clip * math.sqrt(after / before)), new, unseen)


def shrunk(v: np.ndarray, error: np.ndarray) -> np.ndarray:
    """v^ of one variable, from its rows' values and their standard errors."""
    mean_error = math.sqrt(float(np.sum(error**2))) / error.size
    mean = max(float(v.mean()), mean_error)
    spread = max(0.0, float(np.mean((v - mean) ** 2) - np.mean(error**2)))
    belief = np.divide(spread, spread + error**2, out=np.ones_like(v), where=spread + error**2 > 0.0)
    return np.maximum(mean + belief * (v - mean), np.sqrt(belief) * error)


def unseen_variables(noised: Sequence[np.ndarray], noise: float) -> tuple[int, ...]:
    """Variables whose sum over all rows is no more than noise, where another's is far above it."""
    if noise == 0.0:
        sums = [math.inf if float(v.sum()) > 0.0 else 0.0 for v in noised]
    else:
        sums = [float(v.sum()) / (noise * math.sqrt(v.size)) for v in noised]
    if max(sums) < _SEEN:
        return ()
    return tuple(index for index, total in enumerate(sums) if total < _UNSEEN)


def _root_mean_square(arrays: Sequence[np.ndarray]) -> float:
    flat = np.concatenate([array.ravel() for array in arrays])
    return math.sqrt(float(np.mean(flat**2)))


def _spent(values: Sequence[np.ndarray], shapes: Sequence[np.ndarray], without: Sequence[int]) -> float:
    return sum(float(np.sum(v / h**2)) for index, (v, h) in enumerate(zip(values, shapes)) if index not in without)


def _within(clip: float) -> float:
    """C stays where mu C h is within the range of `core.Scales`: h is 1e-6 to 1e3 or so, and mu about 1."""
    return min(max(clip, LEAST * 1e7), LARGEST / 1e4)
