"""From a target epsilon to noise multipliers: the inverse of `epsilon`.

The search is our own and not `dp_accounting.calibrate_dp_mechanism`: it begins with cheaper accountants and hands their
answer on (`Accountant.approach`), it looks on a logarithmic scale, and what it returns is within the target, always.
"""

from __future__ import annotations

import functools
import math
from typing import Callable, NamedTuple

import dp_accounting
from scipy import optimize

from adaclip_tf._internal import signatures, validate
from adaclip_tf.privacy import accountants, group
from adaclip_tf.privacy import choice as choice_lib
from adaclip_tf.privacy.choice import PrivateChoice
from adaclip_tf.privacy.epsilon import check_delta, epsilon_of
from adaclip_tf.privacy.events import check_other_event, gaussian_event
from adaclip_tf.privacy.mechanism import Mechanism

MIN_NOISE, MAX_NOISE = 0.05, 1e4  # outside, either no privacy is left or no signal


class _OutOfReachError(ValueError):
    """No noise is enough for the target."""


class BudgetSplit(NamedTuple):
    """Noise multipliers of two parts whose composition meets one target."""

    pca_noise_multiplier: float
    training_noise_multiplier: float
    epsilon: float  # of both together
    event: dp_accounting.DpEvent  # of both together


class Target(NamedTuple):
    """What a search is to meet: the arguments that `noise_multiplier` and `split_budget` share."""

    epsilon: float
    delta: float
    accountant: str = "rdp"
    examples_per_user: int = 1
    tolerance: float = 1e-4


@signatures.keywords_only
def noise_multiplier(
    *,
    target_epsilon: float,
    delta: float,
    num_examples: int,
    batch_size: int,
    epochs: float | None = None,
    steps: int | None = None,
    accountant: str = "rdp",
    sampling: str = "poisson",
    microbatch_sensitivity: float = 1.0,
    examples_per_user: int = 1,
    tolerance: float = 1e-4,
    other_event: dp_accounting.DpEvent | None = None,
    choice: PrivateChoice | None = None,
) -> float:
    """The least noise multiplier with which a training run stays within `target_epsilon` at `delta`.

    Example:
      >>> z = noise_multiplier(target_epsilon=1.0, delta=1e-5, num_examples=60000, batch_size=600, epochs=10)
      >>> round(z, 2)
      1.51

    Args:
      target_epsilon: what the run may cost.
      tolerance: how far above the least value the result may lie, as a fraction of it.
      other_event: what else uses the same data, within the target, such as `PrivateScales(...).event`; where there is a
        `choice`, in every run.
      The rest: as in `epsilon`, with the name of an accountant.

    Returns:
      z with epsilon(noise_multiplier=z, ...) <= target_epsilon, by the same accountant.

    Raises:
      ValueError: if no noise multiplier up to 10,000 gets there. RDP with its finite set of orders cannot
        show an epsilon below about log(1 / delta) / 3000; PLD can.
    """
    mechanism = Mechanism(1.0, num_examples, batch_size, sampling, microbatch_sensitivity)
    target = Target(target_epsilon, delta, accountant, examples_per_user, tolerance)
    return noise_for_run(mechanism, target, epochs=epochs, steps=steps, other_event=other_event, choice=choice)


def noise_for_run(
    mechanism: Mechanism,
    target: Target,
    *,
    epochs: float | None = None,
    steps: int | None = None,
    other_event: dp_accounting.DpEvent | None = None,
    choice: PrivateChoice | None = None,
) -> float:
    """The least noise multiplier with which so many epochs or steps of `mechanism`, and `other_event`, meet `target`.

    Example:
      >>> round(noise_for_run(Mechanism(1.0, num_examples=60000, batch_size=600), Target(1.0, 1e-5), epochs=10), 2)
      1.51

    Args:
      mechanism: of one step. Its own noise multiplier plays no part.
      target: epsilon, delta, the accountant.
      epochs, steps: the length of the run.
    """
    mechanism.event(epochs=epochs, steps=steps)  # a bad argument is named before the search starts
    check_delta(target.delta, mechanism.num_examples)
    check_other_event(other_event)

    def event(z: float) -> dp_accounting.DpEvent:
        training = mechanism.with_noise(z).event(epochs=epochs, steps=steps)
        run = training if other_event is None else dp_accounting.ComposedDpEvent([other_event, training])
        return choice_lib.chosen(run, choice)

    choice_lib.check_accountant(choice, target.accountant)
    return _least_noise(event, target)


