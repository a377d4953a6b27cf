"""How long a `fit` step takes, and how much memory: ours, Keras's SGD and tensorflow-privacy's, in one run.

Times are medians of repetitions that take turns, after a warm-up, so that whatever else the machine does hits all
alike; read the ratios, not the seconds. Memory is the peak resident size of a process of its own.

    python -m benchmarks.speed --out=runs/benchmark
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import numpy as np
import tensorflow as tf
from absl import app, flags, logging

from benchmarks import cases, contenders, report

FLAGS = flags.FLAGS
flags.DEFINE_string("out", "runs/benchmark", "Folder for results.json, results.md and the figures.")
flags.DEFINE_list("cases", list(cases.CASES), "Which models.")
flags.DEFINE_list("contenders", list(contenders.CONTENDERS), "Which ways of training.")
flags.DEFINE_integer("rounds", 15, "How often each contender has its turn.", lower_bound=3)
flags.DEFINE_bool("memory", True, "Measure peak memory, a process each.")
flags.DEFINE_bool("memory_only", False, "Measure the memory of what results.json in --out has the times of.")
flags.DEFINE_bool("growth", True, "Measure how time grows with the batch and with the parameters.")
flags.DEFINE_string("memory_of", None, "Internal: train this one (case:contender:batch) and print its peak memory.")

TURN_SECONDS = 0.25  # a turn repeats the step until it has lasted this long


class Trainer:
    """A compiled model with data, ready to run one `fit` step at a time."""

    def __init__(self, case, contender, batch_size=None):
        batch_size = batch_size or case.batch_size
        tf.keras.utils.set_random_seed(0)
        rng = np.random.default_rng(0)
        data = case.inputs(rng, batch_size), rng.integers(0, cases.CLASSES, batch_size)
        self.model = contenders.CONTENDERS[contender](case, batch_size)
        # The batch size is unknown to the graph, as it is in `fit` on arrays.
        spec = tuple(tf.TensorSpec([None, *array.shape[1:]], array.dtype) for array in data)
        dataset = tf.data.Dataset.from_generator(lambda: iter([data]), output_signature=spec)
        self._iterator = iter(dataset.cache().repeat().prefetch(2))
        self._step = self.model.make_train_function()
        start = time.perf_counter()
        self.run()
        self.first_step = time.perf_counter() - start
        start = time.perf_counter()
        self.run()
        self._repeats = max(1, min(50, int(TURN_SECONDS / (time.perf_counter() - start))))

    def run(self):
        """One training step, to its end."""
        float(tf.reduce_mean(self._step(self._iterator)["loss"]))

    def turn(self):
        """Seconds per step."""
        start = time.perf_counter()
        for _ in range(self._repeats):
            self.run()
        return (time.perf_counter() - start) / self._repeats


def take_turns(trainers, rounds):
    """Median seconds per step of each trainer, and their first step (tracing included)."""
    for trainer in trainers.values():
        trainer.turn()
    times: dict[str, list[float]] = {name: [] for name in trainers}
    for index in range(rounds):
        for name, trainer in trainers.items():
            # A step of seconds needs no fifteen repetitions to be told from one of milliseconds.
            if index < 3 or times[name][0] < 0.2:
                times[name].append(trainer.turn())
    return {
        name: {
            "seconds": statistics.median(values),
            "spread": (max(values) - min(values)) / statistics.median(values),
            "first_step_seconds": trainers[name].first_step,
        }
        for name, values in times.items()
    }


def measure_case(name):
    """Times all contenders on one case."""
    trainers = {}
    for contender in FLAGS.contenders:
        try:
            trainers[contender] = Trainer(cases.CASES[name], contender)
        except contenders.NotApplicableError as reason:
            logging.info("%s can't train %s: %s", contender, name, reason)
    return take_turns(trainers, FLAGS.rounds)


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


def peak_memory(case, contender, batch_size):
    """Peak resident bytes of a process that trains three steps."""
    command = [sys.executable, "-m", "benchmarks.speed", f"--memory_of={case}:{contender}:{batch_size}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        return None
    return int(result.stdout.split()[-1])


def _print_memory_of(what):
    name, contender, batch_size = what.split(":")
    trainer = Trainer(cases.CASES[name], contender, int(batch_size))
    trainer.run()
    print(_high_water_mark())


def _high_water_mark():
    """Peak resident bytes. Not `ru_maxrss`: a child process starts with its parent's."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmHWM; peak memory can only be measured on Linux.")


def measure_memory(results):
    """Fills in the peak memory of everything that was timed."""
    for name, rows in results["cases"].items():
        for contender, row in rows.items():
            if contender in FLAGS.contenders:
                row["peak_bytes"] = peak_memory(name, contender, cases.CASES[name].batch_size)
    results["memory_mlp_4096"] = {
        name: peak_memory("mlp", name, 4096) for name in (contenders.BASELINE, contenders.OURS)
    }


def _save(results, out):
    (out / "results.json").write_text(json.dumps(results, indent=1))
    report.write(results, out)


def main(argv):
    del argv
    if FLAGS.memory_of:
        _print_memory_of(FLAGS.memory_of)
        return
    out = pathlib.Path(FLAGS.out)
    out.mkdir(parents=True, exist_ok=True)
    if FLAGS.memory_only:
        timed = json.loads((out / "results.json").read_text())
        measure_memory(timed)
        _save(timed, out)
        print((out / "results.md").read_text())
        return
    results: dict = {"tensorflow": tf.__version__, "cores": os.cpu_count(), "cases": {}}
    for name in FLAGS.cases:
        print(f"{name} ...", flush=True)
        results["cases"][name] = measure_case(name)
        tf.keras.backend.clear_session()
        _save(results, out)  # a run of half an hour may be cut short
    if FLAGS.growth:
        print("growth ...", flush=True)
        results["growth"] = measure_growth()
    if FLAGS.memory:
        print("memory ...", flush=True)
        measure_memory(results)
    _save(results, out)
    print((out / "results.md").read_text())


if __name__ == "__main__":
    app.run(main)
