"""Figures without pyplot, which would choose a backend, and keep every figure, for the whole program."""

from __future__ import annotations

from typing import Any


def new_figure(width: float, height: float, dpi: int = 100) -> tuple[Any, Any]:
    """A figure that is drawn in memory (Agg), and its axes. Raises ImportError where there is no matplotlib."""
    from matplotlib import figure
    from matplotlib.backends import backend_agg

    made = figure.Figure(figsize=(width, height), dpi=dpi, layout="constrained")
    backend_agg.FigureCanvasAgg(made)
    return made, made.add_subplot()
