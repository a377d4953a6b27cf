"""`PrivateChoice`: what it costs to run something private several times and to publish the best run alone.

Trying settings on private data and keeping the best costs privacy, since the choice looks at the data. Papernot and
Steinke (2022, arXiv 2110.03620) bound that cost where the NUMBER of runs is random:

    draw K from a law of mean E[K], in secret;
    K times: draw one of the candidates at random, run it, score it;
    publish the best run, and nothing else: no other run, no score of one, not K.

| law         | P(K = k)                         | their theorem            |
|-------------|----------------------------------|--------------------------|
| "geometric" | (1 - 1/m)^(k-1) / m, k = 1, 2, ... | Theorem 2 with eta = 1   |
| "poisson"   | m^k e^-m / k!, k = 0, 1, ...      | Theorem 6                |

What must hold besides: a run and its score together are what the event says (a score on the training data must be
noised and counted; one on public data is free), all candidates have that event at most, and ties are broken blindly.
The cost grows with the logarithm of E[K], and not with the number of candidates. Only Renyi accounting knows it: "rdp".
"""

from __future__ import annotations

import dataclasses
import math

import dp_accounting
import numpy as np
from dp_accounting import dp_event

from adaclip_tf._internal import validate

_SHAPES = {"geometric": 1.0, "poisson": math.inf}
LAWS = tuple(_SHAPES)
ACCOUNTANT = "rdp"  # the only one that can


@dataclasses.dataclass(frozen=True)
class PrivateChoice:
    """The best of a random number of runs.

    >>> from adaclip_tf import epsilon
    >>> run = dict(noise_multiplier=2.0, delta=1e-5, num_examples=60000, batch_size=600, epochs=10)
    >>> round(epsilon(**run), 2), round(epsilon(**run, choice=PrivateChoice(10)), 2)
    (0.69, 1.49)

    Attributes:
      mean_runs: E[K], 1 or more.
      law: "geometric" or "poisson" (where K may be 0: publish a setting that was fixed before, trained as usual or not
        at all).
    """

    mean_runs: float
    law: str = "geometric"

    def __post_init__(self):
        validate.fields(self, mean_runs=validate.real, law=lambda name, value: validate.one_of(name, value, LAWS))
        if self.mean_runs < 1.0:
            raise ValueError(f"`mean_runs` must be 1 or more; got {self.mean_runs!r}.")

    def event(self, run: dp_accounting.DpEvent) -> dp_accounting.DpEvent:
        """Of all runs and the choice together, from the event of one run."""
        return dp_event.RepeatAndSelectDpEvent(run, float(self.mean_runs), _SHAPES[self.law])

    def draw(self, seed: int | None = None) -> int:
        """K. Keep it secret. With a `seed` it is no secret: for tests only, NOT private.

        >>> PrivateChoice(5).draw() >= 1
        True
        """
        generator = np.random.Generator(np.random.Philox(np.random.SeedSequence(validate.seed("seed", seed))))
        if self.law == "geometric":
            return int(generator.geometric(1.0 / self.mean_runs))
        return int(generator.poisson(self.mean_runs))


def chosen(event: dp_accounting.DpEvent, choice: PrivateChoice | None) -> dp_accounting.DpEvent:
    """`event`, or that of the best of several such runs."""
    if choice is None:
        return event
    if not isinstance(choice, PrivateChoice):
        raise ValueError(f"`choice` must be a `PrivateChoice`, e.g. `PrivateChoice(10)`, or None; got {choice!r}.")
    return choice.event(event)


def check_accountant(choice: PrivateChoice | None, accountant: object) -> None:
    """Refuses accountants that can't count a choice among runs."""
    if choice is not None and isinstance(accountant, str) and accountant != ACCOUNTANT:
        raise ValueError(
            f"`accountant`={accountant!r} can't count a choice among runs, for which only Renyi accounting is proven: "
            f"use {ACCOUNTANT!r}."
        )
