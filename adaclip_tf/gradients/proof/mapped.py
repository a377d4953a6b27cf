"""Functions that a dataset calls with batches, on their way to a step.

Examples may meet there as they may in a model (MixUp, statistics over a batch), where no graph of the step shows it.
So these functions are walked through, too. What is known to mix is refused. What is not known is told: it can't be run
example by example. Which functions of a dataset see batches is for `optimizers.given` to find.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from absl import logging

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.proof.labels import EVERYWHERE, Lost, Rows, Summed
from adaclip_tf.gradients.proof.walk import Walk

_FIX = (
    "so that one example changes others before they enter the step, where clipping can't undo it. Compute it for each "
    "example by itself, or map it over single examples, before batches are drawn."
)


def check(mapped: Any) -> None:
    """Raises ValueError if a function that is mapped over batches, by its graph, is known to mix examples."""
    walk = _walk(mapped)
    labels = [walk.label(tensor) for tensor in mapped.outputs]
    for label in labels:
        if isinstance(label, Summed) or (isinstance(label, Lost) and label.mixing):
            raise ValueError(f"A function that is mapped over batches mixes examples: {label.reason}, {_FIX}")
        if isinstance(label, Rows) and (label.axis != 0 or label.outer != 1 or label.rows not in (None, 1)):
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
    unknown = next((why for why in (_unknown(walk, label) for label in labels) if why is not None), None)
    if unknown is not None:
        logging.warning(
            "A function that is mapped over batches is not known to keep examples apart, and epsilon takes for granted "
            "that it does: %s.",
            unknown,
        )


def _unknown(walk: Walk, label: Any) -> str | None:
    """Why a result is not known to have a row for each example; None if it is. Nobody looks at the function's runs."""
    if isinstance(label, Lost):
        return label.reason
    if isinstance(label, Rows) and label.checks:
        return f"only a run tells whether {walk.checks.all[min(label.checks)].what}"
    if isinstance(label, Rows) and label.rows is None:
        return "only a run tells how many rows it returns for each of them"
    return None


def check_choice(predicate: Any) -> None:
    """Raises ValueError if batches are kept or dropped, by the graph of `predicate`, for what is in them."""
    walk = _walk(predicate)
    if any(walk.label(tensor) != EVERYWHERE for tensor in predicate.outputs):
        raise ValueError(
            "Batches are kept or dropped by `filter` or `take_while` for what is in them, so that one example decides "
            "on the others of its batch. Choose single examples, before there are batches; for batches of one size "
            "there is `batch(..., drop_remainder=True)`."
        )


def _walk(function: Any) -> Walk:
    captured = {internal.ref() for _, internal in function.captures}
    entering = [tensor for tensor in function.inputs if tensor.ref() not in captured]
    walk = Walk(function, {tensor.ref(): _entering(tensor) for tensor in entering})
    walk.advance()
    return walk


def _entering(tensor: tf.Tensor) -> Any:
    if tensor.dtype == tf.variant:
        return Lost(f"the input {tensor.name!r} is ragged or sparse")
    return Rows(0) if tensor.shape.rank != 0 and tensor.dtype != tf.resource else EVERYWHERE
