"""Differentially private mean and deviation of targets, so that a regression trains in units of its own.

The default of `make_private` steps as if targets had mean 0 and deviation 1. Prices in dollars do not; and to divide
them by their own mean and deviation is to publish both. `PrivateTargetScaling` asks for them with noise.

Formal guarantee. One fit is 24 Gaussian mechanisms of noise multiplier s = z sqrt(28) and one of s / 2 on the whole
data set, which is what one of z costs: `event`. `data.target_questions` has the questions and their sensitivities.

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
from typing import Any

import numpy as np

from adaclip_tf._internal import files
from adaclip_tf.data import target_questions as questions
from adaclip_tf.data.fits import Fits
from adaclip_tf.privacy.epsilon import epsilon_of

_NOISE = math.sqrt(questions.WORTH)  # of one count, in multiples of z
_ASKED = ((_NOISE, 3 * questions.COUNTS), (questions.SUM_NOISE * _NOISE, 1))


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
        self._fits = Fits("targets", noise_multiplier, seed, asked=_ASKED)
        self.mean_: np.ndarray | None = None
        self.std_: np.ndarray | None = None

    @property
    def noise_multiplier(self) -> float:
        """z. It can't be changed: what was fitted has been fitted with it."""
        return self._fits.noise_multiplier

    @property
    def name(self) -> str:
        """Distinguishes this object, and what is loaded from its file, from all others, so that they are counted once.

        Another one from the second fit on (`data.fits`).
        """
        return self._fits.name

    @property
    def event(self) -> Any:
        """The `dp_accounting` event of all that was fitted so far; before the first `fit`, of one."""
        return self._fits.event

    def statement(self, *, delta: float) -> str:
        """What was asked of the data and what it cost, in words."""
        fits, noise = max(1, self._fits.count), _NOISE * self.noise_multiplier
        return (
            f"Mean and deviation of the targets, learnt {'once' if fits == 1 else f'{fits} times'}: each time "
            f"{3 * questions.COUNTS} counts (noise {noise:.4g} times their sensitivity) and one pair of sums (noise "
            f"{questions.SUM_NOISE * noise:.4g} times its sensitivity) over the whole data. By themselves they cost "
            f"epsilon = {epsilon_of(self.event, delta=delta):.4g} at delta = {delta:g} (RDP); together with training "
            "less than the sum."
        )

    def fit(self, y: Any) -> PrivateTargetScaling:
        """Learns mean and deviation of `y`, one number an example or a column for each. Every call costs privacy."""
        y = _columns(y)
        noise = _NOISE * self.noise_multiplier
        if self.noise_multiplier > questions.most_noise(*y.shape) * (1.0 + 1e-9):
            raise ValueError(
                f"`noise_multiplier`={self.noise_multiplier:g} hides the spread of {len(y):,} examples with "
                f"{y.shape[1]} column(s): use at most {questions.most_noise(*y.shape):.3g}, or a scale that you "
                "know without the data."
            )
        asked = questions.Asked(y, noise, self._fits.begin())  # from here on the data is looked at
        radius = asked.radius(np.zeros(y.shape[1]), np.ones(y.shape[1]), questions.FIRST_SPAN)
        if (radius >= questions.LARGEST).any():
            raise ValueError(
                f"`y` holds too many values that are not finite (column {int(np.argmax(radius))}), or numbers above "
                f"{questions.LARGEST:.0e}. The questions up to here have cost privacy (`event`)."
            )
        if (radius <= 1.0 / questions.LARGEST).any():
            raise ValueError(
                f"`y` shows no spread: {asked.within:.0%} or more of the targets seem to be 0 (column "
                f"{int(np.argmin(radius))}). Divide them by a number that you know without the data. The questions "
                "up to here have cost privacy (`event`)."
            )
        center = asked.median(2.0 * radius)
        radius = asked.wider * asked.radius(center, radius, questions.LAST_SPAN)
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
