"""A table whose columns are far apart in size, and nothing tuned: `make_private` beside DP-SGD and DP-Adam.

The competitors have what one takes without looking at the data: clip 1 and Keras's default learning rate. What they
reach when both are tuned, at a cost in privacy that nobody counts, is in docs/tabular.md.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

import adaclip_tf
from examples.common import data
from examples.demo import results as demo_results
from examples.tabular import default, problems
from examples.tabular.problems import Problem
from examples.tabular.tables import Table

CLIP = 1.0
FALLBACK = "breast_cancer"
CLOSING = (
    "Nothing was tuned on either side: DP-SGD and DP-Adam have a customary clip and Keras's own learning rates, which "
    "fit some problems and not others. With both tuned they do better, at a cost in privacy that nobody counts: "
    "docs/tabular.md compares make_private with those, on sixteen problems."
)
METRICS = {"r2": "test R², %", "accuracy": "test accuracy, %"}


@dataclasses.dataclass(frozen=True)
class Story:
    """What is shown with a problem.

    Attributes:
      problem: of docs/tabular.md.
      about: what the table is, in words.
      least: what `make_private` reaches at least.
    """

    problem: Problem
    about: str
    least: float


STORIES = {
    "diamonds": Story(
        problems.PROBLEMS["diamonds"],
        "the price of a diamond (its logarithm) from carat (0.2 to 5), depth in percent (about 60), lengths in "
        "millimetres, cut, colour and clarity. Columns are in their own units: the gradients of some are a hundred "
        "times those of others, and one clip for all drowns the small ones in noise.",
        85.0,
    ),
    "adult": Story(
        problems.PROBLEMS["adult"],
        "whether somebody earns more than 50,000 dollars, from age, hours, capital gains, occupation and so on. Some "
        "levels are common and some are rare: so are their gradients.",
        82.0,
    ),
    FALLBACK: Story(
        problems.PROBLEMS[FALLBACK],
        "whether a tumour is benign, from 30 measurements, standardised. Only 512 examples: few to hide among.",
        80.0,
    ),
}


def load(name: str, data_dir: str | None) -> tuple[str, Table]:
    """The table, or scikit-learn's breast cancer with a line that says why; and whose story it is."""
    try:
        return name, STORIES[name].problem.load(data_dir)
    except data.DataUnavailableError as error:
        print(f"{error}\nSo this demonstration takes scikit-learn's breast cancer, 569 rows, instead of {name}.")
        return FALLBACK, STORIES[FALLBACK].problem.load(data_dir)


def run(
    name: str, output: str, *, data_dir: str | None = None, quick: bool = False, verbose: int | str = 2
) -> demo_results.Results:
    """Trains three times; two epochs on a small table if it is to be `quick`."""
    name, table = (FALLBACK, STORIES[FALLBACK].problem.load(None)) if quick else load(name, data_dir)
    problem = STORIES[name].problem
    if quick:
        problem = dataclasses.replace(problem, epochs=2)
    training = Training(problem, table, output, verbose)
    print(f"\n{problem.title}: {STORIES[name].about}")
    print(
        f"{len(table.x_train):,} rows, epsilon {problem.epsilon:g}, delta {problems.DELTA:g}, {problem.epochs} epochs."
    )
    least = -math.inf if quick else STORIES[name].least
    started = time.monotonic()
    runs = [
        training.run("make_private", "make_private", "nothing", training.nothing_tuned, least),
        training.run("dp_sgd", "DP-SGD", "clip 1, rate 0.01: Keras's default", training.dp_sgd, -math.inf),
        training.run("dp_adam", "DP-Adam", "clip 1, rate 0.001: Keras's default", training.dp_adam, -math.inf),
    ]
    return demo_results.Results(
        title=problem.title,
        metric=METRICS[problem.metric],
        source=f"examples/tabular, {name}",
        target_epsilon=problem.epsilon,
        delta=problems.DELTA,
        seconds=round(time.monotonic() - started, 1),
        runs=runs,
        closing=CLOSING,
    )


