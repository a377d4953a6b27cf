"""Public arrays with a part for each example, followed as data is; and sums that go through maps by public numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.proof.labels import Public, Rows, Summed, Unproven
from adaclip_tf.gradients.proof.symbols import Count

if TYPE_CHECKING:
    from adaclip_tf.gradients.proof.walk import Walk


def as_rows(walk: Walk, op: tf.Operation, labels: list[Any], sizes: frozenset[int]) -> list[Any] | None:
    """Labels of what is made of arrays with a part for each example, all parts alike, or drawn: as if it were data.

    A learned query that is repeated for each example, say. `Public` can't tell of several rows for each.
    """
    parts = [label if i in sizes else _repeated(walk, op.inputs[i], label) for i, label in enumerate(labels)]
    values = [label for i, label in enumerate(parts) if i not in sizes]
    if not any(isinstance(label, Rows) for label in values):
        return None
    try:
        result = walk.from_rows(op, parts, values)
    except (Unproven, AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None
    per_output = result if isinstance(result, list) else [result] * len(op.outputs)
    return per_output if per_output and all(isinstance(label, Rows) for label in per_output) else None


def _repeated(walk: Walk, tensor: tf.Tensor, label: Any) -> Any:
    """`Rows` of a public array along the one axis that is as long as there are examples, if it is alike there."""
    if not isinstance(label, Public) or not label.counted:
        return label
    extents = walk.sizes.extents(tensor) or []
    long = [axis for axis, extent in enumerate(extents) if isinstance(extent, Count)]
    if len(long) != 1 or not extents[long[0]].multiple or not label.is_uniform(long[0]):
        return label
    return Rows(long[0], extents[long[0]].multiple)


def maps_sums(op: tf.Operation, labels: list[Any]) -> bool:
    """Whether a sum goes through a linear map by public numbers: then it is one of what each term is mapped to."""
    summed = [place for place, label in enumerate(labels) if isinstance(label, Summed)]
    if any(place not in graph.LINEAR_MAPS.get(op.type, ()) for place in summed):
        return False
    if not all(isinstance(label, Summed) or (isinstance(label, Public) and not label.counted) for label in labels):
        return False
    if op.type == "SelectV2":
        return len(summed) == 1 and graph.is_zero(op.inputs[3 - summed[0]])
    return len(summed) == (2 if op.type == "Sub" else 1)
