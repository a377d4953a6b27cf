"""How the competitors are tuned: starts far apart, then climbs on a grid of factor 3 in clip and rate, held out.

First a coarse grid of factor 27, five by five, is looked at with one seed. From the best three of it, by loss and by
metric, a climb takes the best of the eight neighbours on the fine grid until none is better. So the grid has no ends
at which a method could be cut off, a side valley near one start does not decide, and both winners have beaten every
neighbour that they have.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

from examples.tabular.competitors import Candidate

FACTOR = 3.0
SPREAD = (-6, -3, 0, 3, 6)  # where the coarse grid is, in steps of factor 3
CLIMBS = 3  # from the coarse grid, by each goal
FARTHEST = 10  # steps of factor 3 from the middle, in each direction
MIDDLE = {"dpsgd": Candidate(1.0, 1.0), "dpadam": Candidate(1.0, 0.03)}

Outcome = tuple[float, float]  # metric, loss
Spot = tuple[int, int]  # steps in clip and rate from the middle
Evaluate = Callable[[Candidate, bool], Outcome]  # with all seeds, or with one if it is for the coarse grid


class Found(NamedTuple):
    """What a search saw: with one seed on the coarse grid, with all seeds on the climbs."""

    coarse: dict[Candidate, Outcome]
    climbed: dict[Candidate, Outcome]

    @property
    def candidates(self) -> int:
        """How many pairs of clip and rate were tried."""
        return len({*self.coarse, *self.climbed})


def _by_loss(outcome: Outcome) -> tuple[float, float]:
    return -outcome[1], outcome[0]


def _by_metric(outcome: Outcome) -> tuple[float, float]:
    return outcome[0], -outcome[1]


GOALS = {"metric": _by_metric, "loss": _by_loss}  # the more, the better


def place(method: str, clip: int, rate: int) -> Candidate:
    """The candidate `clip` and `rate` steps off the middle; SGD's step is rate times clip, and that is what is stepped.

    >>> place("dpsgd", 1, 1)
    Candidate(clip=3.0, rate=1.0)
    """
    middle = MIDDLE[method]
    power = rate - clip if method == "dpsgd" else rate
    return Candidate(float(f"{middle.clip * FACTOR**clip:.6g}"), float(f"{middle.rate * FACTOR**power:.6g}"))


def search(method: str, evaluate: Evaluate) -> Found:
    """Every candidate that was tried, with its outcome."""
    coarse: dict[Spot, Outcome] = {
        (clip, rate): evaluate(place(method, clip, rate), True) for clip, rate in itertools.product(SPREAD, repeat=2)
    }
    climbed: dict[Spot, Outcome] = {}

    def outcome(spot: Spot) -> Outcome:
        if spot not in climbed:
            climbed[spot] = evaluate(place(method, *spot), False)
        return climbed[spot]

    for goal in GOALS.values():
        for start in sorted(coarse, key=lambda spot: goal(coarse[spot]), reverse=True)[:CLIMBS]:
            _climb(start, goal, outcome)
    known = 0
    while known < len(climbed):  # a climb by one goal may have come by something better for the other
        known = len(climbed)
        for goal in GOALS.values():
            _climb(max(climbed, key=lambda spot: goal(climbed[spot])), goal, outcome)
    return Found(*({place(method, *spot): value for spot, value in seen.items()} for seen in (coarse, climbed)))


def chosen(climbed: dict[Candidate, Outcome]) -> dict[str, Candidate]:
    """The best by metric, and the best by loss."""
    return {name: max(climbed, key=lambda candidate: goal(climbed[candidate])) for name, goal in GOALS.items()}


def _climb(best: Spot, goal: Callable[[Outcome], tuple[float, float]], outcome: Callable[[Spot], Outcome]) -> None:
    """To the best of the neighbours, until none is better."""
    while True:
        around = [(best[0] + clip, best[1] + rate) for clip, rate in itertools.product((-1, 0, 1), repeat=2)]
        around = [spot for spot in around if max(map(abs, spot)) <= FARTHEST]
        better = max(around, key=lambda spot: goal(outcome(spot)))
        if goal(outcome(better)) <= goal(outcome(best)):
            return
        best = better
