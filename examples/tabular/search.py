"""How the competitors are tuned: a climb on a grid of factor 3 in clip and rate, on the held-out part.

From a start, the best of the eight neighbours on the grid is taken until none is better: first by loss; then, from the
best metric found, by metric. So the grid has no ends at which a method could be cut off, and both winners have beaten
every neighbour that they have.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from examples.tabular.competitors import Candidate

FACTOR = 3.0
FARTHEST = 10  # steps of factor 3 from the start, in each direction
START = {"dpsgd": Candidate(1.0, 1.0), "dpadam": Candidate(1.0, 0.03)}

Outcome = tuple[float, float]  # metric, loss


def place(method: str, clip: int, rate: int) -> Candidate:
    """The candidate `clip` and `rate` steps from the start; SGD's step is rate times clip, and that is what is stepped.

    >>> place("dpsgd", 1, 1)
    Candidate(clip=3.0, rate=1.0)
    """
    start = START[method]
    power = rate - clip if method == "dpsgd" else rate
    return Candidate(float(f"{start.clip * FACTOR**clip:.6g}"), float(f"{start.rate * FACTOR**power:.6g}"))


def climb(method: str, evaluate: Callable[[Candidate], Outcome]) -> dict[Candidate, Outcome]:
    """Every candidate that was tried, with its outcome."""
    tried: dict[tuple[int, int], Outcome] = {}

    def outcome(spot: tuple[int, int]) -> Outcome:
        if spot not in tried:
            tried[spot] = evaluate(place(method, *spot))
        return tried[spot]

    outcome((0, 0))
    for goal in (_by_loss, _by_metric):
        best = max(tried, key=lambda spot: goal(tried[spot]))
        while True:
            moves = itertools.product((-1, 0, 1), repeat=2)
            around = [(best[0] + clip, best[1] + rate) for clip, rate in moves]
            around = [spot for spot in around if max(map(abs, spot)) <= FARTHEST]
            better = max(around, key=lambda spot: goal(outcome(spot)))
            if goal(tried[better]) <= goal(tried[best]):
                break
            best = better
    return {place(method, *spot): value for spot, value in tried.items()}


def chosen(tried: dict[Candidate, Outcome]) -> dict[str, Candidate]:
    """The best by metric, and the best by loss."""
    return {
        "metric": max(tried, key=lambda candidate: _by_metric(tried[candidate])),
        "loss": max(tried, key=lambda candidate: _by_loss(tried[candidate])),
    }


def _by_loss(outcome: Outcome) -> tuple[float, float]:
    return -outcome[1], outcome[0]


def _by_metric(outcome: Outcome) -> tuple[float, float]:
    return outcome[0], -outcome[1]
