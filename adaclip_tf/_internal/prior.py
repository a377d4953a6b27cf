"""`Prior`: what the data was asked before training. A clipping rule says it, whoever counts epsilon asks."""

from __future__ import annotations

from typing import NamedTuple


class Prior(NamedTuple):
    """Questions to the data.

    Attributes:
      noise_multiplier: of all of them together, as one Gaussian mechanism.
      name: tells them from others of the same noise; None where nobody gave them one.
    """

    noise_multiplier: float
    name: str | None = None
