"""Tests of `adaclip_tf.core.box_muller`: right to float32's last bits for every word, and out to 9.49 deviations."""

import doctest
import math

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from adaclip_tf.core import box_muller
from adaclip_tf.core import philox as generator
from tests.core import philox

LARGEST = math.sqrt(2 * 65 * math.log(2))  # of u = 2^-65
ANGLES = [0, 1, -1, 2**29, -(2**29), 2**30 - 1, 2**30, -(2**30), 3 * 2**29, 2**31 - 1, -(2**31)]


def _quick(words, angles):
    return tf.stack(box_muller.quick_pairs(*generator.halves(words, tf.constant(32, tf.uint64)), angles), axis=1)


def _normals(words, angles, way="plain"):
    """By `normals` in eager mode, a graph or XLA; or by `quick_pairs`, in a graph or XLA: [cosines, sines]."""
    words, angles = np.asarray(words, np.uint64), np.asarray(angles, np.int32)
    signature = [tf.TensorSpec([None], tf.uint64), tf.TensorSpec([None], tf.int32)]
    function = _quick if way.startswith("quick") else box_muller.normals
    if way != "plain":
        function = tf.function(function, signature, jit_compile=way.endswith("xla"))
    return function(tf.constant(words), tf.constant(angles)).numpy().T


WAYS = ["plain", "graph", "xla", "quick", "quick xla"]


def _extremes():
    powers = [2**n for n in range(64)]
    words = sorted({0, 2**64 - 1, *powers, *(p - 1 for p in powers), *(2**64 - p for p in powers)})
    words, angles = np.meshgrid(np.array(words, np.uint64), ANGLES)
    return words.ravel(), angles.ravel()


def _random_words(number, seed=1):
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 2**64, number, np.uint64) >> rng.integers(0, 64, number).astype(np.uint64)
    words[::2] = ~words[::2]  # every size of u and of 1 - u
    return words, rng.integers(-(2**31), 2**31, number)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sample", [_extremes, lambda: _random_words(100_000)], ids=["extremes", "random"])
def test_normals_are_right_for_every_kind_of_word(sample, way):
    words, angles = sample()
    found, expected = _normals(words, angles, way), np.stack(philox.normals(words, angles))
    assert found.dtype == np.float32
    assert np.isfinite(found).all()
    radius = np.hypot(*expected)
    # 4 units in float32's last place, of the radius; and steps of 2^-53 in u, which count where 1 - u is small.
    steps = np.sqrt(radius**2 + 2.0**-50) - np.sqrt(np.maximum(radius**2 - 2.0**-50, 0.0))
    if way.startswith("quick"):
        steps = 0.0  # it has none
    assert (np.abs(found - expected) < 4 * 2.0**-23 * radius + steps).all()


@pytest.mark.parametrize("way", ["plain", "xla"])
def test_the_largest_and_the_smallest_radius(way):
    """The table in the module's docstring."""
    top = 2**64 - 1
    cosine, _ = _normals([0, 1, top, top - 2**9, top - 3 * 2**11], [0] * 5, way)
    assert cosine[0] == pytest.approx(LARGEST, rel=1e-6)
    assert cosine[1] == pytest.approx(math.sqrt(2 * (64 * math.log(2) - math.log(1.5))), rel=1e-6)
    assert cosine[2] == cosine[3] == pytest.approx(2.0**-26, rel=1e-6)  # 1 - u = 2^-53
    assert cosine[4] == pytest.approx(math.sqrt(2 * 3 * 2.0**-53), rel=0.2)
    assert cosine.min() > 0


@pytest.mark.parametrize("way", ["quick", "quick xla"])
def test_the_largest_and_the_smallest_quick_radius(way):
    """They are finer where u is close to 1."""
    top = 2**64 - 1
    cosine, _ = _normals([0, 1, top, top - 2**9, top - 3 * 2**11], [0] * 5, way)
    assert cosine[0] == pytest.approx(LARGEST, rel=1e-6)
    assert cosine[1] == pytest.approx(math.sqrt(2 * (64 * math.log(2) - math.log(1.5))), rel=1e-6)
    rest = (0.5 + np.array([0, 2**9, 3 * 2**11])) * 2.0**-64
    np.testing.assert_allclose(cosine[2:], np.sqrt(2.0 * rest), rtol=1e-6)


@pytest.mark.parametrize("way", WAYS)
def test_angles_go_round_once(way):
    """Quarters of the circle, with their signs: cosine and sine are no copies of each other."""
    word = np.full(4, 2**63, np.uint64)
    cosine, sine = _normals(word, [0, 2**30, -(2**31), -(2**30)], way) / math.sqrt(2 * math.log(2))
    np.testing.assert_allclose(cosine, [1, 0, -1, 0], atol=1e-6)
    np.testing.assert_allclose(sine, [0, 1, 0, -1], atol=1e-6)


@pytest.mark.parametrize("way", WAYS)
def test_no_words_give_no_numbers(way):
    assert _normals([], [], way).size == 0


def _beyond(threshold, bits, words, way="plain"):
    """(draws beyond `threshold`, how many there should be) of radii whose first 64 - `bits` bits are 0."""
    rng = np.random.default_rng(int(10 * threshold))
    number = 1_000_000
    w = rng.integers(0, 2**bits, number, np.uint64)
    found = _normals(words(w), rng.integers(-(2**31), 2**31, number), way)
    count = np.count_nonzero(np.abs(found) > threshold)
    # All draws beyond come from such radii, if the smallest of these is below the threshold.
    assert math.sqrt(2 * (64 - bits) * math.log(2)) < threshold
    return count, 2 * number * 2 * scipy.stats.norm.sf(threshold) * 2.0 ** (64 - bits)


TAILS = [(5.68, 42), (6.5, 36), (7.0, 30), (8.03, 18), (8.5, 12), (9.0, 6)]


@pytest.mark.parametrize("way", ["plain", "quick xla"])
@pytest.mark.parametrize(("threshold", "bits"), TAILS)
def test_tails_have_the_right_weight(threshold, bits, way):
    """One draw in 10^8 to 10^19 lies there: so only radii that may are tried, and the weight is known."""
    count, mean = _beyond(threshold, bits, lambda w: w, way)
    assert mean > 1000
    assert abs(count - mean) < 5 * math.sqrt(mean) + 0.01 * mean * (bits < 10)  # few words: u is in coarse steps


@pytest.mark.parametrize(("threshold", "bits"), TAILS[2:])
def test_a_radius_of_32_bits_would_be_found_out(threshold, bits):
    """The negative control: with the lower half of the word gone, nothing lies beyond 6.8."""
    count, mean = _beyond(threshold, bits, lambda w: w >> np.uint64(32) << np.uint64(32) | np.uint64(2**31))
    assert abs(count - mean) > 10 * math.sqrt(mean)


def test_docstring_examples():
    assert doctest.testmod(box_muller).failed == 0
