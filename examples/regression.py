"""Runs the paper's regression experiment: prints the table, draws the figure, checks the outcome.

make demo                                              # a minute or two; writes into runs/regression
python examples/regression.py --seeds=10 --docs        # the committed table and figure under docs/
"""

from __future__ import annotations

import functools
import pathlib
import shlex
import sys
import time

from absl import app, flags

from examples import regression_experiment, regression_report

_SEEDS = flags.DEFINE_integer("seeds", 3, "How many times to run each method in each dimension.", lower_bound=1)
_EPOCHS = flags.DEFINE_integer("epochs", 10, "Passes over the 1,000 examples; the paper's is 10.", lower_bound=1)
_DIMENSIONS = flags.DEFINE_list(
    "dimensions", [str(d) for d in regression_experiment.DIMENSIONS], "The values of d, comma-separated."
)
_OUTPUT = flags.DEFINE_string("output", "runs/regression", "Folder for the table, figure and results.")
_DOCS = flags.DEFINE_bool("docs", False, "Write docs/regression.md and its figure and results instead.")


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}; see --help for the flags.")
    import tqdm

    started = time.monotonic()
    results = regression_experiment.run(
        [int(d) for d in _DIMENSIONS.value],
        range(_SEEDS.value),
        progress=functools.partial(tqdm.tqdm, desc="regression", unit="run", disable=None),
        epochs=_EPOCHS.value,
    )
    print(regression_report.table(results))
    command = shlex.join(["python", *sys.argv])
    paths = regression_report.Paths.docs() if _DOCS.value else regression_report.Paths.folder(_OUTPUT.value)
    for path in regression_report.write(results, paths, command):
        print(f"wrote {pathlib.Path(path)}")
    regression_experiment.check(results)
    print(f"ok: AdaCliP's error does not grow with d, Abadi et al.'s does ({time.monotonic() - started:.0f} s)")


if __name__ == "__main__":
    app.run(main)
