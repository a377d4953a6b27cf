"""Epsilon as a function of the number of steps: the costly part once, then little at every call.

`epsilon(steps=...)` starts from nothing every time. A training run asks again at every epoch, so the work
is split here: what one release costs is computed once, and `curve(steps)` only composes it `steps` times.

| accountant | once                               | per new number of steps                         |
|------------|------------------------------------|-------------------------------------------------|
| "rdp"      | RDP of one release, at every order | steps * rdp and the conversion: a millisecond   |
| "pld"      | loss distribution of one release   | one self-composition by FFT: tenths of a second |
"""

from __future__ import annotations

import copy
import functools
from typing import Callable

import dp_accounting
from dp_accounting.pld import privacy_loss_distribution

from adaclip_tf._internal import validate
from adaclip_tf.privacy import accounting
from adaclip_tf.privacy.mechanism import Mechanism

MOST_STEPS = 10**9  # beyond this a budget counts as unlimited


class EpsilonCurve:
    """`curve(steps)` is the epsilon after `steps` noised steps, plus `other_event` if there is one.

    Example:
      >>> curve = EpsilonCurve(Mechanism(1.1, num_examples=60000, batch_size=600), delta=1e-5)
      >>> round(curve(1000), 4), curve.largest_steps(1.7118)
      (1.7118, 1000)

    Args:
      mechanism: of one step.
      delta, examples_per_user: as in `accounting.epsilon`.
      accountant: "rdp" or "pld".
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
        accounting.check_other_event(other_event)
        validate.one_of("accountant", accountant, tuple(_COMPOSERS))
        validate.positive_integer("examples_per_user", examples_per_user)
        self._delta = accounting.check_delta(delta, mechanism.num_examples)
        self._group = examples_per_user
        self._mechanism, self._paid_before = mechanism, paid_before
        self._events = (mechanism.release, other_event)
        self._accountant = accountant
        self._compose = _COMPOSERS[accountant](*self._events)
        self._of_count = functools.lru_cache(maxsize=1024)(self._compute)

    def __call__(self, steps: int) -> float:
        return self._of_count(self._mechanism.releases(max(0, self._paid_before + steps)))

    def largest_steps(self, target_epsilon: float) -> int:
        """The largest number of steps whose epsilon is at most `target_epsilon`; 0 if none."""
        target = validate.positive("target_epsilon", target_epsilon)
        low, stride = self._steps_from_below(target), 1
        if self(low) > target:
            return 0
        while self(low + stride) <= target:  # gallop: low is always within the target
            low, stride = low + stride, 2 * stride
            if low >= MOST_STEPS:
                return MOST_STEPS
        high = low + stride
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self(middle) <= target else (low, middle)
        return low

    def _steps_from_below(self, target: float) -> int:
        """A first guess that is within the target. RDP's epsilon is above PLD's, and quick."""
        if self._accountant == "rdp":
            return 0
        quick = copy.copy(self)
        quick._accountant, quick._compose = "rdp", _RdpComposer(*self._events)
        quick._of_count = functools.cache(quick._compute)
        guess = quick.largest_steps(target)
        return guess if self(guess) <= target else 0

    def _compute(self, count: int) -> float:
        return accounting.group_epsilon(self._compose(count), self._delta, self._group)


class _RdpComposer:
    """RDP adds up, so that `count` releases cost `count` times the RDP of one."""

    def __init__(self, release: dp_accounting.DpEvent, other: dp_accounting.DpEvent | None):
        one = dp_accounting.rdp.RdpAccountant().compose(release)
        rest = dp_accounting.rdp.RdpAccountant().compose(other or dp_accounting.NoOpDpEvent())
        self._orders, self._one, self._rest = one.orders, one.rdp, rest.rdp

    def __call__(self, count: int) -> Callable[[float], float]:
        # 0 * infinity (no step of a mechanism without noise) must be 0.
        rdp = self._rest + (count * self._one if count else 0.0)
        return lambda delta: dp_accounting.rdp.compute_epsilon(self._orders, rdp, delta)[0]


class _PldComposer:
    """Keeps the loss distribution of one release, which takes about a second to build."""

    def __init__(self, release: dp_accounting.DpEvent, other: dp_accounting.DpEvent | None):
        self._release, self._other = release, other
        gaussian = getattr(release, "event", release)
        self._one = None
        if other is None and gaussian.noise_multiplier > 0.0:
            self._one = privacy_loss_distribution.from_gaussian_mechanism(
                gaussian.noise_multiplier,
                sampling_prob=getattr(release, "sampling_probability", 1.0),
                value_discretization_interval=accounting.pld_interval(release),
            )

    def __call__(self, count: int) -> Callable[[float], float]:
        if self._one is not None and count > 0:
            return self._one.self_compose(count).get_epsilon_for_delta
        events = [] if self._other is None else [self._other]
        if count:
            events.append(dp_accounting.SelfComposedDpEvent(self._release, count))
        event = dp_accounting.ComposedDpEvent(events)
        accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=accounting.pld_interval(event))
        return accountant.compose(event).get_epsilon


_COMPOSERS: dict[str, Callable] = {"rdp": _RdpComposer, "pld": _PldComposer}
