"""From what an attacker sees of every step to a score for each canary. NumPy alone.

Symbols. m canaries, u_k what canary k adds to the sum if it is in the batch, U the rows u_k, W the noised sum:

    W = U^T x + N(0, z^2 I),     x_k = 1 where canary k is in the batch, else 0
    y = U W = G x + noise,       G = U U^T, noise ~ N(0, z^2 G)

Canaries overlap, so <u_k, W> sees the others, too. The best linear estimate of x takes them out as far as noise allows:
with p the mean and s^2 = p (1 - p) the variance of each x_k,

    x^ = p + A (y - G p),   A = s^2 (s^2 G + z^2 I)^-1,   alpha_k = (A G)_kk,
    (x^_k - (1 - alpha_k) p) / alpha_k = x_k + an error of variance s^2 (1 - alpha_k) / alpha_k.

For a single canary with |u| = 1 that error is the noise, z^2. From then on every canary is by itself, and its score
is the logarithm of the likelihood ratio of "in the data" to "not in the data", summed over the steps: a canary in the
data is in a batch with probability q.

Whatever the attacker computes from what was released is a fair score. None of the above has to be true for the bounds
to hold; it only makes them sharp.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_UNSEEN = 1e-9  # of alpha: such a canary moves nothing


class Observation(NamedTuple):
    """x_k with an error, for each canary. Arrays of shape [m]."""

    value: np.ndarray
    variance: np.ndarray  # infinite where nothing can be seen


def observe(gram: np.ndarray, products: np.ndarray, noise_multiplier: float, probability: float) -> Observation:
    """What one step says of each canary: from G, y, z and q."""
    gram, products = np.nan_to_num(np.asarray(gram, np.float64)), np.nan_to_num(np.asarray(products, np.float64))
    mean = probability / 2.0  # a coin, then the batch
    variance = mean * (1.0 - mean)
    lengths, vectors = np.linalg.eigh(gram)
    lengths = np.maximum(lengths, 0.0)
    weights = variance / (variance * lengths + noise_multiplier**2)
    alpha = np.square(vectors) @ (weights * lengths)
    estimate = mean + vectors @ (weights * (vectors.T @ (products - mean * gram.sum(axis=1))))
    seen = alpha > _UNSEEN
    alpha = np.where(seen, alpha, 1.0)
    error = np.where(seen, variance * np.maximum(1.0 - alpha, 1e-12) / alpha, np.inf)
    return Observation((estimate - (1.0 - alpha) * mean) / alpha, error)


def relative_size(gram: np.ndarray, products: np.ndarray, noise_multiplier: float, probability: float) -> float:
    """|y|^2 over what it should be on average: 1, but for chance. 0 where y is no numbers."""
    mean = probability / 2.0
    offset = mean * gram.sum(axis=1)
    expected = offset**2 + mean * (1.0 - mean) * np.sum(gram**2, axis=1) + noise_multiplier**2 * np.diag(gram)
    return float(np.nan_to_num(np.sum(np.square(products)) / max(expected.sum(), 1e-30), posinf=0.0))


def log_ratio(seen: Observation, probability: float) -> np.ndarray:
    """The logarithm of the likelihood ratio of "in the data" to "not", by one step."""
    exponent = (2.0 * seen.value - 1.0) / (2.0 * seen.variance)
    if probability == 1.0:
        return exponent
    return np.logaddexp(np.log1p(-probability), np.log(probability) + exponent)


def simulate(
    coins: np.ndarray, generator: np.random.Generator, noise_multiplier: float, probability: float, steps: int
) -> np.ndarray:
    """Scores of canaries that can be seen as well as the claim allows: |u| = 1, and no two overlap."""
    total = np.zeros(len(coins))
    for _ in range(steps):
        joined = coins & (generator.random(len(coins)) < probability)
        value = joined + generator.normal(scale=noise_multiplier, size=len(coins))
        total += log_ratio(Observation(value, np.full(len(coins), noise_multiplier**2)), probability)
    return total
