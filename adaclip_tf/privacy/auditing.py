"""Lower bounds on epsilon from attacks: the mathematics alone, without TensorFlow. `examples/audit` uses it.

An accountant proves an upper bound on epsilon for the algorithm on paper. An audit attacks the program as it is: the
better the attack, the larger the epsilon must be. A lower bound above the accountant's figure is a proof (up to the
stated confidence) that the program is not as private as it says; a lower bound below it proves nothing, but leaves the
less room for mistakes the closer it comes.

Three bounds. In all of them the attacker gives each trial a score, large if the canary seems to be in the data.

| function                   | the null hypothesis that it rejects                          | from                |
|----------------------------|--------------------------------------------------------------|---------------------|
| `attack_epsilon`           | the mechanism is (epsilon, delta)-DP                         | Kairouz et al. 2015 |
| `sampled_gaussian_epsilon` | it is T Poisson-sampled Gaussian mechanisms of some noise z' | Nasr et al. 2023    |
| `one_run_epsilon`          | the mechanism is (epsilon, delta)-DP; needs one run only     | Steinke et al. 2023 |

The first one needs of the order of e^epsilon trials and cannot see much below delta = 1 / trials; the second one
knows the shape of the trade-off between the errors and extrapolates along it, so it is far tighter.
"""

from __future__ import annotations

import functools
import math
from typing import Callable, NamedTuple

import numpy as np
import scipy.optimize
import scipy.stats
from dp_accounting.pld import privacy_loss_distribution

from adaclip_tf._internal import validate

# Where the trade-off function of a sampled Gaussian mechanism is looked at, and how finely its losses are discretized.
_EPSILONS = np.linspace(0.0, 12.0, 121)
_DISCRETIZATION = 1e-3


class Errors(NamedTuple):
    """How often an attack was wrong on trials with and without the canary."""

    false_positives: int
    absent: int
    false_negatives: int
    present: int


def count_errors(scores: np.ndarray, present: np.ndarray, threshold: float) -> Errors:
    """The errors of the attack that says "present" where the score exceeds `threshold`.

    The threshold must not be chosen by looking at these scores; see `choose_threshold`.
    """
    scores, present = np.ravel(scores), np.ravel(present).astype(bool)
    guessed = scores > threshold
    return Errors(
        false_positives=int(np.sum(guessed & ~present)),
        absent=int(np.sum(~present)),
        false_negatives=int(np.sum(~guessed & present)),
        present=int(np.sum(present)),
    )


def choose_threshold(scores: np.ndarray, present: np.ndarray, worth: Callable[[Errors], float]) -> float:
    """The threshold of the largest `worth`, on trials that are not used for anything else."""
    candidates = np.asarray(np.quantile(np.ravel(scores), np.linspace(0.005, 0.995, 199)))
    worths = [worth(count_errors(scores, present, float(threshold))) for threshold in candidates]
    return float(candidates[int(np.argmax(worths))])


def error_bounds(errors: Errors, confidence: float) -> tuple[float, float]:
    """Upper bounds on the false positive and the false negative rate that hold together with `confidence`.

    Clopper-Pearson (1934), one-sided, each with half of what the confidence leaves over.
    """
    level = 1.0 - (1.0 - check_confidence(confidence)) / 2.0

    def upper(wrong: int, trials: int) -> float:
        return 1.0 if wrong == trials else float(scipy.stats.beta.ppf(level, wrong + 1, trials - wrong))

    return upper(errors.false_positives, errors.absent), upper(errors.false_negatives, errors.present)


def attack_epsilon(errors: Errors, delta: float, confidence: float, clip: bool = True) -> float:
    """The largest epsilon that the errors rule out, whatever the mechanism.

    (epsilon, delta)-DP allows no attack with FPR + e^epsilon FNR < 1 - delta, nor with the two exchanged (Kairouz, Oh,
    Viswanath 2015, Theorem 2.1).

    Args:
      errors: of an attack that was fixed beforehand, on independent trials.
      delta: that of (epsilon, delta).
      confidence: with which the true epsilon at `delta` is at least the result.
      clip: False to get negative numbers too, which say how far the attack is from proving anything.
    """
    false_positive, false_negative = error_bounds(errors, confidence)

    def bound(one: float, other: float) -> float:
        return math.log(1.0 - delta - one) - math.log(other) if 1.0 - delta - one > 0.0 else -math.inf

    epsilon = max(bound(false_negative, false_positive), bound(false_positive, false_negative))
    return max(epsilon, 0.0) if clip else epsilon


