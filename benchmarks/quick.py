"""Ours against Keras's SGD in some minutes: a step, the first step, the first step under XLA, peak memory.

A step is given in seconds and in processor time, which other programs on the machine change less.

    python -m benchmarks.quick --out=runs/quick

Every model has a process of its own, in which a small one is trained first, so that what TensorFlow sets up once is not
counted; every figure of memory, too. First steps are processor time, from the first call of the train function to the
end of the first step: tracing, and compiling. `large` is the MLP with 10^7 parameters, `huge` the one with 10^8, of
which only the memory is measured.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import tensorflow as tf
from absl import app, flags

from benchmarks import cases, contenders, memory, timing

_OUT = flags.DEFINE_string("out", "runs/quick", "Folder for results.json and results.md.")
_CASES = flags.DEFINE_list("cases", [*cases.CASES, *cases.LARGE], "Which models.")
_UNTIMED = flags.DEFINE_list("untimed", ["huge"], "Of which of them to measure the memory alone.")
_XLA = flags.DEFINE_list("xla", ["softmax", "mlp", "cnn", "transformer"], "Which of them are compiled whole, too.")
_ROUNDS = flags.DEFINE_integer("rounds", 7, "How often each contender has its turn.", lower_bound=3)
_MEMORY = flags.DEFINE_bool("memory", True, "Measure peak memory, a process each.")
_CASE = flags.DEFINE_string("case", None, "Internal: the model to time in this process.")
_PEAK = flags.DEFINE_string("peak", None, "Internal: the contender whose memory to measure in this process.")

EVERYBODY = (contenders.BASELINE, *contenders.PRIVATE)
COLUMNS = {
    "seconds": "ms per step",
    "busy": "processor ms per step",
    "first_step_busy": "first step, s",
    "xla_first_step_busy": "first step under XLA, s",
    "peak_bytes": "peak memory, MB",
}
_UNITS = {"seconds": 1e3, "busy": 1e3, "peak_bytes": 1e-6}


def measure(name: str) -> dict:
    """All times of one model, by contender, in this process."""
    for contender in EVERYBODY:
        timing.Trainer(cases.CASES["softmax"], contender)
    results = timing.take_turns({who: timing.Trainer(cases.find(name), who) for who in EVERYBODY}, _ROUNDS.value)
    if name in _XLA.value:
        timing.Trainer(cases.CASES["softmax"], contenders.BASELINE, jit_compile=True)
        for who in EVERYBODY:
            compiled = timing.Trainer(cases.find(name), who, jit_compile=True)
            results[who]["xla_first_step_busy"] = compiled.first_step_busy
    return results


def _in_process(*arguments: str) -> str | None:
    """The last line that this program prints with `arguments`; None where it fails."""
    command = [sys.executable, "-m", "benchmarks.quick", f"--rounds={_ROUNDS.value}", f"--xla={','.join(_XLA.value)}"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return None
    return done.stdout.strip().splitlines()[-1]


def table(results: dict) -> str:
    """Markdown: every figure of ours, and how many times SGD's it is."""
    lines = [f"TensorFlow {results['tensorflow']}, Keras {results['keras']}, {results['cores']} cores.", ""]
    lines += [f"| | | {' | '.join(COLUMNS.values())} |", "|---|---|" + "--:|" * len(COLUMNS)]
    for case, rows in results["cases"].items():
        for name, row in rows.items():
            cells = []
            for column in COLUMNS:
                value, base = row.get(column), rows[contenders.BASELINE].get(column)
                shown = "" if value is None else f"{value * _UNITS.get(column, 1.0):.2f}"
                cells.append(
                    f"{shown} ({value / base:.2f})" if value and base and name in contenders.PRIVATE else shown
                )
            lines.append(f"| {case} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(argv):
    del argv
    if _PEAK.value:
        timing.Trainer(cases.find(_CASE.value), _PEAK.value).run()
        print(memory.high_water_mark())
        return
    if _CASE.value:
        print(json.dumps(measure(_CASE.value)))
        return
    out = pathlib.Path(_OUT.value)
    out.mkdir(parents=True, exist_ok=True)
    versions = {"tensorflow": tf.__version__, "keras": "2" if hasattr(tf.keras, "__internal__") else "3"}
    results: dict = {**versions, "cores": os.cpu_count(), "cases": {}}
    for name in _CASES.value:
        print(f"{name} ...", flush=True)
        timed = "" if name in _UNTIMED.value else _in_process(f"--case={name}")
        if timed is None:
            continue
        results["cases"][name] = json.loads(timed) if timed else {who: {} for who in EVERYBODY}
        for who in EVERYBODY if _MEMORY.value else ():
            peak = _in_process(f"--case={name}", f"--peak={who}")
            results["cases"][name][who]["peak_bytes"] = peak and int(peak)
        (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        (out / "results.md").write_text(table(results))
    print(table(results))


if __name__ == "__main__":
    app.run(main)
