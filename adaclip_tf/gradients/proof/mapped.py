"""What is done to batches, on their way from a dataset to a step, by `dataset.map`.

Examples may meet there as they may in a model (MixUp, statistics over a batch), where no graph of the step shows it.
So the functions that are mapped over batches are walked through, too. What is known to mix is refused. What is not
known is told: it can't be run example by example. Functions that are mapped over single examples, before there are
batches, may do what they like, and so may one that makes batches of something else, such as numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from absl import logging

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.proof.labels import EVERYWHERE, Lost, Rows, Summed
from adaclip_tf.gradients.proof.walk import Walk

# Of what datasets are made of, what hands on batches as they are, or changed one by one.
_HAND_ON = ("Map", "ParallelMap", "Prefetch", "Options", "Take", "Skip", "Repeat", "Zip", "Enumerate", "Shuffle")
_FIX = (
    "so that one example changes others before they enter the step, where clipping can't undo it. Compute it for each "
    "example by itself, or map it over single examples, before batches are drawn."
)


def check(
    batches: Any, made_of: Callable[[Any], list[Any]], graph_of: Callable[[Any], Any], is_drawn: Callable[[Any], Any]
) -> None:
    """Raises ValueError if a function that is mapped over batches is known to bring examples together.

    Args:
      batches: what `fit` was given.
      made_of: from a dataset to those that it was made of.
      graph_of: from what `map` has made to the graph of its function; None from others.
      is_drawn: whether a dataset makes the batches itself, so that it is not looked into.
    """
    pending = [batches]
    while pending:
        dataset = pending.pop()
        name = type(dataset).__name__.strip("_").replace("Dataset", "")
        if not isinstance(dataset, tf.data.Dataset) or is_drawn(dataset) or name not in _HAND_ON:
            continue
        mapped = graph_of(dataset)
        if mapped is not None:
            _check_function(mapped)
        pending.extend(made_of(dataset))


def _check_function(mapped: Any) -> None:
    captured = {internal.ref() for _, internal in mapped.captures}
    entering = [tensor for tensor in mapped.inputs if tensor.ref() not in captured]
    walk = Walk(mapped, {tensor.ref(): _entering(tensor) for tensor in entering})
    walk.advance()
    labels = [walk.label(tensor) for tensor in mapped.outputs]
    for label in labels:
        if isinstance(label, Summed) or (isinstance(label, Lost) and label.mixing):
            raise ValueError(f"A function that is mapped over batches mixes examples: {label.reason}, {_FIX}")
        if isinstance(label, Rows) and (label.axis != 0 or label.rows not in (None, 1)):
            raise ValueError(
                "A function that is mapped over batches does not return a row for each of their examples, so that an "
                "example could count several times. Keep several views of one along an axis behind the first."
            )
    for write in walk.memory.writes:
        if write.op.type not in graph.PYTHON:
            raise ValueError(
                f"A function that is mapped over batches keeps what it saw of them, by the op {write.op.name!r} "
                f"({write.op.type}), {_FIX}"
            )
    unknown = next((label.reason for label in labels if isinstance(label, Lost)), None)
    if unknown is not None:
        logging.warning(
            "A function that is mapped over batches is not known to keep examples apart, and epsilon takes for granted "
            "that it does: %s.",
            unknown,
        )


def _entering(tensor: tf.Tensor) -> Any:
    if tensor.dtype == tf.variant:
        return Lost(f"the input {tensor.name!r} is ragged or sparse")
    return Rows(0) if tensor.shape.rank != 0 and tensor.dtype != tf.resource else EVERYWHERE
