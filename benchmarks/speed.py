"""How long a `fit` step takes, and how much memory: ours, Keras's SGD and tensorflow-privacy's, in one run.

Times are medians of repetitions that take turns, after a warm-up, so that whatever else the machine does hits all
alike; read the ratios, not the seconds. Memory is the peak resident size of a process of its own.

    python -m benchmarks.speed --out=runs/benchmark
"""

from __future__ import annotations

import json
import os
import pathlib

import tensorflow as tf
from absl import app, flags, logging

from benchmarks import cases, contenders, memory, report, timing

FLAGS = flags.FLAGS
flags.DEFINE_string("out", "runs/benchmark", "Folder for results.json, results.md and the figures.")
flags.DEFINE_list("cases", [*cases.CASES, "large"], "Which models.")
flags.DEFINE_list("xla", ["softmax", "mlp", "cnn", "transformer"], "Which of them are compiled whole, too.")
flags.DEFINE_list("contenders", list(contenders.CONTENDERS), "Which ways of training.")
flags.DEFINE_integer("rounds", 15, "How often each contender has its turn.", lower_bound=3)
flags.DEFINE_bool("memory", True, "Measure peak memory, a process each.")
flags.DEFINE_bool("memory_only", False, "Measure the memory of what results.json in --out has the times of.")
flags.DEFINE_bool("redraw", False, "Only write the table and draw the figures anew, from results.json in --out.")
flags.DEFINE_bool("growth", True, "Measure how time grows with the batch and with the parameters.")


def measure_case(name):
    """Times all contenders on one case."""
    trainers = {}
    frugal = (contenders.BASELINE, *contenders.PRIVATE)
    for contender in FLAGS.contenders:
        if name in cases.LARGE and contender not in frugal:
            continue
        try:
            trainers[contender] = timing.Trainer(cases.find(name), contender)
        except contenders.NotApplicableError as reason:
            logging.info("%s can't train %s: %s", contender, name, reason)
    results = timing.take_turns(trainers, FLAGS.rounds)
    if name in FLAGS.xla:
        for contender in set(frugal) & set(trainers):
            compiled = timing.Trainer(cases.find(name), contender, jit_compile=True)
            results[contender]["xla_first_step_busy"] = compiled.first_step_busy
    return results


def measure_memory(results):
    """Fills in the peak memory of everything that was timed."""
    for name, rows in results["cases"].items():
        for contender, row in rows.items():
            if contender in FLAGS.contenders:
                row["peak_bytes"] = memory.peak(name, contender, cases.find(name).batch_size)
    results["memory_mlp_4096"] = {
        name: memory.peak("mlp", name, 4096) for name in (contenders.BASELINE, contenders.OURS)
    }


def _save(results, out):
    (out / "results.json").write_text(json.dumps(results, indent=1))
    report.write(results, out)


def main(argv):
    del argv
    out = pathlib.Path(FLAGS.out)
    out.mkdir(parents=True, exist_ok=True)
    if FLAGS.memory_only or FLAGS.redraw:
        timed = json.loads((out / "results.json").read_text())
        if FLAGS.memory_only:
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
        results["growth"] = timing.measure_growth()
    if FLAGS.memory:
        print("memory ...", flush=True)
        measure_memory(results)
    _save(results, out)
    print((out / "results.md").read_text())


if __name__ == "__main__":
    app.run(main)
