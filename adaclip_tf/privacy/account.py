"""`Account`: what a training run has cost and may cost, for `PrivacyBudget`. No Keras in here."""

from __future__ import annotations

from typing import Any

import dp_accounting

from adaclip_tf.optimizers import past
from adaclip_tf.privacy import curve, run_checks, session, statement
from adaclip_tf.privacy.ledger import BLOCK, Ledger
from adaclip_tf.privacy.mechanism import Mechanism


class Account:
    """The epsilon of an optimizer's steps, of `other_event` and of what a ledger holds.

    Args:
      claimed: what the user says of n, B and sampling. Noise and sensitivity are the optimizer's to say.
      delta, accountant, examples_per_user, other_event, ledger, new_phase: as for `PrivacyBudget`.
    """

    def __init__(
        self,
        claimed: Mechanism,
        *,
        delta: float,
        accountant: str,
        examples_per_user: int,
        other_event: dp_accounting.DpEvent | None,
        ledger: Ledger | None,
        new_phase: bool,
    ):
        self.claimed = claimed
        self.ledger = ledger
        self._accountant = accountant
        self._common: dict[str, Any] = {"delta": delta, "examples_per_user": examples_per_user}
        self._other_event = other_event
        self._new_phase = new_phase
        self._session: session.Session | None = None
        self._planned = claimed
        self._curve: curve.EpsilonCurve | None = None
        self._curve_key: tuple[Any, ...] | None = None

    def mechanism(self, optimizer: Any) -> Mechanism:
        """Of the steps to come, and never less than what the state says of those before."""
        before = optimizer.past_steps()
        noise = optimizer.noise_multiplier
        return Mechanism(
            min(noise, before.noise_multiplier) if before.steps else noise,
            self.claimed.num_examples,
            self.claimed.batch_size,
            self.claimed.sampling,
            run_checks.sensitivity(optimizer, self.claimed),
        )

    def epsilon_at(self, optimizer: Any) -> curve.EpsilonCurve:
        """Epsilon by the optimizer's count of steps. Made once, and again only if what a step costs, or what was spent
        before, has turned out to be another."""
        step, (paid_before, others) = self.mechanism(optimizer), self._before(optimizer)
        key = (step, paid_before, others)
        if self._curve is None or self._curve_key != key:
            self._curve = curve.EpsilonCurve(
                step, accountant=self._accountant, other_event=others, paid_before=paid_before, **self._common
            )
            self._curve_key = key
        return self._curve

    def report(self, optimizer: Any, steps: int, accountants: tuple[str, ...]) -> dict[str, Any] | None:
        """The statement's numbers after `steps` of the optimizer's; None where there are none."""
        paid_before, others = self._before(optimizer)
        steps += paid_before
        if steps <= 0:
            return None
        step = self.mechanism(optimizer)
        return statement.privacy_report(
            noise_multiplier=step.noise_multiplier,
            num_examples=step.num_examples,
            batch_size=step.batch_size,
            sampling=step.sampling,
            microbatch_sensitivity=step.microbatch_sensitivity,
            other_event=others,
            steps=steps,
            accountants=accountants,
            **self._common,
        )

    def _before(self, optimizer: Any) -> tuple[int, dp_accounting.DpEvent | None]:
        """What to add to the optimizer's count of steps, and what else was spent."""
        if self._session is not None:
            return self._session.paid_before, self._session.others
        if self.ledger is None:
            return 0, self._other_event
        # Nothing is under way: all that the ledger holds, and what the optimizer has taken beyond that.
        phase = optimizer.past_steps().phase
        phases, releases = self.ledger.read()
        known = next((entry.reserved for entry in phases if entry.id == phase), 0)
        events = [self.ledger.event()]
        if self._other_event is not None and all((r.phase, r.event) != (phase, self._other_event) for r in releases):
            events.append(self._other_event)
        return -known, dp_accounting.ComposedDpEvent(events)

    # -----------------------------------------------------------------------------------------------
    # Along a run.

    def begin(self, optimizer: Any) -> None:
        """Looks at the optimizer's state, and opens a session in the ledger."""
        if self.ledger is not None:
            if self._session is not None:
                if self.has_another_phase(optimizer):
                    self._session.close(self._session.seen)  # nothing was spent on that one
                self._session.abandon()
            now = optimizer.past_steps()
            fresh = past.new_phase() if self._new_phase else None
            self._session = session.Session(
                self.ledger,
                phase=now.phase,
                optimizer=optimizer.name,
                mechanism=self.mechanism(optimizer),
                count=now.steps,
                other_event=self._other_event,
                fresh=None if fresh is None else past.phase_name(fresh),
            )
            if self._session.phase != now.phase:
                optimizer.start_phase(fresh)
        self._planned = self.mechanism(optimizer)

    def rewound(self, steps: int) -> bool:
        """Whether the optimizer counts fewer steps than it has counted in this session."""
        return self._session is not None and steps < self._session.seen

    def has_another_phase(self, optimizer: Any) -> bool:
        """Whether the optimizer's phase is not the session's."""
        return self._session is not None and optimizer.past_steps().phase != self._session.phase

    def before_call(self, steps: int, steps_per_call: int, wished: int | None) -> None:
        """Writes the steps of the next call down."""
        if self._session is not None:
            self._session.reserve(steps + steps_per_call, steps + BLOCK if wished is None else wished)

    def after_call(self, optimizer: Any, steps: int, *, thorough: bool) -> None:
        """Whether the steps were what they were said to be, by the optimizer's own state, if `thorough`."""
        if self._session is not None:
            self._session.seen = max(self._session.seen, steps)
        wrong = run_checks.false_claim(optimizer, self._planned) if thorough else None
        if wrong is not None:
            if self._session is not None:
                self._session.worsen(run_checks.worse(optimizer, self._planned))
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

    def broken_off(self, steps_per_call: int) -> None:
        """Ends the session of a run that did not come to its end, if there is one."""
        if self._session is not None:
            self._session.broken_off(steps_per_call)
            self._session = None
