"""The closing table of the demonstration, its figure and its numbers."""

from __future__ import annotations

import json
import pathlib

from examples.common import figures
from examples.demo.results import Results


def table(results: Results) -> str:
    """The closing table, in Markdown."""
    header = ("", results.metric, "epsilon", "chosen by hand", "seconds")
    lines: list[tuple[str, ...]] = [header]
    for run in results.runs:
        lines.append((run.label, f"{run.metric:.1f}", f"{run.epsilon:.3f}", run.chosen, f"{run.seconds:.0f}"))
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    rows = ["| " + " | ".join(cell.rjust(width) for cell, width in zip(line, widths)) + " |" for line in lines]
    rule = "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|"
    return "\n".join([rows[0], rule, *rows[1:]])


def write(results: Results, output: str) -> list[pathlib.Path]:
    """Writes the figure and the numbers; returns their paths, and those of the statements."""
    root = pathlib.Path(output)
    figure, numbers = root / "demo.png", root / "demo.json"
    draw(results, figure)
    numbers.write_text(json.dumps(results.as_dict(), indent=1) + "\n")
    return [figure, numbers, *[root / run.name / "privacy.txt" for run in results.runs]]


def draw(results: Results, path: pathlib.Path) -> None:
    """The metric against the epsilon spent, epoch by epoch; and the norm of the noise, where it changes."""
    changes = any(len(set(run.history["noise_norm"])) > 1 for run in results.runs)
    with figures.drawn(path, 1, 1 + changes, size=(figures.PAGE, 4.0), squeeze=False) as (figure, ((left, *others),)):
        for run in results.runs:
            left.plot(run.history["epsilon"], run.history["metric"], label=f"{run.label}; by hand: {run.chosen}")
            for right in others:
                right.plot(run.history["epsilon"], run.history["noise_norm"], label=run.label)
                right.set(ylabel="norm of the noise in the mean gradient", ylim=(0.0, None))
        left.set_ylabel(results.metric)
        if min(min(run.history["metric"]) for run in results.runs) < -100.0:
            left.set_yscale("symlog", linthresh=100.0)  # an R² may be anything below; what matters is above
        for axes in (left, *others):
            axes.set_xlabel(f"epsilon at delta = {results.delta:g}")
        left.legend()
        figure.suptitle(results.title, fontsize=10)
