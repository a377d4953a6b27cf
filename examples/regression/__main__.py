"""Runs the paper's regression experiment: prints the table, draws the figure, checks the outcome.

make regression                                      # a minute or two; writes into runs/regression
python -m examples.regression --seeds=10 --docs      # the committed table and figure under docs/
python -m examples.regression --docs --redraw        # only the figure, from the results that are there
"""

from __future__ import annotations

import functools
import pathlib
import shlex
import sys
import time

import tensorflow as tf
import tqdm
from absl import app, flags

from examples.regression import experiment, report

_SEEDS = flags.DEFINE_integer("seeds", 3, "How many times to run each method in each dimension.", lower_bound=1)
_EPOCHS = flags.DEFINE_integer("epochs", 10, "Passes over the 1,000 examples; the paper's is 10.", lower_bound=1)
_DIMENSIONS = flags.DEFINE_list("dimensions", None, "The values of d; a short list, or a longer one for --docs.")
flags.register_validator(
    "dimensions",
    lambda values: all(value.strip().isdigit() and int(value) > 0 for value in values or ()),
    message="must be whole numbers of 1 or more, comma-separated",
)
_OUTPUT = flags.DEFINE_string("output", "runs/regression", "Folder for the table, figure and results.")
_DOCS = flags.DEFINE_bool("docs", False, "Write docs/regression.md and its figure and results instead.")

_REDRAW = flags.DEFINE_bool("redraw", False, "Only draw the figure anew, from the results that are there.")


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}; see --help for the flags.")
    paths = report.Paths.docs() if _DOCS.value else report.Paths.folder(_OUTPUT.value)
    if _REDRAW.value:
        report.redraw(paths)
        print(f"wrote {paths.figure}")
        return
    tf.get_logger().setLevel("ERROR")  # one compiled loop per method and dimension is meant, not an oversight
    started = time.monotonic()
    default = experiment.DIMENSIONS if _DOCS.value else experiment.FEW_DIMENSIONS
    results = experiment.run(
        [int(d) for d in _DIMENSIONS.value or default],
        range(_SEEDS.value),
        progress=functools.partial(tqdm.tqdm, desc="regression", unit="run", disable=None),
        epochs=_EPOCHS.value,
    )
    print(report.table(results))
    command = shlex.join(["python", "-m", "examples.regression", *sys.argv[1:]])
    for path in report.write(results, paths, command):
        print(f"wrote {pathlib.Path(path)}")
    print(f"{experiment.check(results)} ({time.monotonic() - started:.0f} s)")


if __name__ == "__main__":
    app.run(main)
