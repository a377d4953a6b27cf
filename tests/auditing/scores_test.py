"""Tests of `adaclip_tf.auditing.scores`: what is observed is what it says, with canaries apart and overlapping."""

import numpy as np
import pytest

from adaclip_tf.auditing import scores


def _steps(rng, directions, noise, probability, repeats):
    """x, and y = U W, for many steps."""
    joined = rng.random((repeats, len(directions))) < probability / 2.0
    sums = joined @ directions + noise * rng.normal(size=(repeats, directions.shape[1]))
    return joined, sums @ directions.T


@pytest.mark.parametrize("probability", [1.0, 0.2])
def test_a_single_canary_is_seen_through_the_noise_alone(rng, probability):
    _, seen = _steps(rng, np.eye(1, 3), 0.7, probability, 5)
    for products in seen:
        observed = scores.observe(np.eye(1), products, 0.7, probability)
        np.testing.assert_allclose(observed.value, products, rtol=1e-6)
        np.testing.assert_allclose(observed.variance, 0.7**2, rtol=1e-6)


def test_overlapping_canaries_are_told_apart(rng):
    """The error is as large as it says, and less than what others add to the plain product."""
    directions = rng.normal(size=(12, 20))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    gram = directions @ directions.T
    joined, seen = _steps(rng, directions, 0.3, 1.0, 2000)
    observed = [scores.observe(gram, products, 0.3, 1.0) for products in seen]
    errors = np.array([one.value for one in observed]) - joined
    np.testing.assert_allclose(errors.mean(axis=0), 0.0, atol=0.05)
    np.testing.assert_allclose(errors.var(axis=0), observed[0].variance, rtol=0.2)
    assert errors.var() < 0.6 * (seen - joined).var()


def test_a_canary_that_moves_nothing_says_nothing():
    gram = np.diag([1.0, 0.0])
    observed = scores.observe(gram, np.array([0.4, 0.0]), 1.0, 1.0)
    assert scores.log_ratio(observed, 1.0)[1] == 0.0
    assert np.isfinite(scores.observe(gram, np.array([np.nan, np.inf]), 1.0, 0.1).value).all()


def test_the_log_ratio_is_that_of_the_densities():
    seen = scores.Observation(np.array([0.3, 2.0]), np.array([0.25, 0.25]))

    def density(mean):
        return np.exp(-((seen.value - mean) ** 2) / 0.5)

    expected = np.log((0.9 * density(0.0) + 0.1 * density(1.0)) / density(0.0))
    np.testing.assert_allclose(scores.log_ratio(seen, 0.1), expected)


def test_a_factor_that_is_not_known_is_found(rng):
    _, seen = _steps(rng, np.eye(300), 0.5, 1.0, 1)
    assert scores.relative_size(np.eye(300), 1e-3 * seen[0], 0.5, 1.0) == pytest.approx(1e-6, rel=0.2)
    for nothing in (np.zeros(2), np.array([np.nan, 1.0]), np.array([np.inf, 1.0])):
        assert scores.relative_size(np.eye(2), nothing, 0.5, 1.0) == 0.0


def test_simulated_scores_are_those_of_the_mechanism(rng):
    """N(+-mu^2 / 2, mu^2), mu = sqrt(T) / z."""
    coins = np.arange(4000) % 2 == 0
    found = scores.simulate(coins, rng, 2.0, 1.0, 4)
    for there, sign in ((coins, 1.0), (~coins, -1.0)):
        assert np.mean(found[there]) == pytest.approx(sign * 0.5, abs=0.1)
        assert np.std(found[there]) == pytest.approx(1.0, rel=0.1)
