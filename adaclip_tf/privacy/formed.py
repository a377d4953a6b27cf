"""How a `tf.data` pipeline forms its batches, as far as the pipeline itself shows it.

    slices.shuffle(n).batch(100).prefetch(1)      batches of 100, of n rows, each row once in a pass
    slices.repeat().shuffle(n).batch(100)         batches of 100, in which rows of two passes meet

Batches that `batch` cuts have a fixed size, whether or not the last one is left out: they are no Poisson sample, and an
epoch of them is n / B batches with the B of the pipeline, not the one that somebody says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from adaclip_tf._internal import keras
from adaclip_tf.privacy.drawn import drawn_of, name_of

_CUTS = ("Batch", "ParallelBatch", "PaddedBatch")
# What leaves batches as they are; a map may change their sizes.
_KEEPS = (
    "Prefetch",
    "Options",
    "Take",
    "Skip",
    "Repeat",
    "Shuffle",
    "Cache",
    "AssertCardinality",
    "IgnoreErrors",
    "Shard",
)
_MAPS = ("Map", "ParallelMap")


class Formed(NamedTuple):
    """What can be seen of how batches are cut.

    Attributes:
      batch_size: rows in each, but for the last one of a pass.
      mapped: whether a function may have changed the sizes since.
      rows: of one pass; None where that is not known.
      passes_meet: whether rows of two passes may meet in one batch, or within the batches of one pass.
    """

    batch_size: int
    mapped: bool
    rows: int | None
    passes_meet: bool


def formed(dataset: Any) -> Formed | None:
    """How the batches of `dataset`, what `fit` was given, are cut; None where no cut can be seen."""
    mapped = False
    while drawn_of(dataset) is None:
        kind, inputs = name_of(dataset), keras.made_of(dataset)
        if kind in _CUTS:
            return _cut(dataset, inputs[0], mapped)
        if kind not in (*_KEEPS, *_MAPS) or len(inputs) != 1:
            return None
        mapped = mapped or kind in _MAPS
        dataset = inputs[0]
    return None


def _cut(batches: Any, rows: Any, mapped: bool) -> Formed | None:
    size = keras.size_of_batches(batches)
    if size is None:
        return None
    number = int(rows.cardinality())  # negative: without an end, or not known
    repeated = any(_repeats(each) for each in _all_below(rows))
    return Formed(size, mapped, number if number > 0 and not repeated else None, repeated)


def _repeats(dataset: Any) -> bool:
    return name_of(dataset) == "Repeat" and not keras.repeats_once(dataset)


def _all_below(dataset: Any) -> Iterator[Any]:
    pending = [dataset]
    while pending:
        now = pending.pop()
        pending.extend(keras.made_of(now))
        yield now
