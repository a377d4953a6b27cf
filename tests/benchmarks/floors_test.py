"""`benchmarks.floors` on shapes of some numbers: that its pieces are what they say, and how they are put together."""

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import cases, contenders, floors, floors_of_uses
from benchmarks.floors import ADACLIP, FIXED

N, INNER, OUTER = 5, 3, 4


def test_pieces_of_a_dense_layer_are_its_norms(rng):
    """|x dy^T / b|^2 = sum_ij x_i^2 p_ij dy_j^2, and sum_ij x_i a_ij p_ij dy_j, by NumPy from x dy^T itself."""
    for inner, outer in ((INNER, OUTER), (OUTER, INNER)):
        x, y, p = (rng.normal(size=shape).astype(np.float32) for shape in ([N, inner], [N, outer], [inner, outer]))
        g = np.einsum("ki,kj->kij", x, y)
        by_p, by_ap = floors.dense(N, inner, outer)[ADACLIP]
        np.testing.assert_allclose(by_p.function(x, y, p), np.sum(g**2 * p, (1, 2)), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(by_ap.function(x, y, p), np.sum(g * p, (1, 2)), rtol=1e-4, atol=1e-5)
        lengths = [piece.function(part).numpy() for piece, part in zip(floors.dense(N, inner, outer)[FIXED], (x, y))]
        np.testing.assert_allclose(lengths[0] * lengths[1], np.sqrt(np.sum(g**2, (1, 2))), rtol=1e-4)


@pytest.mark.parametrize("width", [3, 64])
def test_pieces_of_an_embedding_are_its_sum(width, rng):
    """Every position adds its weighted values to the row that it looked up; which one follows from the seed."""
    length, vocabulary = 6, 7
    _, _, total, _ = floors.lookup(N, length, vocabulary, width)[FIXED]
    values = rng.normal(size=[N * length, width]).astype(np.float32)
    weights = rng.uniform(size=N).astype(np.float32)
    expected = np.zeros([vocabulary, width])
    indices = np.random.default_rng(0).integers(0, vocabulary, N * length)
    np.add.at(expected, indices, values * np.repeat(weights, length)[:, np.newaxis])
    result = tf.reshape(total.function(tf.constant(values), tf.constant(weights)), [vocabulary, width])
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_pieces_of_uses_are_their_norms(rng):
    """G = sum_t x_t dy_t^T for each example, by NumPy: |G|^2, sum_ij G_ij^2 p_ij; for many uses the sum of all."""
    for uses, inner, outer in ((2, INNER, OUTER), (3, OUTER, INNER)):
        x, dy = (rng.normal(size=[N, uses, width]).astype(np.float32) for width in (inner, outer))
        p, weights = rng.uniform(size=[inner, outer]).astype(np.float32), rng.uniform(size=[1, N]).astype(np.float32)
        g = np.einsum("kti,ktj->kij", x, dy)
        few = floors_of_uses.few(N, uses, inner, outer)
        np.testing.assert_allclose(few[FIXED][0].function(x, dy), np.sum(g**2, (1, 2)), rtol=1e-3, atol=1e-4)
        by_p, by_ap = (np.reshape(piece.function(x, dy, p), [-1]) for piece in few[ADACLIP])
        pairs = [(s, t) for s in range(uses) for t in range(s, uses)]
        total = sum((1 if s == t else 2) * by_p[i * N :][:N] for i, (s, t) in enumerate(pairs))
        np.testing.assert_allclose(total, np.sum(g**2 * p, (1, 2)), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(np.sum(by_ap.reshape(N, uses), 1), np.sum(g * p, (1, 2)), rtol=1e-3, atol=1e-4)
        joined, of_examples, of_all = floors_of_uses.many(N, uses, inner, outer)[FIXED]
        arrays = [a[:, t] for a in (x, dy) for t in range(uses)]
        norms, weighted = of_examples.function(*joined.function(*arrays), weights)
        np.testing.assert_allclose(norms, np.sqrt(np.sum(g**2, (1, 2))), rtol=1e-3)
        np.testing.assert_allclose(
            np.reshape(weighted, [inner, outer]), np.tensordot(weights[0], g, 1), rtol=1e-3, atol=1e-4
        )
        np.testing.assert_allclose(of_all.function(*arrays), np.sum(g, 0), rtol=1e-3, atol=1e-4)


def test_what_a_table_adds_that_is_looked_up_and_multiplied(rng):
    """sum_l (v_l / b^2[i_l]) . P[i_l], where row i of P is dy_i x."""
    length, vocabulary, width = 4, 6, 3
    values, x, dy, b = (
        rng.uniform(0.5, 1.5, size).astype(np.float32)
        for size in ([N, length, width], [N, width], [N, vocabulary], [vocabulary, width])
    )
    indices = np.random.default_rng(0).integers(0, vocabulary, [N, length])
    rows = np.stack([dy[k][indices[k]][:, np.newaxis] * x[k] for k in range(N)])
    pieces = floors_of_uses.crossed(N, length, vocabulary, width)
    plain, weighed = pieces[FIXED][0].function(values, x, dy), pieces[ADACLIP][0].function(values, x, dy, b)
    np.testing.assert_allclose(plain, np.sum(values * rows, (1, 2)), rtol=1e-4)
    np.testing.assert_allclose(weighed, np.sum(values / b[indices] ** 2 * rows, (1, 2)), rtol=1e-4)


def test_what_is_spared_is_taken_off(monkeypatch):
    case = cases.Case(lambda: cases.mlp(OUTER, INNER), cases.CASES["mlp"].inputs, N)
    case = case._replace(inputs=lambda rng, batch: rng.normal(size=(batch, INNER)).astype(np.float32))
    pieces = floors.dense(N, INNER, OUTER)
    spared = pieces[FIXED][0]._replace(name="spared", sign=-1)
    # 1 ms for each call, 3 for each piece, 10 for each step.
    durations = lambda timed, rounds: {  # noqa: E731
        key: {"seconds": 0.01 if key in (contenders.BASELINE, *floors.WAYS) else 0.003 if key else 0.001}
        for key in timed
    }
    monkeypatch.setattr(floors.timing, "take_turns", durations)
    result = floors.measure("tiny", 3, case, lambda n: [pieces, {FIXED: [spared], ADACLIP: []}])
    # Norms of x and dy, noise and parameters, 2 ms each, less what is spared; two products in the place of the norms.
    assert result["ways"][FIXED]["floor"] == pytest.approx(0.01 + 4 * 0.002 - 0.002)
    assert result["ways"][ADACLIP]["floor"] == pytest.approx(0.01 + 4 * 0.002)
    assert 0 < result["ops"] < result["ways"][FIXED]["ops"] < result["ways"][ADACLIP]["ops"]
    assert "| tiny | DPFixedClipSGD | 10.00 | 16.00 | 1.60 | 10.00 | 1.00 |" in floors.table({"tiny": result})
    assert "| tiny | DPFixedClipSGD | spared | -2.00 |" in floors.table({"tiny": result})
