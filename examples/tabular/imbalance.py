"""Rare positives with class weights: is what the weights ask for still there after clipping?

20,000 examples with 20 normal features, 7.7 % positives, weights of 0.54 and 6.5 (each class then weighs the same),
epsilon 1, logistic regression. A clip that both classes pass makes every gradient as long as the clip: the weights
are undone, and almost nothing is called positive. `make_private` clips at up to twice the median gradient, which is
that of a negative, so that a part of the weights is left; with the ratio of the weights as its multiplier, all of
them are. Or all weights are divided by the largest one: up to 1 they are applied after clipping. The learning rate is
then raised by as much.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import tensorflow as tf

import adaclip_tf
from adaclip_tf.scales import method as constants
from examples.tabular import comparison

SEEDS = 5
EXAMPLES, FEATURES, POSITIVES = 20_000, 20, 0.077
WEIGHTS = (0.54, 6.5)
EPSILON, DELTA, BATCH, EPOCHS = 1.0, 1e-5, 256, 10
METHODS = {
    "clip_1": "DP-SGD, clip 1",
    "clip_20": "DP-SGD, clip 20",
    "adaclip": "AdaCliP's defaults",
    "default": "`make_private`",
    "default_wide": "`make_private`, clip widened by the ratio of the weights",
    "default_divided": "`make_private`, weights divided by the largest one, rate raised by as much",
}
SETTINGS = {
    "default": constants.DEFAULT,
    "default_wide": constants.Method(
        least_multiplier=WEIGHTS[1] / WEIGHTS[0], largest_multiplier=WEIGHTS[1] / WEIGHTS[0]
    ),
    "default_divided": constants.Method(
        rate_per_class=constants.DEFAULT.rate_per_class * WEIGHTS[1],
        rate_by_noise=constants.DEFAULT.rate_by_noise * WEIGHTS[1],
    ),
}


def run(runs: comparison.Runs, seeds: int = SEEDS) -> comparison.Results:
    """Every method with every seed."""
    same = {"examples": EXAMPLES, "epochs": EPOCHS, "weights": WEIGHTS, "batch": BATCH, "epsilon": EPSILON}
    methods = {}
    for name in METHODS:
        identity = {**same, "settings": dataclasses.asdict(SETTINGS[name]) if name in SETTINGS else None}
        methods[name] = [
            runs.get(f"imbalance/{name}-{seed}", {**identity, "seed": seed}, functools.partial(train, name, seed))
            for seed in range(seeds)
        ]
    return {**same, "name": "imbalance", "settings": dataclasses.asdict(constants.DEFAULT), "methods": methods}


def make(rng: np.random.Generator, examples: int = EXAMPLES) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels and weights. The direction that tells the classes apart is the same for every seed."""
    direction = np.random.default_rng(0).standard_normal(FEATURES)
    direction *= 2.0 / np.linalg.norm(direction)
    y = (rng.random(examples) < POSITIVES).astype(np.float32)
    x = rng.standard_normal((examples, FEATURES)) + y[:, None] * direction
    return x.astype(np.float32), y[:, None], np.where(y > 0, WEIGHTS[1], WEIGHTS[0]).astype(np.float32)


def train(method: str, seed: int, examples: int = EXAMPLES, epochs: int = EPOCHS) -> dict[str, float]:
    """Recall, precision and balanced accuracy on as many new examples."""
    tf.keras.utils.set_random_seed(seed)
    rng = np.random.default_rng(seed)
    (x, y, weights), (x_test, y_test, _) = make(rng, examples), make(rng, examples)
    model = tf.keras.Sequential([tf.keras.layers.Input((FEATURES,)), tf.keras.layers.Dense(1)])
    if method == "default_divided":
        weights = weights / np.float32(WEIGHTS[1])
    if method in SETTINGS:
        _with_default(model, (x, y, weights), seed, epochs, SETTINGS[method])
    else:
        _with_optimizer(method, model, (x, y, weights), seed, epochs)
    positive, truth = model.predict(x_test, batch_size=4096, verbose=0)[:, 0] > 0.0, y_test[:, 0] > 0.0
    recall, specificity = float(positive[truth].mean()), float(1.0 - positive[~truth].mean())
    tf.keras.backend.clear_session()
    return {
        "metric": 100.0 * recall,
        "specificity": 100.0 * specificity,
        "balanced": 50.0 * (recall + specificity),
    }


def _loss() -> tf.keras.losses.Loss:
    return tf.keras.losses.BinaryCrossentropy(from_logits=True)


def _with_default(model: Any, data: Any, seed: int, epochs: int, settings: constants.Method) -> None:
    private = adaclip_tf.make_private(
        model,
        data,
        loss=_loss(),
        target_epsilon=EPSILON,
        delta=DELTA,
        batch_size=BATCH,
        epochs=epochs,
        settings=settings,
        seed=seed,
        verbose=False,
    )
    private.fit(verbose=0)


def _with_optimizer(method: str, model: Any, data: Any, seed: int, epochs: int) -> None:
    same: dict[str, Any] = {"expected_batch_size": BATCH, "seed": seed}
    z = adaclip_tf.noise_multiplier(
        target_epsilon=EPSILON, delta=DELTA, num_examples=len(data[0]), batch_size=BATCH, epochs=epochs
    )
    if method == "adaclip":
        optimizer = adaclip_tf.DPAdaClipSGD(0.1, noise_multiplier=z, **same)
    else:
        clip = float(method.partition("_")[2])
        optimizer = adaclip_tf.DPFixedClipSGD(0.1, l2_norm_clip=clip, noise_multiplier=z, **same)
    model.compile(optimizer, _loss())
    batches = adaclip_tf.poisson_batches(data, expected_batch_size=BATCH, seed=seed)
    model.fit(batches, epochs=epochs, verbose=0)
