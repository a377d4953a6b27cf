"""Figures that go into files: no window, no choice of matplotlib's backend, nothing to close afterwards."""

from __future__ import annotations

import pathlib
from typing import Any


def subplots(rows: int = 1, columns: int = 1, *, size: tuple[float, float], **arguments: Any) -> tuple[Any, Any]:
    """A figure and its axes, as `pyplot.subplots` gives them.

    >>> figure, axes = subplots(size=(6, 4))
    >>> _ = axes.plot([1, 2], [3, 4])
    """
    from matplotlib import figure  # a second that only those who draw should wait for

    made = figure.Figure(figsize=size, layout="constrained")
    return made, made.subplots(rows, columns, **arguments)


def save(figure: Any, path: pathlib.Path, *, dots_per_inch: int = 150) -> None:
    """Writes a PNG that is the same for the same data, whichever version of matplotlib wrote it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=dots_per_inch, metadata={"Software": None})
