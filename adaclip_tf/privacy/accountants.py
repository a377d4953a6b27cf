"""The accountants: everything that differs between one way of adding up privacy losses and another, in one registry.

| name  | adds up                                                        | one release     | then, per number of steps |
|-------|----------------------------------------------------------------|-----------------|---------------------------|
| "rdp" | Renyi divergences: the moments accountant of Abadi et al.      | milliseconds    | a millisecond             |
| "pld" | privacy loss distributions, by FFT: tighter                    | about a second  | tenths of a second        |

`epsilon`, calibration, curves, budgets, ledgers, statements, TensorBoard and the command line ask an accountant by the
methods of `Accountant` alone, and list whatever is registered. So a third one is a class and a call of `register`:

    accountants.register(MyAccountant())
    epsilon(..., accountant="mine")
"""

from __future__ import annotations

import dataclasses
from typing import Callable, NamedTuple, Protocol

import dp_accounting
from dp_accounting import dp_event
from dp_accounting.pld import privacy_loss_distribution

from adaclip_tf._internal import validate

EpsilonByDelta = Callable[[float], float]
MakeAccountant = Callable[[], dp_accounting.PrivacyAccountant]


class Accountant(Protocol):
    """What an accountant must be able to do. All its epsilons are upper bounds."""

    @property
    def name(self) -> str:
        """What users call it."""

    @property
    def quick(self) -> bool:
        """Whether a prepared curve answers in about a millisecond, so that it may be asked at every step."""

    def of_event(self, event: dp_accounting.DpEvent) -> EpsilonByDelta:
        """Epsilon as a function of delta, of any event."""

    def prepare(
        self, release: dp_accounting.DpEvent, other: dp_accounting.DpEvent | None
    ) -> Callable[[int], EpsilonByDelta]:
        """The same of `count` times `release` and of `other`, by `count`. The costly part is done here."""

    def approach(self, target_epsilon: float) -> tuple[Rough, ...]:
        """Cheaper accountants, the cheapest first, whose epsilon is never below this one's: where a search begins."""


class Rough(NamedTuple):
    """A step on the way to a costly answer.

    Attributes:
      accountant: the cheaper one.
      factor: the noise multiplier that it finds is within about this factor of the one that comes next.
      precision: how exactly it need be asked; None for as exactly as the answer itself.
    """

    accountant: Accountant
    factor: float
    precision: float | None = None


@dataclasses.dataclass(frozen=True)
class Rdp:
    """Renyi divergences at dp_accounting's default orders."""

    name: str = "rdp"
    quick: bool = True

    def of_event(self, event: dp_accounting.DpEvent) -> EpsilonByDelta:
        return _rdp_accountant(event).compose(event).get_epsilon

    def prepare(
        self, release: dp_accounting.DpEvent, other: dp_accounting.DpEvent | None
    ) -> Callable[[int], EpsilonByDelta]:
        """RDP adds up, so that `count` releases cost `count` times the RDP of one."""
        other = other or dp_accounting.NoOpDpEvent()
        both = dp_accounting.ComposedDpEvent([release, other])
        one = _rdp_accountant(both).compose(release)
        rest = _rdp_accountant(both).compose(other)

        def composed(count: int) -> EpsilonByDelta:
            # 0 * infinity (no step of a mechanism without noise) must be 0.
            rdp = rest.rdp + (count * one.rdp if count else 0.0)
            return lambda delta: dp_accounting.rdp.compute_epsilon(one.orders, rdp, delta)[0]

        return composed

    def approach(self, target_epsilon: float) -> tuple[Rough, ...]:
        del target_epsilon
        return ()


@dataclasses.dataclass(frozen=True)
class Pld:
    """Privacy loss distributions. `interval` is how finely losses are cut; None for `pld_interval` of the event."""

    name: str = "pld"
    quick: bool = False
    interval: float | None = None

    def of_event(self, event: dp_accounting.DpEvent) -> EpsilonByDelta:
        if neighbours(event) is not dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE:
            raise ValueError("`accountant`='pld' does not know sampling without replacement; use 'rdp'.")
        interval = pld_interval(event) if self.interval is None else self.interval
        return dp_accounting.pld.PLDAccountant(value_discretization_interval=interval).compose(event).get_epsilon

    def prepare(
        self, release: dp_accounting.DpEvent, other: dp_accounting.DpEvent | None
    ) -> Callable[[int], EpsilonByDelta]:
        """Keeps the loss distribution of one release, which takes about a second to build."""
        from_scratch = afresh(self, release, other)
        sampled = _sampled_gaussian(release)
        if other is not None or sampled is None:
            return from_scratch
        one = privacy_loss_distribution.from_gaussian_mechanism(
            sampled.noise_multiplier,
            sampling_prob=sampled.probability,
            value_discretization_interval=pld_interval(release) if self.interval is None else self.interval,
        )
        return lambda count: one.self_compose(count).get_epsilon_for_delta if count > 0 else from_scratch(0)

    def approach(self, target_epsilon: float) -> tuple[Rough, ...]:
        """RDP finds the neighbourhood; a coarse interval, if small against epsilon, all but the last digits."""
        by_rdp = Rough(RDP, 1.2, 1e-2)
        if target_epsilon < 100.0 * _COARSE_INTERVAL:
            return (by_rdp,)
        return by_rdp, Rough(Pld("pld, coarse", interval=_COARSE_INTERVAL), 1.003)


