"""What is done to batches before a step gets them, as far as the dataset that `fit` was given tells.

A dataset is made of others, and of functions. Which of these see batches, and which single examples, is counted from
the end: what `fit` is given are batches; what `batch` was called on are single examples; what `unbatch` was called on
are batches again. Functions of single examples may do what they like, and so may one that makes batches of something
else, such as numbers. Draws of `poisson_batches` are the library's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from adaclip_tf._internal import keras
from adaclip_tf.gradients.proof import mapped, metrics
from adaclip_tf.privacy import drawn

_LOOKED_AT = "_adaclip_looked_at"  # a note on a dataset, which does not change
_MAKES_BATCHES = ("Batch", "ParallelBatch", "PaddedBatch")
_ENDS_BATCHES = ("Unbatch",)
# What hands on elements as they are, all or some of them, or changed one by one. Others are not looked into.
_HANDS_ON = (
    *drawn.KEEPS_DRAWS,
    *("AssertCardinality", "Cache", "Concatenate", "DenseToRagged", "Filter", "IgnoreErrors", "Restructured"),
    *("Rebatch", "Shard", "Snapshot", "TakeWhile"),
)


def check(batches: Any) -> None:
    """Raises ValueError if a function that sees batches, on their way to `batches`, is known to mix examples."""
    if getattr(batches, _LOOKED_AT, False):  # by a budget, before the step asks: what is not known is told once
        return
    pending = [(batches, True)]
    while pending:
        dataset, of_batches = pending.pop()
        name = drawn.name_of(dataset)
        if drawn.drawn_of(dataset) is not None:
            continue
        if name in (*_MAKES_BATCHES, *_ENDS_BATCHES):
            of_batches = name in _ENDS_BATCHES
        elif name not in _HANDS_ON:
            continue
        elif of_batches:
            _check_functions(dataset)
        pending.extend((before, of_batches) for before in keras.made_of(dataset))
    if isinstance(batches, tf.data.Dataset):
        setattr(batches, _LOOKED_AT, True)


def _check_functions(dataset: Any) -> None:
    graph = keras.mapped_graph(dataset)
    if graph is not None:
        mapped.check(graph)
    predicate = keras.predicate_graph(dataset)
    if predicate is not None:
        mapped.check_choice(predicate)


def to_running_fits() -> Iterator[Any]:
    """What the `fit` was given that is being run."""
    for model in metrics.running_models():
        call = keras.running_fit(model)
        if call is not None and not call.cut:
            yield call.x