def sampled_gaussian_epsilon(
    errors: Errors, delta: float, confidence: float, *, sampling_probability: float, steps: int
) -> float:
    """The epsilon at `delta` of the noisiest sampled Gaussian mechanism that the errors do not rule out.

    Let f_z be the trade-off function of `steps` Gaussian mechanisms of sensitivity 1 and noise z on Poisson samples:
    no attack on it has FPR a and FNR below f_z(a). The errors rule out every z with f_z(FPR) > FNR, that is every z
    above some z', and the result is epsilon(z'). It is a lower bound for mechanisms of this family alone; but where the
    claim is one of them, a result above the claim refutes it without any further assumption.
    """
    false_positive, false_negative = error_bounds(errors, confidence)
    # Without sampling f_z is that of mu-Gaussian DP, mu = sqrt(T) / z, in closed form (Dong, Roth, Su 2022).
    mu = scipy.stats.norm.isf(false_positive) - scipy.stats.norm.ppf(false_negative)
    if mu <= 0.0:
        return 0.0  # a coin does as well
    log_noise = math.log(math.sqrt(steps) / mu)
    if sampling_probability < 1.0:
        # Sampling can only make the attack harder, so z' is smaller: look for it from above.
        def excess(x: float) -> float:
            least = smallest_false_negative_rate(false_positive, math.exp(x), sampling_probability, steps)
            return least - false_negative

        high, low = log_noise + 0.05, log_noise - 0.2
        while excess(low) > 0.0 and low > math.log(0.1):
            high, low = low, low - 0.2
        log_noise = low if excess(low) > 0.0 else scipy.optimize.brentq(excess, low, high, xtol=2e-3)
    distribution = privacy_loss(round(math.exp(log_noise), 4), sampling_probability, steps)
    return float(distribution.get_epsilon_for_delta(delta))


def smallest_false_negative_rate(
    false_positive: float, noise_multiplier: float, sampling_probability: float, steps: int
) -> float:
    """f(a): below this no attack with FPR a can come on `steps` Poisson-sampled Gaussian mechanisms.

    From the accountant's delta(epsilon), an upper bound: f(a) >= 1 - delta(eps) - e^eps a for every eps, and
    f(a) >= e^-eps (1 - delta(eps) - a) (Dong, Roth, Su 2022, Proposition 2.5).
    """
    slack = 1.0 - _deltas(round(noise_multiplier, 6), sampling_probability, steps)
    lines = [slack - np.exp(_EPSILONS) * false_positive, np.exp(-_EPSILONS) * (slack - false_positive)]
    return max(0.0, float(np.max(lines)))


def share_of_advantage(
    errors: Errors, confidence: float, *, noise_multiplier: float, sampling_probability: float, steps: int
) -> float:
    """1 - FPR - FNR, by the upper bounds, as a share of the most that the mechanism allows at this FPR."""
    false_positive, false_negative = error_bounds(errors, confidence)
    least = smallest_false_negative_rate(false_positive, noise_multiplier, sampling_probability, steps)
    return (1.0 - false_positive - false_negative) / max(1.0 - false_positive - least, 1e-12)


@functools.lru_cache(maxsize=64)
def _deltas(noise_multiplier, sampling_probability, steps):
    distribution = privacy_loss(noise_multiplier, sampling_probability, steps)
    return np.asarray(distribution.get_delta_for_epsilon(_EPSILONS))


@functools.lru_cache(maxsize=8)
def privacy_loss(noise_multiplier: float, sampling_probability: float, steps: int):
    """The privacy loss distribution of `steps` Poisson-sampled Gaussian mechanisms."""
    single = privacy_loss_distribution.from_gaussian_mechanism(
        noise_multiplier, sampling_prob=sampling_probability, value_discretization_interval=_DISCRETIZATION
    )
    return single.self_compose(steps)


# ---------------------------------------------------------------------------------------------------
# One run.


