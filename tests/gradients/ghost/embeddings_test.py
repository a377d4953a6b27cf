"""The gradient of a table by what was looked up, against the whole table's, by NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.gradients.ghost import embeddings

N, LENGTH, VOCABULARY = 4, 5, 6


def looked_up(rng, width, size=1.0):
    """A term, and each example's table: rows that repeat within an example, and those that others look up too."""
    indices = rng.integers(0, VOCABULARY, size=[N, LENGTH])
    indices[0] = 2
    values = size * rng.normal(size=[N, LENGTH, width])
    values = values.astype(np.float32)
    records = np.zeros([N, VOCABULARY, width])
    for k in range(N):
        np.add.at(records[k], indices[k], values[k].astype(np.float64))
    flat = tf.constant(indices.reshape(-1)), tf.constant(values.reshape(-1, width))
    return embeddings.Lookup(tf.constant(N), (VOCABULARY, width), *flat, LENGTH), records


@pytest.mark.parametrize("width", [3, 37, 64])
def test_the_sum_of_wide_rows_is_that_of_whole_tables(width, rng):
    """TensorFlow adds up wide rows by another loop than narrow ones, so they may be cut: 37 can't be cut evenly."""
    term, records = looked_up(rng, width)
    weights = rng.uniform(size=N).astype(np.float32)
    np.testing.assert_allclose(
        term.weighted_sum(tf.constant(weights)), np.tensordot(weights, records, 1), rtol=1e-4, atol=1e-5
    )


def test_rows_may_be_cut_into_any_number_of_pieces(rng, monkeypatch):
    monkeypatch.setattr(embeddings, "_LONGEST", 31)
    assert [embeddings._pieces(width) for width in (1, 31, 32, 37, 64, 300)] == [1, 1, 2, 37, 4, 10]
    term, records = looked_up(rng, 64)
    np.testing.assert_allclose(term.weighted_sum(tf.ones([N])), records.sum(0), rtol=1e-4, atol=1e-5)


def test_norms_around_a_center_are_those_of_whole_tables(rng):
    """A center as large as the gradients, and one a thousand times as large: what cancels is within the bound."""
    term, records = looked_up(rng, 3)
    scale = rng.uniform(0.5, 2.0, size=[VOCABULARY, 3]).astype(np.float32)
    for size in (1.0, 1e3):
        center = (size * rng.normal(size=[VOCABULARY, 3])).astype(np.float32)
        norms = term.squared_norms(tf.constant(center), tf.constant(scale))
        expected = np.square((records - center) / scale).sum((1, 2))
        np.testing.assert_allclose(norms.value, expected, rtol=1e-5)
    # All that was added up, of either sign: squares around the center where something was looked up, those of the
    # center everywhere, and again where they are taken out.
    there = np.any(records != 0.0, axis=2, keepdims=True)
    of_center = np.broadcast_to(np.square(center / scale), records.shape)
    added = np.where(there, np.square((records - center) / scale) + of_center, 0.0) + of_center
    np.testing.assert_allclose(norms.magnitude, added.sum((1, 2)), rtol=1e-4)


@pytest.mark.parametrize("size, scale", [(1e-20, 1e-19), (1e-19, 1e-18), (1.0, 1e-3)])
def test_underflow_never_makes_a_norm_too_small(size, scale, rng):
    term, records = looked_up(rng, 3, size)
    value = term.squared_norms(tf.constant(0.0), tf.constant(scale)).value.numpy()
    assert np.all(~np.isfinite(value) | (value >= np.square(records / scale).sum((1, 2)) * (1 - 1e-5)))
