"""Step time on one and two replicas, with the same global batch: how well a step is shared out.

Every measurement is a process of its own, pinned to its cores; they take turns, so that whatever else the
machine does hits all alike. Read the ratios, not the milliseconds. The layouts:

| layout       | replicas | cores         |                                                               |
|--------------|---------:|---------------|---------------------------------------------------------------|
| one core     |        1 | 1             | what the others are compared with                              |
| two cores    |        1 | 2             | what TensorFlow's own threads make of the second core          |
| two replicas |        2 | 2             | MirroredStrategy over two logical CPUs of one process          |
| two workers  |        2 | 1 per process | MultiWorkerMirroredStrategy, all-reduce through the loopback   |

    python -m benchmarks.scaling --out=docs/results/scaling
"""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from absl import app, flags

_OUT = flags.DEFINE_string("out", "runs/scaling", "Folder for results.json and results.md.")
_CASES = flags.DEFINE_list("cases", ["mlp", "cnn"], "Which models of benchmarks/cases.py.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "How often each layout has its turn.", lower_bound=1)
_STEPS = flags.DEFINE_integer("steps", 60, "Steps that a turn times.", lower_bound=1)
_ARM = flags.DEFINE_string("arm", None, "Internal: case:optimizer:layout to time in this process.")

LAYOUTS = {"one core": 1, "two cores": 1, "two replicas": 2, "two workers": 2}  # replicas
OPTIMIZERS = ("SGD", "DPAdaClipSGD")
_WARM_UP = 5


def time_arm(case_name: str, optimizer: str, layout: str, steps: int) -> float:
    """Seconds per step in this process. Pins it first: TensorFlow counts its cores when it starts."""
    worker = json.loads(os.environ["TF_CONFIG"])["task"]["index"] if layout == "two workers" else 0
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {"one core": cores[:1], "two workers": [cores[worker % len(cores)]]}.get(layout, cores[:2]))

    import numpy as np
    import tensorflow as tf

    import adaclip_tf
    from benchmarks import cases
    from examples.common import strategies

    strategy = strategies.make({"two replicas": "mirrored", "two workers": "multi_worker"}.get(layout, "none"))
    case = cases.CASES[case_name]
    rng = np.random.default_rng(0)
    size = case.batch_size // LAYOUTS[layout]
    data = case.inputs(rng, size), rng.integers(0, cases.CLASSES, size)
    dataset = tf.data.Dataset.from_tensors(data).cache().repeat().prefetch(2)
    private = optimizer != "SGD"

    def compiled():
        model = tf.keras.Model(*case.build())
        loss = tf.keras.losses.SparseCategoricalCrossentropy(True, **({"reduction": "none"} if private else {}))
        arguments = {"noise_multiplier": 1.0, "expected_batch_size": case.batch_size, "initial_std": 1e-3}
        model.compile(adaclip_tf.DPAdaClipSGD(0.1, **arguments) if private else "sgd", loss)
        return model

    if strategy is None:
        model, iterator = compiled(), iter(dataset)
    else:
        with strategy.scope():
            model = compiled()
        iterator = iter(strategy.distribute_datasets_from_function(lambda _: dataset))
    step = cases.train_function(model)

    def run(count):
        for _ in range(count):
            logs = step(iterator)
        float(tf.reduce_mean(logs["loss"]))  # to the end of the last step

    run(_WARM_UP)
    start = time.perf_counter()
    run(steps)
    return (time.perf_counter() - start) / steps


def _measure(arm: str) -> float:
    """Seconds per step of an arm, timed in a process, or in two workers of which the first prints."""
    program = ["-m", "benchmarks.scaling", f"--arm={arm}", f"--steps={_STEPS.value}"]
    with tempfile.TemporaryDirectory() as logs:
        if arm.endswith("two workers"):
            program = ["-m", "examples.launch", "--workers=2", f"--logs={logs}", "--", *program]
        result = subprocess.run([sys.executable, *program], capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"{arm} failed:\n{result.stderr[-2000:]}")
    return float(result.stdout.split()[-1])


def table(results: dict) -> str:
    """Markdown: milliseconds, and the speed-up over one core."""
    lines = [f"Two cores of {results['cores']}; TensorFlow {results['tensorflow']}; global batches of one size."]
    for case, rows in results["cases"].items():
        lines += ["", f"### {case}", "", f"| ms per step (times as fast as on one core) | {' | '.join(LAYOUTS)} |"]
        lines.append("|---|" + "--:|" * len(LAYOUTS))
        for optimizer, by_layout in rows.items():
            base = by_layout["one core"]
            cells = [f"{1000 * by_layout[name]:.1f} ({base / by_layout[name]:.2f})" for name in LAYOUTS]
            lines.append(f"| {optimizer} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(argv):
    del argv
    if _ARM.value:
        case, optimizer, layout = _ARM.value.split(":")
        print(time_arm(case, optimizer, layout, _STEPS.value))
        return
    import tensorflow as tf

    arms = [(case, optimizer, layout) for case in _CASES.value for optimizer in OPTIMIZERS for layout in LAYOUTS]
    times: dict[tuple, list[float]] = {arm: [] for arm in arms}
    for number in range(_ROUNDS.value):
        for arm in arms:
            times[arm].append(_measure(":".join(arm)))
        print(f"round {number + 1} of {_ROUNDS.value}", flush=True)
    results = {"tensorflow": tf.__version__, "cores": os.cpu_count(), "rounds": _ROUNDS.value, "steps": _STEPS.value}
    results["cases"] = {
        case: {
            name: {layout: statistics.median(times[case, name, layout]) for layout in LAYOUTS} for name in OPTIMIZERS
        }
        for case in _CASES.value
    }
    out = pathlib.Path(_OUT.value)
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (out / "results.md").write_text(table(results))
    print(table(results))


if __name__ == "__main__":
    app.run(main)
