"""Differentially private mean and deviation of targets, so that a regression trains in units of its own.

The default of `make_private` steps as if targets had mean 0 and deviation 1. Prices in dollars do not; and to divide
them by their own mean and deviation is to publish both. `PrivateTargetScaling` asks for them with noise. For each
column of targets y, in this order, c and R starting at 0 and 1, with s = z sqrt(28):

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

Edge cases.

| target                                        | counts as                                                        |
|-----------------------------------------------|------------------------------------------------------------------|
| NaN or infinity                               | not within R, NaN not up to c; v = 0                             |
| a share p or more of them is 0, or 1 - p or   | an error after the first search, which is paid for               |
| more not finite                               |                                                                  |
| a mean of some hundred deviations or more     | itself, but the deviation is too large: take off a public number |
| fewer examples than noise lets see            | an error before anything is asked                                |
| a deviation below what noise lets see         | that, so that nothing is divided by a chance value near 0        |
"""

from __future__ import annotations

import json
import math
import os
import statistics
from typing import Any

import numpy as np

from adaclip_tf._internal import files
from adaclip_tf.data.fits import Fits
from adaclip_tf.privacy.epsilon import epsilon_of

_COUNTS = 8  # in each of the three searches
_SUM_NOISE = 0.5  # of the noise of the counts, over the sensitivity of each
_WORTH = 3 * _COUNTS + 1 / _SUM_NOISE**2  # 28
_WITHIN, _LEAST_WITHIN = 0.98, 0.5  # p: of the targets that are to be within R
_CLEAR = 4.0  # deviations
_ACCURATE = 0.01  # deviation of a count's noise, over n, that is little enough
_FIRST_SPAN, _LAST_SPAN, _LEAST_SPAN = 1024.0, 32.0, 1.1
_LARGEST = _FIRST_SPAN**_COUNTS  # R, where it never turned


