"""From noised answers to scales: by hand, and what happens at the edges."""

import math

import numpy as np
import pytest

from adaclip_tf.scales import estimate


def search(clip=1.0, noise=0.1, spread=1.75, **settings):
    return estimate.MedianSearch(clip, spread=spread, noise=noise, **settings)


def test_an_answer_is_believed_as_far_as_its_noise_allows():
    """By quadrature: a first guess of 1 / (1 + (x / 1.75)^2), times exp(-(f - Phi(-x))^2 / 2 v) for f at C = 1."""
    for noise in (0.0, 0.5):
        asked = search(noise=noise)
        asked.move(0.1)
        x = np.linspace(-28.0, 28.0, 200_001)
        within = 0.5 * (1.0 + np.vectorize(math.erf)(-x / math.sqrt(2.0)))
        belief = np.exp(-((0.1 - within) ** 2) / (2.0 * (noise**2 + 0.05**2))) / (1.0 + (x / 1.75) ** 2)
        below = np.cumsum(belief) / belief.sum()
        lower, median, upper = (x[np.searchsorted(below, share)] for share in (0.16, 0.5, 0.84))
        assert math.log(asked.clip) == pytest.approx(median, abs=0.02)
        assert asked.spread == pytest.approx((upper - lower) / 2.0, abs=0.02)


@pytest.mark.parametrize("median", [1e-6, 0.3, 1.0, 48.0, 1e6])
def test_the_search_finds_a_median_however_far_it_is(median):
    """Of norms that are not quite as it takes them to be: of two sizes, of another spread."""
    rng = np.random.default_rng(0)
    norms = np.concatenate([rng.lognormal(-0.7, 0.5, 5001), rng.lognormal(0.9, 0.5, 5000)])
    norms *= median / np.median(norms)
    asked = search(noise=0.005)
    for _ in range(12):
        asked.move(float((norms <= asked.clip).mean()) + 0.005 * rng.normal())
    assert asked.clip == pytest.approx(median, rel=0.25)
    assert asked.spread < 0.1


def test_where_noise_is_all_the_clip_stays_near_the_first_guess():
    """Noise of half of the examples, as in a few hundred at a small epsilon: log C is 1 off, and not 3."""
    rng, found = np.random.default_rng(1), []
    for _ in range(40):
        asked = search(noise=0.5)
        for _ in range(12):
            asked.move(float(asked.clip > 3.0) + 0.5 * rng.normal())
        found.append(math.log(asked.clip / 3.0))
    assert np.sqrt(np.mean(np.square(found))) < 0.6
    assert np.max(np.abs(found)) < 1.7


def test_the_clip_stays_within_float32():
    for fraction, most in ((1.0, 1e-8), (0.0, 1e11)):
        asked = search(clip=1e-6 if fraction else 1e9)
        for _ in range(40):
            asked.move(fraction)
        assert asked.clip == pytest.approx(most)


def test_rows_are_shrunk_to_their_mean_by_their_noise():
    """v = 10, 20, 60 with errors 10: mu = 30, t^2 = (400 + 100 + 900) / 3 - 100 = 1100 / 3, k = 11 / 14."""
    v = np.array([10.0, 20.0, 60.0])
    k = 11 / 14
    expected = [30 - 20 * k, 30 - 10 * k, 30 + 30 * k]
    np.testing.assert_allclose(estimate.shrunk(v, np.full(3, 10.0)), expected)


def test_where_noise_hides_the_differences_all_rows_are_alike():
    """t^2 = 0: everything is the mean, or its standard error 100 / sqrt(4) where that is larger."""
    error = np.full(4, 100.0)
    np.testing.assert_allclose(estimate.shrunk(np.array([80.0, 120.0, 60.0, 140.0]), error), 100.0)
    np.testing.assert_allclose(estimate.shrunk(np.array([10.0, -10.0, 10.0, -10.0]), error), 50.0)


def test_a_row_is_never_below_its_error_as_far_as_it_is_believed():
    found = estimate.shrunk(np.array([-50.0, 0.0, 1000.0]), np.full(3, 10.0))
    assert np.all(found > 0.0)
    np.testing.assert_allclose(found[0], 10.0, rtol=0.01)  # k is close to 1


