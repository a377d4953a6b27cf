"""One look for all figures, without pyplot, which would choose a backend, and keep every figure, for the whole program.

Colours are those of Okabe and Ito, which people with any colour vision tell apart; lines differ in their markers, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "#8C8C8C"
_STYLE = {
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "errorbar.capsize": 3,
    "font.size": 10,
    "grid.alpha": 0.3,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.markersize": 5,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
}


@contextlib.contextmanager
def style() -> Iterator[None]:
    """What is drawn inside has the look; matplotlib's settings are as before afterwards.

    >>> with style():
    ...     figure, axes = new_figure(4.0, 3.0)
    """
    import matplotlib
    from matplotlib import rcsetup

    cycle = rcsetup.cycler(color=COLOURS, marker=MARKERS)
    with matplotlib.rc_context({**_STYLE, "axes.prop_cycle": cycle}):
        yield


def new_figure(width: float, height: float, dpi: int = 100) -> tuple[Any, Any]:
    """A figure that is drawn in memory (Agg), and its axes. Raises ImportError where there is no matplotlib."""
    from matplotlib import figure
    from matplotlib.backends import backend_agg

    made = figure.Figure(figsize=(width, height), dpi=dpi, layout="constrained")
    backend_agg.FigureCanvasAgg(made)
    return made, made.add_subplot()
