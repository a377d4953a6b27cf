"""The table, the figure and the results file of the regression experiment."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any, NamedTuple

import numpy as np

from examples.common import figures
from examples.regression import experiment


class Paths(NamedTuple):
    """Where a report goes."""

    page: pathlib.Path
    figure: pathlib.Path
    results: pathlib.Path

    @classmethod
    def folder(cls, folder: str) -> Paths:
        """All three side by side."""
        root = pathlib.Path(folder)
        return cls(root / "regression.md", root / "regression.png", root / "regression.json")

    @classmethod
    def docs(cls) -> Paths:
        """The committed report."""
        root = pathlib.Path(__file__).parents[2] / "docs"
        return cls(root / "regression.md", root / "figures" / "regression.png", root / "results" / "regression.json")


def table(results: dict[str, Any]) -> str:
    """Mean (standard deviation over seeds) of the error, one row per dimension, in Markdown."""
    methods = experiment.METHODS
    risks = results["excess_risk"]
    lines = ["| d | " + " | ".join(method.label for method in methods.values()) + " |"]
    lines.append("|--:|" + "--:|" * len(methods))
    for dimension in sorted(risks["adaclip"]):
        cells = [_cell(risks[name][dimension]) for name in methods]
        lines.append(f"| {dimension:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _exponent(results: dict[str, Any], method: str) -> str:
    return experiment.exponent(experiment.slope(results["excess_risk"][method]))


def _cell(values: list[float]) -> str:
    spread = f" ({np.std(values, ddof=1):.1g})" if len(values) > 1 else ""
    return f"{np.mean(values):.2g}{spread}"


def draw(results: dict[str, Any], path: pathlib.Path) -> None:
    """Error against d, both logarithmic, with the spread over seeds."""
    with figures.drawn(path) as (_, axes):
        for name, method in experiment.METHODS.items():
            risks = results["excess_risk"][name]
            dimensions = sorted(risks)
            values = np.array([risks[d] for d in dimensions])
            (line,) = axes.plot(dimensions, values.mean(axis=1), label=method.label)
            axes.fill_between(dimensions, values.min(axis=1), values.max(axis=1), color=line.get_color(), alpha=0.2)
        axes.set(xscale="log", yscale="log", xlabel="dimension d", ylabel="excess risk after 10 epochs")
        axes.set_ylim(1e-4, 10)
        axes.legend()


def redraw(paths: Paths) -> None:
    """The figure anew, from the results file, where dimensions are words."""
    results = json.loads(paths.results.read_text())
    risks = {name: {int(d): values for d, values in of.items()} for name, of in results["excess_risk"].items()}
    draw({**results, "excess_risk": risks}, paths.figure)


PAGE = """# The paper's regression experiment

Written by `{command}`; do not edit by hand.

Points x^i = (y_i, 0, ..., 0) in R^d with y_i ~ N(1, 1), n = 1,000; loss 0.5 |theta - x^i|^2; SGD from theta = 0,
batch size 1, learning rate 0.01, sigma 0.1, clip 1.0, {epochs} epochs. The error is 0.5 |theta - mean x|^2, averaged
over the iterates of the last epoch: mean (standard deviation) over {seeds} seeds. A method that never moves has
an error of about 0.5. The distribution of y is our choice: its standard deviation is the clip, which is when
section 4.3 of the paper predicts a factor of exactly d between the noise of the two methods.

{table}

![error against dimension]({figure})

From d = {low} to {high:,} the error grows as d^{abadi} for Abadi et al. and as d^{adaclip} for AdaCliP.

## The options it took

| line | options |
|---|---|
{options}

Everything else is the default (beta_1 = 0.99, h1 = 1e-12, initial s = sqrt(h1 h2) = 1e-6). With one record
per batch the two forms of `variance_scaling` are the same.

The literal options do not give the paper's figure. In few dimensions (d = 1 to 3) nothing is learnt: when
every record is clipped, (g~ - m)^2 is at most b^2 and s never grows from its start (gamma = 1 is neutrally
stable). In many, past d = 2 B / z^2 = 200, the floor h1 under each squared residual biases every idle
coordinate's s upwards and the noise, which s sets, feeds on itself until h2 stops it. `gamma=0.5` mends the first
and `clamp="after_average"` with `beta_2=0.99` the second. That is good for d from 1 to some thousands; at 10,000
the clamped averages of the idle coordinates add up to more than the active one's, and most of the advantage is
gone.
"""


def write(results: dict[str, Any], paths: Paths, command: str) -> Paths:
    """Writes page, figure and results; returns where."""
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
    draw(results, paths.figure)
    methods = experiment.METHODS.values()
    paths.page.write_text(
        PAGE.format(
            command=command,
            epochs=results["settings"]["epochs"],
            seeds=len(results["seeds"]),
            table=table(results),
            figure=pathlib.Path(os.path.relpath(paths.figure, paths.page.parent)).as_posix(),
            low=experiment.FLAT_RANGE[0],
            high=experiment.FLAT_RANGE[1],
            abadi=_exponent(results, "abadi"),
            adaclip=_exponent(results, "adaclip"),
            options="\n".join(f"| {method.label} | {method.options} |" for method in methods),
        )
    )
    paths.results.write_text(json.dumps({"command": command, **results}, indent=1) + "\n")
    return paths
