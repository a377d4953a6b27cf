"""Audits the library: attacks real training runs, and prints the epsilon it proves next to the one that is claimed.

python -m examples.audit                  # some minutes; writes into runs/audit
python -m examples.audit --docs           # the committed page, figure and results under docs/
python -m examples.audit --docs --redraw  # only the figure, from the results that are there

What is attacked: `examples/audit/grid.py`; how: `experiment.py` and `whole_runs.py` there.
What the bounds mean: `adaclip_tf/privacy/auditing.py`.
"""

from __future__ import annotations

import pathlib
import shlex
import sys

import tqdm
from absl import app, flags

from examples.audit import grid, report

_CANARIES = flags.DEFINE_integer("canaries", 1000, "Canaries in each run.", lower_bound=10)
_RUNS = flags.DEFINE_integer("runs", 24, "Runs of each setting.", lower_bound=4)
_CONFIDENCE = flags.DEFINE_float("confidence", 0.95, "With which all bounds hold together.", 0.0, 1.0)
_OUTPUT = flags.DEFINE_string("output", "runs/audit", "Folder for the page, the figure and the results.")
_DOCS = flags.DEFINE_bool("docs", False, "Write docs/audit.md and its figure and results instead.")

_REDRAW = flags.DEFINE_bool("redraw", False, "Only draw the figure anew, from the results that are there.")


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}; see --help for the flags.")
    folder = pathlib.Path(__file__).parents[2] / "docs" if _DOCS.value else pathlib.Path(_OUTPUT.value)
    if _REDRAW.value:
        print(f"wrote {report.redraw(folder, docs=_DOCS.value)}")
        return
    of_the_runs = {"runs": _RUNS.value, "canaries": _CANARIES.value, "confidence": _CONFIDENCE.value}
    findings = grid.audit(grid.settings(), progress=lambda all_: tqdm.tqdm(all_, disable=None), **of_the_runs)
    print(report.table(findings))
    refuted = [found for found in findings if found.measured > found.claimed]
    if refuted:
        raise SystemExit(f"{len(refuted)} claims are refuted:\n{report.table(refuted)}")
    command = shlex.join(["python", "-m", "examples.audit", *sys.argv[1:]])
    for path in report.write(findings, folder, docs=_DOCS.value, command=command, **of_the_runs):
        print(f"wrote {path}")
    print(f"No claim is refuted: {len(findings)} attacks, all bounds with confidence {_CONFIDENCE.value:g} together.")


if __name__ == "__main__":
    app.run(main)
