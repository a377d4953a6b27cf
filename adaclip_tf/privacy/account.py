"""`Account`: a `PrivacyMeter`, and the ledger that a training writes to, for `PrivacyBudget`. No Keras in here."""

from __future__ import annotations

from typing import Any

import dp_accounting

from adaclip_tf.privacy import claims, past_steps, session
from adaclip_tf.privacy.events import with_prior
from adaclip_tf.privacy.ledger import BLOCK, Ledger
from adaclip_tf.privacy.mechanism import Mechanism
from adaclip_tf.privacy.meter import Before, PrivacyMeter
from adaclip_tf.privacy.private_optimizer import PrivateOptimizer, noised_steps


class Account:
    """What a training run has cost, by its `meter`, with what a ledger holds; and what it writes into the ledger.

    Args:
      claimed: what the user says of n, B and sampling. Noise and sensitivity are the optimizer's to say.
      other_event, ledger, new_phase: as for `PrivacyBudget`.
      **options: more for the `PrivacyMeter`.
    """

    def __init__(
        self,
        claimed: Mechanism,
        *,
        other_event: dp_accounting.DpEvent | None,
        ledger: Ledger | None,
        new_phase: bool,
        **options: Any,
    ):
        self.ledger = ledger
        self.meter = PrivacyMeter(claimed, other_event=other_event, before=self._before, **options)
        self._other_event = other_event
        self._new_phase = new_phase
        self._session: session.Session | None = None
        self._last: PrivateOptimizer | None = None
        self._earlier: list[dp_accounting.DpEvent] = []  # of other optimizers, where there is no ledger
        self._planned = claimed

    def _before(self, optimizer: PrivateOptimizer) -> Before:
        """What to add to the optimizer's count of steps, and what else was spent."""
        if self._session is not None:
            return Before(self._session.paid_before, self._session.others)
        prior = optimizer.prior_noise_multiplier
        if self.ledger is None:
            others = [*self._earlier, *([] if self._other_event is None else [self._other_event])]
            return Before(0, with_prior(dp_accounting.ComposedDpEvent(others) if others else None, prior))
        # Nothing is under way: all that the ledger holds, and what the optimizer has taken beyond that.
        phase = optimizer.past_steps().phase
        phases, releases = self.ledger.read()
        known = next((entry.reserved for entry in phases if entry.id == phase), 0)
        events = [self.ledger.event()]
        if self._other_event is not None and all((r.phase, r.event) != (phase, self._other_event) for r in releases):
            events.append(self._other_event)
        before = with_prior(dp_accounting.ComposedDpEvent(events), prior, [release.event for release in releases])
        return Before(-known, before)

    # -----------------------------------------------------------------------------------------------
    # Along a run.

    def begin(self, optimizer: PrivateOptimizer) -> None:
        """Looks at the optimizer's state, and opens a session in the ledger."""
        if self.ledger is None:
            self._remember(optimizer)
        else:
            if self._session is not None:
                if self.has_another_phase(optimizer):
                    self._session.close(self._session.seen)  # nothing was spent on that one
                self._session.abandon()
            prior = optimizer.prior_noise_multiplier
            written = [release.event for release in self.ledger.read()[1]]
            if with_prior(self._other_event, prior, written) is not self._other_event:
                self.ledger.add(f"scales of {optimizer.name}", dp_accounting.GaussianDpEvent(prior))
            now = optimizer.past_steps()
            fresh = past_steps.new_phase() if self._new_phase else None
            self._session = session.Session(
                self.ledger,
                phase=now.phase,
                optimizer=optimizer.name,
                mechanism=self.meter.mechanism(optimizer),
                count=now.steps,
                other_event=self._other_event,
                fresh=None if fresh is None else past_steps.phase_name(fresh),
            )
            if self._session.phase != now.phase:
                optimizer.start_phase(fresh)
        self._planned = self.meter.mechanism(optimizer)

    def _remember(self, optimizer: PrivateOptimizer) -> None:
        """Counts what another optimizer has spent under this account, before this one takes over."""
        last, self._last = self._last, optimizer
        if last is None or last.past_steps().phase == optimizer.past_steps().phase:
            return
        if noised_steps(last):
            self._earlier.append(self.meter.mechanism(last).event(steps=noised_steps(last)))

    def rewound(self, steps: int) -> bool:
        """Whether the optimizer counts fewer steps than it has counted in this session."""
        return self._session is not None and steps < self._session.seen

    def has_another_phase(self, optimizer: PrivateOptimizer) -> bool:
        """Whether the optimizer's phase is not the session's."""
        return self._session is not None and optimizer.past_steps().phase != self._session.phase

    def before_call(self, steps: int, steps_per_call: int, wished: int | None) -> None:
        """Writes the steps of the next call down."""
        if self._session is not None:
            self._session.reserve(steps + steps_per_call, steps + BLOCK if wished is None else wished)

    def after_call(self, optimizer: PrivateOptimizer, steps: int, *, thorough: bool) -> None:
        """Whether the steps were what they were said to be, by the optimizer's own state, if `thorough`."""
        if self._session is not None:
            self._session.seen = max(self._session.seen, steps)
        wrong = claims.false_claim(optimizer, self._planned) if thorough else None
        if wrong is not None:
            if self._session is not None:
                self._session.worsen(claims.worse(optimizer, self._planned))
                self._session.close(steps)
            raise ValueError(wrong)

    def settle(self, steps: int) -> None:
        """The end of an epoch: nothing is under way."""
        if self._session is not None:
            self._session.settle(steps)

    def end(self, steps: int) -> None:
        """The end of the run."""
        if self._session is not None:
            self._session.close(steps)

    def broken_off(self, optimizer: PrivateOptimizer, steps_per_call: int) -> None:
        """Ends the session of a run that was broken off, if there is one, and what it had begun."""
        optimizer.drop_unfinished()
        if self._session is not None:
            self._session.broken_off(steps_per_call)
            self._session = None
