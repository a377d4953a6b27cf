"""The library's default, with nothing tuned: `make_private` on a plain Keras model."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

import adaclip_tf
from examples.tabular import problems
from examples.tabular.problems import Problem
from examples.tabular.tables import Table


def build(problem: Problem, width: int) -> tf.keras.Model:
    """The problem's model, its outputs without an activation. Linear models start at 0, as the competitors' do."""
    layers: list[Any] = [tf.keras.layers.Input((width,))]
    if problem.hidden:
        layers.append(tf.keras.layers.Dense(problem.hidden, activation="tanh"))
    start = "glorot_uniform" if problem.hidden else "zeros"
    return tf.keras.Sequential([*layers, tf.keras.layers.Dense(problem.outputs, kernel_initializer=start)])


def loss_of(problem: Problem) -> tf.keras.losses.Loss:
    """Keras's loss."""
    if problem.kind == "softmax":
        return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if problem.kind == "logistic":
        return tf.keras.losses.BinaryCrossentropy(from_logits=True)
    return tf.keras.losses.MeanSquaredError()


def labels(problem: Problem, y: np.ndarray) -> np.ndarray:
    """As Keras's loss wants them."""
    return y if problem.kind == "softmax" else y.astype(np.float32)[:, None]


def train(problem: Problem, table: Table, seed: int) -> dict[str, Any]:
    """Trains; the metric and the loss on the test part, and what was chosen."""
    tf.keras.utils.set_random_seed(seed)
    model = build(problem, table.x_train.shape[1])
    private = adaclip_tf.make_private(
        model,
        (table.x_train, labels(problem, table.y_train)),
        loss=loss_of(problem),
        target_epsilon=problem.epsilon,
        delta=problems.DELTA,
        batch_size=problem.batch_size,
        epochs=problem.epochs,
        seed=seed,
        verbose=False,
    )
    private.fit(verbose=0)
    metric, loss = problems.score(problem, model.predict(table.x_test, batch_size=4096, verbose=0), table.y_test)
    found: dict[str, Any] = {
        "metric": metric,
        "loss": loss,
        "epsilon": private.epsilon,
        "noise_multiplier": private.plan.noise_multiplier,
        "learning_rate": private.plan.learning_rate,
        "clip": private.scales.clip_,
        "shape_min": min(float(np.min(shape)) for shape in private.scales.shapes_),
        "shape_max": max(float(np.max(shape)) for shape in private.scales.shapes_),
    }
    tf.keras.backend.clear_session()
    return {name: float(value) for name, value in found.items()}