class Training:
    """What the three trainings have in common.

    Args:
      problem, table: what to train.
      output: where each has its folder.
      verbose: as for `fit`.
    """

    def __init__(self, problem: Problem, table: Table, output: str, verbose: int | str):
        self._problem, self._output, self._verbose = problem, output, verbose
        self._train = (table.x_train, default.labels(problem, table.y_train))
        self._test = (table.x_test, default.labels(problem, table.y_test))
        self._plan: dict[str, Any] = {
            "delta": problems.DELTA,
            "batch_size": problem.batch_size,
            "epochs": problem.epochs,
        }

    def run(
        self, name: str, label: str, chosen: str, train: Callable[[Any, pathlib.Path], Any], least: float
    ) -> demo_results.Run:
        """One training, from a fresh model to numbers."""
        print(f"\n{label}; chosen by hand: {chosen}", flush=True)
        folder = demo_results.empty_folder(self._output, name)
        begun = time.monotonic()
        model = default.build(self._problem, self._train[0].shape[1])
        history, budget = train(model, folder)
        metric = [100.0 * value for value in history[f"val_{self._problem.metric}"]]
        return demo_results.Run(
            name=name,
            label=label,
            chosen=chosen,
            metric=metric[-1],
            epsilon=budget.epsilon,
            noise_norm=history["noise_norm"][-1],
            seconds=round(time.monotonic() - begun, 1),
            history={"epsilon": history["epsilon"], "metric": metric, "noise_norm": history["noise_norm"]},
            least=least,
        )

    def nothing_tuned(self, model: Any, folder: pathlib.Path) -> Any:
        """The library's default."""
        private = adaclip_tf.make_private(
            model,
            self._train,
            loss=default.loss_of(self._problem),
            metrics=[self._metric()],
            target_epsilon=self._problem.epsilon,
            statement_path=folder / "privacy",
            verbose=self._verbose != 0,
            **self._plan,
        )
        return private.fit(callbacks=self._callbacks(folder, private.budget), **self._fit()).history, private.budget

    def dp_sgd(self, model: Any, folder: pathlib.Path) -> Any:
        """Abadi et al., with Keras's learning rate."""
        return self._fixed_clip(adaclip_tf.DPFixedClipSGD, model, folder)

    def dp_adam(self, model: Any, folder: pathlib.Path) -> Any:
        """The same gradient, handed to Keras's Adam."""
        return self._fixed_clip(lambda **options: adaclip_tf.DPFixedClip("adam", **options), model, folder)

    def _fixed_clip(self, make: Callable[..., Any], model: Any, folder: pathlib.Path) -> Any:
        batch_size, n = self._problem.batch_size, len(self._train[0])
        z = adaclip_tf.noise_multiplier(target_epsilon=self._problem.epsilon, num_examples=n, **self._plan)
        optimizer = make(l2_norm_clip=CLIP, noise_multiplier=z, expected_batch_size=batch_size)
        model.compile(optimizer, default.loss_of(self._problem), metrics=[self._metric()])
        batches = adaclip_tf.poisson_batches(self._train, expected_batch_size=batch_size)
        budget = adaclip_tf.PrivacyBudget.of(
            batches, delta=problems.DELTA, target_epsilon=self._problem.epsilon, statement_path=folder / "privacy"
        )
        callbacks = [*self._callbacks(folder, budget), budget]
        options = {**self._fit(), "shuffle": False}  # Keras 3 warns of its own default
        return model.fit(batches, epochs=self._problem.epochs, callbacks=callbacks, **options).history, budget

    def _metric(self) -> Any:
        """After the names that a history has."""
        if self._problem.metric == "r2":
            return tf.keras.metrics.R2Score(name="r2")
        if self._problem.kind == "softmax":
            return tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        return tf.keras.metrics.BinaryAccuracy(name="accuracy", threshold=0.0)  # of logits

    def _callbacks(self, folder: pathlib.Path, budget: Any) -> list[Any]:
        board = adaclip_tf.PrivacyTensorBoard(folder, budget=budget, hparams={"problem": self._problem.name})
        return [NoiseNorm(), board]

    def _fit(self) -> dict[str, Any]:
        return {"validation_data": self._test, "validation_batch_size": 4096, "verbose": self._verbose}


class NoiseNorm(tf.keras.callbacks.Callback):
    """Keeps the optimizer's noise norm in the epoch's logs, for the history."""

    def on_epoch_end(self, epoch, logs=None):
        logs["noise_norm"] = self.model.optimizer.private_metrics()["noise_norm"]
