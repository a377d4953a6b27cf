"""What `noise_terms` costs and what it buys: the paper's MLP 60-1000-10 in batches of 600, and the noise's tails.

    python -m benchmarks.noise_terms

The cost is processor time per step, by the median of rounds in which all settings take turns. What it buys: a canary
that lies along one coordinate moves the noised sum by 1 / z standard deviations of the noise. Where the noise ends at
`limit` standard deviations, one end of the moved interval is out of reach without the canary, and the probability of
landing there is an addition to delta, for every step whose batch holds the canary.
"""

from __future__ import annotations

import math
import statistics
import time

import numpy as np
import scipy.stats
import tensorflow as tf
from absl import app, flags

from adaclip_tf import DPAdaClipSGD
from benchmarks import cases

_ROUNDS = flags.DEFINE_integer("rounds", 15, "Rounds of each setting.", lower_bound=1)
_STEPS = flags.DEFINE_integer("steps", 20, "Steps per round.", lower_bound=1)

TERMS = (1, 2, 4, 8)
NOISE_MULTIPLIERS = (0.5, 0.7, 1.0, 1.5)
LIMIT = math.sqrt(-2.0 * math.log(1e-7))  # of TensorFlow's Box-Muller
CASE = cases.CASES["mlp"]


def trainer(terms: int):
    """A function that trains one step."""
    rng = np.random.default_rng(0)
    data = CASE.inputs(rng, CASE.batch_size), rng.integers(0, cases.CLASSES, CASE.batch_size)
    model = tf.keras.Model(*CASE.build())
    optimizer = DPAdaClipSGD(
        0.1, noise_multiplier=1.0, expected_batch_size=CASE.batch_size, initial_std=1e-3, noise_terms=terms
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    model.compile(optimizer, loss)
    iterator = iter(tf.data.Dataset.from_tensors(data).cache().repeat())
    train = model.make_train_function()
    return lambda: float(tf.reduce_mean(train(iterator)["loss"]))


def delta_per_step(terms: int, noise_multiplier: float) -> float:
    """The probability that noise which ends at LIMIT sqrt(terms) gives a canary away."""
    return float(scipy.stats.norm.sf(LIMIT * math.sqrt(terms) - 1.0 / noise_multiplier))


def main(argv):
    del argv
    steps = {terms: trainer(terms) for terms in TERMS}
    for step in steps.values():
        step()
    seconds: dict[int, list[float]] = {terms: [] for terms in TERMS}
    for _ in range(_ROUNDS.value):
        for terms, step in steps.items():
            start = time.process_time()
            for _ in range(_STEPS.value):
                step()
            seconds[terms].append((time.process_time() - start) / _STEPS.value)
    columns = " | ".join(f"z = {z:g}" for z in NOISE_MULTIPLIERS)
    print(f"| noise_terms | ms of processor time per step | noise ends at | {columns} |")
    print("|--:|--:|--:|" + "--:|" * len(NOISE_MULTIPLIERS))
    for terms in TERMS:
        cells = " | ".join(f"{delta_per_step(terms, z):.0e}" for z in NOISE_MULTIPLIERS)
        median = 1000 * statistics.median(seconds[terms])
        print(f"| {terms} | {median:.1f} | {LIMIT * math.sqrt(terms):.1f} | {cells} |")


if __name__ == "__main__":
    app.run(main)
