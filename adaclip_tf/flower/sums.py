"""From one client's change to a record of norm 1 at most, and from the sum of records to the private mean.

The numbers are those of `ClippedSumQuery`, record by record; the sum is in float64. No Flower in here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf import core
from adaclip_tf._internal import validate
from adaclip_tf.core import noise

Arrays = list[np.ndarray]
_NUMBERS = 2**22  # of the changes that are clipped at a time: 16 MB in float32, and some copies


def within_one(records: Sequence[np.ndarray]) -> Arrays:
    """`records` in float64, each with a norm over all arrays of 1 at most; zeros where it is not finite.

    The last word on a record, whoever made it: the bound holds without trust in a client, or in a rule's own clip. The
    first axis runs over records.

    >>> within_one([np.array([[3.0], [0.1]]), np.array([[4.0], [0.1]])])
    [array([[0.6],
           [0.1]]), array([[0.8],
           [0.1]])]
    """
    records = [np.asarray(part, np.float64) for part in records]
    with np.errstate(over="ignore", invalid="ignore"):
        squares = sum(np.sum(np.square(part), axis=tuple(range(1, part.ndim))) for part in records)
    bounded = []
    for part in records:
        norms = np.reshape(np.sqrt(squares), [-1] + [1] * (part.ndim - 1))
        finite = np.where(np.isfinite(norms), part, 0.0)  # 0 / infinity would leave NaN where the part is NaN
        bounded.append(finite / np.maximum(1.0, np.where(np.isfinite(norms), norms, 1.0)))
    return bounded


def check_rule(rule: core.ClippingRule) -> None:
    """Refuses what is no rule."""
    if not isinstance(rule, core.ClippingRule):
        raise ValueError(f"`rule` must be a `core.ClippingRule`, such as `core.AdaClip()`; got {rule!r}.")


class Clipper:
    """Makes records of changes, at the server or at a client.

    Args:
      rule: any `core.ClippingRule`. Of its state nothing is needed here: (a, b) are given.
      names, shapes: of the model's arrays.
    """

    def __init__(self, rule: core.ClippingRule, names: Sequence[str], shapes: Sequence[Sequence[int]]):
        check_rule(rule)
        self.rule = rule
        self.specs = [tf.TensorSpec(shape, tf.float32, name) for name, shape in zip(names, shapes)]
        self._clip = rule.clip(self.specs)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of a record: those of the model, and one more where the rule asks something of every record."""
        asked = self.rule.num_statistics
        return [*[tuple(spec.shape) for spec in self.specs], *([(asked,)] if asked else [])]

    def records(self, changes: Sequence[Sequence[np.ndarray]], transform: core.Transform) -> Arrays:
        """u_k and the rule's statistics, of each of the clients' changes; the first axis runs over clients."""
        with np.errstate(over="ignore"):  # what float32 can't hold is infinite, and counts as zero
            stacked = [np.stack(parts).astype(np.float32) for parts in zip(*changes)]
        transformed = transform.apply([tf.constant(part) for part in stacked])
        clipped = [u.numpy() for u in self._clip.records(transformed)]
        if self.rule.num_statistics:
            norms = core.squared_norms(transformed)
            answers = [core.statistics_sum(self.rule, self._clip, norms[k : k + 1]) for k in range(len(changes))]
            clipped.append(np.stack([answer.numpy() for (answer,) in answers]))
        return within_one(clipped)

    def zeros(self) -> Arrays:
        """The sum of no records."""
        return [np.zeros(shape, np.float64) for shape in self.shapes]

    def add_up(self, changes: Iterable[Sequence[np.ndarray]], transform: core.Transform) -> Arrays:
        """sum_k u_k in float64, some clients at a time."""
        total, changes = self.zeros(), iter(changes)
        at_a_time = max(1, _NUMBERS // max(1, sum(math.prod(shape) for shape in self.shapes)))
        while some := list(itertools.islice(changes, at_a_time)):
            for part, more in zip(total, self.records(some, transform)):
                part += np.sum(more, axis=0)
        return total


class PrivateSum(Clipper):
    """The server's side: a `Clipper` that publishes.

    Args:
      rule, names, shapes: as for `Clipper`.
      noise_multiplier: z.
      divisor: B, the expected number of clients in a round.
      seed: None for use: the noise has a fresh key of the operating system's. An integer is for tests.
    """

    def __init__(
        self,
        rule: core.ClippingRule,
        names: Sequence[str],
        shapes: Sequence[Sequence[int]],
        *,
        noise_multiplier: float,
        divisor: float,
        seed: int | None = None,
    ):
        super().__init__(rule, names, shapes)
        self.noise_multiplier = validate.noise_multiplier("noise_multiplier", noise_multiplier)
        self.divisor = validate.positive_float32("divisor", divisor)
        self._noise = noise.NoiseSource(validate.seed("seed", seed))

    def initial_state(self) -> Any:
        """The rule's, before the first round."""
        return self.rule.initial_state(self.specs)

    def transform(self, state: Any) -> core.Transform:
        """(a, b) of the coming round, from published values alone."""
        return self.rule.transform(state, self.specs)

    def publish(self, total: Sequence[np.ndarray], state: Any) -> tuple[Arrays, Any]:
        """Adds the noise, once: (what the model is moved by, the rule's next state).

        Both are functions of the noised sum. The first is g~ = b W / B + a, or what the rule makes of it (`direction`).
        """
        normals = self._noise.fresh_normals(self.shapes)
        summed = [tf.constant(part, tf.float32) for part in total]
        mean, after = core.private_step(
            self.rule, state, self.transform(state), summed, normals, self.noise_multiplier, self.divisor
        )
        return [part.numpy() for part in self.rule.direction(after, mean)], after

    def metrics(self, state: Any) -> dict[str, float]:
        """Scalars of the coming round, of published values alone."""
        found = core.published_metrics(self.rule, state, self.specs, self.noise_multiplier, self.divisor)
        return {name: float(value) for name, value in found.items()}
