"""Which dp_accounting event a training is, and what is proven for it. No TensorFlow is needed.

A run is one `dp_accounting.DpEvent` (`training_event`), so that any accountant, now or later, can judge
it (`epsilon_of`), and so that parts of a program (a private PCA, then training) compose.

Two ways of forming batches, and what is proven for each. z is the noise multiplier, n the number of
examples, B the batch size, T the number of steps.

| sampling     | how batches are drawn                           | event                                  |
|--------------|-------------------------------------------------|----------------------------------------|
| "poisson"    | every example joins with probability q = B / n, | T times PoissonSampled(q, Gaussian(z)) |
|              | independently of all else, in each step again   |                                        |
| "shuffled"   | each example once per epoch, fixed batch size   | once per epoch Gaussian(z)             |

A third way is for the rounds of federated training (`adaclip_tf.flower`), not for batches of a `fit`:

| sampling              | who joins                      | event                                                    |
|-----------------------|--------------------------------|----------------------------------------------------------|
| "without_replacement" | B of the n, in each step again | T times SampledWithoutReplacement(n, B, Gaussian(z / 2)) |

It holds under replace-one: a record takes the place of another, and n is public. Both move the sum, hence z / 2
(Wang, Balle and Kasiviswanathan 2019, Theorem 27, by dp_accounting). RDP alone knows it, and what holds under
add/remove cannot be added to it: `accountants` refuses the sum.

"poisson" holds under add/remove-one-example. "shuffled" counts no amplification at all, since none of
useful size is proven for shuffling, and Poisson's figure can be too small for it (Chua et al. 2024, arXiv
2403.17673). It holds when the neighbouring data set has the example replaced by one that contributes
nothing ("zero-out"): the batches of an epoch are disjoint, so the example moves one of its sums, by 1.

Microbatches of several examples. One example then moves a clipped microbatch gradient anywhere in the
unit ball: by up to 2, not 1, so `microbatch_sensitivity=2` and the event is that of z / 2. What must hold
besides is that removing an example leaves the other microbatches as they were. Examples that are
Poisson-sampled one by one and then grouped by position do not have this (every later group
shifts by one): nothing is proven for them. It holds for groups that are fixed beforehand and sampled
whole. For these, if q <= 1/2, with u and u' the group's clipped gradients with and without the example,

    (P, P') = ((1-q) N(0) + q N(u), (1-q) N(0) + q N(u'))
            = 1/2 ((1-2q) N(0) + 2q N(u), N(0)) + 1/2 (N(0), (1-2q) N(0) + 2q N(u')),

so by joint convexity of exp((alpha-1) D_alpha) the RDP is at most that of PoissonSampled(2q, Gaussian(z)),
which is below that of PoissonSampled(q, Gaussian(z/2)), the event used here and by tensorflow-privacy (the
last step was checked on a grid of q, z and the accountant's orders; tests/privacy/epsilon_test.py repeats it).

Post-processing, which costs nothing: momentum, learning-rate schedules, AdaCliP's means and variances,
un-transforming. Gradient accumulation: the batch is the logical one, and its one release is one step. No
example may occur in it twice: one Poisson draw cut into parts, or parts of one epoch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import attr
import dp_accounting

from adaclip_tf._internal.prior import Prior
from adaclip_tf.privacy import claims, private_optimizer
from adaclip_tf.privacy.mechanism import Mechanism


@attr.s(frozen=True, slots=True, auto_attribs=True, repr=False)
class NamedEvent(dp_accounting.ComposedDpEvent):
    """What one object has asked of the data. Two that have asked alike are two events, and both are paid for.

    To an accountant it is the events that it composes. `named` makes one.
    """

    name: str = ""

    def __repr__(self) -> str:
        return f"ComposedDpEvent(events={self.events!r})"


def named(event: dp_accounting.DpEvent, name: str) -> NamedEvent:
    """`event`, as the one of the object with this name."""
    return NamedEvent([event], name)  # type: ignore[call-arg, arg-type]  # dp_accounting has no types


# By the name that an object had: all that it has asked up to now, since it asked again and got another name. Of this
# process: files and other processes keep what they know.
_since: dict[str, list[NamedEvent]] = {}


def follow(name: str | None, event: NamedEvent) -> None:
    """Notes that the object which was known as `name` has asked again: `event` is all that it has asked up to now."""
    if name is not None:
        _since.setdefault(name, []).append(event)


def current(event: dp_accounting.DpEvent | None) -> dp_accounting.DpEvent | None:
    """`event`, with what the objects in it have asked since it was made. Each of them counts once."""
    if event is None or not any(isinstance(part, NamedEvent) and part.name in _since for part in _parts(event)):
        return event
    found: list[dp_accounting.DpEvent] = []
    for part in _newest(event):
        if not (isinstance(part, NamedEvent) and part in found):
            found.append(part)
    return composed(found)


def _parts(event: dp_accounting.DpEvent) -> list[dp_accounting.DpEvent]:
    """What it composes; of one object all together."""
    if isinstance(event, NamedEvent) or not isinstance(event, dp_accounting.ComposedDpEvent):
        return [event]
    return [inner for part in event.events for inner in _parts(part)]


def _newest(event: dp_accounting.DpEvent) -> list[dp_accounting.DpEvent]:
    """The same, with what objects have asked since in the place of what they had asked before."""
    found: list[dp_accounting.DpEvent] = []
    for part in _parts(event):
        since = _since.get(part.name, []) if isinstance(part, NamedEvent) else []
        found += [newest for each in since for newest in _newest(each)] or [part]
    return found


def composed(parts: Sequence[dp_accounting.DpEvent]) -> dp_accounting.DpEvent:
    """All of them; where it is one, itself."""
    return parts[0] if len(parts) == 1 else dp_accounting.ComposedDpEvent(list(parts))


def gaussian_event(noise_multiplier: float, count: int = 1) -> dp_accounting.DpEvent:
    """`count` releases of L2 sensitivity 1 with N(0, noise_multiplier^2) on top, of the whole data set."""
    return dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(noise_multiplier), count)


def training_event(
    *,
    noise_multiplier: float,
    num_examples: int,
    batch_size: int,
    epochs: float | None = None,
    steps: int | None = None,
    sampling: str = "poisson",
    microbatch_sensitivity: float = 1.0,
) -> dp_accounting.DpEvent:
    """A whole training run as one dp_accounting event.

    Example:
      >>> training_event(noise_multiplier=1.1, num_examples=60000, batch_size=600, epochs=10).count
      1000

    Args:
      noise_multiplier, num_examples, batch_size, sampling, microbatch_sensitivity: as in
        `adaclip_tf.privacy.mechanism.Mechanism`.
      epochs: passes over the data, possibly a fraction. Counted as `poisson_batches` and `fit` on arrays do, as
        ceil(epochs * ceil(n / B)) steps. That is never less than tensorflow-privacy's ceil(epochs * n / B).
      steps: or the number of steps itself: noised releases, so logical batches.
    """
    step = Mechanism(noise_multiplier, num_examples, batch_size, sampling, microbatch_sensitivity)
    return step.event(epochs=epochs, steps=steps)


def optimizer_event(
    optimizer: Any, *, num_examples: int, batch_size: int, sampling: str = "poisson"
) -> dp_accounting.DpEvent:
    """The event of everything that `optimizer` has released so far, by what its own state says of its steps.

    Their number, noise, sensitivity and batch size are part of the optimizer's checkpointed state, so this is right
    after a resume too. Where the steps differed among themselves, the least noise and the largest batch are taken for
    all of them: never too small.
    """
    past = private_optimizer.require(optimizer, "optimizer_event").past_steps()
    if past.steps == 0:
        return dp_accounting.NoOpDpEvent()
    if past.batch_size > batch_size:
        raise ValueError(
            f"`batch_size` is {batch_size}, and the optimizer has taken steps on batches of {past.batch_size}: give "
            "the expected size of a logical batch."
        )
    step = Mechanism(past.noise_multiplier, num_examples, batch_size, sampling, past.microbatch_sensitivity)
    # Where two share batches, each has noted the noise of both, and one may have stepped more often.
    sharing = [seen.steps for seen in optimizer.other_past_steps() if claims.share_batches(optimizer, seen)]
    return step.event(steps=max([past.steps, *sharing]))


def check_other_event(event: Any) -> None:
    """Refuses an `other_event` that no accountant can compose."""
    if event is not None and not isinstance(event, dp_accounting.DpEvent):
        raise ValueError(
            f"`other_event` must be a `dp_accounting.DpEvent`, such as `PrivatePCA(...).event`, or None; got {event!r}."
        )


def noise_of_gaussians(event: dp_accounting.DpEvent) -> float | None:
    """z of the one Gaussian mechanism that `event` is worth; None where it is not made of these alone."""
    squares = _inverse_squares(event)
    return None if squares is None else math.inf if squares == 0.0 else squares**-0.5


def prior_event(prior: Prior) -> dp_accounting.DpEvent:
    """The event of what a clipping rule was made by."""
    asked = dp_accounting.GaussianDpEvent(prior.noise_multiplier)
    return asked if prior.name is None else named(asked, prior.name)


def with_prior(
    other_event: dp_accounting.DpEvent | None, prior: Prior | None, known: Iterable[dp_accounting.DpEvent] = ()
) -> dp_accounting.DpEvent | None:
    """`other_event`, and what a clipping rule was made by if it is in neither that nor in what is `known` to count."""
    counted = [*known, *([] if other_event is None else [other_event])]
    if prior is None or any(_holds(event, prior) for event in counted):
        return other_event
    mine = prior_event(prior)
    return mine if other_event is None else dp_accounting.ComposedDpEvent([other_event, mine])


def _inverse_squares(event: dp_accounting.DpEvent) -> float | None:
    """The sum of 1 / z^2 over the Gaussian mechanisms that an event composes; None if there is something else."""
    if isinstance(event, dp_accounting.GaussianDpEvent):
        return event.noise_multiplier**-2.0 if event.noise_multiplier else math.inf
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        inner = _inverse_squares(event.event)
        return None if inner is None else inner * event.count
    if isinstance(event, dp_accounting.ComposedDpEvent):
        parts = [_inverse_squares(part) for part in event.events]
        return None if None in parts else math.fsum(parts)  # type: ignore[arg-type]
    return None


def _holds(event: dp_accounting.DpEvent, prior: Prior) -> bool:
    """Whether `event`, or a part of it, is what `prior` was: by its name, or where that has none by its noise."""
    mine = noise_of_gaussians(event)
    if mine is not None:
        if prior.name is None and math.isclose(mine, prior.noise_multiplier, rel_tol=1e-9):
            return True
        # By the name: not more noise than it had, so that a further question is not left out.
        if isinstance(event, NamedEvent) and event.name == prior.name and mine <= prior.noise_multiplier * (1 + 1e-9):
            return True
    return isinstance(event, dp_accounting.ComposedDpEvent) and any(_holds(part, prior) for part in event.events)
