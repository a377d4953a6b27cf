"""Tests of `PrivatePCA`: its sensitivity on neighbouring data, its noise, and that it finds what is there."""

import dp_accounting
import hypothesis
import hypothesis.extra.numpy
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from hypothesis import strategies as st

import adaclip_tf
from adaclip_tf.data import pca
from adaclip_tf.privacy import events

ANY_FLOAT = st.floats(allow_nan=True, allow_infinity=True, width=64)


def released(x):
    """The numbers that get noise: the upper triangle with its diagonal."""
    moments = pca.second_moments(x)
    np.testing.assert_array_equal(moments, moments.T)
    return moments[np.triu_indices(len(moments))]


@hypothesis.given(
    hypothesis.extra.numpy.arrays(np.float64, (5, 4), elements=st.floats(-10, 10)),
    hypothesis.extra.numpy.arrays(np.float64, (1, 4), elements=ANY_FLOAT),
)
def test_one_row_moves_the_release_by_at_most_one(x, row):
    moved = np.linalg.norm(released(np.concatenate([x, row])) - released(x))
    assert moved <= 1.0 + 1e-12


@pytest.mark.parametrize("row,expected", [([3.0, 0, 0], 1.0), ([1.0, 1, 1], np.sqrt(6) / 3), ([0.0, 0, 0], 0.0)])
def test_sensitivity_is_reached(row, expected):
    x = np.random.default_rng(0).normal(size=(6, 3))
    moved = np.linalg.norm(released(np.concatenate([x, [row]])) - released(x))
    assert moved == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1.0, 1e200, 1.7e308])
def test_rows_of_any_size_have_unit_norm(scale):
    np.testing.assert_allclose(np.linalg.norm(pca.unit_rows(scale * np.eye(3)), axis=1), 1.0)


def test_rows_that_are_not_finite_count_as_zero():
    x = np.array([[1.0, np.nan], [np.inf, 0.0], [-np.inf, np.nan], [0.0, 0.0]])
    assert not pca.unit_rows(x).any()


def test_noise_is_symmetric_and_of_the_stated_size():
    z, d = 3.0, 120
    noise = pca.symmetric_noise(np.random.default_rng(0), d, z)
    np.testing.assert_array_equal(noise, noise.T)
    for part in (noise[np.triu_indices(d, 1)], np.diag(noise)):
        assert scipy.stats.kstest(part / z, "norm").pvalue > 0.01
    upper = noise[np.triu_indices(d)]
    for wrong in (2 / 3, 3 / 2):
        assert scipy.stats.kstest(wrong * upper / z, "norm").pvalue < 1e-6


def test_noise_of_a_fit_is_that_of_the_argument():
    x = np.zeros((1, 60))
    model = pca.PrivatePCA(num_components=60, noise_multiplier=2.0, seed=0).fit(x)
    rebuilt = model.components_.T @ np.diag(model.eigenvalues_) @ model.components_
    entries = rebuilt[np.triu_indices(60)] / 2.0
    assert scipy.stats.kstest(entries, "norm").pvalue > 0.01
    assert scipy.stats.kstest(1.5 * entries, "norm").pvalue < 1e-6


def test_noise_is_fresh_in_every_fit_and_deaf_to_ordinary_seeds():
    x = np.zeros((1, 5))
    found = []
    for _ in range(2):
        np.random.seed(0)
        model = pca.PrivatePCA(num_components=2, noise_multiplier=1.0)
        found += [model.fit(x).eigenvalues_, model.fit(x).eigenvalues_]
    assert len({tuple(values) for values in found}) == 4


def test_without_noise_it_is_the_eigenvectors_of_the_unit_rows(rng):
    x = rng.normal(size=(200, 6)) * [5, 4, 3, 2, 1, 0.5]
    model = pca.PrivatePCA(num_components=3, noise_multiplier=0.0).fit(x)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    _, values, vectors = np.linalg.svd(unit)
    np.testing.assert_allclose(model.eigenvalues_, values[:3] ** 2)
    np.testing.assert_allclose(np.abs(model.components_ @ vectors[:3].T), np.eye(3), atol=1e-9)
    np.testing.assert_allclose(model.transform(x), x @ model.components_.T)


def test_with_noise_it_still_finds_a_strong_direction(rng):
    direction = np.ones(20) / np.sqrt(20)
    x = rng.normal(size=(3000, 1)) * direction + 0.05 * rng.normal(size=(3000, 20))
    model = pca.PrivatePCA(num_components=1, noise_multiplier=10.0, seed=0).fit(x)
    assert abs(model.components_[0] @ direction) > 0.99


