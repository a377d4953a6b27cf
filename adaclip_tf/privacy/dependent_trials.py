"""Lower bounds on epsilon from canaries that may hang together: many in one run, along any trade-off curve.

`auditing.attack_epsilon` and `sampled_gaussian_epsilon` take trials for independent. Canaries in one run of a model
that somebody else made are not: their gradients overlap, and they meet in the same weights. The bounds here need no
independence but that of the coins, as `auditing.one_run_epsilon` does, and follow the trade-off curve of Gaussian
mechanisms: Mahloujifar, Melis, Chaudhuri, "Auditing f-Differential Privacy in One Run", 2024.

The argument, in short. M canaries, a fair coin each; from the output alone the attacker guesses c' of the coins, of
which p_k = P[k are right]. Let f be the trade-off function of the mechanism: an event that has probability h without
a canary has at most 1 - f(h) with it, and the other way round. Take canary j and the event "j is guessed so, and at
least i - 1 of the others are guessed right": with the coin that makes the guess right it says that i or more are
right, j among them; with the other coin, that i - 1 or more are right and j is wrong. The mean over j (f is convex)
says for all i

    r_i <= 1 - f(h_(i-1)),    r_i = sum_(k >= i) k p_k / M,    h_i = sum_(k >= i) (c' - k) p_k / M.

Suppose that c or more are right with probability tau. Least of all then follows if they are exactly c: that gives r_c
and h_c. From r_c follows the least h_(c-1), hence p_(c-1), hence r_(c-1), and so on down to i = 0. If these
probabilities add up to more than 1, then tau was too large: so many right guesses are less probable than tau.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import scipy.optimize
import scipy.special

from adaclip_tf.privacy import auditing

_EPSILONS = np.linspace(0.0, 16.0, 161)  # where a trade-off curve is looked at
_MOST_NOISE = 1e3  # between which noise multipliers are looked for, of all steps together
LEAST_NOISE = 0.15
LARGEST = 30.0  # no larger epsilon is told


class Curve:
    """A trade-off function from below, as the largest of straight lines: f(x) >= 1 - delta - e^eps x, and mirrored.

    Attributes:
      epsilons, deltas: of the pairs for which the mechanism is (epsilon, delta)-DP.
    """

    def __init__(self, epsilons: np.ndarray, deltas: np.ndarray):
        self.epsilons, self.deltas = np.atleast_1d(epsilons), np.atleast_1d(deltas)
        self._factors = np.exp(self.epsilons)

    def least_without(self, r: float) -> float:
        """The least h with r <= 1 - f(h): how probable an event is at least on the other side."""
        lines = np.maximum((r - self.deltas) / self._factors, 1.0 - self.deltas - self._factors * (1.0 - r))
        return max(float(np.max(lines)), 0.0)


def refutes(canaries: int, guesses: int, correct: int, curve: Curve, confidence: float) -> bool:
    """Whether mechanisms with this trade-off curve have `correct` or more right guesses less often than 1 - confidence.

    Args:
      canaries: M, each in the data by a fair coin of its own.
      guesses: c', fixed before the scores are seen.
      correct: c.
      curve: of the mechanism that is doubted.
      confidence: 1 - tau.
    """
    if not 0 <= correct <= guesses <= canaries:
        raise ValueError(
            "There must be no more right guesses than guesses, nor more guesses than canaries; got "
            f"correct={correct!r}, guesses={guesses!r}, canaries={canaries!r}."
        )
    tau = 1.0 - auditing.check_confidence(confidence)
    all_of_it = guesses / canaries * (1.0 + 1e-12)  # rounding alone refutes nothing
    r, h = tau * correct / canaries, tau * (guesses - correct) / canaries
    for i in range(correct - 1, -1, -1):
        more = max(curve.least_without(r) - h, 0.0)
        h, r = h + more, r + more * i / (guesses - i)
        if r + h > all_of_it:
            return True
    return False


def gaussian_epsilon_of_guesses(
    canaries: int,
    guesses: int,
    correct: int,
    delta: float,
    confidence: float,
    *,
    sampling_probability: float,
    steps: int,
) -> float:
    """The epsilon at `delta` of the noisiest sampled Gaussian mechanism that so many right guesses do not rule out.

    As `auditing.sampled_gaussian_epsilon`, for trials that may hang together: a lower bound for `steps` Poisson-sampled
    Gaussian mechanisms of some noise. Where the claim is one of them, a result above the claim refutes it without any
    further assumption.
    """

    def refuted(probability: float, log_noise: float) -> bool:
        curve = gaussian_curve(math.exp(log_noise), probability, steps)
        return refutes(canaries, guesses, correct, curve, confidence)

    # By the logarithm of the noise, from above: what much noise hides is refuted first.
    low = math.log(LEAST_NOISE * math.sqrt(steps))
    high = -_largest(lambda x: refuted(1.0, -x), -math.log(_MOST_NOISE * math.sqrt(steps)), -low, 2e-3)
    if not refuted(1.0, high):
        return 0.0
    if sampling_probability < 1.0:
        # Sampling can only make an attack harder: all that is refuted without it is refuted with it.
        step, floor = 0.2, math.log(LEAST_NOISE)
        while high - step > floor and refuted(sampling_probability, high - step):
            high -= step
        high = -_largest(lambda x: refuted(sampling_probability, -x), -high, -max(high - step, floor), 5e-3)
    return gaussian_epsilon(math.exp(high), delta, sampling_probability, steps)


def _largest(is_refuted: Callable[[float], bool], low: float, high: float, precision: float) -> float:
    """The last number, from `low` on, that is refuted; `low` where none is."""
    if not is_refuted(low):
        return low
    while high - low > precision:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if is_refuted(middle) else (low, middle)
    return low


def choose_guesses(
    canaries: int,
    delta: float,
    confidence: float,
    draw_scores: Callable[[np.ndarray, np.random.Generator], np.ndarray],
) -> tuple[int, float]:
    """How many guesses to make, and the share that says "present": the best of a few on simulated scores.

    So it is fixed before the real ones are seen. Where batches are sampled, a canary in the data may have been in none
    of them: then only "present" is worth guessing.

    Args:
      draw_scores: a function from the coins, an array of booleans, to scores as the claimed mechanism would give them.
    """
    parts = np.geomspace(0.02, 1.0, 12)
    return auditing.best_guesses(
        canaries, delta, confidence, draw_scores, simulations=10, parts=parts, shares=(0.5, 1.0)
    )


# ---------------------------------------------------------------------------------------------------
# Sampled Gaussian mechanisms.


def gaussian_curve(noise_multiplier: float, sampling_probability: float, steps: int) -> Curve:
    """The trade-off curve of `steps` Poisson-sampled Gaussian mechanisms, from below."""
    if sampling_probability == 1.0:
        return Curve(_EPSILONS, _gaussian_deltas(_EPSILONS, math.sqrt(steps) / noise_multiplier))
    return Curve(_EPSILONS, _sampled_deltas(round(noise_multiplier, 6), sampling_probability, steps))


def gaussian_epsilon(noise_multiplier: float, delta: float, sampling_probability: float, steps: int) -> float:
    """Its epsilon at `delta`; where it is very large, LARGEST."""
    if sampling_probability == 1.0:
        mu = math.sqrt(steps) / noise_multiplier

        def excess(epsilon: float) -> float:
            return float(_gaussian_deltas(np.array([epsilon]), mu)[0]) - delta

        if excess(0.0) <= 0.0 or excess(LARGEST) >= 0.0:
            return 0.0 if excess(0.0) <= 0.0 else LARGEST
        return float(scipy.optimize.brentq(excess, 0.0, LARGEST, xtol=1e-6))
    distribution = auditing.privacy_loss(round(noise_multiplier, 6), sampling_probability, steps)
    return min(float(distribution.get_epsilon_for_delta(delta)), LARGEST)


def _gaussian_deltas(epsilons: np.ndarray, mu: float) -> np.ndarray:
    """delta(epsilon) of mu-Gaussian differential privacy (Balle, Wang 2018, Theorem 8)."""
    inner = epsilons + scipy.special.log_ndtr(-epsilons / mu - mu / 2.0)
    return scipy.special.ndtr(-epsilons / mu + mu / 2.0) - np.exp(inner)


@functools.lru_cache(maxsize=64)
def _sampled_deltas(noise_multiplier: float, sampling_probability: float, steps: int) -> np.ndarray:
    distribution = auditing.privacy_loss(noise_multiplier, sampling_probability, steps)
    return np.asarray(distribution.get_delta_for_epsilon(_EPSILONS))
