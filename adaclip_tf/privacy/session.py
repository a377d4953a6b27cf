"""One training run in a ledger: what `PrivacyBudget(..., ledger=path)` does with it."""

from __future__ import annotations

import dataclasses

import dp_accounting

from adaclip_tf._internal import locking
from adaclip_tf.privacy.ledger import BLOCK, Ledger, Phase, Release
from adaclip_tf.privacy.mechanism import Mechanism


class Session:
    """Holds the ledger's lock from its making to `close`, and writes steps down before they are taken.

    Args:
      ledger: where.
      phase: the optimizer's.
      optimizer: its name.
      mechanism: of its steps.
      count: steps that it has taken up to now.
      other_event: what else this training has paid for, or None. Written once for each phase.
      fresh: a new name for the phase, where the user says that it is a new one.

    Raises:
      ValueError: where the optimizer does not fit what the ledger says of its phase.
      LockedError: where another program writes.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        phase: str,
        optimizer: str,
        mechanism: Mechanism,
        count: int,
        other_event: dp_accounting.DpEvent | None,
        fresh: str | None,
    ):
        locking.acquire(ledger.lock_path)
        self._ledger, self._held, self.seen = ledger, True, count
        try:
            phases, releases = ledger.read()
            known = next((entry for entry in phases if entry.id == phase), None)
            if known is not None and fresh is not None:
                # What came before `count` is in the old phase; what was not in the ledger yet comes into the new one.
                self._phase = Phase(fresh, optimizer, mechanism, 0, min(count, known.reserved), count, True)
            elif known is not None:
                _check(known, mechanism, count, ledger.path)
                self._phase = known.resumed(count)
            else:
                self._phase = Phase(phase, optimizer, mechanism, 0, 0, count, True)
            written = [r.event for r in releases if r.phase in (phase, self._phase.id)]
            if other_event is not None and other_event not in written:
                ledger.release(Release(f"other_event of {optimizer}", other_event, self._phase.id))
            ledger.replace(self._phase)
            self._others, self._stamp, self._more = ledger.event(without=self._phase.id), ledger.stamp(), False
        except BaseException:
            self.abandon()
            raise

    @property
    def phase(self) -> str:
        return self._phase.id

    @property
    def paid_before(self) -> int:
        """What to add to the optimizer's count for the steps that this phase has paid for."""
        return self._phase.paid - self._phase.start

    @property
    def others(self) -> dp_accounting.DpEvent:
        """All that the ledger holds now, without this phase: this process may add to it while it trains."""
        self._look()
        return self._others

    def has_more(self) -> bool:
        """Whether something else was added since this was asked last."""
        self._look()
        more, self._more = self._more, False
        return more

    def _look(self) -> None:
        stamp = self._ledger.stamp()
        if stamp != self._stamp:
            self._others, self._stamp, self._more = self._ledger.event(without=self._phase.id), stamp, True

    def reserve(self, needed: int, wished: int) -> None:
        """Writes down that the optimizer may go up to `needed` steps; up to `wished` while at it, or a block."""
        if needed > self._phase.reserved:
            self._write(reserved=max(needed, min(wished, self._phase.reserved + BLOCK)))

    def settle(self, count: int, *, ended: bool = False) -> None:
        """Writes down that `count` steps were taken and no more; `ended`: that no more will be."""
        self.seen = max(self.seen, count)
        if self.seen != self._phase.reserved or ended:
            self._write(reserved=self.seen, open=not ended)

    def worsen(self, mechanism: Mechanism) -> None:
        """Writes down that the steps were worse than had been said."""
        self._write(mechanism=mechanism)

    def close(self, count: int) -> None:
        """The end of the run."""
        if self._held:
            try:
                self.settle(count, ended=True)
            finally:
                self.abandon()

    def broken_off(self, steps_per_call: int) -> None:
        """The end of a run that was interrupted: the call that it may have been in counts, whether or not it was."""
        if self._held:
            self._write(reserved=min(self._phase.reserved, self.seen + steps_per_call))
            self.abandon()

    def abandon(self) -> None:
        """Gives the lock back and leaves the ledger as it is: what was reserved counts as spent."""
        if self._held:
            self._held = False
            locking.release(self._ledger.lock_path)

    def _write(self, **changes) -> None:
        self._look()
        self._phase = dataclasses.replace(self._phase, **changes)
        self._ledger.replace(self._phase)
        self._stamp = self._ledger.stamp()


def _check(known: Phase, mechanism: Mechanism, count: int, path: str) -> None:
    for field in dataclasses.fields(Mechanism):
        theirs, ours = getattr(known.mechanism, field.name), getattr(mechanism, field.name)
        if theirs != ours:
            raise ValueError(
                f"`ledger`={path!r} has this phase with {field.name}={theirs!r}, and now it is {ours!r}. A phase is "
                "one kind of step: use the same value, or a new optimizer, which is a new phase."
            )
    if count < known.reserved and not known.open:
        raise ValueError(
            f"The optimizer counts {count} noised steps, and `ledger`={path!r} has {known.reserved} of this phase: the "
            "model is older than its ledger, or its optimizer's state was lost. Load the newest one. If you mean to "
            "train on from the old one, `PrivacyBudget(..., new_phase=True)` adds what it costs to what was spent."
        )
