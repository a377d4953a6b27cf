"""The formulas of the method, against numbers worked out by hand."""

import dataclasses
import math

import numpy as np
import pytest

from adaclip_tf.scales.method import DEFAULT, Method


def test_noise_of_the_queries():
    """z0 = 2, q = 1/100, T = 400: z0 / (q sqrt T) = 10. Then 10 sqrt(3 / .03) and sqrt(24) / 2 * 10 / .15."""
    noise = DEFAULT.noise(2.0, 0.01, 400)
    assert noise.rows == pytest.approx(100.0)
    assert noise.counts == pytest.approx(5.0 * math.sqrt(24) / 0.15)


def test_what_the_queries_cost_is_their_share():
    """In sums of 1 / z^2: T (q / z0)^2 = 1 / 100 for training; 3 % of it for the rows, .15^2 for the counts."""
    noise = DEFAULT.noise(2.0, 0.01, 400)
    assert DEFAULT.rounds / noise.rows**2 == pytest.approx(0.03 / 100)
    assert 2 * DEFAULT.counts / (2 * noise.counts) ** 2 == pytest.approx(0.0225 / 100)


@pytest.mark.parametrize("noise, expected", [(1.0, 1.0), (0.05, 2.0), (100.0, 0.1), (0.0, 2.0)])
def test_the_multiplier_lies_between_its_bounds(noise, expected):
    """kappa = z sqrt(400) / 100 = z / 5: .2 / kappa is 1 at z = 1."""
    assert DEFAULT.multiplier_for(noise, 400, 100) == pytest.approx(expected)


def test_more_classes_keep_less_of_the_first_gradients():
    """By the length of dy at the start, (1 - 1/K)^(1/2), over that of two classes."""
    for classes, factor in ((1, 1.0), (2, 1.0), (8, 1.75**0.5)):
        assert DEFAULT.multiplier_for(1.0, 400, 100, classes) == pytest.approx(1.0 / factor)


def test_the_learning_rate():
    """15/4 K, or 9/8 k B / (z0 sqrt T) where noise allows no more: 9/8 * 100 / (3 * 10) = 15/4 for two classes."""
    for classes, factor in ((1, 1.0), (2, 1.0), (8, 1.75**0.5)):  # 2 (1 - 1/8) = 7/4
        assert DEFAULT.learning_rate(3.0, 100, 100, classes) == pytest.approx(3.75 * factor)
    assert DEFAULT.learning_rate(0.01, 100, 100, 10) == 37.5
    assert DEFAULT.learning_rate(0.0, 100, 100, 1) == 7.5


def test_why_the_rate_falls_as_a_root():
    """Its sum is a straight line's of 4/3 the height, and the sum of its squares 27/32: what the module says."""
    left = 1.0 - np.arange(10_000) / 10_000
    line, root = 4.0 / 3.0 * left, left**DEFAULT.rate_fall
    assert root.sum() / line.sum() == pytest.approx(1.0, abs=1e-3)
    assert (root**2).sum() / (line**2).sum() == pytest.approx(27 / 32, abs=1e-3)


def test_the_rate_of_deep_models_has_a_ceiling():
    for kernels, expected in ((1, 37.5), (2, 37.5), (3, 4.5), (20, 4.5)):
        assert DEFAULT.learning_rate(0.01, 100, 100, 10, kernels) == pytest.approx(expected)
    assert DEFAULT.learning_rate(3.0, 100, 100, 2, 3) == pytest.approx(3.75)  # below it already
    assert DEFAULT.learning_rate(0.0, 100, 100, 10, 3) == 4.5


def test_bad_constants_are_named():
    for name, value in (("rounds", 0), ("counts", 2.5), ("share", 0.0), ("power", -1.0), ("last_span", 1.0)):
        with pytest.raises(ValueError, match=f"`{name}`"):
            Method(**{name: value})
    with pytest.raises(dataclasses.FrozenInstanceError):
        DEFAULT.rounds = 4
