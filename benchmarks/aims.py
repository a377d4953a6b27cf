"""Prints what `benchmarks.quick` measured on two generations of Keras, side by side, against the aims.

    python -m benchmarks.aims docs/results/quick_keras3 docs/results/quick_keras2

All figures are times SGD's, of the same model in the same run: DPAdaClipSGD / DPFixedClipSGD / DPAdaClipSGD with learnt
scales.
"""

from __future__ import annotations

import json
import pathlib
import sys

from absl import app

from benchmarks.contenders import BASELINE, PRIVATE

# Times SGD, a step. Recurrent layers are on texts of 100 words.
AIMS = {
    "softmax": 1.35,
    "mlp": 1.35,
    "cnn": 1.4,
    "transformer": 1.4,
    "embedding": 1.6,
    "large": 2.0,
    "lstm": 3.0,
    "gru": 3.0,
    "shared": 2.0,
    "tied": 2.0,
    "unrolled": 2.0,
}
FIRST_STEP, FIRST_STEP_UNDER_XLA = 2.5, 2.0


def ratios(rows: dict, column: str) -> str:
    """`1.67 / 1.39 / 1.56`, or "" where it was not measured."""
    base = rows[BASELINE].get(column)
    values = [rows[name].get(column) for name in PRIVATE]
    if not base or not all(values):
        return ""
    return " / ".join(f"{value / base:.2f}" for value in values)


def table(runs: list[dict]) -> str:
    """Markdown: a row for each model, a column for each run of a step, the first step, and that under XLA."""
    titles = [f"{what}, Keras {run['keras']}" for what in _COLUMNS.values() for run in runs]
    lines = [f"| model | aim, a step | {' | '.join(titles)} |", "|---|--:|" + "--:|" * len(titles)]
    for case, aim in AIMS.items():
        cells = [ratios(run["cases"][case], column) for column in _COLUMNS for run in runs]
        lines.append(f"| {case} | {aim:g} | {' | '.join(cells)} |")
    return "\n".join(lines)


_COLUMNS = {
    "seconds": "a step",
    "first_step_busy": f"first step (aim {FIRST_STEP:g})",
    "xla_first_step_busy": f"under XLA (aim {FIRST_STEP_UNDER_XLA:g})",
}


def memory(runs: list[dict]) -> str:
    """Markdown: peak memory over SGD's, and in GB for the largest."""
    titles = " | ".join(f"Keras {run['keras']}" for run in runs)
    lines = [f"| parameters | {titles} |", "|---|" + "--:|" * len(runs)]
    for case, size in {"large": "10^7", "huge": "10^8"}.items():
        cells = []
        for run in runs:
            rows = run["cases"][case]
            cells.append(f"{ratios(rows, 'peak_bytes')} of SGD's {rows[BASELINE]['peak_bytes'] / 1e9:.2f} GB")
        lines.append(f"| {size} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(argv):
    runs = [json.loads((pathlib.Path(folder) / "results.json").read_text()) for folder in argv[1:]]
    if not runs:
        sys.exit("Give the folders that `python -m benchmarks.quick --out=...` wrote.")
    print(table(runs), memory(runs), sep="\n\n")


if __name__ == "__main__":
    app.run(main)
