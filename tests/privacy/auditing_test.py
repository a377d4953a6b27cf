"""Tests of `adaclip_tf.privacy.auditing`: the bounds are valid with the stated confidence, and not far from tight."""

import math

import numpy as np
import pytest
import scipy.stats

import adaclip_tf
from adaclip_tf.privacy import auditing

CONFIDENCE = 0.95


def randomized_response(generator, shape, epsilon, delta=0.0):
    """Coins, and answers that are (epsilon, delta)-DP: the truth for certain with probability delta."""
    coins = generator.random(shape) < 0.5
    probability = delta + (1.0 - delta) / (1.0 + math.exp(-epsilon))
    return coins, np.where(generator.random(shape) < probability, coins, ~coins)


def test_one_run_matches_the_paper():
    """The example of Appendix D and that of section 7 of Steinke et al. 2023 (arXiv 2305.08846v1)."""
    assert auditing.one_run_epsilon(1000, 100, 75, 1e-4, 0.95) == pytest.approx(0.673, abs=5e-4)
    assert auditing.one_run_epsilon(100_000, 1510, 1439, 1e-5, 0.95) == pytest.approx(2.675, abs=1e-3)


def test_one_run_p_value_is_the_theorem_term_by_term():
    canaries, guesses, correct, epsilon, delta = 50, 30, 22, 0.4, 1e-3
    law = scipy.stats.binom(guesses, math.exp(epsilon) / (1.0 + math.exp(epsilon)))
    worst = max(sum(law.pmf(x) for x in range(max(correct - i, 0), correct)) / i for i in range(1, canaries + 1))
    expected = sum(law.pmf(x) for x in range(correct, guesses + 1)) + 2 * canaries * delta * worst
    assert auditing.one_run_p_value(canaries, guesses, correct, epsilon, delta) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (0.5, 0.0), (2.0, 0.0), (1.0, 1e-3)])
def test_one_run_is_valid_and_tight_on_randomized_response(rng, epsilon, delta):
    canaries, repeats = 1000, 100
    coins, answers = randomized_response(rng, (repeats, canaries), epsilon, delta)
    rights = np.sum(coins == answers, axis=1)
    bounds = np.array([auditing.one_run_epsilon(canaries, canaries, int(v), delta, CONFIDENCE) for v in rights])
    # 1 in 20 may be wrong; 4 standard deviations of the count on top.
    assert np.mean(bounds > epsilon) < 0.05 + 4 * math.sqrt(0.05 * 0.95 / repeats)
    if delta == 0.0:
        assert epsilon - 0.25 < np.median(bounds) <= epsilon + 1e-9
    else:
        assert np.median(bounds) > 0.3 * epsilon  # the price of delta: 2 m delta more wrong guesses must be allowed for
    # Negative control: what is true of epsilon + 1 is found to be more than epsilon.
    coins, answers = randomized_response(rng, canaries, epsilon + 1.0, delta)
    right = int(np.sum(coins == answers))
    assert auditing.one_run_epsilon(canaries, canaries, right, delta, CONFIDENCE) > epsilon


def test_one_run_edges():
    assert auditing.one_run_epsilon(100, 100, 50, 0.0, 0.95) == 0.0
    assert auditing.one_run_epsilon(100, 0, 0, 0.0, 0.95) == 0.0
    assert auditing.one_run_epsilon(10**6, 10**6, 10**6, 0.0, 0.95) > 10
    with pytest.raises(ValueError, match="correct=3, guesses=2"):
        auditing.one_run_epsilon(10, 2, 3, 0.0, 0.95)
    with pytest.raises(ValueError, match="confidence"):
        auditing.one_run_epsilon(10, 2, 1, 0.0, 95)


def test_right_guesses_takes_both_ends():
    scores = np.array([0.1, 5.0, -3.0, 0.2, 4.0])
    present = np.array([True, True, False, False, False])
    assert auditing.right_guesses(scores, present, 2) == 2  # 5.0 is in, -3.0 is not
    assert auditing.right_guesses(scores, present, 3) == 2  # 4.0 is not in either
    assert auditing.right_guesses(scores, present, 5) == 2
    assert auditing.right_guesses(scores, present, 2, share=1.0) == 1  # 5.0 is in, 4.0 is not


