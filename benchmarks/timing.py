"""Times `fit` steps, one contender's turn after another's."""

from __future__ import annotations

import functools
import statistics
import time

import numpy as np
import tensorflow as tf

from benchmarks import cases, contenders

TURN_SECONDS = 0.25  # a turn repeats the step until it has lasted this long


class Trainer:
    """A compiled model with data, ready to run one `fit` step at a time."""

    def __init__(self, case, contender, batch_size=None, jit_compile=False):
        batch_size = batch_size or case.batch_size
        tf.keras.utils.set_random_seed(0)
        rng = np.random.default_rng(0)
        data = case.inputs(rng, batch_size), rng.integers(0, cases.CLASSES, batch_size)
        self.model = contenders.CONTENDERS[contender](case, batch_size)
        # The batch size is unknown to the graph, as it is in `fit` on arrays.
        spec = tuple(tf.TensorSpec([None, *array.shape[1:]], array.dtype) for array in data)
        dataset = tf.data.Dataset.from_generator(lambda: iter([data]), output_signature=spec)
        self._iterator = iter(dataset.cache().repeat().prefetch(2))
        if jit_compile:
            self.model.jit_compile = True
        self._step = cases.train_function(self.model)
        start, busy = time.perf_counter(), time.process_time()
        self.run()
        self.first_step = time.perf_counter() - start
        self.first_step_busy = time.process_time() - busy  # processor time, which other programs change less
        start = time.perf_counter()
        self.run()
        self._repeats = max(1, min(50, int(TURN_SECONDS / (time.perf_counter() - start))))

    def run(self):
        """One training step, to its end."""
        float(tf.reduce_mean(self._step(self._iterator)["loss"]))

    def turn(self):
        """Seconds per step, and seconds of processor time."""
        start, busy = time.perf_counter(), time.process_time()
        for _ in range(self._repeats):
            self.run()
        return (time.perf_counter() - start) / self._repeats, (time.process_time() - busy) / self._repeats


def take_turns(trainers, rounds):
    """Median seconds per step of each trainer, those of processor time, and their first step (tracing included)."""
    for trainer in trainers.values():
        trainer.turn()
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in trainers}
    for index in range(rounds):
        for name, trainer in trainers.items():
            # A step of seconds needs no fifteen repetitions to be told from one of milliseconds.
            if index < 3 or times[name][0][0] < 0.2:
                times[name].append(trainer.turn())
    results = {}
    for name, values in times.items():
        seconds, busy = zip(*values)
        results[name] = {
            "seconds": statistics.median(seconds),
            "busy": statistics.median(busy),
            "spread": (max(seconds) - min(seconds)) / statistics.median(seconds),
            "first_step_seconds": trainers[name].first_step,
            "first_step_busy": trainers[name].first_step_busy,
        }
    return results


def measure_growth():
    """Time per step of SGD and of ours as the batch and the model grow."""
    growth: dict[str, dict] = {"batch": {}, "parameters": {}}
    pair = (contenders.BASELINE, contenders.OURS)
    for batch in (64, 256, 1024, 4096):
        trainers = {name: Trainer(cases.CASES["mlp"], name, batch) for name in pair}
        growth["batch"][batch] = take_turns(trainers, 5)
    for hidden in (140, 1400, 14_000, 140_000):  # 60 -> hidden -> 10: 10^4 to 10^7 parameters
        case = cases.CASES["mlp"]._replace(build=functools.partial(cases.mlp, hidden), batch_size=64)
        trainers = {name: Trainer(case, name) for name in pair}
        parameters = trainers[contenders.BASELINE].model.count_params()
        growth["parameters"][parameters] = take_turns(trainers, 5)
    return growth