def one_run_p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """How probable `correct` or more right guesses are at most, under (epsilon, delta)-DP.

    Steinke, Nasr, Jagielski, "Privacy Auditing with One (1) Training Run", 2023, Theorem 5.2. Each of m canaries is
    put into the data, or left out, by a fair coin of its own; S in {-1, 1}^m are the coins. The mechanism sees the
    data, and from its output alone the attacker makes guesses T in {-1, 0, 1}^m of which at most r are not 0 (0 is no
    guess).
    If the mechanism is (epsilon, delta)-DP under adding or removing one example then, for all v,

        P[at least v of the guesses are right] <= P[X >= v] + 2 m delta max_{1 <= i <= m} P[v > X >= v - i] / i,

    where X ~ Binomial(r, e^epsilon / (1 + e^epsilon)).

    Args:
      canaries: m.
      guesses: r, fixed before the scores are seen.
      correct: v.
    """
    if not 0 <= correct <= guesses <= canaries:
        raise ValueError(
            "There must be no more right guesses than guesses, nor more guesses than canaries; got "
            f"correct={correct!r}, guesses={guesses!r}, canaries={canaries!r}."
        )
    probability = 1.0 / (1.0 + math.exp(-epsilon))
    p_value = scipy.stats.binom.sf(correct - 1, guesses, probability)
    if correct and delta:
        # P[v > X >= v - i] for i = 1 .. v; it no longer grows for larger i, while the divisor does.
        below = np.cumsum(scipy.stats.binom.pmf(np.arange(correct - 1, -1, -1), guesses, probability))
        p_value += 2.0 * canaries * delta * np.max(below / np.arange(1, correct + 1))
    return min(float(p_value), 1.0)


def one_run_epsilon(canaries: int, guesses: int, correct: int, delta: float, confidence: float) -> float:
    """The largest epsilon that so many right guesses rule out: a lower bound with `confidence`.

    The p-value grows with epsilon, so the bound is where it reaches 1 - confidence.
    """
    level = 1.0 - check_confidence(confidence)

    def excess(epsilon: float) -> float:
        return one_run_p_value(canaries, guesses, correct, epsilon, delta) - level

    if excess(0.0) >= 0.0:
        return 0.0
    high = 1.0
    while excess(high) < 0.0 and high < 64.0:
        high *= 2.0
    return 64.0 if excess(high) < 0.0 else float(scipy.optimize.brentq(excess, 0.0, high, xtol=1e-6))


def right_guesses(scores: np.ndarray, present: np.ndarray, guesses: int, share: float = 0.5) -> int:
    """How many guesses are right: a `share` with the largest scores is called present, those with the least absent."""
    order = np.argsort(np.ravel(scores), kind="stable")
    present = np.ravel(present).astype(bool)[order]
    absent_guesses = int(guesses * (1.0 - share))
    present_guesses = guesses - absent_guesses
    return int(np.sum(~present[:absent_guesses]) + np.sum(present[len(present) - present_guesses :]))


def choose_guesses(
    canaries: int,
    delta: float,
    confidence: float,
    draw_scores: Callable[[np.ndarray, np.random.Generator], np.ndarray],
) -> int:
    """How many guesses to make: the best of a few numbers on simulated scores, so before the real ones are seen.

    Args:
      draw_scores: a function from the coins, an array of booleans, to scores as the claimed mechanism would give them.
    """
    parts = np.geomspace(0.01, 1.0, 15)
    return best_guesses(canaries, delta, confidence, draw_scores, simulations=20, parts=parts, shares=(0.5,))[0]


def best_guesses(
    canaries: int,
    delta: float,
    confidence: float,
    draw_scores: Callable[[np.ndarray, np.random.Generator], np.ndarray],
    *,
    simulations: int,
    parts: np.ndarray,
    shares: tuple[float, ...],
) -> tuple[int, float]:
    """How many guesses, as one of `parts` of the canaries, and which share says "present", by simulated scores."""
    generator = np.random.default_rng(0)
    present = generator.random((simulations, canaries)) < 0.5
    scores = [draw_scores(row, generator) for row in present]

    def mean_bound(guesses: int, share: float) -> float:
        right = np.mean([right_guesses(s, p, guesses, share) for s, p in zip(scores, present)])
        return one_run_epsilon(canaries, guesses, int(right), delta, confidence)

    numbers = sorted({max(1, round(canaries * part)) for part in parts})
    ways = [(number, share) for number in numbers for share in shares]
    return max(ways, key=lambda way: mean_bound(*way))


def check_confidence(value: float) -> float:
    """Returns `value` if it is a probability other than 0 and 1."""
    if not 0.0 < validate.real("confidence", value) < 1.0:
        raise ValueError(f"`confidence` must be above 0 and below 1, such as 0.95; got {value!r}.")
    return float(value)
