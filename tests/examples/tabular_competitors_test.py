"""The NumPy trainer of examples/tabular is the library's mechanism: a step without noise, the size of the noise."""

import numpy as np
import pytest
import tensorflow as tf

import adaclip_tf
from examples.tabular import competitors, default, problems, tables

CASES = {
    "logistic": problems.Problem("a", "a", tables.adult, "logistic", "accuracy", 1.0, 8, 1),
    "softmax": problems.Problem("b", "b", tables.mnist, "softmax", "accuracy", 1.0, 8, 1, outputs=3),
    "linear": problems.Problem("c", "c", tables.diamonds, "linear", "r2", 1.0, 8, 1),
    "hidden": problems.Problem("d", "d", tables.adult, "logistic", "accuracy", 1.0, 8, 1, hidden=4),
}
CLIP, EXAMPLES, WIDTH = 0.7, 6, 5


def batch(problem, rng):
    x = rng.standard_normal((EXAMPLES, WIDTH)).astype(np.float32)
    y = rng.integers(0, max(problem.outputs, 2), EXAMPLES).astype(np.int32)
    return x, y.astype(np.float32) if problem.kind == "linear" else y


def keras_weights(weights):
    """Kernel and bias of each matrix."""
    return [part for matrix in weights for part in (matrix[:-1], matrix[-1])]


@pytest.mark.parametrize("name", CASES)
def test_a_step_without_noise_is_the_librarys(name, rng):
    """w - w' = g~ for SGD with a rate of 1; clipped: every case has gradients above and below the clip."""
    problem = CASES[name]
    x, y = batch(problem, rng)
    x[0] *= 1e-3
    weights = [w + 0.3 * rng.standard_normal(w.shape).astype(np.float32) for w in _initial(problem, rng)]
    pairs = competitors.factors(problem, weights, competitors.with_ones(x), y)
    norms = np.sqrt(sum((a * a).sum(axis=1) * (b * b).sum(axis=1) for a, b in pairs))
    clip = float(np.median(norms))
    assert (norms > clip).any() and (norms < clip).any()
    mean = competitors.private_mean(pairs, clip, 0.0, problem.batch_size, rng)

    model = default.build(problem, WIDTH)
    model.set_weights(keras_weights(weights))
    np.testing.assert_allclose(model(x), competitors.outputs(weights, competitors.with_ones(x)), rtol=1e-4, atol=1e-5)
    optimizer = adaclip_tf.DPFixedClipSGD(
        1.0, l2_norm_clip=clip, noise_multiplier=0.0, expected_batch_size=problem.batch_size
    )
    model.compile(optimizer, default.loss_of(problem))
    model.train_on_batch(x, default.labels(problem, y))
    steps = [before - after for before, after in zip(keras_weights(weights), model.get_weights())]
    for ours, librarys in zip(keras_weights(mean), steps):
        np.testing.assert_allclose(ours, librarys, rtol=1e-3, atol=1e-5)


def test_the_clip_is_felt(rng):
    """Two examples of gradient (3, 4) and (0.3, 0.4) at a clip of 1: (0.6, 0.8) + (0.3, 0.4), by B = 2."""
    pairs = [(np.array([[3.0, 4.0], [0.3, 0.4]], np.float32), np.ones((2, 1), np.float32))]
    mean = competitors.private_mean(pairs, 1.0, 0.0, 2, rng)
    np.testing.assert_allclose(mean[0][:, 0], [0.45, 0.6], rtol=1e-6)


@pytest.mark.parametrize("method, make", [("dpsgd", tf.keras.optimizers.SGD), ("dpadam", tf.keras.optimizers.Adam)])
def test_updates_are_those_of_keras(method, make, rng):
    weights = [rng.standard_normal((3, 2)).astype(np.float32)]
    variable, optimizer = tf.Variable(weights[0]), make(0.1)
    updates = competitors.Updates(method, weights)
    for _ in range(4):
        gradient = rng.standard_normal((3, 2)).astype(np.float32)
        optimizer.apply_gradients([(tf.constant(gradient), variable)])
        updates.apply(weights, [gradient], 0.1)
    np.testing.assert_allclose(weights[0], variable.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("factor, right", [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_noise_has_the_size_that_z_says(factor, right, rng):
    """An empty batch: z C / B in every coordinate. 20,000 draws: within 5 %; two thirds and three halves are not."""
    pairs = [(np.zeros((0, 100), np.float32), np.zeros((0, 200), np.float32))]
    mean = competitors.private_mean(pairs, 2.0, 3.0 * factor, 4, rng)
    assert bool(abs(mean[0].std() / (3.0 * 2.0 / 4) - 1.0) < 0.05) is right


def test_training_learns_and_is_calibrated():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((600, WIDTH)).astype(np.float32)
    y = (x[:, 0] > 0.0).astype(np.int32)
    table = tables.Table(x[:500], y[:500], x[500:], y[500:])
    problem = problems.Problem("a", "a", tables.adult, "logistic", "accuracy", 8.0, 50, 4)
    z, steps = competitors.calibrated(500, 50, 4, 8.0)
    assert steps == 40
    spent = adaclip_tf.epsilon(noise_multiplier=z, delta=problems.DELTA, num_examples=500, batch_size=50, epochs=4)
    assert 7.9 < spent <= 8.0
    metric, loss = competitors.train(problem, table, "dpsgd", competitors.Candidate(1.0, 3.0), 0)
    assert metric > 80.0 and loss < 0.6
    assert (metric, loss) == competitors.train(problem, table, "dpsgd", competitors.Candidate(1.0, 3.0), 0)


def _initial(problem, rng):
    return competitors.initial_weights(problem, WIDTH, rng)