def test_chunks_add_up(rng, monkeypatch):
    x = rng.normal(size=(50, 7))
    whole = pca.second_moments(x)
    monkeypatch.setattr(pca, "_CHUNK_ELEMENTS", 21)
    np.testing.assert_allclose(pca.second_moments(x), whole, atol=1e-12)


def test_tensors_integers_and_dtypes(rng):
    x = rng.integers(0, 255, size=(40, 6)).astype(np.uint8)
    made = [
        pca.PrivatePCA(num_components=2, noise_multiplier=1.0, seed=0).fit_transform(kind)
        for kind in (x, tf.constant(x), x.astype(np.float32), x.astype(np.float64))
    ]
    assert [result.dtype for result in made] == [np.float32, np.float32, np.float32, np.float64]
    for result in made:
        np.testing.assert_allclose(result, made[3], rtol=1e-4, atol=1e-3)


def test_event_counts_the_fits():
    model = pca.PrivatePCA(num_components=1, noise_multiplier=8.0)
    alone = adaclip_tf.epsilon_of(dp_accounting.GaussianDpEvent(8.0), delta=1e-5)
    assert adaclip_tf.epsilon_of(model.event, delta=1e-5) == alone
    model.fit(np.eye(3))
    assert adaclip_tf.epsilon_of(model.event, delta=1e-5) == alone
    model.fit(np.eye(3))
    assert adaclip_tf.epsilon_of(model.event, delta=1e-5) > alone


def test_save_and_load(tmp_path, rng):
    x = rng.normal(size=(30, 5))
    model = pca.PrivatePCA(num_components=2, noise_multiplier=4.0).fit(x)
    model.save(tmp_path / "pca.npz")
    restored = pca.PrivatePCA.load(tmp_path / "pca.npz")
    np.testing.assert_array_equal(restored.transform(x), model.transform(x))
    assert restored.event == model.event
    assert restored.fit(x).event.events == [events.gaussian_event(4.0, 2)]


def test_every_fit_is_paid_for_through_saving_and_loading(tmp_path, rng):
    x = rng.normal(size=(30, 5))
    model = pca.PrivatePCA(num_components=2, noise_multiplier=4.0)
    for fits in (1, 2, 3):
        model.fit_transform(x)
        assert model.event.events == [events.gaussian_event(4.0, fits)]
        model.save(tmp_path / "pca.npz")
        model = pca.PrivatePCA.load(tmp_path / "pca.npz")
        assert model.event.events == [events.gaussian_event(4.0, fits)]
        assert model.noise_multiplier == 4.0


def test_a_fit_that_fails_after_it_has_looked_is_paid_for(rng, monkeypatch):
    model = pca.PrivatePCA(num_components=2, noise_multiplier=4.0).fit(rng.normal(size=(30, 5)))

    def fail(*_):
        raise np.linalg.LinAlgError("no convergence")

    monkeypatch.setattr(np.linalg, "eigh", fail)
    with pytest.raises(np.linalg.LinAlgError):
        model.fit(rng.normal(size=(30, 5)))
    assert model.event.events == [events.gaussian_event(4.0, 2)]


@pytest.mark.slow
def test_mnist_size_takes_seconds(rng):
    x = rng.random((60000, 784), np.float32)
    assert pca.PrivatePCA(num_components=60, noise_multiplier=16.0).fit_transform(x).shape == (60000, 60)


@pytest.mark.parametrize(
    "call,message",
    [
        (lambda: pca.PrivatePCA(num_components=0, noise_multiplier=1.0), "num_components"),
        (lambda: pca.PrivatePCA(num_components=1, noise_multiplier=-1.0), "noise_multiplier"),
        (lambda: pca.PrivatePCA(num_components=4, noise_multiplier=1.0).fit(np.eye(3)), "at most the 3 columns"),
        (lambda: pca.PrivatePCA(num_components=1, noise_multiplier=1.0).fit(np.zeros((2, 2, 2))), "Flatten"),
        (lambda: pca.PrivatePCA(num_components=1, noise_multiplier=1.0).transform(np.eye(3)), "fit"),
        (lambda: pca.PrivatePCA(num_components=1, noise_multiplier=1.0).fit([[1.0, 2.0], [3.0]]), "different lengths"),
        (lambda: pca.PrivatePCA(num_components=1, noise_multiplier=1.0).save("x"), "fit"),
        (lambda: pca.PrivatePCA(num_components=1, noise_multiplier=1.0).fit(np.eye(3)).transform(np.eye(4)), "columns"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_noise_of_what_was_fitted_stays():
    fitted = pca.PrivatePCA(num_components=1, noise_multiplier=10.0).fit(np.eye(3))
    with pytest.raises(AttributeError):
        fitted.noise_multiplier = 1e6
    assert fitted.event.events[0].event.noise_multiplier == 10.0
