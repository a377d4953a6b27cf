"""The paper's MLP on MNIST at epsilon 1, once with AdaCliP and once with Abadi et al., both tuned (docs/results.md)."""

from __future__ import annotations

import math
import time

import ml_collections

from configs import digits_mlp, paper
from examples.common import data, training
from examples.demo import results as demo_results

LABELS = {"adaclip": "AdaCliP", "fixed_clip": "Abadi et al."}
PAPER_METHODS = {"adaclip": "adaclip", "fixed_clip": "abadi"}
LEAST_ACCURACY = {"mnist": 88.0, "digits": 50.0}
CLOSING = (
    "h2, the clip and both learning rates were tuned on this data, as in the paper; nobody counts what that costs."
)


def run(
    output: str, *, data_dir: str | None = None, quick: bool = False, verbose: int | str = 2
) -> demo_results.Results:
    """Trains both; two epochs on digits if it is to be `quick`."""
    loaded = load(data_dir, quick)
    started = time.monotonic()
    runs = []
    for optimizer, label in LABELS.items():
        config = make_config(loaded.name, optimizer, quick)
        config.data_dir = data_dir or ""
        folder = demo_results.empty_folder(output, optimizer)
        chosen = describe(config)
        print(
            f"\n{label}: {config.epochs} epochs on {loaded.name}, epsilon {config.target_epsilon:g}; {chosen}",
            flush=True,
        )
        begun = time.monotonic()
        result = training.run(config, folder, loaded=loaded, verbose=verbose)
        runs.append(
            demo_results.Run(
                name=optimizer,
                label=label,
                chosen=chosen,
                metric=100.0 * result.metric,
                epsilon=result.epsilon,
                noise_norm=result.noise_norm,
                seconds=round(time.monotonic() - begun, 1),
                history={
                    "epsilon": result.history["epsilon"],
                    "metric": [100.0 * value for value in result.history["val_accuracy"]],
                    "noise_norm": result.history["noise_norm"],
                },
                least=-math.inf if quick else LEAST_ACCURACY[loaded.name],
            )
        )
    return demo_results.Results(
        title=loaded.name,
        metric="test accuracy, %",
        source=loaded.source,
        target_epsilon=config.target_epsilon,
        delta=config.delta,
        seconds=round(time.monotonic() - started, 1),
        runs=runs,
        closing=CLOSING,
    )


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
    return f"tuned: {own}, rate {config.learning_rate:g}"
