"""From a training run to its epsilon. All the mathematics is dp_accounting's; no TensorFlow is needed.

A run is one `dp_accounting.DpEvent` (`training_event`), so that any accountant, now or later, can judge
it (`epsilon_of`), and so that parts of a program (a private PCA, then training) compose:

    event = dp_accounting.ComposedDpEvent([pca.event, training_event(...)])
    epsilon_of(event, delta=1e-5, accountant="pld")

Two ways of forming batches, and what is proven for each. z is the noise multiplier, n the number of
examples, B the batch size, T the number of steps.

| sampling     | how batches are drawn                           | event                                  |
|--------------|-------------------------------------------------|----------------------------------------|
| "poisson"    | every example joins with probability q = B / n, | T times PoissonSampled(q, Gaussian(z)) |
|              | independently of all else, anew in each step    |                                        |
| "shuffled"   | each example once per epoch, fixed batch size   | once per epoch Gaussian(z)             |

"poisson" holds under add/remove-one-example. "shuffled" counts no amplification at all, since none of
useful size is proven for shuffling, and Poisson's figure can be too small for it (Chua et al. 2024, arXiv
2403.17673). It holds when the neighbouring data set has the example replaced by one that contributes
nothing ("zero-out"): the batches of an epoch are disjoint, so the example moves one of its sums, by 1.

Microbatches of several examples. One example then moves a clipped microbatch gradient anywhere in the
unit ball: by up to 2, not 1, so `microbatch_sensitivity=2` and the event is that of z / 2. What must hold
besides is that removing an example leaves the other microbatches as they were. Examples that are
Poisson-sampled one by one and then grouped by position do not have this (every later group
shifts by one): nothing is proven for them. It holds for groups that are fixed beforehand and sampled as
wholes. For these, if q <= 1/2, with u and u' the group's clipped gradients with and without the example,

    (P, P') = ((1-q) N(0) + q N(u), (1-q) N(0) + q N(u'))
            = 1/2 ((1-2q) N(0) + 2q N(u), N(0)) + 1/2 (N(0), (1-2q) N(0) + 2q N(u')),

so by joint convexity of exp((alpha-1) D_alpha) the RDP is at most that of PoissonSampled(2q, Gaussian(z)),
which is below that of PoissonSampled(q, Gaussian(z/2)), the event used here and by tensorflow-privacy (the
last step was checked on a grid of q, z and the accountant's orders; tests/privacy/accounting_test.py repeats it).

Post-processing, which costs nothing: momentum, learning-rate schedules, AdaCliP's means and variances,
un-transforming. Gradient accumulation: the batch is the logical one, and its one release is one step. No
example may occur in it twice: one Poisson draw cut into parts, or parts of one epoch.
"""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from typing import Any, Callable, Union

import dp_accounting
from scipy import optimize

from adaclip_tf._internal import validate
from adaclip_tf.privacy.mechanism import Mechanism

ACCOUNTANTS: dict[str, Callable[[], dp_accounting.PrivacyAccountant]] = {
    "rdp": dp_accounting.rdp.RdpAccountant,
    "pld": dp_accounting.pld.PLDAccountant,
}

Accountant = Union[str, Callable[[], dp_accounting.PrivacyAccountant]]


# ---------------------------------------------------------------------------------------------------
# Events.


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
    if inspect.getattr_static(optimizer, "past_steps", None) is None:
        raise ValueError(
            "`optimizer` must be one that counts its noised steps, DPAdaClipSGD or DPFixedClipSGD; "
            f"got {type(optimizer).__name__}."
        )
    past = optimizer.past_steps()
    if past.steps == 0:
        return dp_accounting.NoOpDpEvent()
    if past.batch_size > batch_size:
        raise ValueError(
            f"`batch_size` is {batch_size}, and the optimizer has taken steps on batches of {past.batch_size}: give "
            "the expected size of a logical batch."
        )
    step = Mechanism(past.noise_multiplier, num_examples, batch_size, sampling, past.microbatch_sensitivity)
    return step.event(steps=past.steps)


# ---------------------------------------------------------------------------------------------------
# Epsilon.