@dataclasses.dataclass(frozen=True)
class Made:
    """Any `dp_accounting.PrivacyAccountant`, from a function that makes a fresh one."""

    make: MakeAccountant
    name: str = "custom"
    quick: bool = False

    def of_event(self, event: dp_accounting.DpEvent) -> EpsilonByDelta:
        return self.make().compose(event).get_epsilon

    def prepare(
        self, release: dp_accounting.DpEvent, other: dp_accounting.DpEvent | None
    ) -> Callable[[int], EpsilonByDelta]:
        return afresh(self, release, other)

    def approach(self, target_epsilon: float) -> tuple[Rough, ...]:
        del target_epsilon
        return ()


def afresh(
    accountant: Accountant, release: dp_accounting.DpEvent, other: dp_accounting.DpEvent | None
) -> Callable[[int], EpsilonByDelta]:
    """A `prepare` for accountants that have nothing to prepare: composes everything again for each count."""

    def composed(count: int) -> EpsilonByDelta:
        events = [] if other is None else [other]
        if count:
            events.append(dp_accounting.SelfComposedDpEvent(release, count))
        return accountant.of_event(dp_accounting.ComposedDpEvent(events))

    return composed


# ---------------------------------------------------------------------------------------------------
# The registry.

RDP, PLD = Rdp(), Pld()
REGISTERED: dict[str, Accountant] = {RDP.name: RDP, PLD.name: PLD}


def register(accountant: Accountant) -> Accountant:
    """Makes `accountant` known by its name, everywhere. A name that is taken is refused."""
    if accountant.name in REGISTERED:
        raise ValueError(f"`accountant` is named {accountant.name!r}, and there is one of that name; give it another.")
    REGISTERED[accountant.name] = accountant
    return accountant


def names() -> tuple[str, ...]:
    """The names of all accountants, in the order in which statements list them."""
    return tuple(REGISTERED)


def named(name: str) -> Accountant:
    """The accountant of that name, or a ValueError that lists them."""
    return REGISTERED[validate.one_of("accountant", name, names())]


def get(accountant: str | MakeAccountant) -> Accountant:
    """The accountant of that name; or one that adds up by what the function given makes."""
    return Made(accountant) if callable(accountant) else named(accountant)


# ---------------------------------------------------------------------------------------------------
# Whom an event protects.


def neighbours(event: dp_accounting.DpEvent) -> dp_accounting.NeighboringRelation:
    """The relation under which `event` is to be judged; ValueError where its parts are of different ones.

    What is sampled without replacement is known under replace-one. A Gaussian event by itself would be taken there for
    one whose sum moves by 1 when a record is replaced, and ours move by 1 when one is added: refused, never mixed.
    """
    found = set(_relations(event))
    if len(found) > 1:
        raise ValueError(
            "Sampling without replacement protects against the replacement of a record, all else against its addition "
            "or removal: one epsilon can't hold both. Use Poisson sampling, or a ledger of its own."
        )
    return found.pop() if found else dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE


def _relations(event: dp_accounting.DpEvent) -> list[dp_accounting.NeighboringRelation]:
    if isinstance(event, dp_accounting.NoOpDpEvent):
        return []
    if isinstance(event, dp_accounting.ComposedDpEvent):
        return [relation for part in event.events for relation in _relations(part)]
    if isinstance(event, (dp_accounting.SelfComposedDpEvent, dp_event.RepeatAndSelectDpEvent)):
        return _relations(event.event)
    if isinstance(event, dp_accounting.SampledWithoutReplacementDpEvent):
        return [dp_accounting.NeighboringRelation.REPLACE_ONE]
    return [dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE]


def _rdp_accountant(event: dp_accounting.DpEvent) -> dp_accounting.rdp.RdpAccountant:
    return dp_accounting.rdp.RdpAccountant(neighboring_relation=neighbours(event))


# ---------------------------------------------------------------------------------------------------
# PLD's details.

# The cost of PLD goes with the number of intervals; the coarse one only finds the neighbourhood.
_PLD_INTERVAL, _COARSE_INTERVAL, _PLD_SMALL_NOISE = 1e-4, 1e-3, 0.5


def pld_interval(event: dp_accounting.DpEvent) -> float:
    """How finely PLD cuts privacy losses: at dp_accounting's 1e-4, or as finely as memory allows where z is small.

    Losses range over 1 / z^2: at z = 0.01 and 1e-4, tens of gigabytes of them. Any interval gives an upper bound, and
    this one keeps its size relative to epsilon, which grows as 1 / z^2 too.
    """
    if isinstance(event, dp_accounting.ComposedDpEvent):
        return max([pld_interval(part) for part in event.events], default=_PLD_INTERVAL)
    if isinstance(event, (dp_accounting.SelfComposedDpEvent, dp_accounting.PoissonSampledDpEvent)):
        return pld_interval(event.event)
    z = getattr(event, "noise_multiplier", 1.0)
    return _PLD_INTERVAL * max(1.0, _PLD_SMALL_NOISE / z) ** 2 if z > 0.0 else _PLD_INTERVAL


class _SampledGaussian(NamedTuple):
    noise_multiplier: float
    probability: float


def _sampled_gaussian(event: dp_accounting.DpEvent) -> _SampledGaussian | None:
    """`event` as noise and sampling probability, where it is a Gaussian mechanism with noise, sampled or not."""
    probability = 1.0
    if isinstance(event, dp_accounting.PoissonSampledDpEvent):
        probability, event = event.sampling_probability, event.event
    if isinstance(event, dp_accounting.GaussianDpEvent) and event.noise_multiplier > 0.0:
        return _SampledGaussian(event.noise_multiplier, probability)
    return None
