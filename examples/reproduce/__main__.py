"""Repeats the paper's experiments on MNIST: searches the grids, trains with five seeds, writes tables and figures.

    make reproduce                                             # everything: hours on two cores
    python -m examples.reproduce --experiment=softmax
    python -m examples.reproduce --keep_tuned                  # the seeds alone, with what the grids chose before
    python -m examples.reproduce --report                      # docs/results.md, figures, summary from what was run

Every training run leaves a file in --runs; the same command again goes on where it stopped. A finished experiment is
written to docs/results/NAME.json, and its hyper-parameters to configs/paper.json. `regression`, the paper's first
experiment, has a page of its own: docs/regression.md.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import subprocess
import sys

import tensorflow as tf
import tqdm
from absl import app, flags

from configs import paper
from examples.common import data
from examples.reproduce import experiments, jobs, report, results
from examples.reproduce import runs as reproduce_runs

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = (*experiments.EXPERIMENTS, "regression")


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}; see --help for the flags.")
    tf.get_logger().setLevel("ERROR")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # for the workers: twice the speed of convolutions
    values = flags.FLAGS
    if not values.report:
        for name in NAMES if "all" in values.experiment else values.experiment:
            if name == "regression":
                regression()
            else:
                try:
                    run(experiments.EXPERIMENTS[name], pathlib.Path(values.runs), values)
                except data.DataUnavailableError as error:
                    raise app.UsageError(str(error)) from error
    for path in [*report.write(), report.write_summary()]:
        print(f"wrote {path.relative_to(ROOT)}")


def regression() -> None:
    """The program that has the first experiment."""
    command = [sys.executable, "-m", "examples.regression", "--seeds=10", "--docs"]
    subprocess.run(command, cwd=ROOT, check=True)


def run(experiment: experiments.Experiment, runs: pathlib.Path, values) -> pathlib.Path:
    """Tunes, trains, and writes the results file and the chosen hyper-parameters."""
    folder = runs / experiment.name
    run_all = functools.partial(reproduce_runs.run_all, folder=folder, workers=values.workers, data_dir=values.data_dir)
    bar = functools.partial(tqdm.tqdm, unit="run", smoothing=0.1, mininterval=1.0)
    tuned = results.tuned(experiment) if values.keep_tuned else None
    if tuned is None:
        tuned = run_all(jobs.tuning_jobs(experiment), progress=functools.partial(bar, desc=f"{experiment.name} grid"))
    chosen = jobs.choose(experiment, tuned)
    final = run_all(
        jobs.final_jobs(experiment, chosen, values.seeds),
        progress=functools.partial(bar, desc=f"{experiment.name} seeds"),
    )
    store_chosen(experiment.name, chosen)
    path = results.store(experiment, tuned, chosen, final)
    print(f"wrote {path.relative_to(ROOT)}")
    return path


def store_chosen(name: str, chosen: dict) -> None:
    """Adds the experiment's hyper-parameters to those that configs/paper.py reads."""
    known = json.loads(paper.CHOSEN.read_text()) if paper.CHOSEN.exists() else {}
    known[name] = chosen
    paper.CHOSEN.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":  # other programs in this folder have flags of the same names
    flags.DEFINE_multi_enum("experiment", ["all"], ["all", *NAMES], "Which; may be given several times.")
    flags.DEFINE_integer("seeds", None, "Runs of every chosen setting; the experiment's own number.", lower_bound=1)
    flags.DEFINE_integer("workers", os.cpu_count() or 1, "Processes that train side by side.", lower_bound=1)
    flags.DEFINE_string("runs", "runs/reproduce", "Folder with a file for every training run.")
    flags.DEFINE_string("data_dir", None, "Folder with MNIST's files, if they are at hand.")
    flags.DEFINE_bool(
        "keep_tuned",
        False,
        "Run the seeds anew with what docs/results has chosen from the grids; search them only if it has not.",
    )
    flags.DEFINE_bool(
        "report", False, "Only write docs/results.md, its figures and the summary's tables from docs/results."
    )
    app.run(main)
