"""`PrivacyMeter`: what an optimizer's noised steps have cost. `PrivacyBudget` and `PrivacyTensorBoard` each hold one.

No Keras in here: it works for a training loop of one's own as well.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

import dp_accounting

from adaclip_tf._internal import validate
from adaclip_tf.privacy import accountants, claims, curve, events, statement
from adaclip_tf.privacy.drawn import Drawn
from adaclip_tf.privacy.epsilon import check_delta
from adaclip_tf.privacy.mechanism import Mechanism
from adaclip_tf.privacy.private_optimizer import PrivateOptimizer, noised_steps


class Before(NamedTuple):
    """What was spent before an optimizer's steps.

    Attributes:
      steps: to add to the optimizer's count; negative where the first ones of it are in `event` already.
      event: what else was spent, or None.
    """

    steps: int = 0
    event: dp_accounting.DpEvent | None = None


class PrivacyMeter:
    """The epsilon of an optimizer's steps, and of what else was computed from the same data.

    It remembers nothing: what another optimizer has cost on the same data goes into `other_event`, or into a ledger.

    Example:
      >>> meter = PrivacyMeter(Mechanism(1.0, num_examples=60000, batch_size=600), delta=1e-5)
      >>> optimizer = DPAdaClipSGD(noise_multiplier=1.1, expected_batch_size=600)
      >>> meter.epsilon(optimizer), round(meter.epsilon_at(optimizer, 1000), 4)
      (0.0, 1.7118)

    Args:
      claimed: what the user says about n, B and sampling. Noise and sensitivity come from the optimizer's state.
      delta: of (epsilon, delta).
      accountant: the name of one: "rdp", "pld", or another that is registered.
      examples_per_user: protects a user who has up to this many examples.
      other_event: a dp_accounting event to add, such as `PrivatePCA(...).event`.
      before: or a function from the optimizer to all that was spent before, if you keep a ledger.

    Attributes:
      before: such a function: what else was spent, and steps to add to the optimizer's own.
    """

    def __init__(
        self,
        claimed: Mechanism,
        *,
        delta: float,
        accountant: str = "rdp",
        examples_per_user: int = 1,
        other_event: dp_accounting.DpEvent | None = None,
        before: Callable[[PrivateOptimizer], Before] | None = None,
    ):
        events.check_other_event(other_event)
        self.claimed = claimed
        self.delta = check_delta(delta, claimed.num_examples)
        self.accountant = accountants.named(accountant).name
        self.examples_per_user = validate.positive_integer("examples_per_user", examples_per_user)
        self.before: Callable[[PrivateOptimizer], Before] = (
            (lambda optimizer: Before(0, events.current(events.with_prior(other_event, optimizer.prior))))
            if before is None
            else before
        )
        if not callable(self.before):
            raise ValueError(
                f"`before` must be a function from the optimizer to what was spent before; got {before!r}."
            )
        self._curve: curve.EpsilonCurve | None = None
        self._curve_of: tuple[Any, ...] | None = None

    @property
    def quick(self) -> bool:
        """Whether epsilon may be asked for at every step."""
        return accountants.named(self.accountant).quick

    def check(self, optimizer: PrivateOptimizer, given: claims.Given, drawn: Drawn | None = None) -> None:
        """Refuses what cannot be accounted for, or can be seen to be false.

        Args:
          optimizer: whose steps are to be counted.
          given: what can be seen of the data of the run.
          drawn: how the batches were drawn that n, B and sampling were taken from, if they were.
        """
        claims.check_optimizer(optimizer, self.claimed, given.drawn or drawn)
        claims.check_data(given, self.claimed, optimizer.accumulation_steps)
        if drawn is not None:
            claims.check_is_drawn(given, drawn)

    def mechanism(self, optimizer: PrivateOptimizer) -> Mechanism:
        """Of the steps to come, and never less than what the state says of those before."""
        before = optimizer.past_steps()
        noise = optimizer.noise_multiplier
        return Mechanism(
            min(noise, before.noise_multiplier) if before.steps else noise,
            self.claimed.num_examples,
            min(max(self.claimed.batch_size, before.batch_size if before.steps else 0), self.claimed.num_examples),
            self.claimed.sampling,
            claims.sensitivity(optimizer, self.claimed),
        )

    def epsilon(self, optimizer: PrivateOptimizer) -> float:
        """The epsilon spent up to now."""
        return self.epsilon_at(optimizer, noised_steps(optimizer))

    def epsilon_at(self, optimizer: PrivateOptimizer, steps: int) -> float:
        """The epsilon spent when the optimizer counts `steps`."""
        return self._epsilon_curve(optimizer)(steps)

    def largest_steps(self, optimizer: PrivateOptimizer, target_epsilon: float) -> int:
        """The optimizer's count of steps up to which `target_epsilon` is kept."""
        return self._epsilon_curve(optimizer).largest_steps(target_epsilon)

    def report(self, optimizer: PrivateOptimizer, accountants: tuple[str, ...] | None = None) -> dict[str, Any] | None:
        """The `privacy_report` of what has been spent up to now; None where no step was taken.

        Args:
          optimizer: whose steps they are.
          accountants: as for `statement.report_on`.
        """
        paid_before, others = self.before(optimizer)
        steps = noised_steps(optimizer) + paid_before
        if steps <= 0:
            return None
        return statement.report_on(
            self.mechanism(optimizer),
            steps=steps,
            other_event=others,
            accountants=accountants,
            delta=self.delta,
            examples_per_user=self.examples_per_user,
        )

    def _epsilon_curve(self, optimizer: PrivateOptimizer) -> curve.EpsilonCurve:
        """Made once, and again only if what a step costs, or what was spent before, has turned out to be another."""
        step, before = self.mechanism(optimizer), self.before(optimizer)
        if self._curve is None or self._curve_of != (step, before):
            self._curve = curve.EpsilonCurve(
                step,
                delta=self.delta,
                accountant=self.accountant,
                examples_per_user=self.examples_per_user,
                other_event=before.event,
                paid_before=before.steps,
            )
            self._curve_of = (step, before)
        return self._curve
