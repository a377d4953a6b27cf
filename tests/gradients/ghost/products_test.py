"""Gradients of single examples that are formed once, for norms and sum."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.gradients.ghost import inverses, products, single, slices, terms

N, ROWS = 4, 12


def sum_of_products(rng, inner, outer, total):
    x, dy = (rng.normal(size=[N, ROWS, width]).astype(np.float32) for width in (inner, outer))
    x[1, 0, 0] = np.nan
    term = products.SumOfOuterProducts(
        n=tf.constant(N),
        arrays=[tf.constant(x), tf.constant(dy)],
        make=lambda arrays: (arrays[0], arrays[1]),
        shape=(inner, outer),
        length=ROWS,
        total=total,
    )
    return term, np.einsum("nti,ntj->nij", x.astype(np.float64), dy.astype(np.float64))


@pytest.mark.parametrize("in_slices", [False, True])
@pytest.mark.parametrize("inner, outer", [(5, 8), (8, 5)])
def test_gradients_that_are_small_are_formed_once(inner, outer, in_slices, rng, monkeypatch):
    """The ordinary product of the sum is not asked for. One example has a NaN, and is left out by its weight of 0."""

    def total(weights):
        raise AssertionError("formed again")

    term, g = sum_of_products(rng, inner, outer, total)
    if in_slices:
        monkeypatch.setattr(slices, "BUDGET", 4 * ROWS * (inner + outer) * 3)
    center, scale = rng.normal(size=[inner, outer]), rng.uniform(0.5, 2.0, size=[inner, outer])
    weights = np.array([0.5, 0.0, 1.0, 0.25], np.float32)

    @tf.function
    def both(center, scale):
        return term.squared_norms(center, scale).value, term.weighted_sum(tf.constant(weights))

    norms, result = both(tf.constant(center, tf.float32), tf.constant(scale, tf.float32))
    expected = np.square((g - center) / scale).sum((1, 2))
    assert np.isnan(norms[1])
    np.testing.assert_allclose(np.delete(norms, 1), np.delete(expected, 1), rtol=1e-4)
    np.testing.assert_allclose(
        tf.reshape(result, [inner, outer]), np.tensordot(weights, np.nan_to_num(g), 1), rtol=1e-4, atol=1e-4
    )


def test_gradients_that_are_large_are_not_kept(rng):
    """100 by 100 for 12 rows of 200: more than four times what they are made of."""
    term, _ = sum_of_products(rng, 100, 100, lambda weights: tf.constant(7.0))

    @tf.function
    def both():
        return term.squared_norms(tf.constant(0.0), tf.ones([100, 100])).value, term.weighted_sum(tf.ones([N]))

    assert both()[1] == 7.0


@pytest.mark.parametrize(
    ("center", "one_scale", "xla"),
    [
        ("zero", True, False),
        ("zero", False, False),
        ("number", True, False),
        ("vector", True, False),
        ("vector", False, False),
        ("vector", False, True),
    ],
)
@pytest.mark.parametrize("size, scale", [(1e-20, 1e-19), (1e-19, 1e-18), (1.0, 1e-3)])
def test_underflow_never_makes_the_norm_of_a_formed_gradient_too_small(size, scale, one_scale, center, xla, rng):
    g = (size * rng.normal(size=[N, 50])).astype(np.float32)
    a = {"zero": 0.0, "number": 0.1 * size, "vector": 0.1 * size * rng.normal(size=[50])}[center]
    b = scale if one_scale else np.full([50], scale)
    expected = np.square((g.astype(np.float64) - a) / b).sum(1)

    @tf.function(jit_compile=xla)
    def norms(kind, b):
        return kind(tf.constant(g)).squared_norms(tf.constant(a, tf.float32), b).value

    for kind in (terms.PerExample, terms.Bias):
        value = norms(kind, tf.constant(b, tf.float32)).numpy()
        assert np.all(~np.isfinite(value) | (value >= expected * (1 - 1e-5)))


@pytest.mark.parametrize("xla", [False, True])
def test_scales_that_are_parts_of_one_give_the_same_norms(xla, rng):
    """What is made of the whole is that of each part, and of a part that is transposed."""
    b, a = np.exp(rng.normal(size=[2, 12])).astype(np.float32), rng.normal(size=[2, 12]).astype(np.float32)
    x, dy = rng.normal(size=[N, 4]).astype(np.float32), rng.normal(size=[N, 3]).astype(np.float32)

    @tf.function(jit_compile=xla)
    def norms(whole, known):
        scales = [tf.reshape(part, [4, 3]) for part in tf.split(whole, 2)]
        if known:
            inverses.know_reciprocals(scales, whole, lambda t: [tf.reshape(part, [4, 3]) for part in tf.split(t, 2)])
        turned = inverses.transposed(scales[0], [4, 3])
        flat = tf.reshape(tf.matmul(dy[:, :, None], x[:, None]), [N, 12])
        centers = [tf.constant(center.reshape([4, 3])) for center in a]
        pairs = [single.squared_norms(tf.constant(x), tf.constant(dy), *pair).value for pair in zip(centers, scales)]
        return [*pairs, terms.direct_norms(flat, tf.transpose(centers[0]), turned)]

    g = np.einsum("ni,nj->nij", x, dy).reshape([N, 12])
    first, second = (np.square((g - a[i]) / b[i]).sum(1) for i in (0, 1))
    for known in (False, True):
        for found, wanted in zip(norms(tf.constant(b.ravel()), known), (first, second, first)):
            np.testing.assert_allclose(found, wanted, rtol=1e-4)
