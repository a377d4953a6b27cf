"""How often an object has looked at data, and the noise that it gets each time: `PrivatePCA`, `PrivateTargetScaling`.

`PrivateScales`, whose noise is that of training, is counted by the same code.

There is one way to the noise, `begin`, and it counts. What can go wrong with an object that holds noise, and why it
does not here:

| what happens                                  | what is done                                                         |
|-----------------------------------------------|----------------------------------------------------------------------|
| a second fit                                  | a new generator, from the operating system's entropy; it counts      |
| a copy, a pickle, a forked process            | nothing that makes noise is copied: a generator is made at each fit  |
| a copy or a forked process fits, too          | a name of its own, so that both are paid for                         |
| a fit that fails after it has looked          | was counted before it looked                                         |

Names are what a budget or a ledger knows events by: the same name again is the same event, and is paid for once. So a
name changes with what it stands for: at the second and each further fit, and at the first one of a copy. The new event
has all fits. A budget that was given the old one takes the new one in its place (`events.follow`), as long as the
program runs. A ledger, which is a file, counts the old fits twice then: too much, never too little.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging

from adaclip_tf._internal import validate
from adaclip_tf.privacy import events


class Counted:
    """Counts how often an object looked at data, under a name that changes with what it stands for."""

    def __init__(self, kind: str):
        self._kind = kind
        self.count, self.name, self._process = 0, _new_name(kind), os.getpid()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Of a copy, or of what was pickled."""
        self.__dict__.update(state)
        if not self.count:
            self.name = _new_name(self._kind)

    def begin(self) -> str | None:
        """Counts a fit, before it looks. Returns the name of what was asked before, if something was."""
        before = self.name if self.count else None
        if self.count or self._process != os.getpid():
            self.name = _new_name(self._kind)
        self.count, self._process = self.count + 1, os.getpid()
        return before

    def restore(self, count: Any, name: Any) -> None:
        """What a file says."""
        self.count, self.name = validate.positive_integer("fits", count), str(name)


class Fits:
    """Counts the fits of an object with noise, and makes it.

    >>> fits = Fits("pca", noise_multiplier=8.0, seed=None, asked=[(1.0, 1)])
    >>> _ = fits.begin().normal()
    >>> fits.count
    1

    Args:
      kind: begins the name.
      noise_multiplier: z, of everything that one fit asks.
      seed: None, or for tests only an integer, with which the i-th fit has the same noise every time.
      asked: what each fit asks, as (noise over sensitivity, in multiples of z, and how often).
    """

    def __init__(self, kind: str, noise_multiplier: float, seed: int | None, asked: Sequence[tuple[float, int]]):
        self._asked = tuple(asked)
        self.noise_multiplier = validate.noise_multiplier("noise_multiplier", noise_multiplier)
        self._seed = validate.seed("seed", seed)
        if seed is not None:
            logging.warning("seed=%d makes the noise of %s predictable: for tests only, NOT private.", seed, kind)
        self._counted = Counted(kind)

    @property
    def count(self) -> int:
        """How many fits there were."""
        return self._counted.count

    @property
    def name(self) -> str:
        """What a budget or a ledger knows these fits by."""
        return self._counted.name

    def begin(self) -> np.random.Generator:
        """Counts a fit, and returns its noise: unit draws that no other fit has."""
        before = self._counted.begin()
        events.follow(before, self.event)
        spawned = np.random.SeedSequence(self._seed, spawn_key=(self.count,))
        return np.random.Generator(np.random.Philox(spawned))

    @property
    def event(self) -> events.NamedEvent:
        """The event of all fits so far; before the first, of one."""
        fits = max(1, self.count)
        parts = [events.gaussian_event(noise * self.noise_multiplier, times * fits) for noise, times in self._asked]
        return events.named(events.composed(parts), self.name)

    def restore(self, count: Any, name: Any) -> None:
        """What a file says."""
        self._counted.restore(count, name)


def _new_name(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex}"
