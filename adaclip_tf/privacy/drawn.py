"""How batches were drawn, as a note on the batches themselves: `data.sampling` writes it, a `PrivacyBudget` reads it.

It is a note on the very object: what `.map(...)`, `.prefetch(...)` and the like make of it is another one, without.
`drawn_within` finds it among what such a dataset was made of.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
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


def name_of(dataset: Any) -> str:
    """What kind of dataset it is, such as "Map"."""
    return type(dataset).__name__.strip("_").replace("Dataset", "")


# What leaves draws as they are, of all that can be made of batches. `repeat` draws anew.
KEEPS_DRAWS = ("Map", "ParallelMap", "Prefetch", "Options", "Take", "Skip", "Repeat", "Zip", "Enumerate", "Shuffle")
# Of those, what leaves the parts of a logical batch together and in order.
_KEEPS_PARTS = ("Map", "Prefetch", "Options", "Repeat", "Enumerate")
_HANDED_OUT = ("Distributed", "OwnedIterator")  # by a strategy, which cuts a batch for its replicas; one by one
_HOLDS_NO_DATA = ("Range", "Random", "Counter")  # what drawn batches may be zipped with


def drawn_within(batches: Any, made_of: Callable[[Any], list[Any]]) -> Drawn | None:
    """How the batches were drawn that `batches` are, or were made of; None where they come from no draw of ours.

    Raises ValueError if something was made of drawn batches that is no longer drawn as they were.

    One draw may be in it, once, and beside it only what holds no examples: two draws that are zipped and joined hold an
    example twice, or with twice the probability.

    Args:
      batches: what `fit` was given.
      made_of: from a dataset to those that it was made of.
    """
    draws: list[Drawn] = []
    made: list[str] = []
    beside: list[str] = []
    named: list[str] = []
    pending = [batches]
    while pending:
        dataset = pending.pop()
        drawn = drawn_of(dataset)
        if drawn is not None:
            draws.append(drawn)
            continue
        name, inputs = name_of(dataset), made_of(dataset)
        if name not in (*KEEPS_DRAWS, *_HOLDS_NO_DATA, *_HANDED_OUT):
            (made if inputs else beside).append(name)
        named.append(name)
        pending.extend(inputs)
    _check_parts(draws, [name for name in named if name not in (*_KEEPS_PARTS, *_HANDED_OUT)])
    if draws and (made or beside or len(draws) > 1):
        what = ", ".join(made) or "a zip with " + (", ".join(beside) or "other draws")
        raise ValueError(
            f"The batches were drawn by Poisson sampling, and `fit` is given what {what} makes of them: no draws of "
            "their own any more (the same ones again, or others than were drawn), so epsilon would be too small. "
            "Change the examples before `poisson_batches`, or batch by batch with `map`."
        )
    return draws[0] if draws else None


def _check_parts(draws: list[Drawn], made: list[str]) -> None:
    parts = max([drawn.accumulation_steps for drawn in draws], default=1)
    if made and parts > 1:
        raise ValueError(
            f"The batches come in {parts} parts each (`accumulation_steps`), and {', '.join(made)} may put "
            "parts of two draws together, which an example can both be in. Give `fit` what `poisson_batches(...)` "
            "returns, or what `map` (without `num_parallel_calls`), `prefetch` or `repeat` make of it."
        )


def require_drawn(batches: Any) -> Drawn:
    """The same, or a ValueError."""
    drawn = drawn_of(batches)
    if drawn is None:
        raise ValueError(
            "`batches` must be what `poisson_batches` or `distributed_poisson_batches` returned; got "
            f"{type(batches).__name__}, which does not know how it was drawn. (Nor does what `.map`, `.prefetch` and "
            "others make of such batches: call `PrivacyBudget.of` with the batches before that.) For other batches "
            "give `PrivacyBudget` the arguments `num_examples`, `batch_size` and `sampling`."
        )
    return drawn