def test_shapes_of_a_round_without_noise():
    """m = M = 1, 1, 4 and 4: shapes go as 1, 1, 2, 2 with r = 1/2, and root mean square 1. sum m / (C h) stays 10 / C:
    with h = 1, 1, 2, 2 over sqrt(5 / 2) it is sqrt(5 / 2) (1 + 1 + 2 + 2) / C'."""
    noised = [np.array([[1.0], [1.0], [4.0]]), np.array([4.0])]
    shaped = estimate.next_shapes(2.0, [np.ones([3, 1]), np.ones([1])], noised, [1, 1], 0.0, 0.5)
    np.testing.assert_allclose(
        np.concatenate([h.ravel() for h in shaped.shapes]), np.array([1, 1, 2, 2]) / math.sqrt(2.5)
    )
    assert shaped.clip == pytest.approx(2.0 * 6 * math.sqrt(2.5) / 10)
    assert shaped.unseen == ()


def test_a_row_without_gradients_is_raised_to_the_median():
    """m = 0, 4: h goes as the roots of 2 and 4, whatever the row of which nothing came."""
    (h,) = estimate.next_shapes(1.0, [np.ones([2, 1])], [np.array([[0.0], [4.0]])], [1], 0.0, 0.5).shapes
    assert h[1, 0] / h[0, 0] == pytest.approx(math.sqrt(2.0))


def test_rare_rows_are_raised_to_the_median_of_their_variable():
    """m = 1e-3, 1, 4 in one variable: as 1, 1, 4; another variable's rows are not looked at."""
    noised = [np.array([[1e-3], [1.0], [4.0]]), np.array([[100.0]])]
    h = estimate.next_shapes(1.0, [np.ones([3, 1]), np.ones([1, 1])], noised, [1, 1], 0.0, 0.5).shapes[0].ravel()
    np.testing.assert_allclose(h / h[0], [1.0, 1.0, 2.0])


def by_frequency(m, present, noise=0.0, signal=math.inf, power=0.5, widths=(1,), **constants):
    """h of the first variable over that of its last row."""
    own = {"power": 0.1, "most_power": 0.4, "least_time": 5.0, "visible": 3.0, "least_size": 0.1, **constants}
    asked = estimate.Frequencies([np.asarray(part, float) for part in present], signal, **own)
    noised = [np.asarray(part, float) for part in m]
    shaped = estimate.next_shapes(1.0, [np.ones(part.shape) for part in noised], noised, widths, noise, power, asked)
    return shaped.shapes[0].ravel() / shaped.shapes[0].ravel()[-1]


def test_what_is_small_and_what_is_rare_are_told_apart():
    """m = 4, 1, 1: of twice the size and 1/4 of the frequency, of size 1/2, and of frequency 1 and size 2/2... by hand:
    f = 1, 1/4, 1 and m = 4, 1, 1 are sizes 4, 4, 1. With a long training s0 is 0, and h = size^(1/2) s^(1/10)."""
    h = by_frequency([[[4.0], [1.0], [1.0]]], [[[8.0], [2.0], [8.0]]])
    np.testing.assert_allclose(h, [2.0, 2.0 * 0.25**0.1, 1.0])


def test_in_a_short_training_all_rows_are_to_learn_equally_fast():
    """t = c d: s0 is infinite, and h = size^(1/2) s^(4/10)."""
    h = by_frequency([[[4.0], [1.0], [1.0]]], [[[8.0], [2.0], [8.0]]], signal=15.0)
    np.testing.assert_allclose(h, [2.0, 2.0 * 0.25**0.4, 1.0])


def test_a_rare_row_gets_its_least_time():
    """t = 5 d + 10: n0 = 1 + 1/4 + 1, s0 = 5 n0 / 10 = 9/8; h = size^(1/2) s^(1/10) (s / (s + 9/8))^(3/10)."""
    h = by_frequency([[[4.0], [1.0], [1.0]]], [[[8.0], [2.0], [8.0]]], signal=25.0)
    rare, often = (share**0.1 * (share / (share + 1.125)) ** 0.3 for share in (0.25, 1.0))
    np.testing.assert_allclose(h, [2.0, 2.0 * rare / often, 1.0])


def test_the_time_of_the_rarest_row_is_what_it_says():
    """The part of s + s0 of a row of frequency 0 is c / t: of 3 rows, one nearly never there, s0 / sum (s + s0)."""
    signal, least_time, shares = 40.0, 5.0, np.array([1.0, 0.5, 0.0])
    s0 = least_time * shares.sum() / (signal - least_time * 3)
    assert s0 / (shares + s0).sum() == pytest.approx(least_time / signal)
    h = by_frequency([[[1.0], [0.5], [1e-6], [1.0]]], [[[8.0], [4.0], [8e-6], [8.0]]], signal=math.inf)
    np.testing.assert_allclose(h, [1.0, 0.5**0.1, 1e-4**0.1, 1.0])  # nothing is rarer than 1 in 10,000


