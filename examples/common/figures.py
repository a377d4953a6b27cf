"""Figures that go into files: no window, no choice of matplotlib's backend, nothing to close afterwards."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator
from typing import Any

from adaclip_tf._internal import plotting

COLOURS, MARKERS, GREY = plotting.COLOURS, plotting.MARKERS, plotting.GREY
PAGE = 8.0  # inches: as wide as a page shows without making letters smaller


@contextlib.contextmanager
def drawn(
    path: pathlib.Path, rows: int = 1, columns: int = 1, *, size: tuple[float, float] = (PAGE, 4.5), **arguments: Any
) -> Iterator[tuple[Any, Any]]:
    """A figure and its axes, as `pyplot.subplots` gives them; written to `path` at the end, in the look of all figures.

    The PNG is the same for the same data, whichever version of matplotlib wrote it.

    >>> with drawn(pathlib.Path("line.png")) as (figure, axes):                                   # doctest: +SKIP
    ...     axes.plot([1, 2], [3, 4])
    """
    from matplotlib import figure  # a second that only those who draw should wait for

    with plotting.style():
        made = figure.Figure(figsize=size, layout="constrained")
        yield made, made.subplots(rows, columns, **arguments)
        path.parent.mkdir(parents=True, exist_ok=True)
        made.savefig(path, dpi=150, metadata={"Software": None})
