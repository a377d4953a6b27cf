"""Prices in dollars at epsilon 1: as they are, scaled privately (`scale_targets`), and by numbers that are not private.

    python -m examples.tabular.dollars

The diamonds of `tables`, a linear model, 10 epochs with B = 512. R² in percent on the test set, in dollars.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from absl import app, flags, logging

import adaclip_tf
from examples.tabular import default, problems, report, tables

HOW = {
    "raw": "dollars, as they are",
    "scaled": "dollars, `scale_targets=True`",
    "known": "divided by the true mean and deviation, which is not private",
}


def dollars(table: tables.Table) -> tables.Table:
    """Prices, of which `tables.diamonds` has the logarithm."""
    both = (np.round(np.exp(np.float64(y) + 7.8)).astype(np.float32) for y in (table.y_train, table.y_test))
    y_train, y_test = both
    return table._replace(y_train=y_train, y_test=y_test)


def train(table: tables.Table, how: str, seed: int, epochs: int = 10) -> float:
    """R² in percent, of a table in dollars."""
    tf.keras.utils.set_random_seed(seed)
    mean, std = (table.y_train.mean(), table.y_train.std()) if how == "known" else (0.0, 1.0)
    problem = problems.PROBLEMS["diamonds"]
    private = adaclip_tf.make_private(
        default.build(problem, table.x_train.shape[1]),
        (table.x_train, default.labels(problem, (table.y_train - mean) / std)),
        loss=default.loss_of(problem),
        target_epsilon=problem.epsilon,
        delta=problems.DELTA,
        batch_size=problem.batch_size,
        epochs=epochs,
        scale_targets=how == "scaled",
        seed=seed,
        verbose=False,
    )
    private.fit(verbose=0)
    found = private.predict(table.x_test, batch_size=4096, verbose=0) * std + mean
    tf.keras.backend.clear_session()
    return problems.score(problem, found, table.y_test)[0]


def main(argv):
    del argv
    logging.set_verbosity(logging.ERROR)  # that seeds make noise predictable is meant here
    table = dollars(tables.diamonds(flags.FLAGS.data_dir))
    rows = [
        [name, str(report.value([train(table, how, seed) for seed in range(flags.FLAGS.seeds)]))]
        for how, name in HOW.items()
    ]
    print(report.markdown(["targets", "R²"], rows))


if __name__ == "__main__":
    flags.DEFINE_integer("seeds", 5, "Runs of each.", lower_bound=2)
    flags.DEFINE_string("data_dir", None, "Folder for the packages; ~/.cache/adaclip_tf without it.")
    app.run(main)
