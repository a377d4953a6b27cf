"""A step of this checkout against one of an earlier one, in processor time.

    git worktree add --detach /tmp/before aee7d4f       # the last commit before the proof about rows
    python -m benchmarks.before --checkout=/tmp/before  # on Keras 2, where earlier checkouts run
    python -m benchmarks.before --checkout=/tmp/before --cases=lstm,tied --rounds=3

Processes of both take turns, each times some steps of a model of `benchmarks.cases`; the medians are compared. What is
compared is the library: models, data and the way of timing are this checkout's.
"""

from __future__ import annotations

import json
import os
import pathlib
import runpy
import statistics
import subprocess
import sys
import time
import types

ROUNDS = 5
SECONDS = 3.0  # of steps in a turn
CASES = ("softmax", "mlp", "cnn", "embedding", "transformer")
HERE = pathlib.Path(__file__).resolve()


def arm(case_name: str) -> dict:
    """First step and median step of DPAdaClipSGD, of the `adaclip_tf` that is on the path."""
    import numpy as np
    import tensorflow as tf

    import adaclip_tf

    cases = types.SimpleNamespace(**runpy.run_path(str(HERE.parent / "cases.py")))
    case = cases.CASES[case_name]
    tf.keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    data = case.inputs(rng, case.batch_size), rng.integers(0, cases.CLASSES, case.batch_size)
    model = tf.keras.Model(*case.build())
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    settings = {"noise_multiplier": 1.0, "expected_batch_size": case.batch_size, "initial_std": 1e-3}
    model.compile(adaclip_tf.DPAdaClipSGD(0.1, **settings), loss)
    shapes = tuple(tf.TensorSpec([None, *array.shape[1:]], array.dtype) for array in data)
    dataset = tf.data.Dataset.from_generator(lambda: iter([data]), output_signature=shapes)
    iterator, step = iter(dataset.cache().repeat().prefetch(2)), cases.train_function(model)

    def busy():
        start = time.process_time()
        float(tf.reduce_mean(step(iterator)["loss"]))
        return time.process_time() - start

    first = busy()
    steps: list[float] = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(steps) < 10:
        steps.append(busy())
    return {"first": first, "step": statistics.median(steps)}


def _turn(checkout: str, case: str) -> dict:
    environment = {**os.environ, "PYTHONPATH": checkout}
    done = subprocess.run(
        [sys.executable, str(HERE), "--arm", case], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{case} failed with {checkout}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--arm"]:
        sys.path = [path for path in sys.path if pathlib.Path(path or ".").resolve() != HERE.parent]
        print(json.dumps(arm(arguments[1])))
        return
    options = {"--cases": ",".join(CASES), "--rounds": str(ROUNDS)}
    options |= dict(argument.split("=", 1) for argument in arguments)
    checkout = options["--checkout"]
    print("| model | ms per step before | now | ratio | first step before, s | now | ratio |\n|---|" + "--:|" * 6)
    for case in options["--cases"].split(","):
        turns: dict[str, list[dict]] = {checkout: [], str(HERE.parent.parent): []}
        for _ in range(int(options["--rounds"])):
            for path, results in turns.items():
                results.append(_turn(path, case))
        cells = []
        for figure, unit in (("step", 1e3), ("first", 1.0)):
            before, now = (statistics.median(turn[figure] for turn in results) for results in turns.values())
            cells += [f"{before * unit:.2f}", f"{now * unit:.2f}", f"{now / before:.2f}"]
        print(f"| {case} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
