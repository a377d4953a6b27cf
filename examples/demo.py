"""The demonstration: the paper's MLP on MNIST at epsilon 1, once with AdaCliP and once with Abadi et al.

    make demo

shows epsilon grow in the progress bar, prints a table, and writes a figure, TensorBoard logs and both privacy
statements into runs/demo. Without MNIST (see examples/common/data.py for where it is looked for) it says so and takes
scikit-learn's digits.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import sys
import time
from typing import Any

import ml_collections
import tensorflow as tf
from absl import app, flags

from configs import digits_mlp, paper
from examples.common import data, training

LABELS = {"adaclip": "AdaCliP", "fixed_clip": "Abadi et al."}
PAPER_METHODS = {"adaclip": "adaclip", "fixed_clip": "abadi"}
LEAST_ACCURACY = {"mnist": 0.88, "digits": 0.5}


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}; see --help for the flags.")
    tf.get_logger().setLevel("ERROR")
    output = flags.FLAGS.output
    verbose = 1 if sys.stdout.isatty() else 2
    results = run(output, data_dir=flags.FLAGS.data_dir, quick=flags.FLAGS.quick, verbose=verbose)
    print()
    print(table(results))
    print()
    for path in write(results, output):
        print(f"wrote {path}")
    print(f"open with: .venv/bin/tensorboard --logdir {output}")
    print(check(results))


def run(output: str, *, data_dir: str | None = None, quick: bool = False, verbose: int | str = 2) -> dict[str, Any]:
    """Trains both; returns what `table`, `write` and `check` take."""
    loaded = load(data_dir, quick)
    started = time.monotonic()
    runs = {}
    for optimizer, label in LABELS.items():
        config = make_config(loaded.name, optimizer, quick)
        config.data_dir = data_dir or ""
        folder = pathlib.Path(output) / optimizer
        if (folder / "config.json").exists():  # an earlier demonstration
            shutil.rmtree(folder)
        print(f"\n{label}: {config.epochs} epochs on {loaded.name}, {describe(config)}", flush=True)
        begun = time.monotonic()
        result = training.run(config, folder, loaded=loaded, verbose=verbose)
        runs[optimizer] = {
            **{key: value for key, value in result._asdict().items() if key != "accounted"},
            "seconds": round(time.monotonic() - begun, 1),
            "config": json.loads(config.to_json()),
        }
    return {
        "dataset": loaded.name,
        "source": loaded.source,
        "quick": quick,
        "runs": runs,
        "seconds": round(time.monotonic() - started, 1),
    }


def load(data_dir: str | None, quick: bool) -> data.Data:
    """MNIST, or digits with a line that says why."""
    if quick:
        return data.load("digits")
    try:
        loaded = data.load("mnist", data_dir)
        print(f"MNIST from {loaded.source}")
    except data.DataUnavailableError as error:
        loaded = data.load("digits")
        print(f"{error}\nSo this demonstration takes scikit-learn's digits, 1,438 small images, instead of MNIST.")
    return loaded


def make_config(dataset: str, optimizer: str, quick: bool) -> ml_collections.ConfigDict:
    """The config of one run: for MNIST that of docs/results.md at epsilon 1."""
    if dataset == "mnist":
        config = paper.get_config(f"mlp/{PAPER_METHODS[optimizer]}/1")
    else:
        config = digits_mlp.get_config(optimizer)
    if quick:
        config.epochs = 2
    return config


def describe(config: ml_collections.ConfigDict) -> str:
    """The numbers that were tuned, in words."""
    own = f"h2 {config.h2:g}" if config.optimizer == "adaclip" else f"clip {config.l2_norm_clip:g}"
    return f"epsilon {config.target_epsilon:g}, delta {config.delta:g}, learning rate {config.learning_rate:g}, {own}"


def table(results: dict[str, Any]) -> str:
    """The closing table, in Markdown."""
    header = ("", "test accuracy", "epsilon", "noise norm, last epoch", "seconds")
    lines: list[tuple[str, ...]] = [header]
    for optimizer, run_ in results["runs"].items():
        cells = (run_["metric"], run_["epsilon"], run_["noise_norm"])
        lines.append((LABELS[optimizer], *[f"{cell:.3f}" for cell in cells], f"{run_['seconds']:.0f}"))
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    rows = ["| " + " | ".join(cell.rjust(width) for cell, width in zip(line, widths)) + " |" for line in lines]
    rule = "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|"
    return "\n".join([rows[0], rule, *rows[1:]])


def write(results: dict[str, Any], output: str) -> list[pathlib.Path]:
    """Writes the figure and the numbers; returns their paths, and those of the statements."""
    root = pathlib.Path(output)
    figure, numbers = root / "demo.png", root / "demo.json"
    draw(results, figure)
    numbers.write_text(json.dumps(results, indent=1) + "\n")
    return [figure, numbers, *[root / optimizer / "privacy.txt" for optimizer in results["runs"]]]


def draw(results: dict[str, Any], path: pathlib.Path) -> None:
    """Test accuracy, and the norm of the noise, against the epsilon spent, epoch by epoch."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for optimizer, run_ in results["runs"].items():
        history = run_["history"]
        left.plot(history["epsilon"], history["val_accuracy"], marker="o", markersize=3, label=LABELS[optimizer])
        right.plot(history["epsilon"], history["noise_norm"], marker="o", markersize=3, label=LABELS[optimizer])
    delta = next(iter(results["runs"].values()))["config"]["delta"]
    left.set_ylabel(f"test accuracy on {results['dataset']}")
    right.set_ylabel("norm of the noise in the mean gradient")
    for axes in (left, right):
        axes.set_xlabel(f"epsilon at delta = {delta:g}")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, loc="lower right")
    right.margins(y=0.15)
    right.set_ylim(bottom=0.0)
    figure.savefig(path, dpi=150, metadata={"Software": None})
    pyplot.close(figure)


def check(results: dict[str, Any]) -> str:
    """Says in a line that both runs kept their budget and learnt; RuntimeError if not."""
    least = 0.0 if results["quick"] else LEAST_ACCURACY[results["dataset"]]
    for optimizer, run_ in results["runs"].items():
        target = run_["config"]["target_epsilon"]
        if not 0.9 * target < run_["epsilon"] <= target:
            raise RuntimeError(f"{LABELS[optimizer]} spent epsilon {run_['epsilon']:.4f} of {target:g}.")
        if not run_["metric"] > least:
            raise RuntimeError(f"{LABELS[optimizer]} reached {run_['metric']:.3f}; expected more than {least}.")
    accuracies = " and ".join(f"{LABELS[name]} {run_['metric']:.1%}" for name, run_ in results["runs"].items())
    return f"ok: {accuracies} on {results['dataset']}, each within its epsilon ({results['seconds']:.0f} s)"


if __name__ == "__main__":  # other programs in this folder have flags of the same names
    flags.DEFINE_string("output", "runs/demo", "Folder for the figure, the table, logs and statements.")
    flags.DEFINE_string("data_dir", None, "Folder with MNIST's files, if they are at hand.")
    flags.DEFINE_bool("quick", False, "Digits and two epochs: seconds, to see that everything runs.")
    app.run(main)