def test_a_row_that_noise_hides_is_of_the_typical_size():
    """f = 100, 4 and 100 with noise 4 / 3: at l = 3 the second row's own size is believed by 16 / (16 + 16)."""
    m, f, noise = np.array([100.0, 1.0, 100.0]), np.array([100.0, 4.0, 100.0]), 4.0 / 3.0
    believed, shares = estimate.shrunk(m, np.full(3, noise)), estimate.shrunk(f, np.full(3, noise))
    k = shares**2 / (shares**2 + 16.0)
    assert k[1] == pytest.approx(0.5, abs=0.02)
    ratios = believed / shares
    expected = np.sqrt(ratios**k * ratios[0] ** (1.0 - k)) * (shares / shares[0]) ** 0.1
    h = by_frequency([m[:, np.newaxis]], [f[:, np.newaxis]], noise=noise)
    np.testing.assert_allclose(h, expected / expected[2], rtol=1e-6)


def test_a_row_that_is_never_there_is_of_the_typical_size():
    """Without noise its size is 0 / 0: it must not get enormous steps once it is there."""
    h = by_frequency([[[0.0], [4.0], [4.0]]], [[[0.0], [8.0], [8.0]]])
    np.testing.assert_allclose(h, [1e-4**0.1, 1.0, 1.0])


def test_a_small_row_is_of_a_tenth_of_the_typical_size_at_least():
    """What is tiny on average may be large in a few examples."""
    h = by_frequency([[[1e-6], [4.0], [4.0]]], [[[8.0], [8.0], [8.0]]])
    np.testing.assert_allclose(h, [0.1**0.5, 1.0, 1.0])


def test_weights_that_leave_everything_out_leave_no_frequencies():
    h = by_frequency([[[1.0], [4.0]]], [[[0.0], [0.0]]])
    np.testing.assert_allclose(h, [0.5, 1.0])


def test_rows_of_different_widths_are_compared_by_coordinate():
    """Rows of 1 and of 16 coordinates with norms 1 and 8: coordinates of 1 and 2, shapes as 1 and sqrt(2), and a mean
    square over all 17 coordinates, (1 + 16 * 2) / 17."""
    shaped = estimate.next_shapes(
        1.0, [np.ones([1]), np.ones([1])], [np.array([1.0]), np.array([8.0])], [1, 16], 0.0, 0.5
    )
    expected = np.array([1.0, math.sqrt(2)]) / math.sqrt(33 / 17)
    np.testing.assert_allclose(np.concatenate(shaped.shapes), expected)


def test_what_was_asked_with_other_shapes_is_brought_to_the_same_units():
    """M of rows with h = 1 and 4 is m / h: the same m, 4 and 4, gives the same shapes."""
    shaped = estimate.next_shapes(1.0, [np.array([[1.0], [4.0]])], [np.array([[4.0], [1.0]])], [3], 0.0, 0.5)
    np.testing.assert_allclose(shaped.shapes[0], 1.0)


def test_a_variable_without_gradients_is_like_the_others():
    """A hidden layer of 100 rows below an output that starts at zero: noise alone, where others are far above it."""
    rng = np.random.default_rng(0)
    shapes = [np.ones([100, 1]), np.ones([8, 1])]
    for _ in range(3):
        noised = [30.0 * rng.normal(size=(100, 1)), 2000.0 * np.ones([8, 1]) + 30.0 * rng.normal(size=(8, 1))]
        shaped = estimate.next_shapes(1.0, shapes, noised, [16, 1], 30.0, 0.5)
        shapes = shaped.shapes
        assert shaped.unseen == (0,)
        np.testing.assert_allclose(shapes[0], 1.0)
        np.testing.assert_allclose(shapes[1], 1.0, rtol=0.1)


def test_where_nothing_is_seen_well_nothing_is_called_unseen():
    assert estimate.unseen_variables([np.array([10.0]), np.array([-30.0, 40.0])], 30.0) == ()
    assert estimate.unseen_variables([np.array([10.0]), np.array([300.0, 400.0])], 30.0) == (0,)


def test_no_noise_and_no_gradients_leave_all_as_it_was():
    shaped = estimate.next_shapes(3.0, [np.ones([2, 1])], [np.zeros([2, 1])], [2], 0.0, 0.5)
    assert shaped.clip == 3.0
    np.testing.assert_array_equal(shaped.shapes[0], 1.0)


def test_a_row_without_gradients_keeps_a_positive_shape():
    shaped = estimate.next_shapes(1.0, [np.ones([3, 1])], [np.array([[0.0], [1.0], [4.0]])], [2], 0.0, 0.5)
    assert shaped.shapes[0].min() > 0.0
