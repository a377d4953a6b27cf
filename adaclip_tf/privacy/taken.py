"""`Taken`: the steps of all optimizers under one budget that has no ledger. Each counts once, and none is forgotten.

What a ledger keeps in a file is kept here as long as the budget lives: a new optimizer is a new phase, which adds to
the others, and where an older state of an optimizer comes back, the steps that are gone from its count stay paid for.
"""

from __future__ import annotations

import dp_accounting

from adaclip_tf._internal.prior import Prior
from adaclip_tf.privacy.mechanism import Mechanism


class Taken:
    """Steps by phase, steps that an optimizer no longer counts, and what clipping rules were made by."""

    def __init__(self) -> None:
        self._phases: dict[str, tuple[Mechanism, int]] = {}
        self._no_longer_counted: list[dp_accounting.DpEvent] = []
        self._now: str | None = None
        self._under_way = 0
        self.priors: dict[Prior, None] = {}  # each once, in order

    def begin(self, phase: str, mechanism: Mechanism, count: int, prior: Prior | None) -> None:
        """A run begins, of an optimizer that counts so many steps."""
        if self._now is not None and phase != self._now:
            mechanism, seen = self._phases[self._now]
            self._phases[self._now] = (mechanism, seen + self._broken_off(self._now))
        self._under_way = 0
        self._no_longer_counted += self._beyond(phase, count)
        self._phases[phase] = (mechanism, count)
        self._now = phase
        if prior is not None:
            self.priors[prior] = None

    def before_call(self, steps: int) -> None:
        """A call begins that takes so many steps at most."""
        self._under_way = steps

    def see(self, count: int) -> None:
        """The optimizer of the run counts so many, and no call is under way."""
        self._under_way = 0
        if self._now is not None:
            mechanism, seen = self._phases[self._now]
            self._phases[self._now] = (mechanism, max(seen, count))

    def worsen(self, mechanism: Mechanism) -> None:
        """The steps of the run were worse than had been said."""
        if self._now is not None:
            self._phases[self._now] = (mechanism, self._phases[self._now][1])

    def add(self, event: dp_accounting.DpEvent) -> None:
        """Something else was spent."""
        self._no_longer_counted.append(event)

    def knows(self, phase: str) -> bool:
        """Whether steps of this phase are counted here."""
        return phase in self._phases

    def is_another(self, phase: str) -> bool:
        """Whether this is not the phase of the run."""
        return self._now is not None and phase != self._now

    def _broken_off(self, phase: str) -> int:
        """Steps of the call in which the run of `phase` was broken off, whose optimizer is no longer there to ask."""
        return self._under_way if phase == self._now else 0

    def events(self, phase: str, count: int) -> list[dp_accounting.DpEvent]:
        """All but the steps that the optimizer of `phase` counts itself, if it counts so many."""
        seen = {name: steps + self._broken_off(name) for name, (_, steps) in self._phases.items() if name != phase}
        others = [self._phases[name][0].event(steps=steps) for name, steps in seen.items() if steps]
        return [*self._no_longer_counted, *others, *self._beyond(phase, count)]

    def _beyond(self, phase: str, count: int) -> list[dp_accounting.DpEvent]:
        """What the optimizer of `phase` has been seen to take beyond `count`."""
        mechanism, seen = self._phases.get(phase, (None, 0))
        return [mechanism.event(steps=seen - count)] if mechanism is not None and seen > count else []
