"""The tables of the study on the page."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from examples.tabular import study_problems


def table(found: dict[str, dict[str, list[float]]], wanted: Iterable[str] = study_problems.PROBLEMS) -> str:
    """The default, and how far each change is off it by seed; bold beyond two standard errors."""
    changes = list(next(iter(found.values())))
    lines = ["| " + " | ".join(["problem", *changes]) + " |", "|---|" + "--:|" * len(changes)]
    for name, metrics in found.items():
        cells = [name]
        for change, values in metrics.items():
            base = 0.0 if change == "default" else np.array(metrics["default"])
            cells.append(_cell(np.array(values) - base, change != "default"))
        lines.append("| " + " | ".join(cells) + " |")
    missing = [name for name in wanted if name not in found]
    return "\n".join(lines) + (f"\n\nNOT RUN to the end: {', '.join(missing)}." if missing else "")


def _cell(values: np.ndarray, difference: bool) -> str:
    mean, error = float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))
    if not difference:
        return f"{mean:.2f} ± {error:.2f}"
    shown = f"{mean:+.2f} ± {error:.2f}"
    return f"**{shown}**" if abs(mean) > max(2.0 * error, 0.05) else shown