def test_clopper_pearson_covers(rng):
    """Both bounds together hold at least as often as they say, and not much more often."""
    rates = np.array([0.1, 0.3])
    wrong = rng.binomial(200, rates, size=(500, 2))
    covered = []
    for one, two in wrong:
        bounds = auditing.error_bounds(auditing.Errors(int(one), 200, int(two), 200), CONFIDENCE)
        covered.append(np.all(np.array(bounds) >= rates))
    assert 0.93 < np.mean(covered) < 0.99
    assert auditing.error_bounds(auditing.Errors(5, 5, 0, 5), CONFIDENCE)[0] == 1.0


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.0), (3.0, 0.0), (1.0, 0.05)])
def test_attack_is_valid_and_tight_on_randomized_response(rng, epsilon, delta):
    coins, answers = randomized_response(rng, (100, 4000), epsilon, delta)
    bounds = np.array(
        [
            auditing.attack_epsilon(auditing.count_errors(answer, coin, 0.5), delta, CONFIDENCE)
            for coin, answer in zip(coins, answers)
        ]
    )
    assert np.mean(bounds > epsilon) < 0.05 + 4 * math.sqrt(0.05 * 0.95 / 100)
    assert np.median(bounds) > 0.8 * epsilon


def test_both_rates_hold_together():
    """Without any error of n: 1 - (half of what the confidence leaves over)^(1/n)."""
    found = auditing.error_bounds(auditing.Errors(0, 100, 0, 200), 0.9)
    assert found == pytest.approx((1 - 0.05 ** (1 / 100), 1 - 0.05 ** (1 / 200)))


@pytest.mark.parametrize("errors", [auditing.Errors(0, 1000, 500, 1000), auditing.Errors(500, 1000, 0, 1000)])
def test_an_attack_that_is_never_wrong_on_one_side_proves_much(errors):
    assert auditing.attack_epsilon(errors, 1e-5, 0.95) > 4.5
    assert auditing.attack_epsilon(errors, 0.3, 0.95) < auditing.attack_epsilon(errors, 1e-5, 0.95)


def test_attack_edges():
    assert auditing.attack_epsilon(auditing.Errors(50, 100, 50, 100), 1e-5, CONFIDENCE) == 0.0
    perfect = auditing.attack_epsilon(auditing.Errors(0, 1000, 0, 1000), 1e-5, CONFIDENCE)
    assert 5 < perfect < math.log(1000)
    nothing = auditing.attack_epsilon(auditing.Errors(10, 10, 10, 10), 1e-5, CONFIDENCE, clip=False)
    assert nothing == -math.inf


def _gaussian_trials(generator, trials, noise, probability, steps):
    present = generator.random(trials) < 0.5
    joined = present[:, None] & (generator.random((trials, steps)) < probability)
    sums = joined + noise * generator.normal(size=(trials, steps))
    ratio = np.exp((2 * sums - 1) / (2 * noise**2))
    likelihood = np.log(1 - probability + probability * ratio)
    return likelihood.sum(axis=1), present


@pytest.mark.parametrize(
    ("noise", "probability", "steps"), [(1.0, 1.0, 1), (3.0, 1.0, 9), pytest.param(0.8, 0.3, 3, marks=pytest.mark.slow)]
)
def test_the_gaussian_bound_is_tight_and_refutes_less_noise(rng, noise, probability, steps):
    claimed = adaclip_tf.epsilon(
        noise_multiplier=noise, delta=1e-5, num_examples=100, batch_size=round(100 * probability), steps=steps,
        accountant="pld",
    )  # fmt: skip
    mechanism = {"sampling_probability": probability, "steps": steps}

    def bound(true_noise):
        scores, present = _gaussian_trials(rng, 80_000, true_noise, probability, steps)
        threshold = auditing.choose_threshold(
            scores[:20_000],
            present[:20_000],
            lambda errors: auditing.share_of_advantage(errors, 0.999, noise_multiplier=noise, **mechanism),
        )
        errors = auditing.count_errors(scores[20_000:], present[20_000:], threshold)
        return auditing.sampled_gaussian_epsilon(errors, 1e-5, 0.999, **mechanism)

    assert 0.8 * claimed < bound(noise) <= claimed
    assert bound(0.8 * noise) > claimed


def test_the_trade_off_function_without_sampling_is_that_of_gaussian_differential_privacy():
    for false_positive in (0.01, 0.2, 0.6):
        exact = scipy.stats.norm.cdf(scipy.stats.norm.isf(false_positive) - math.sqrt(4) / 2.0)
        bound = auditing.smallest_false_negative_rate(false_positive, 2.0, 1.0, 4)
        assert exact - 5e-3 < bound <= exact + 1e-9


def test_a_coin_proves_nothing():
    coin = auditing.Errors(500, 1000, 500, 1000)
    assert auditing.sampled_gaussian_epsilon(coin, 1e-5, 0.95, sampling_probability=0.1, steps=3) == 0.0


def test_the_number_of_guesses_is_fixed_by_simulation():
    def draw(coins, generator):
        return coins + 0.3 * generator.normal(size=coins.shape)

    few = auditing.choose_guesses(200, 1e-5, 0.95, draw)
    assert few == auditing.choose_guesses(200, 1e-5, 0.95, draw)
    assert 20 < few <= 200
