"""docs/results.md and tables of docs/summary.md, from the results files that examples/reproduce/__main__.py writes."""

from __future__ import annotations

import pathlib

from examples.reproduce import drawings, experiments, tables
from examples.reproduce.results import DOCS, Results, stored

SUMMARY = DOCS / "summary.md"

HEAD = """# The paper's experiments on MNIST

Written by `python -m examples.reproduce`; do not edit by hand. The paper's first experiment, regression against the
dimension, has its own page: [regression.md](regression.md).

Test accuracy in percent: mean (standard deviation) over seeds, at delta = 1e-5, with true Poisson sampling.
Epsilon is by Renyi accounting, as in the paper; the last line gives the same runs by privacy loss distributions. Rows
in italics are what others reported. Every method has the same model, batch size, epochs, learning-rate schedule and
noise multiplier, and at every epsilon the same number of candidates: trained once on 50,000 training images, judged on
the other 10,000. The best candidate was then trained anew on all 60,000 with every seed, and met the test set only
there. Where the grids lie was decided by trials on the same held-out images, for all methods. The search itself is not
private: it looked at MNIST many times. The seeds of softmax regression, the MLP and momentum were run again with the
present sampler of the noise (`--keep_tuned`); their grids were run with one of TensorFlow's normal draws per value of
the noise, the CNNs with two. The settings are configs:
`python -m examples.train --config=configs/paper.py:softmax/adaclip/0.5`.

## Does AdaCliP beat a clip that was tuned as hard?

Not here: the tables below have the differences with their standard errors. Why: what a step shows of a coordinate's
variance carries noise of about d z² / B times that variance, and in all these runs this is far above 1. Then the
residual is noise: it passes the ceiling h2 when a normal variable passes one standard deviation, with probability
0.317, and falls to the floor otherwise. So s² is 0.317 h2 in every coordinate, |b| is 0.56 of what s = sqrt(h2) gives
(the tables' last line measures it), and AdaCliP is a fixed clip of 0.56 sqrt(d h2) around the mean m: as good as a clip
that was tuned, and no better. It has an advantage where few coordinates carry the gradient and d z² / B is small
enough to tell which: in the regression experiment.
"""


def write(docs: pathlib.Path = DOCS) -> list[pathlib.Path]:
    """Writes the page and its figures from the results files that are there; returns the paths."""
    sections, written = [], []
    for experiment in experiments.EXPERIMENTS.values():
        results = stored(experiment.name, docs)
        if results is None:
            continue
        section, figures = _section(experiment, results, docs)
        sections.append(section)
        written += figures
    page = docs / "results.md"
    page.write_text("\n".join([HEAD, *sections]))
    return [page, *written]


def write_summary(summary: pathlib.Path = SUMMARY, docs: pathlib.Path = DOCS) -> pathlib.Path:
    """Puts the short tables of the results files between their marks in the summary."""
    text = summary.read_text()
    for name, experiment in experiments.EXPERIMENTS.items():
        results = stored(name, docs)
        if results is None or not experiment.in_summary:
            continue
        begin, end = f"<!-- results: {name} -->\n", "<!-- end -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}{tables.short_table(experiment, results)}\n{end}{after}"
    summary.write_text(text)
    return summary


def _section(
    experiment: experiments.Experiment, results: Results, docs: pathlib.Path
) -> tuple[str, list[pathlib.Path]]:
    size = len(next(iter(experiment.methods.values())).grid)
    number = "1 candidate" if size == 1 else f"{size} candidates"
    seeds = len({run["number"] for run in results["runs"]})
    parts = [
        f"## {experiment.title}",
        f"{experiment.note.format(**results['settings'])} {number} per method and epsilon, {seeds} seeds.",
        tables.accuracy_table(experiment, results),
    ]
    figures = []
    if len(experiment.epsilons) > 1:
        figures.append(docs / "figures" / f"{experiment.name}.png")
        drawings.accuracy(experiment, results, figures[-1])
        parts.append(f"![accuracy against epsilon](figures/{figures[-1].name})")
    if "abadi" in experiment.methods:
        parts.append(tables.verdict_table(experiment, results))
    if experiment.measures_error:
        figures.append(docs / "figures" / f"{experiment.name}_error.png")
        drawings.error(experiment, results, figures[-1])
        parts += [
            "### How far the private gradient is from the true one",
            "|g - g~| per step, averaged over the run, in the runs above: noise and clipping together.",
            tables.error_table(experiment, results),
            f"![error against epsilon](figures/{figures[-1].name})",
        ]
    if experiment.shows_convergence:
        figures.append(docs / "figures" / f"{experiment.name}_convergence.png")
        drawings.convergence(experiment, results, figures[-1])
        parts.append(f"Convergence at epsilon 0.5:\n\n![convergence](figures/{figures[-1].name})")
    chosen = tables.chosen_table(experiment, results)
    parts.append(f"<details markdown><summary>What the grids chose</summary>\n\n{chosen}\n\n</details>")
    return "\n\n".join(parts) + "\n", figures
