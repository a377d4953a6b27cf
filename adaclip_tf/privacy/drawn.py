"""How batches were drawn, as a note on the batches themselves: `data.sampling` writes it, a `PrivacyBudget` reads it.

It is a note on the very object: what `.map(...)`, `.prefetch(...)` and the like make of it is another one, without.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

_NOTE = "_adaclip_drawn"
_Batches = TypeVar("_Batches")


@dataclasses.dataclass(frozen=True)
class Drawn:
    """How batches were drawn, in the accountant's terms."""

    num_examples: int
    batch_size: int  # expected, of a logical batch
    accumulation_steps: int
    sampling: str = "poisson"


def note(batches: _Batches, drawn: Drawn) -> _Batches:
    """`batches`, with a note of how they were drawn."""
    setattr(batches, _NOTE, drawn)
    return batches


def drawn_of(batches: Any) -> Drawn | None:
    """How `batches` were drawn, if they come from `poisson_batches` or `distributed_poisson_batches` as they are."""
    drawn = getattr(batches, _NOTE, None)
    return drawn if isinstance(drawn, Drawn) else None


def require_drawn(batches: Any) -> Drawn:
    """The same, or a ValueError."""
    drawn = drawn_of(batches)
    if drawn is None:
        raise ValueError(
            f"`batches` must be what `poisson_batches` or `distributed_poisson_batches` returned; got {batches!r}, "
            "which does not know how it was drawn. (What `.map`, `.prefetch` or the like make of such batches does "
            "not know either: call `PrivacyBudget.of` with what was there before.) For other batches give "
            "`PrivacyBudget` the arguments `num_examples`, `batch_size` and `sampling`."
        )
    return drawn