class PrivateTargetScaling:
    """Targets with a mean near 0 and a deviation near 1, by a private mean and deviation.

    `make_private(..., scale_targets=True)` does all of this. By hand:

    Example:
      >>> scaling = PrivateTargetScaling(noise_multiplier=50.0)                              # doctest: +SKIP
      >>> batches = poisson_batches((x, scaling.fit_transform(y)), ...)                      # doctest: +SKIP
      >>> budget = PrivacyBudget.of(batches, delta=1e-5, other_event=scaling.event)          # doctest: +SKIP
      >>> prices = scaling.inverse_transform(model.predict(x_new))                           # doctest: +SKIP

    Args:
      noise_multiplier: z, of all questions together, as one Gaussian mechanism. 50 costs little beside an epsilon of 1,
        and is enough for some thousands of examples. 0 is not private.
      seed: None, the right value: noise from the operating system's entropy. An integer makes it reproducible, for
        tests only: whoever knows the seed can subtract the noise.

    Attributes:
      mean_, std_: [columns], private.
    """

    def __init__(self, *, noise_multiplier: float, seed: int | None = None):
        self._fits = Fits("targets", noise_multiplier, seed)
        self.mean_: np.ndarray | None = None
        self.std_: np.ndarray | None = None

    @property
    def noise_multiplier(self) -> float:
        """z. It can't be changed: what was fitted has been fitted with it."""
        return self._fits.noise_multiplier

    @property
    def name(self) -> str:
        """Tells this object, and what is loaded from its file, from all others: by it they are counted once.

        Another one from the second fit on (`data.fits`).
        """
        return self._fits.name

    @property
    def event(self) -> Any:
        """The `dp_accounting` event of all that was fitted so far; before the first `fit`, of one."""
        noise = math.sqrt(_WORTH) * self.noise_multiplier
        return self._fits.event((noise, 3 * _COUNTS), (_SUM_NOISE * noise, 1))

    def statement(self, *, delta: float) -> str:
        """What was asked of the data and what it cost, in words."""
        fits, noise = max(1, self._fits.count), math.sqrt(_WORTH) * self.noise_multiplier
        return (
            f"Mean and deviation of the targets, learnt {'once' if fits == 1 else f'{fits} times'}: each time "
            f"{3 * _COUNTS} counts (noise {noise:.4g} times their sensitivity) and one pair of sums (noise "
            f"{_SUM_NOISE * noise:.4g} times its sensitivity) over the whole data. By themselves they cost "
            f"epsilon = {epsilon_of(self.event, delta=delta):.4g} at delta = {delta:g} (RDP); together with training "
            "less than the sum."
        )

    def fit(self, y: Any) -> PrivateTargetScaling:
        """Learns mean and deviation of `y`, one number an example or a column for each. Every call is paid for."""
        y = _columns(y)
        noise = math.sqrt(_WORTH) * self.noise_multiplier
        if self.noise_multiplier > most_noise(*y.shape) * (1.0 + 1e-9):
            raise ValueError(
                f"`noise_multiplier`={self.noise_multiplier:g} hides the spread of {len(y):,} examples with "
                f"{y.shape[1]} column(s): use at most {most_noise(*y.shape):.3g}, or a scale that you "
                "know without the data."
            )
        asked = _Asked(y, noise, self._fits.begin())  # from here on the data is looked at
        radius = asked.radius(np.zeros(y.shape[1]), np.ones(y.shape[1]), _FIRST_SPAN)
        if (radius >= _LARGEST).any():
            raise ValueError(
                f"`y` holds too much that is no finite number (column {int(np.argmax(radius))}), or numbers above "
                f"{_LARGEST:.0e}. What was asked up to here is paid for (`event`)."
            )
        if (radius <= 1.0 / _LARGEST).any():
            raise ValueError(
                f"`y` shows no spread: {asked.within:.0%} or more of the targets seem to be 0 (column "
                f"{int(np.argmin(radius))}). Divide them by a number that you know without the data. What was asked up "
                "to here is paid for (`event`)."
            )
        center = asked.median(2.0 * radius)
        radius = asked.wider * asked.radius(center, radius, _LAST_SPAN)
        first, second = asked.moments(center, radius)
        self.mean_ = center + radius * first
        self.std_ = radius * np.sqrt(np.maximum(second - first**2, asked.least_variance))
        return self

    @property
    def parameters(self) -> tuple[np.ndarray, np.ndarray]:
        """`mean_` and `std_`; an error before `fit`."""
        if self.mean_ is None or self.std_ is None:
            raise ValueError("PrivateTargetScaling knows no targets yet; call `fit` first.")
        return self.mean_, self.std_

    def transform(self, y: Any) -> np.ndarray:
        """(y - mean) / deviation, in the shape of `y`, float32."""
        mean, std = self._numbers
        return np.asarray((self._shaped(y) - mean) / std, np.float32)

    def fit_transform(self, y: Any) -> np.ndarray:
        """`fit(y)`, then `transform(y)`."""
        return self.fit(y).transform(y)

    def inverse_transform(self, y: Any) -> np.ndarray:
        """From what a model that was trained on `transform(y)` predicts to the targets' own units."""
        mean, std = self._numbers
        return np.asarray(self._shaped(y) * std + mean)

    def notes(self) -> dict[str, Any]:
        """Mean, deviation and what they cost as plain numbers. Safe to publish."""
        mean, std = self.parameters
        return {
            "mean": mean.tolist(),
            "std": std.tolist(),
            "noise_multiplier": self.noise_multiplier,
            "fits": self._fits.count,
            "name": self.name,
        }

    @classmethod
    def from_notes(cls, notes: dict[str, Any]) -> PrivateTargetScaling:
        """What `notes` returned. The noise of a further `fit` is fresh."""
        mean, std = (np.asarray(notes[name], np.float64) for name in ("mean", "std"))
        if mean.ndim != 1 or mean.shape != std.shape or not mean.size:
            raise ValueError(f"a mean of shape {mean.shape} and a deviation of shape {std.shape}")
        if not (np.isfinite(mean).all() and np.isfinite(std).all() and (std > 0.0).all()):
            raise ValueError("numbers that are not finite, or a deviation that is not above 0")
        scaling = cls(noise_multiplier=notes["noise_multiplier"])
        scaling.mean_, scaling.std_ = mean, std
        scaling._fits.restore(notes["fits"], notes["name"])
        return scaling

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes mean and deviation, and what they cost, to an `.npz` file. Safe to publish; no pickle."""
        text = json.dumps(self.notes())
        with files.replacing(path) as file:
            np.savez(file, targets=np.array(text))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PrivateTargetScaling:
        """Reads what `save` wrote. The noise of a further `fit` is fresh.

        Raises:
          ValueError: where the file is damaged, or something else.
          OSError: where it is not there.
        """
        with files.saved_arrays(path, "PrivateTargetScaling") as stored:
            return cls.from_notes(json.loads(stored["targets"].item()))

    @property
    def _numbers(self) -> Any:
        """Mean and deviation; not arrays where there is one column, so that targets keep their shape."""
        mean, std = self.parameters
        return (mean[0], std[0]) if len(mean) == 1 else (mean, std)

    def _shaped(self, y: Any) -> np.ndarray:
        """`y` in float64, with the columns that `fit` saw: the last axis, or none where that was one."""
        y, columns = np.asarray(y, np.float64), len(self.parameters[0])
        if columns > 1 and (y.ndim == 0 or y.shape[-1] != columns):
            raise ValueError(f"`y` must have the {columns} columns that `fit` saw; got shape {list(y.shape)}.")
        return y


def noise_for(wanted: float, num_examples: int, columns: int) -> float:
    """A z for so many targets: what is `wanted`, but no less than is of use, and no more than lets them be seen.

    >>> noise_for(40.0, 1000, 1), round(noise_for(40.0, 400, 1), 1), round(noise_for(40.0, 100_000, 1), 1)
    (40.0, 18.9, 378.0)
    """
    enough = _ACCURATE * num_examples / (_MOVES_COUNT * math.sqrt(_WORTH * columns))
    return min(max(wanted, enough), most_noise(num_examples, columns))


def most_noise(num_examples: int, columns: int) -> float:
    """The largest z at which targets can be seen."""
    return (1.0 - _LEAST_WITHIN) / _CLEAR * num_examples / (_MOVES_COUNT * math.sqrt(_WORTH * columns))


def _within(noise: float, num_examples: int, columns: int) -> float:
    """p: a share of the targets that noise can tell from all of them."""
    return min(_WITHIN, 1.0 - _CLEAR * noise * _MOVES_COUNT * math.sqrt(columns) / num_examples)


class _Asked:
    """What is asked of the targets `y` [examples, columns]; `noise` is s, over the sensitivity of a count."""

    def __init__(self, y: np.ndarray, noise: float, generator: np.random.Generator):
        self._y, self._noise, self._generator = y, noise, generator
        self.within = _within(noise, *y.shape)

    @property
    def wider(self) -> float:
        """w."""
        normal = statistics.NormalDist()
        return normal.inv_cdf((1.0 + _WITHIN) / 2.0) / normal.inv_cdf((1.0 + self.within) / 2.0)

    @property
    def least_variance(self) -> float:
        """In units of R^2: one standard error of the noised sum of squares, and not 0 without noise."""
        return max(self._deviation(_SUM_NOISE * _MOVES_MOMENTS) / len(self._y), 1e-12)

    def radius(self, center: np.ndarray, radius: np.ndarray, span: float) -> np.ndarray:
        """R of each column, after a search: by `span`, and by its root once it has turned."""
        spans, went_up = np.full(radius.shape, span), np.zeros(radius.shape)
        for _ in range(_COUNTS):
            up = np.where(self._share(count_within(self._y, center, radius)) < self.within, 1.0, -1.0)
            spans = np.where(up * went_up < 0.0, np.maximum(np.sqrt(spans), _LEAST_SPAN), spans)
            radius, went_up = radius * spans**up, up
        return radius

    def median(self, most: np.ndarray) -> np.ndarray:
        """c of each column, between -`most` and `most`: half of that, a quarter, and so on to either side."""
        center, step = np.zeros(most.shape), most
        for _ in range(_COUNTS):
            step = step / 2.0
            center = center + np.where(self._share(count_up_to(self._y, center)) < 0.5, step, -step)
        return center

    def moments(self, center: np.ndarray, radius: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The means of v and of v^2, per column."""
        first, second = self._noised(moments(self._y, center, radius), _SUM_NOISE * _MOVES_MOMENTS) / len(self._y)
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


def _columns(y: Any) -> np.ndarray:
    try:
        y = np.asarray(y)
    except ValueError as error:
        raise ValueError(
            "`y` must have shape [examples] or [examples, columns]; got rows of different lengths."
        ) from error
    if y.dtype.kind not in "fiu":
        raise ValueError(f"`y` must hold real numbers; got dtype {y.dtype}. Classes need no scaling.")
    if y.ndim not in (1, 2) or 0 in y.shape:
        raise ValueError(f"`y` must have shape [examples] or [examples, columns]; got {list(y.shape)}.")
    return y.astype(np.float64).reshape(len(y), -1)
