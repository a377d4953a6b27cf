"""What the rounds of a training cost a client: epsilon, the ledger, and how many are left. No Flower in here."""

from __future__ import annotations

import os

import dp_accounting

from adaclip_tf._internal import validate
from adaclip_tf.privacy import curve, events, session
from adaclip_tf.privacy import ledger as ledger_lib
from adaclip_tf.privacy.mechanism import Mechanism


class Rounds:
    """Counts the rounds of one training, a phase of the ledger if there is one.

    A round is written down by `spend`, before its noise is drawn, so before anything of it can be seen. What is killed
    before that has published nothing and costs nothing; what is killed after it counts, whether or not it was seen.

    Args:
      mechanism: of a round: a client is its example.
      name: of the training, for readers of the ledger.
      delta, target_epsilon, accountant, other_event: as for `PrivacyBudget`.
      ledger: the file that adds up all that was spent on these clients; None for none.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        name: str,
        *,
        delta: float,
        target_epsilon: float | None,
        accountant: str,
        other_event: dp_accounting.DpEvent | None,
        ledger: str | os.PathLike[str] | None,
    ):
        self.mechanism, self.delta = mechanism, delta
        self.target_epsilon = None if target_epsilon is None else validate.positive("target_epsilon", target_epsilon)
        self.done = 0
        self._name, self._accountant, self._other_event = name, accountant, other_event
        self._ledger = None if ledger is None else ledger_lib.Ledger(ledger)
        self._session: session.Session | None = None
        events.check_other_event(other_event)
        self._allowed: int | None = None  # rounds in all, worked out when first asked for
        self._curve = self._epsilon_curve(other_event, 0)  # bad arguments are told now

    @property
    def epsilon(self) -> float:
        """Of one client, after what was done up to now, with all else in the ledger."""
        return self._curve(self.done)

    @property
    def left(self) -> int:
        """How many more rounds the target allows."""
        if self._allowed is None:
            target = self.target_epsilon
            self._allowed = curve.UNLIMITED_STEPS if target is None else self._curve.largest_steps(target)
        return max(0, self._allowed - self.done)

    def open(self, phase: str, done: int) -> None:
        """Begins, or goes on after `done` rounds, as `phase` of the ledger, whose lock it takes."""
        self.close()
        self.done = done
        if self._ledger is None:
            return
        try:
            self._session = session.Session(
                self._ledger,
                phase=phase,
                optimizer=self._name,
                mechanism=self.mechanism,
                count=done,
                other_event=self._other_event,
                fresh=None,
            )
        except ValueError as error:
            raise ValueError(
                f"`state` does not go with `ledger`: {error} With PrivateStrategy: put back the newest `state`, or "
                "give a new path, which begins a new training and adds to what was spent."
            ) from error
        self._allowed, others = None, self._session.others
        nothing = isinstance(others, dp_accounting.NoOpDpEvent)
        self._curve = self._epsilon_curve(None if nothing else others, self._session.paid_before)

    def spend(self) -> None:
        """One more round: in the ledger, on the disk, before it returns."""
        if self._session is not None:
            self._session.reserve(self.done + 1, self.done + 1)
        self.done += 1

    def close(self) -> None:
        """The end of a run: nothing is under way."""
        if self._session is not None:
            self._session.close(self.done)
            self._session = None

    def abandon(self) -> None:
        """The end of a run that failed: what was written down stays."""
        if self._session is not None:
            self._session.abandon()
            self._session = None

    def _epsilon_curve(self, other: dp_accounting.DpEvent | None, paid_before: int) -> curve.EpsilonCurve:
        return curve.EpsilonCurve(
            self.mechanism, delta=self.delta, accountant=self._accountant, other_event=other, paid_before=paid_before
        )
