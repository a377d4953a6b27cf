"""Epsilon as a function of the number of steps: the costly part once, then little at every call.

`epsilon(steps=...)` starts from nothing every time. A training run asks again at every epoch, so the work
is split here: what one release costs is computed once (`Accountant.prepare`), and `curve(steps)` only composes it
`steps` times. `adaclip_tf.privacy.accountants` has the times that this takes.
"""

from __future__ import annotations

import functools
from typing import Callable

import dp_accounting

from adaclip_tf._internal import validate
from adaclip_tf.privacy import accountants, events, group
from adaclip_tf.privacy.epsilon import check_delta
from adaclip_tf.privacy.mechanism import Mechanism

UNLIMITED_STEPS = 10**9  # a budget that allows so many counts as unlimited; no training takes them


class EpsilonCurve:
    """`curve(steps)` is the epsilon after `steps` noised steps, plus `other_event` if there is one.

    Example:
      >>> curve = EpsilonCurve(Mechanism(1.1, num_examples=60000, batch_size=600), delta=1e-5)
      >>> round(curve(1000), 4), curve.largest_steps(1.7118)
      (1.7118, 1000)

    Args:
      mechanism: of one step.
      delta, examples_per_user: as in `epsilon`.
      accountant: the name of one: "rdp", "pld", or another that is registered.
      other_event: what else the same data has paid for, such as `PrivatePCA(...).event`.
      paid_before: steps of the same mechanism that are paid for without being counted in `steps`; negative where
        the first ones of `steps` are in `other_event` already.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        *,
        delta: float,
        accountant: str = "rdp",
        examples_per_user: int = 1,
        other_event: dp_accounting.DpEvent | None = None,
        paid_before: int = 0,
    ):
        events.check_other_event(other_event)
        self._accountant = accountants.named(accountant)
        self._group = validate.positive_integer("examples_per_user", examples_per_user)
        self._delta = check_delta(delta, mechanism.num_examples)
        self._mechanism, self._paid_before = mechanism, paid_before
        self._other_event = other_event
        self._epsilon = self._by(self._accountant)

    def __call__(self, steps: int) -> float:
        return self._epsilon(steps)

    def largest_steps(self, target_epsilon: float) -> int:
        """The largest number of steps whose epsilon is at most `target_epsilon`; 0 if none."""
        target = validate.positive("target_epsilon", target_epsilon)
        start = 0
        for rough in self._accountant.approach(target)[:1]:  # the cheapest; its answer is within the target
            start = _largest_steps(self._by(rough.accountant), target, 0)
        return _largest_steps(self, target, start if self(start) <= target else 0)

    def _by(self, accountant: accountants.Accountant) -> Callable[[int], float]:
        """Epsilon after so many steps, by `accountant`."""
        composed = accountant.prepare(self._mechanism.release, self._other_event)

        @functools.lru_cache(maxsize=1024)
        def of_count(count: int) -> float:
            return group.group_epsilon(composed(count), self._delta, self._group)

        return lambda steps: of_count(self._mechanism.releases(max(0, self._paid_before + steps)))


def _largest_steps(epsilon_at: Callable[[int], float], target: float, start: int) -> int:
    """The largest number of steps whose epsilon is at most `target`, from `start` upwards; 0 if that is beyond it."""
    low, stride = start, 1
    if epsilon_at(low) > target:
        return 0
    while epsilon_at(low + stride) <= target:  # gallop: low is always within the target
        low, stride = low + stride, 2 * stride
        if low >= UNLIMITED_STEPS:
            return UNLIMITED_STEPS
    high = low + stride
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if epsilon_at(middle) <= target else (low, middle)
    return low
