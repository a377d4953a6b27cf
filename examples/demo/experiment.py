"""Both runs of the demonstration, and the check that they came to what they should."""

from __future__ import annotations

import json
import pathlib
import shutil
import time
from typing import Any

import ml_collections

from configs import digits_mlp, paper
from examples.common import data, training

LABELS = {"adaclip": "AdaCliP", "fixed_clip": "Abadi et al."}
PAPER_METHODS = {"adaclip": "adaclip", "fixed_clip": "abadi"}
LEAST_ACCURACY = {"mnist": 0.88, "digits": 0.5}


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
