"""The closing table of the demonstration, its figure and its numbers."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from examples.common import figures
from examples.demo.experiment import LABELS


def table(results: dict[str, Any]) -> str:
    """The closing table, in Markdown."""
    header = ("", "test accuracy", "epsilon", "noise norm, last epoch", "seconds")
    lines: list[tuple[str, ...]] = [header]
    for optimizer, run_ in results["runs"].items():
        cells = (run_["metric"], run_["epsilon"], run_["noise_norm"])
        lines.append((LABELS[optimizer], *[f"{cell:.3f}" for cell in cells], f"{run_['seconds']:.0f}"))
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    rows = ["| " + " | ".join(cell.rjust(width) for cell, width in zip(line, widths)) + " |" for line in lines]
    rule = "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|"
    return "\n".join([rows[0], rule, *rows[1:]])


def write(results: dict[str, Any], output: str) -> list[pathlib.Path]:
    """Writes the figure and the numbers; returns their paths, and those of the statements."""
    root = pathlib.Path(output)
    figure, numbers = root / "demo.png", root / "demo.json"
    draw(results, figure)
    numbers.write_text(json.dumps(results, indent=1) + "\n")
    return [figure, numbers, *[root / optimizer / "privacy.txt" for optimizer in results["runs"]]]


def draw(results: dict[str, Any], path: pathlib.Path) -> None:
    """Test accuracy, and the norm of the noise, against the epsilon spent, epoch by epoch."""
    figure, (left, right) = figures.subplots(1, 2, size=(10, 4))
    for optimizer, run_ in results["runs"].items():
        history = run_["history"]
        left.plot(history["epsilon"], history["val_accuracy"], marker="o", markersize=3, label=LABELS[optimizer])
        right.plot(history["epsilon"], history["noise_norm"], marker="o", markersize=3, label=LABELS[optimizer])
    delta = next(iter(results["runs"].values()))["config"]["delta"]
    left.set_ylabel(f"test accuracy on {results['dataset']}")
    right.set_ylabel("norm of the noise in the mean gradient")
    for axes in (left, right):
        axes.set_xlabel(f"epsilon at delta = {delta:g}")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, loc="lower right")
    right.margins(y=0.15)
    right.set_ylim(bottom=0.0)
    figures.save(figure, path)
