"""DP-SGD and DP-Adam in NumPy, fast enough for thousands of runs: the library's mechanism, with a fixed clip.

    u_k = g_k / max(C, |g_k|);  W = sum_k u_k + N(0, z² I);  g~ = C W / B;  then Keras's SGD or Adam on g~

tests/examples/tabular_competitors_test.py holds a step of it against the library's, and its noise against z C / B.
A model is a list of matrices whose last row is the bias; the gradient of example k in each is an outer product
x_k dy_k^T, so norms and sums take two products and no gradient is ever formed.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

import adaclip_tf
from adaclip_tf.privacy.mechanism import Mechanism
from examples.tabular import problems
from examples.tabular.problems import Problem
from examples.tabular.tables import Table

METHODS = {"dpsgd": "DP-SGD", "dpadam": "DP-Adam"}
BETA_1, BETA_2, ADAM_EPSILON = 0.9, 0.999, 1e-7  # Keras's own

Weights = list[np.ndarray]


class Candidate(NamedTuple):
    """What is tuned."""

    clip: float
    rate: float  # at the first step; falls to 0 on a straight line


def initial_weights(problem: Problem, width: int, rng: np.random.Generator) -> Weights:
    """Zeros for linear models, Glorot's uniform weights and biases of 0 for others: as Keras has them."""
    if not problem.hidden:
        return [np.zeros((width + 1, problem.outputs), np.float32)]
    weights = []
    for rows, columns in ((width, problem.hidden), (problem.hidden, problem.outputs)):
        limit = np.sqrt(6.0 / (rows + columns))
        kernel = rng.uniform(-limit, limit, (rows, columns))
        weights.append(np.vstack([kernel, np.zeros(columns)]).astype(np.float32))
    return weights


def with_ones(x: np.ndarray) -> np.ndarray:
    """A column of ones, which the bias is the weight of."""
    return np.hstack([x, np.ones((len(x), 1), np.float32)])


def outputs(weights: Weights, x: np.ndarray) -> np.ndarray:
    """Logits or predictions; x has its column of ones."""
    for kernel in weights[:-1]:
        x = with_ones(np.tanh(x @ kernel))
    return x @ weights[-1]


def factors(problem: Problem, weights: Weights, x: np.ndarray, y: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """(x, dy) for each matrix: the gradient of example k's loss is x_k dy_k^T."""
    hidden = with_ones(np.tanh(x @ weights[0])) if problem.hidden else x
    out = hidden @ weights[-1]
    if problem.kind == "softmax":
        exponentials = np.exp(out - out.max(axis=1, keepdims=True))
        dy = exponentials / exponentials.sum(axis=1, keepdims=True)
        dy[np.arange(len(y)), y] -= 1.0
    elif problem.kind == "logistic":
        dy = 1.0 / (1.0 + np.exp(-np.clip(out, -80.0, 80.0))) - y[:, None]
    else:
        dy = 2.0 * (out - y[:, None])
    dy = dy.astype(np.float32)
    if not problem.hidden:
        return [(x, dy)]
    inner = (dy @ weights[-1][:-1].T) * (1.0 - hidden[:, :-1] ** 2)
    return [(x, inner), (hidden, dy)]


def private_mean(
    pairs: list[tuple[np.ndarray, np.ndarray]], clip: float, z: float, batch_size: int, rng: np.random.Generator
) -> Weights:
    """g~ = (sum_k g_k min(1, C / |g_k|) + z C N) / B."""
    squares = sum((x * x).sum(axis=1) * (dy * dy).sum(axis=1) for x, dy in pairs)
    factor = 1.0 / np.maximum(1.0, np.sqrt(squares) / clip)
    sums = [x.T @ (dy * factor[:, None]) for x, dy in pairs]
    noise = [rng.standard_normal(total.shape, dtype=np.float32) for total in sums]
    return [((total + z * clip * drawn) / batch_size).astype(np.float32) for total, drawn in zip(sums, noise)]


class Updates:
    """Keras's SGD (no momentum) or Adam."""

    def __init__(self, method: str, weights: Weights):
        self._adam = method == "dpadam"
        self._m = [np.zeros_like(w) for w in weights]
        self._v = [np.zeros_like(w) for w in weights]
        self._step = 0

    def apply(self, weights: Weights, gradients: Weights, rate: float) -> None:
        """Changes the weights in place."""
        self._step += 1
        for w, g, m, v in zip(weights, gradients, self._m, self._v):
            if self._adam:
                m += (1.0 - BETA_1) * (g - m)
                v += (1.0 - BETA_2) * (g * g - v)
                correction = np.sqrt(1.0 - BETA_2**self._step) / (1.0 - BETA_1**self._step)
                g = correction * m / (np.sqrt(v) + ADAM_EPSILON)
            w -= np.float32(rate) * g


@functools.lru_cache(maxsize=64)
def calibrated(num_examples: int, batch_size: int, epochs: int, epsilon: float) -> tuple[float, int]:
    """z and the number of steps."""
    z = adaclip_tf.noise_multiplier(
        target_epsilon=epsilon, delta=problems.DELTA, num_examples=num_examples, batch_size=batch_size, epochs=epochs
    )
    return z, Mechanism(z, num_examples, batch_size).count(epochs=epochs)


def train(problem: Problem, table: Table, method: str, candidate: Candidate, seed: int) -> tuple[float, float]:
    """Trains on Poisson batches; the metric and the loss on the test part."""
    z, steps = calibrated(len(table.x_train), problem.batch_size, problem.epochs, problem.epsilon)
    rng = np.random.default_rng(seed)
    x, y, n = with_ones(table.x_train), table.y_train, len(table.x_train)
    weights = initial_weights(problem, table.x_train.shape[1], rng)
    updates = Updates(method, weights)
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(steps):
            batch = np.flatnonzero(rng.random(n, dtype=np.float32) < problem.batch_size / n)
            pairs = factors(problem, weights, x[batch], y[batch])
            mean = private_mean(pairs, candidate.clip, z, problem.batch_size, rng)
            updates.apply(weights, mean, candidate.rate * (1.0 - step / steps))
        metric, loss = problems.score(problem, outputs(weights, with_ones(table.x_test)), table.y_test)
    return (metric, loss) if np.isfinite(loss) else (-1e9, 1e9)
