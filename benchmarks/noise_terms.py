"""What `noise_terms` costs and what it buys: the paper's MLP 60-1000-10 in batches of 600, and the noise's tails.

    python -m benchmarks.noise_terms

The cost is processor time, of a step and of a number of the noise alone (in 10^7 of them), by the median of rounds in
which all settings take turns. What it buys: a canary that lies along one coordinate moves the noised sum by 1 / z
standard deviations of the noise. Where the noise ends at `limit` of them, one end of the moved interval is out of
reach without the canary, and the probability of landing there is an addition to delta, for every step whose batch
holds the canary. The last row is TensorFlow's own normal draw, for comparison.
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
from adaclip_tf.core import noise
from benchmarks import cases

_ROUNDS = flags.DEFINE_integer("rounds", 15, "Rounds of each setting.", lower_bound=1)
_STEPS = flags.DEFINE_integer("steps", 20, "Steps per round.", lower_bound=1)

TERMS = (1, 2, 4, 8)
NUMBERS = 10**7
NOISE_MULTIPLIERS = (0.5, 0.7, 1.0, 1.5)
LIMIT = math.sqrt(2.0 * 65 * math.log(2.0))  # of the smallest u, 2^-65, in `adaclip_tf.core.box_muller`
TENSORFLOWS_LIMIT = math.sqrt(-2.0 * math.log(1e-7))
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
    train = cases.train_function(model)
    return lambda: float(tf.reduce_mean(train(iterator)["loss"]))


def drawer(terms: int):
    """A function that draws noise alone."""
    source = noise.NoiseSource(terms=terms)
    return tf.function(lambda: source.fresh_normals([(NUMBERS,)])[0])


def tensorflows_drawer():
    """The same by TensorFlow's own normal draws, one for each number."""
    calls = tf.Variable(0, dtype=tf.int64)
    return tf.function(lambda: tf.random.stateless_normal([NUMBERS], [calls.assign_add(1), 0], alg="philox"))


def medians(functions: dict, calls: int) -> dict:
    """Seconds of processor time per call of each function: the median of rounds in which they take turns."""
    for function in functions.values():
        function()
    seconds: dict = {name: [] for name in functions}
    for _ in range(_ROUNDS.value):
        for name, function in functions.items():
            start = time.process_time()
            for _ in range(calls):
                function()
            seconds[name].append((time.process_time() - start) / calls)
    return {name: statistics.median(values) for name, values in seconds.items()}


def delta_per_step(limit: float, noise_multiplier: float) -> float:
    """The probability that noise which ends at `limit` standard deviations gives a canary away."""
    return float(scipy.stats.norm.sf(limit - 1.0 / noise_multiplier))


def main(argv):
    del argv
    steps = medians({terms: trainer(terms) for terms in TERMS}, _STEPS.value)
    draws = medians({**{terms: drawer(terms) for terms in TERMS}, "TensorFlow's": tensorflows_drawer()}, 1)
    columns = " | ".join(f"z = {z:g}" for z in NOISE_MULTIPLIERS)
    print(f"| noise_terms | ms per step | ns per number | noise ends at | {columns} |")
    print("|--:|--:|--:|--:|" + "--:|" * len(NOISE_MULTIPLIERS))
    for name, seconds in draws.items():
        limit = LIMIT * math.sqrt(name) if name in steps else TENSORFLOWS_LIMIT
        step = f"{1000 * steps[name]:.1f}" if name in steps else ""
        cells = " | ".join(f"{delta_per_step(limit, z):.0e}" for z in NOISE_MULTIPLIERS)
        print(f"| {name} | {step} | {1e9 * seconds / NUMBERS:.1f} | {limit:.1f} | {cells} |")


if __name__ == "__main__":
    app.run(main)
