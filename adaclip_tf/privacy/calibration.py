"""From a target epsilon to noise multipliers: the inverse of `accounting.epsilon`."""

from __future__ import annotations

import functools
import math
from typing import Callable, NamedTuple

import dp_accounting
from scipy import optimize

from adaclip_tf._internal import validate
from adaclip_tf.privacy import accounting
from adaclip_tf.privacy.mechanism import Mechanism

LEAST_NOISE, MOST_NOISE = 0.05, 1e4  # outside, either no privacy is left or no signal

# PLD's cost goes with the number of intervals; the coarse one only finds the neighbourhood.
_COARSE_INTERVAL = 1e-3


class _OutOfReachError(ValueError):
    """No noise is enough for the target."""


class BudgetSplit(NamedTuple):
    """Noise multipliers of two parts whose composition meets one target."""

    pca_noise_multiplier: float
    training_noise_multiplier: float
    epsilon: float  # of both together
    event: dp_accounting.DpEvent  # of both together


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
) -> float:
    """The least noise multiplier with which a training run stays within `target_epsilon` at `delta`.

    Example:
      >>> z = noise_multiplier(target_epsilon=1.0, delta=1e-5, num_examples=60000, batch_size=600, epochs=10)
      >>> round(z, 2)
      1.51

    Args:
      target_epsilon: what the run may cost.
      tolerance: how far above the least value the result may lie, as a fraction of it.
      The rest: as in `accounting.epsilon`, with "rdp" or "pld" as the accountant.

    Returns:
      z with epsilon(noise_multiplier=z, ...) <= target_epsilon, by the same accountant.

    Raises:
      ValueError: if no noise multiplier up to 10,000 gets there. RDP with its finite set of orders cannot
        show an epsilon below about log(1 / delta) / 3000; PLD can.
    """

    def event(z: float) -> dp_accounting.DpEvent:
        step = Mechanism(z, num_examples, batch_size, sampling, microbatch_sensitivity)
        return step.event(epochs=epochs, steps=steps)

    event(1.0)  # a bad argument is named before the search starts
    accounting.check_delta(delta, num_examples)
    return _least_noise(event, target_epsilon, delta, accountant, examples_per_user, tolerance)


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
    fraction = validate.fraction("pca_fraction", pca_fraction)
    target = validate.positive("target_epsilon", target_epsilon)
    validate.positive("pca_fraction", fraction)

    pca_noise = _least_noise(
        accounting.gaussian_event, fraction * target, delta, accountant, examples_per_user, tolerance
    )

    def both(z: float) -> dp_accounting.DpEvent:
        step = Mechanism(z, num_examples, batch_size, sampling, microbatch_sensitivity)
        training = step.event(epochs=epochs, steps=steps)
        return dp_accounting.ComposedDpEvent([accounting.gaussian_event(pca_noise), training])

    accounting.check_delta(delta, num_examples)
    noise = _least_noise(both, target, delta, accountant, examples_per_user, tolerance)
    event = both(noise)
    total = accounting.epsilon_of(event, delta=delta, accountant=accountant, examples_per_user=examples_per_user)
    return BudgetSplit(pca_noise, noise, total, event)


def _least_noise(
    event: Callable[[float], dp_accounting.DpEvent],
    target_epsilon: float,
    delta: float,
    accountant: str,
    examples_per_user: int,
    tolerance: float,
) -> float:
    """The least z with epsilon_of(event(z)) <= target_epsilon, by a chain of ever finer accountants."""
    target = validate.positive("target_epsilon", target_epsilon)
    validate.positive("tolerance", tolerance)
    validate.positive_integer("examples_per_user", examples_per_user)
    validate.one_of("accountant", accountant, tuple(accounting.ACCOUNTANTS))

    def search(make: accounting.Accountant, guess: float, factor: float, precision: float) -> float:
        def epsilon_at(z: float) -> float:
            return accounting.epsilon_of(event(z), delta=delta, accountant=make, examples_per_user=examples_per_user)

        return _solve(epsilon_at, target, guess, factor, precision)

    if accountant == "rdp":
        return search("rdp", 1.0, 2.0, tolerance)
    try:
        guess = search("rdp", 1.0, 2.0, 1e-2)
    except _OutOfReachError:
        guess = 64.0  # of RDP, not of PLD
    if target < 100.0 * _COARSE_INTERVAL:
        return search("pld", guess, 1.2, tolerance)
    coarse = functools.partial(dp_accounting.pld.PLDAccountant, value_discretization_interval=_COARSE_INTERVAL)
    guess = search(coarse, guess, 1.2, tolerance)
    return search("pld", guess, 1.003, tolerance)


def _solve(epsilon_at: Callable[[float], float], target: float, guess: float, factor: float, tolerance: float) -> float:
    """The least z with epsilon_at(z) <= target, epsilon_at falling; brackets from `guess` by `factor`."""
    epsilon_at = functools.cache(epsilon_at)
    high, step = guess, factor
    while epsilon_at(high) > target:
        if high >= MOST_NOISE:
            raise _OutOfReachError(
                f"`target_epsilon`={target:g} is out of reach: no noise multiplier up to {MOST_NOISE:g} gets "
                "there. Ask for a larger epsilon or delta, fewer steps or a smaller batch; or, for a very "
                "small epsilon, use accountant='pld'."
            )
        high, step = min(high * step, MOST_NOISE), step * factor
    low, step = high / factor, factor * factor
    while epsilon_at(low) <= target:
        if low <= LEAST_NOISE:
            raise ValueError(
                f"`target_epsilon`={target:g} is so large that a noise multiplier of {LEAST_NOISE:g} meets "
                "it: that is no privacy. Ask for a smaller epsilon."
            )
        high, low, step = low, max(low / step, LEAST_NOISE), step * factor
    ceiling = 100.0 * target + 100.0  # infinity would stop the secant steps

    def gap(log_z: float) -> float:
        return min(epsilon_at(math.exp(log_z)), ceiling) - target

    root = math.exp(optimize.brentq(gap, math.log(low), math.log(high), xtol=tolerance / 2.0))
    while epsilon_at(root) > target:
        root = min(root * (1.0 + tolerance / 2.0), high)
    return root
