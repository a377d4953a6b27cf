"""The paper's regression experiment (section 4.3): error against the dimension, one active coordinate.

Points x^i = (y_i, 0, ..., 0) in R^d, i = 1..n, and the loss 0.5 |theta - x^i|^2, whose gradient is theta - x^i and
whose minimiser is the mean of the points. SGD with batches of one, each gradient made private by
`AdaClipSumQuery`. Only one coordinate carries data, so clipping that is the same everywhere (Abadi et al.) pays
for the other d - 1 in noise, and AdaCliP need not.

The distribution of y is our choice: y_i ~ N(1, 1), so that the active coordinate's standard deviation is the clip,
1.0, which is when section 4.3's factor is exactly d, and so that a method that never moves from theta = 0 has an
error of about 0.5 and cannot pass for a good one.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf import core, query

FEW_DIMENSIONS = (1, 10, 100, 1000, 10000)
DIMENSIONS = (1, 3, 10, 30, 100, 300, 1000, 3000, 10000)
EXAMPLES, EPOCHS, LEARNING_RATE, SIGMA, CLIP = 1000, 10, 0.01, 0.1, 1.0
FLAT_RANGE = (10, 1000)  # where the error of AdaCliP must not grow


@dataclasses.dataclass(frozen=True)
class Method:
    """A line of the figure."""

    label: str
    options: str
    choice: core.ClippingRule


METHODS = {
    "abadi": Method("Abadi et al.", "C = 1.0", core.FixedClip(CLIP)),
    "literal": Method(
        "AdaCliP, literal",
        'h2 = 1, gamma = 1, beta_2 = 0.9, clamp = "before_average"',
        core.AdaClip(core.MomentEstimator(h2=1.0, variance_scaling="paper")),
    ),
    "adaclip": Method(
        "AdaCliP",
        'h2 = 1, gamma = 0.5, beta_2 = 0.99, clamp = "after_average"',
        core.AdaClip(core.MomentEstimator(beta_2=0.99, h2=1.0, clamp="after_average"), gamma=0.5),
    ),
}


def excess_risks(
    choice: core.ClippingRule, dimension: int, seeds: Iterable[int], epochs: int = EPOCHS, examples: int = EXAMPLES
) -> list[float]:
    """0.5 |theta - mean of x|^2, averaged over the iterates of the last epoch, for every seed.

    One query serves all seeds: its noise moves on from run to run, and is reproducible.
    """
    # The paper's sigma is per record, and a batch has one: the noise multiplier is sigma sqrt(1).
    dp_query = query.ClippedSumQuery(choice, tf.TensorSpec([dimension]), SIGMA, 1.0, seed=dimension)
    train = _trainer(dp_query, dimension, last=examples)
    risks = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        y = rng.normal(1.0, 1.0, examples).astype(np.float32)
        order = np.concatenate([rng.permutation(examples) for _ in range(epochs)])
        risks.append(float(train(tf.constant(y[order]), tf.constant(np.mean(y)))))
    return risks


def _trainer(dp_query: query.AdaClipSumQuery, dimension: int, last: int) -> Callable[[Any, Any], tf.Tensor]:
    """All steps as one compiled loop: (ys in order of use, their mean) -> mean excess risk of the end."""
    first_axis = tf.one_hot(0, dimension)

    @tf.function(jit_compile=True)
    def train(ys, mean):
        steps = len(ys)

        def body(t, theta, state, total):
            params = dp_query.derive_sample_params(state)
            gradient = theta - ys[t] * first_axis
            sample = dp_query.accumulate_record(params, dp_query.initial_sample_state(), gradient)
            noised, state, _ = dp_query.get_noised_result(sample, state)
            theta = theta - LEARNING_RATE * noised
            risk = 0.5 * tf.reduce_sum(tf.square(theta - mean * first_axis))
            return t + 1, theta, state, total + tf.where(t >= steps - last, risk, 0.0)

        start = (0, tf.zeros([dimension]), dp_query.initial_global_state(), 0.0)
        return tf.while_loop(lambda t, *_: t < steps, body, start)[-1] / last

    return train


def run(
    dimensions: Iterable[int] = DIMENSIONS,
    seeds: Iterable[int] = range(5),
    progress: Callable[[list], Iterable] = iter,
    epochs: int = EPOCHS,
) -> dict[str, Any]:
    """Every method in every dimension; `progress` wraps the list of jobs, as tqdm does."""
    seeds = list(seeds)
    jobs = [(name, dimension) for dimension in dimensions for name in METHODS]
    started = time.monotonic()
    risks: dict[str, dict[int, list[float]]] = {name: {} for name in METHODS}
    for name, dimension in progress(jobs):
        risks[name][dimension] = excess_risks(METHODS[name].choice, dimension, seeds, epochs)
    return {
        "seeds": seeds,
        "settings": {
            "examples": EXAMPLES,
            "epochs": epochs,
            "batch_size": 1,
            "learning_rate": LEARNING_RATE,
            "sigma": SIGMA,
            "clip": CLIP,
        },
        "options": {name: method.options for name, method in METHODS.items()},
        "excess_risk": risks,
        "seconds": round(time.monotonic() - started, 1),
    }


def slope(risks: dict[int, list[float]]) -> float:
    """Of log(mean error) against log(d) within `FLAT_RANGE`: 0 is no growth, 1 is growth in proportion.

    NaN if fewer than two dimensions are in that range.
    """
    inside = _inside(risks)
    if len(inside) < 2:
        return float("nan")
    return float(np.polyfit(np.log(inside), [np.log(np.mean(risks[d])) for d in inside], 1)[0])


def exponent(value: float) -> str:
    """Two digits, and no minus in front of a zero: rounding differs from processor to processor."""
    return f"{round(value, 2) + 0.0:.2f}"


def _inside(risks: dict[int, list[float]]) -> list[int]:
    return [d for d in sorted(risks) if FLAT_RANGE[0] <= d <= FLAT_RANGE[1]]


def check(results: dict[str, Any]) -> str:
    """Says in a line that the paper's figure came out: Abadi grows with d, and AdaCliP does not.

    Raises:
      RuntimeError: if it did not.
    """
    risks = results["excess_risk"]
    inside = _inside(risks["adaclip"])
    if len(inside) < 2:
        return f"not checked: that takes two dimensions from {FLAT_RANGE[0]} to {FLAT_RANGE[1]}"
    ours, abadi = slope(risks["adaclip"]), slope(risks["abadi"])
    worst = max(np.mean(risks["adaclip"][d]) for d in inside)
    growth = (
        f"from d = {inside[0]} to {inside[-1]} the error of AdaCliP grows as d^{exponent(ours)} up to {worst:.2g}, and "
        f"that of Abadi et al. as d^{exponent(abadi)}"
    )
    if not (ours < 0.1 and worst < 0.01 and abadi > 0.4):
        raise RuntimeError(f"the figure did not come out: {growth}; expected below 0.1, below 0.01 and above 0.4.")
    return f"ok: {growth}"