def epsilon(
    *,
    noise_multiplier: float,
    delta: float,
    num_examples: int,
    batch_size: int,
    epochs: float | None = None,
    steps: int | None = None,
    accountant: Accountant = "rdp",
    sampling: str = "poisson",
    microbatch_sensitivity: float = 1.0,
    examples_per_user: int = 1,
) -> float:
    """The epsilon of a training run, at `delta`.

    Example:
      >>> round(epsilon(noise_multiplier=1.1, delta=1e-5, num_examples=60000, batch_size=600, epochs=10), 4)
      1.7118

    Args:
      noise_multiplier, num_examples, batch_size, sampling, microbatch_sensitivity:
        as in `adaclip_tf.privacy.mechanism.Mechanism`.
      epochs, steps: as in `training_event`.
      delta: the delta of (epsilon, delta); below 1 / num_examples, or a warning says so.
      accountant: "rdp" (Renyi: the moments accountant of Abadi et al. and of the paper), "pld" (privacy
        loss distributions: tighter), or a function that makes a `dp_accounting.PrivacyAccountant`.
      examples_per_user: protects a user who has up to this many examples, by group privacy.

    Returns:
      An upper bound; infinity where `noise_multiplier` is 0.
    """
    step = Mechanism(noise_multiplier, num_examples, batch_size, sampling, microbatch_sensitivity)
    event = step.event(epochs=epochs, steps=steps)
    check_delta(delta, num_examples)
    return epsilon_of(event, delta=delta, accountant=accountant, examples_per_user=examples_per_user)


def epsilon_of(
    event: dp_accounting.DpEvent, *, delta: float, accountant: Accountant = "rdp", examples_per_user: int = 1
) -> float:
    """The epsilon of any dp_accounting event, or composition of events, at `delta`."""
    check_delta(delta)
    if not isinstance(event, dp_accounting.DpEvent):
        raise ValueError(f"`event` must be a `dp_accounting.DpEvent`, such as `training_event(...)`; got {event!r}.")
    if accountant == "pld":
        accountant = functools.partial(
            dp_accounting.pld.PLDAccountant, value_discretization_interval=pld_interval(event)
        )
    composed = make_accountant(accountant).compose(event)
    return group_epsilon(composed.get_epsilon, delta, examples_per_user)


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


_PLD_INTERVAL, _PLD_SMALL_NOISE = 1e-4, 0.5


def make_accountant(accountant: Accountant) -> dp_accounting.PrivacyAccountant:
    """A fresh accountant: by name, or from the function given."""
    if callable(accountant):
        return accountant()
    return ACCOUNTANTS[validate.one_of("accountant", accountant, tuple(ACCOUNTANTS))]()


def group_epsilon(epsilon_at: Callable[[float], float], delta: float, size: int) -> float:
    """The epsilon that protects groups of `size` examples, from the curve that protects one.

    Vadhan, "The Complexity of Differential Privacy" (2017), Lemma 2.2, in the tighter form of its proof's
    last line but one: (eps, d) for one example is (k eps, d (e^(k eps) - 1) / (e^eps - 1)) for k of them. We
    look for the d that makes the second number `delta`, as tensorflow-privacy does.

    Returns:
      Infinity where the lemma gives no bound.
    """
    if validate.positive_integer("examples_per_user", size) == 1:
        return float(epsilon_at(delta))
    log_target = math.log(delta)

    @functools.cache
    def excess(log_delta: float) -> float:
        eps = epsilon_at(math.exp(log_delta))
        if not math.isfinite(eps):
            return math.inf
        growth = math.log(size) if eps == 0.0 else _log_expm1(size * eps) - _log_expm1(eps)
        return log_delta + growth - log_target

    # excess(x) > 0 means that the answer lies below x - excess(x): a smaller d has a larger epsilon.
    upper, lower = log_target, log_target - math.log(10.0)
    while excess(lower) > 0.0:
        upper = lower - excess(lower)
        lower = upper - math.log(10.0)
        if not math.isfinite(excess(lower)) or lower < -700.0:
            return math.inf
    log_delta = optimize.brentq(excess, lower, upper)
    return size * float(epsilon_at(math.exp(log_delta)))


def _log_expm1(x: float) -> float:
    return x + math.log(-math.expm1(-x))


# ---------------------------------------------------------------------------------------------------
# Checks shared with the modules built on this one.


def check_delta(delta: float, num_examples: int | None = None) -> float:
    """Returns `delta` if it is in (0, 1); warns if it is so large that it protects nobody in particular."""
    if not 0.0 < validate.real("delta", delta) < 1.0:
        raise ValueError(f"`delta` must be above 0 and below 1 (well below 1 / num_examples); got {delta!r}.")
    if num_examples is not None and delta * num_examples >= 1.0:
        warnings.warn(
            f"delta={delta:g} is not below 1 / num_examples = {1 / num_examples:g}: publishing one example "
            "outright, chosen at random, would satisfy it.",
            UserWarning,
            stacklevel=3,
        )
    return float(delta)


def check_other_event(event: Any) -> None:
    """Refuses an `other_event` that no accountant can compose."""
    if event is not None and not isinstance(event, dp_accounting.DpEvent):
        raise ValueError(
            f"`other_event` must be a `dp_accounting.DpEvent`, such as `PrivatePCA(...).event`, or None; got {event!r}."
        )
