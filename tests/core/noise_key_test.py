"""The key of `NoiseSource`: all 128 bits of it count, and whoever lacks them can't find them by trying.

The attack is the one that once worked: somebody knows the noise on a few coordinates, where the sum is known to be
zero, tries keys until one explains it, and then subtracts the noise everywhere else.
"""

import os
import sys

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import DPFixedClipSGD
from adaclip_tf.core import noise
from tests.core import philox

BITS = 16  # of the key that the attack tries
WINDOWS = range(0, 128, BITS)
CANDIDATES = np.arange(2**BITS, dtype=np.uint64)


@pytest.fixture
def key_from_system(monkeypatch):
    """Makes the operating system's generator return a number of 128 bits, to whoever asks for as many."""
    real = os.urandom

    def use(number):
        key = number.to_bytes(16, sys.byteorder)
        monkeypatch.setattr(os, "urandom", lambda length: key if length == len(key) else real(length))

    return use


def _random_key(seed):
    return int.from_bytes(np.random.default_rng(seed).bytes(16), "little")


def _without(key, window):
    return key & ~((2**BITS - 1) << window)


def _explanations(seen, known=0, window=0, rounding=1e-5):
    """The keys that explain `seen`, {position: number} of a first draw, among 2^16 candidates.

    They are `known` with other bits in 16 places from `window` on. It has purchase if the rest of `known` is right.
    """
    high, key = (
        np.uint64(known >> shift & (2**64 - 1))
        | (CANDIDATES << np.uint64(window - shift) if shift <= window < shift + 64 else np.uint64(0))
        for shift in (0, 64)
    )
    fits = np.ones(CANDIDATES.shape, bool)
    for position, number in seen.items():
        low, high_half, angle, _ = philox.block(key, np.uint64(position // 2), high)
        numbers = philox.normals(low | high_half << np.uint64(32), angle)
        fits &= np.abs(numbers[position % 2] - number) < rounding
    return [known | int(candidate) << window for candidate in CANDIDATES[fits]]


@pytest.mark.parametrize("jit_compile", [None, True])
@pytest.mark.parametrize(("terms", "many"), [(1, 1), (2, 64), (1, 2**15)])
def test_draws_are_those_of_philox_with_the_whole_key(key_from_system, terms, many, jit_compile, monkeypatch):
    """Against an implementation that shares nothing: words, their order, counters of variables, terms and calls.

    With one term all draws are made together, with two some of them: the groups are 21, 21 and 1, 1, 40, 40 numbers.
    """
    monkeypatch.setattr(noise, "_MANY", many)
    if terms == 2:
        monkeypatch.setattr(noise, "_TOGETHER", 22)
    key = _random_key(1)
    key_from_system(key)
    source = noise.NoiseSource(terms=terms)
    function = tf.function(lambda: source.fresh_normals([(7, 3), (), (40,)]), jit_compile=jit_compile)
    secret, start = key >> 64, (key & (2**64 - 1)) << 64
    for _ in range(2):
        first = start
        for draw in function():
            expected = 0.0
            for _ in range(terms):
                expected = expected + philox.draws(secret, first, draw.numpy().size) / np.sqrt(terms)
                first += philox.length(draw.numpy().size)
            np.testing.assert_allclose(np.ravel(draw), expected, rtol=1e-5, atol=3e-6)
        start += 256 * (first - start)  # `RngReadAndSkip`


@pytest.mark.parametrize("jit_compile", [None, True])
@pytest.mark.parametrize("many", [1, 2**15])
def test_every_bit_of_the_key_changes_every_draw(key_from_system, many, jit_compile, monkeypatch):
    monkeypatch.setattr(noise, "_MANY", many)
    base = _random_key(1)
    keys = [base, *(base ^ 1 << bit for bit in range(128))]
    key_from_system(base)
    source = noise.NoiseSource()
    draw = tf.function(lambda: source.fresh_normals([(8,)])[0], jit_compile=jit_compile)
    found = []
    for key in keys:
        key_from_system(key)
        source._state.assign(noise._first_state(noise._new_key()))
        found.append(draw().numpy())
    found = np.array(found)
    for position in range(8):
        assert len(np.unique(found[:, position])) == len(keys), position
    # Not just other numbers: unrelated ones. A key that reached some words only would show as equal halves.
    correlations = np.corrcoef(found)[np.triu_indices(len(keys), 1)]
    assert abs(np.mean(correlations)) < 0.05
    assert np.std(correlations) == pytest.approx(1 / np.sqrt(7), rel=0.1)


@pytest.mark.parametrize("window", WINDOWS)
def test_a_shortened_key_is_found_by_brute_force_and_a_whole_one_is_not(key_from_system, window):
    """Whoever knows 112 bits finds the other 16, wherever they are: each counts. Whoever knows 96 finds nothing."""
    short, real = (1 + window * 517) << window, _random_key(window)

    def seen(key):
        key_from_system(key)
        return dict(enumerate(noise.NoiseSource().fresh_normals([(6,)])[0].numpy().tolist()))

    assert _explanations(seen(short), window=window) == [short]
    draws = seen(real)
    assert _explanations(draws, _without(real, window), window) == [real]
    assert _explanations(draws, window=window) == []
    other = (window + 64) % 128
    assert _explanations(draws, _without(_without(real, window), other), window) == []


def test_one_number_of_the_noise_is_not_enough_to_attack_with(key_from_system):
    """The negative control of the above: a search that takes anything for an explanation would prove nothing."""
    key_from_system(_random_key(3))
    draw = noise.NoiseSource().fresh_normals([(6,)])[0].numpy()
    assert len(_explanations({0: draw[0]}, rounding=0.1)) > 1000


def _one_step():
    """(coordinates whose sum is known to be 0, published / z, un-noised sum / z) of a step on 60 x 10 weights."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=[8, 60]).astype(np.float32)
    x[:, :2] = 0.0  # pixels that are always dark: everybody knows the first 20 sums
    y = rng.integers(0, 10, 8)
    z, clip = 1.1, 1e-3  # all gradients are longer than the clip
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(10, use_bias=False, kernel_initializer="zeros", input_shape=(60,))]
    )
    optimizer = DPFixedClipSGD(1.0, l2_norm_clip=clip, noise_multiplier=z, expected_batch_size=8)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    model.compile(optimizer, loss)
    model.fit(x, y, batch_size=8, verbose=0)
    published = -model.get_weights()[0].ravel() * 8 / clip / z
    # At zero weights the gradient of example k is x_k (1/10 - onehot)^T.
    gradients = np.einsum("ki,kj->kij", x, 0.1 - np.eye(10)[y]).reshape(8, -1)
    true_sum = np.sum(gradients / np.linalg.norm(gradients, axis=1, keepdims=True), axis=0) / z
    return range(20), published, true_sum


def test_the_attack_on_a_training_step_succeeds_on_a_shortened_key_and_not_on_a_real_one(key_from_system, monkeypatch):
    key_from_system(40_007)
    known_zero, published, true_sum = _one_step()
    keys = _explanations({i: published[i] for i in known_zero})
    assert keys == [40_007]
    recovered = published - philox.draws(0, 40_007 << 64, 600)
    np.testing.assert_allclose(recovered, true_sum, atol=1e-5)  # the un-noised sum, laid bare

    monkeypatch.undo()
    known_zero, published, _ = _one_step()
    seen = {i: published[i] for i in known_zero}
    assert all(_explanations(seen, window=window) == [] for window in WINDOWS)
