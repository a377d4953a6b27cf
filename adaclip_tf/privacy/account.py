"""`Account`: a `PrivacyMeter`, and the ledger that a training writes to, for `PrivacyBudget`. No Keras in here."""

from __future__ import annotations

from typing import Any

import dp_accounting
from absl import logging

from adaclip_tf.privacy import claims, past_steps, session
from adaclip_tf.privacy.events import current, named, prior_event, with_prior
from adaclip_tf.privacy.ledger import BLOCK, Ledger, Release
from adaclip_tf.privacy.mechanism import Mechanism
from adaclip_tf.privacy.meter import Before, PrivacyMeter
from adaclip_tf.privacy.private_optimizer import PrivateOptimizer
from adaclip_tf.privacy.taken import Taken


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
        self._taken = Taken()  # where there is no ledger
        self._planned = claimed
        self._begun = 0  # steps of the optimizer when the run began
        self._seen = 0  # and when it was looked at last
        self._beside: dict[str, int] = {}  # steps of other optimizers of the same weights, by phase

    def _before(self, optimizer: PrivateOptimizer) -> Before:
        """What to add to the optimizer's count of steps, and what else was spent."""
        if self._session is not None:
            return Before(self._session.paid_before, self._session.others)
        now = optimizer.past_steps()
        mine = [] if self._other_event is None else [self._other_event]
        if self.ledger is None:
            spent = _composed([*self._taken.events(now.phase, now.steps), *mine])
            for prior in (*self._taken.priors, optimizer.prior):
                spent = with_prior(spent, prior)
            return Before(0, current(spent))
        # Nothing is under way: all that the ledger holds, and what the optimizer has taken beyond that.
        phases, releases = self.ledger.read()
        phase = next((entry for entry in phases if entry.id == now.phase), None)
        if any((release.phase, release.event) == (now.phase, self._other_event) for release in releases):
            mine = []
        alike = phase is not None and phase.mechanism == self.meter.mechanism(optimizer)
        others = _composed([self.ledger.event(without=now.phase if alike else None), *mine])
        steps = 0
        if phase is not None:
            steps = phase.steps - min(now.steps, phase.reserved) if alike else -phase.reserved
        return Before(steps, with_prior(others, optimizer.prior, _named(releases)))

    # -----------------------------------------------------------------------------------------------
    # Along a run.

    def begin(self, optimizer: PrivateOptimizer) -> None:
        """Looks at the optimizer's state, and opens a session in the ledger."""
        now, mechanism, prior = optimizer.past_steps(), self.meter.mechanism(optimizer), optimizer.prior
        if self.ledger is None:
            self._taken.begin(now.phase, mechanism, now.steps, prior)
        else:
            if self._session is not None:
                if self.has_another_phase(optimizer):
                    self._session.close(self._session.seen)  # nothing was spent on that one
                self._session.abandon()
            written = _named(self.ledger.read()[1])
            if prior is not None and with_prior(self._other_event, prior, written) is not self._other_event:
                self.ledger.add(f"scales of {optimizer.name}", prior_event(prior))
            fresh = past_steps.new_phase() if self._new_phase else None
            self._session = session.Session(
                self.ledger,
                phase=now.phase,
                optimizer=optimizer.name,
                mechanism=mechanism,
                count=now.steps,
                other_event=self._other_event,
                fresh=None if fresh is None else past_steps.phase_name(fresh),
            )
            if self._session.phase != now.phase:
                optimizer.start_phase(fresh)
        self._planned = mechanism
        self._begun = self._seen = now.steps
        self._beside = {seen.phase: seen.steps for seen in optimizer.other_past_steps()}

    def forgotten(self, optimizer: PrivateOptimizer) -> int:
        """Noised steps of the same weights that nobody has said anything of: of other optimizers, in this program."""
        if self._other_event is not None:
            return 0
        written = set() if self.ledger is None else {phase.id for phase in self.ledger.read()[0]}
        others = optimizer.other_past_steps()
        return sum(seen.steps for seen in others if seen.phase not in written and not self._taken.knows(seen.phase))

    def rewound(self, steps: int) -> bool:
        """Whether the optimizer counts fewer steps than it has counted in this session."""
        return self._session is not None and steps < self._session.seen

    def has_another_phase(self, optimizer: PrivateOptimizer) -> bool:
        """Whether the optimizer's phase is not the run's."""
        phase = optimizer.past_steps().phase
        return self._taken.is_another(phase) if self._session is None else phase != self._session.phase

    def has_more(self) -> bool:
        """Whether something else than this run has written to the ledger, since this was asked last."""
        return self._session is not None and self._session.has_more()

    def before_call(self, steps: int, steps_per_call: int, wished: int | None) -> None:
        """Writes the steps of the next call down."""
        self._taken.before_call(steps_per_call)
        if self._session is not None:
            self._session.reserve(steps + steps_per_call, steps + BLOCK if wished is None else wished)

    def after_call(self, optimizer: PrivateOptimizer, steps: int, *, thorough: bool) -> None:
        """Whether the steps were what they were said to be, by the optimizer's own state, if `thorough`."""
        self._taken.see(steps)
        self._seen = steps
        if self._session is not None:
            self._session.seen = max(self._session.seen, steps)
        wrong = claims.false_claim(optimizer, self._planned) if thorough else None
        if wrong is not None:
            worse = claims.worse(optimizer, self._planned)
            self._taken.worsen(worse)
            if self._session is not None:
                self._session.worsen(worse)
            self.end(steps)
            raise ValueError(wrong)
        self._check_beside(optimizer, steps)

    def _check_beside(self, optimizer: PrivateOptimizer, steps: int) -> None:
        """Refuses a run in which another optimizer takes steps on the same weights, and counts those that it took."""
        for seen in optimizer.other_past_steps():
            more = seen.steps - self._beside.get(seen.phase, 0)
            if claims.share_batches(optimizer, seen):
                more -= steps - self._begun  # these are counted as what both cost
            if more > 0:
                event = claims.of_others(self.meter.claimed, seen).event(steps=more)
                if self.ledger is None:
                    self._taken.add(event)
                else:
                    self.ledger.add("steps of another optimizer", event)
                self.end(steps)
                raise ValueError(
                    f"{more} noised step(s) were taken by another private optimizer than the model's, "
                    f"{optimizer.name}, which PrivacyBudget counts: they were added. If you have set "
                    "`model.optimizer`, call `model.compile` with it: Keras goes on with the one before. If a "
                    "`train_step` of your own has several optimizers, train without PrivacyBudget and compose the "
                    "`optimizer_event` of each."
                )

    def told(self, steps: int, under_way: int) -> int:
        """`steps`, with a warning where they are more than runs have seen; a call that was broken off may be some."""
        more, self._seen = steps - self._seen, steps
        if more > under_way:
            logging.warning(
                "%d noised steps were taken in no `fit` that had this PrivacyBudget, which takes their batches to be "
                "as it was told (sampling=%r). If they were others, such as those of `model.fit(x, y)`, epsilon is too "
                "small. Steps that were loaded with the optimizer's state are right if such a `fit` took them.",
                more,
                self.meter.claimed.sampling,
            )
        return steps

    def settle(self, steps: int) -> None:
        """The end of an epoch: nothing is under way."""
        if self._session is not None:
            self._session.settle(steps)

    def end(self, steps: int) -> None:
        """The end of the run. From now on the ledger may hold more than this run knows."""
        self._taken.see(steps)
        if self._session is not None:
            self._session.close(steps)
            self._session = None

    def broken_off(self, optimizer: PrivateOptimizer, steps_per_call: int) -> None:
        """Ends the session of a run that was broken off, if there is one, and what it had begun."""
        optimizer.drop_unfinished()
        if self._session is not None:
            self._session.broken_off(steps_per_call)
            self._session = None


def _composed(events: list[dp_accounting.DpEvent]) -> dp_accounting.DpEvent | None:
    return dp_accounting.ComposedDpEvent(events) if events else None


def _named(releases: tuple[Release, ...]) -> list[dp_accounting.DpEvent]:
    """What a ledger holds besides steps, under the names that it has there."""
    return [named(release.event, release.name) for release in releases]
