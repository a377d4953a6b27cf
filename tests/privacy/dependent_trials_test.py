"""Tests of `adaclip_tf.privacy.dependent_trials`: valid where canaries hang together, and as sharp as its argument."""

import numpy as np
import pytest
import scipy.optimize

from adaclip_tf.privacy import auditing, dependent_trials

DELTA = 1e-5


def largest_tail(canaries, guesses, correct, epsilons, deltas):
    """max P[correct or more are right] where r_i <= 1 - f(h_(i-1)) for all i, as a linear program in p_0 ... p_c'.

    f is the largest of its lines, so 1 - f(h) is the least of delta + e^eps h and 1 - e^-eps (1 - delta - h).
    """
    k = np.arange(guesses + 1)
    left, right = [], []
    for i in range(1, guesses + 1):
        r, h = np.where(k >= i, k, 0) / canaries, np.where(k >= i - 1, guesses - k, 0) / canaries
        for epsilon, delta in zip(epsilons, deltas):
            left += [r - np.exp(epsilon) * h, r - np.exp(-epsilon) * h]
            right += [delta, 1.0 - np.exp(-epsilon) * (1.0 - delta)]
    found = scipy.optimize.linprog(
        -(k >= correct).astype(float), A_ub=np.array(left), b_ub=right, A_eq=np.ones((1, guesses + 1)), b_eq=[1.0]
    )
    assert found.success
    return -found.fun


@pytest.mark.parametrize(
    ("canaries", "guesses", "correct"), [(8, 8, 7), (20, 6, 6), (12, 12, 12), (40, 15, 13), (10, 10, 9)]
)
@pytest.mark.parametrize("curve", ["one pair", "Gaussian"])
def test_the_recursion_solves_the_linear_program(canaries, guesses, correct, curve):
    if curve == "one pair":
        doubted = dependent_trials.Curve(np.array([0.8]), np.array([1e-3]))
    else:
        doubted = dependent_trials.gaussian_curve(1.3, 1.0, 1)
    tail = largest_tail(canaries, guesses, correct, doubted.epsilons, doubted.deltas)
    assert tail < 0.999
    counts = canaries, guesses, correct, doubted
    assert dependent_trials.refutes(*counts, confidence=1.0 - 1.01 * tail)
    assert not dependent_trials.refutes(*counts, confidence=1.0 - 0.99 * tail)


def test_the_curve_of_a_gaussian_is_that_of_the_accountant():
    ours = dependent_trials.gaussian_curve(2.0, 1.0, 4)
    theirs = auditing.privacy_loss(2.0, 1.0, 4).get_delta_for_epsilon(ours.epsilons)
    np.testing.assert_allclose(ours.deltas[:60], theirs[:60], rtol=2e-2, atol=1e-7)
    epsilon = dependent_trials.gaussian_epsilon(2.0, DELTA, 1.0, 4)
    assert epsilon == pytest.approx(auditing.privacy_loss(2.0, 1.0, 4).get_epsilon_for_delta(DELTA), rel=1e-3)


def overlapping(generator, noise, canaries, dimensions, overlap):
    """Coins, and what a matched filter says of each, where canaries share a direction and so their noise."""
    own = np.eye(canaries, dimensions)
    shared = np.eye(1, dimensions, dimensions - 1)
    directions = np.sqrt(1.0 - overlap) * own + np.sqrt(overlap) * shared
    coins = generator.random(canaries) < 0.5
    noised = (coins - 0.5) @ directions + noise * generator.normal(size=dimensions)
    return coins, directions @ noised


@pytest.mark.parametrize("overlap", [0.0, 0.9])
def test_the_bound_is_valid_where_trials_hang_together(rng, overlap):
    noise, canaries, repeats = 1.0, 60, 100
    truth = dependent_trials.gaussian_epsilon(noise, DELTA, 1.0, 1)
    wrong = 0
    for _ in range(repeats):
        coins, scores = overlapping(rng, noise, canaries, canaries + 1, overlap)
        correct = auditing.right_guesses(scores, coins, 30)
        bound = dependent_trials.gaussian_epsilon_of_guesses(
            canaries, 30, correct, DELTA, 0.9, sampling_probability=1.0, steps=1
        )
        wrong += bound > truth
    assert wrong <= 0.1 * repeats + 4 * np.sqrt(0.09 * repeats)


@pytest.mark.parametrize(("probability", "steps"), [(1.0, 4), pytest.param(0.3, 3, marks=pytest.mark.slow)])
def test_the_bound_is_sharp_and_refutes_less_noise(rng, probability, steps):
    noise, canaries, guesses = 2.0 if probability == 1.0 else 1.5, 4000, 400
    claimed = dependent_trials.gaussian_epsilon(noise, DELTA, probability, steps)

    def bound(true_noise):
        coins = rng.random(canaries) < 0.5
        joined = coins & (rng.random((steps, canaries)) < probability)
        exponent = (2.0 * (joined + true_noise * rng.normal(size=joined.shape)) - 1.0) / (2.0 * true_noise**2)
        scores = np.log(1.0 - probability + probability * np.exp(exponent)).sum(axis=0)
        correct = auditing.right_guesses(scores, coins, guesses, 0.5 if probability == 1.0 else 1.0)
        counts = canaries, guesses, correct, DELTA, 0.99
        known = dependent_trials.gaussian_epsilon_of_guesses(*counts, sampling_probability=probability, steps=steps)
        assert known > auditing.one_run_epsilon(*counts)  # which knows nothing of the mechanism
        return known

    assert 0.2 * claimed < bound(noise) <= claimed
    assert bound(noise / 4.0) > claimed


def test_edges():
    mechanism = {"sampling_probability": 1.0, "steps": 1}
    assert dependent_trials.gaussian_epsilon_of_guesses(100, 50, 25, DELTA, 0.95, **mechanism) == 0.0
    assert dependent_trials.gaussian_epsilon_of_guesses(100, 50, 0, DELTA, 0.95, **mechanism) == 0.0
    most = dependent_trials.gaussian_epsilon_of_guesses(10**4, 5000, 5000, DELTA, 0.95, **mechanism)
    assert 10.0 < most <= dependent_trials.LARGEST
    with pytest.raises(ValueError, match="correct=3, guesses=2"):
        dependent_trials.gaussian_epsilon_of_guesses(10, 2, 3, DELTA, 0.95, **mechanism)
    with pytest.raises(ValueError, match="confidence"):
        dependent_trials.gaussian_epsilon_of_guesses(10, 2, 1, DELTA, 95, **mechanism)


@pytest.mark.parametrize(("probability", "share"), [(1.0, {0.5, 1.0}), (0.1, {1.0})])
def test_how_to_guess_is_fixed_by_simulation(probability, share):
    def draw(coins, generator):
        joined = coins & (generator.random(coins.shape) < probability)
        return joined + 0.3 * generator.normal(size=coins.shape)

    way = dependent_trials.choose_guesses(200, DELTA, 0.95, draw)
    assert way == dependent_trials.choose_guesses(200, DELTA, 0.95, draw)
    assert 4 <= way[0] <= 200 and way[1] in share
