"""From noised answers to scales: by hand, and what happens at the edges."""

import math

import numpy as np
import pytest

from adaclip_tf.scales import estimate


def test_the_search_doubles_back_by_roots():
    """Up by 32, up by 32, down by sqrt(32), down by sqrt(32), up by 32^(1/4): C = 32^(2 - 1 + 1/4)."""
    search = estimate.MedianSearch(1.0, 32.0, 1.05)
    for fraction in (0.1, 0.3, 0.8, 0.5, 0.49):
        search.move(fraction)
    assert search.clip == pytest.approx(32.0**1.25)
    for _ in range(20):
        search.move(0.9)
        search.move(0.1)
    assert search.span == 1.05


def test_the_clip_stays_within_float32():
    search = estimate.MedianSearch(1.0, 32.0, 1.05)
    for fraction, most in ((1.0, 1e-8), (0.0, 1e11)):
        for _ in range(40):
            search.move(fraction)
        assert search.clip == pytest.approx(most)


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