def split_budget(
    *,
    target_epsilon: float,
    delta: float,
    num_examples: int,
    batch_size: int,
    epochs: float | None = None,
    steps: int | None = None,
    pca_fraction: float = 0.1,
    accountant: str = "rdp",
    sampling: str = "poisson",
    microbatch_sensitivity: float = 1.0,
    examples_per_user: int = 1,
    tolerance: float = 1e-4,
) -> BudgetSplit:
    """Splits a budget between a `PrivatePCA` and the training that follows it.

    The PCA alone costs `pca_fraction * target_epsilon` at `delta`. Training gets the noise multiplier with
    which both together cost `target_epsilon`. That is less noise than the remaining fraction by itself would
    need: epsilons of Gaussian mechanisms add up like the sides of a right triangle, not along a line.

    Example:
      >>> split = split_budget(
      ...     target_epsilon=2.0, delta=1e-5, num_examples=60000, batch_size=600, epochs=10)
      >>> split.epsilon <= 2.0
      True
    """
    fraction = validate.positive("pca_fraction", validate.fraction("pca_fraction", pca_fraction))
    mechanism = Mechanism(1.0, num_examples, batch_size, sampling, microbatch_sensitivity)
    target = Target(
        validate.positive("target_epsilon", target_epsilon), delta, accountant, examples_per_user, tolerance
    )
    pca_noise = _least_noise(gaussian_event, target._replace(epsilon=fraction * target.epsilon))

    def both(z: float) -> dp_accounting.DpEvent:
        training = mechanism.with_noise(z).event(epochs=epochs, steps=steps)
        return dp_accounting.ComposedDpEvent([gaussian_event(pca_noise), training])

    check_delta(delta, mechanism.num_examples)
    noise = _least_noise(both, target)
    event = both(noise)
    total = epsilon_of(event, delta=delta, accountant=accountant, examples_per_user=examples_per_user)
    return BudgetSplit(pca_noise, noise, total, event)


def _least_noise(event: Callable[[float], dp_accounting.DpEvent], target: Target) -> float:
    """The least z for which event(z) meets the target, by a chain of ever finer accountants."""
    accountant = accountants.named(target.accountant)
    target = Target(
        validate.positive("target_epsilon", target.epsilon),
        check_delta(target.delta),
        accountant.name,
        validate.positive_integer("examples_per_user", target.examples_per_user),
        validate.positive("tolerance", target.tolerance),
    )

    def search(by: accountants.Accountant, guess: float, factor: float, tolerance: float) -> float:
        def epsilon_at(z: float) -> float:
            return group.group_epsilon(by.of_event(event(z)), target.delta, target.examples_per_user)

        return _solve(epsilon_at, target.epsilon, guess, factor, tolerance)

    guess, factor = 1.0, 2.0
    for rough in accountant.approach(target.epsilon):
        try:
            guess = search(rough.accountant, guess, factor, rough.precision or target.tolerance)
        except _OutOfReachError:
            guess = 64.0  # out of the cheaper one's reach, which says little of the finer one's
        factor = rough.factor
    return search(accountant, guess, factor, target.tolerance)


def _solve(epsilon_at: Callable[[float], float], target: float, guess: float, factor: float, tolerance: float) -> float:
    """The least z with epsilon_at(z) <= target, epsilon_at falling; brackets from `guess` by `factor`."""
    epsilon_at = functools.cache(epsilon_at)
    high, step = guess, factor
    while epsilon_at(high) > target:
        if high >= MAX_NOISE:
            raise _OutOfReachError(
                f"`target_epsilon`={target:g} is out of reach: no noise multiplier up to {MAX_NOISE:g} gets "
                "there. Ask for a larger epsilon or delta, fewer steps or a smaller batch; or, for a very "
                "small epsilon, use accountant='pld'."
            )
        high, step = min(high * step, MAX_NOISE), step * factor
    low, step = high / factor, factor * factor
    while epsilon_at(low) <= target:
        if low <= MIN_NOISE:
            raise ValueError(
                f"`target_epsilon`={target:g} is so large that a noise multiplier of {MIN_NOISE:g} meets "
                "it: that is no privacy. Ask for a smaller epsilon."
            )
        high, low, step = low, max(low / step, MIN_NOISE), step * factor
    ceiling = 100.0 * target + 100.0  # infinity would stop the secant steps

    def gap(log_z: float) -> float:
        return min(epsilon_at(math.exp(log_z)), ceiling) - target

    root = math.exp(optimize.brentq(gap, math.log(low), math.log(high), xtol=tolerance / 2.0))
    while epsilon_at(root) > target:
        root = min(root * (1.0 + tolerance / 2.0), high)
    return root
