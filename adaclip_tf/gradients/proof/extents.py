"""Labels of shapes, and of what is computed from them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from adaclip_tf.gradients.graph import describe
from adaclip_tf.gradients.proof.labels import EVERYWHERE, Label, Lost, Public, Rows, Sizes, Summed, Unproven
from adaclip_tf.gradients.proof.symbols import depends_on_count

if TYPE_CHECKING:
    from adaclip_tf.gradients.proof.walk import Walk


def label_sizes(walk: Walk, op: tf.Operation, labels: list[Any]) -> Any:
    """What is computed from the number of examples."""
    if op.type == "Range":
        raise Unproven("numbers the examples of the batch")
    if op.type == "Identity":
        return labels[0]
    return [_size_label(walk, tensor) for tensor in op.outputs]


def label_shapes(walk: Walk, op: tf.Operation, labels: list[Any]) -> Any:
    """What an extent says: of data that is followed, the number of examples at most. Of other things, anything."""
    if op.type == "BroadcastGradientArgs":  # shapes are its values
        for label in labels:
            if isinstance(label, (Lost, Summed)):
                return label if isinstance(label, Lost) else dataclasses.replace(label, exact=False)
        if not all(isinstance(label, (Public, Sizes)) for label in labels):
            return Lost(f"{describe(op)} is given shapes that data decides")
    unknown = [_unknown_extents(tensor, label) for tensor, label in zip(op.inputs, labels)]
    return [label or _size_label(walk, tensor) for label, tensor in zip(unknown, op.outputs)]  # one for each input


def _unknown_extents(tensor: tf.Tensor, label: Any) -> Any:
    """The label of a tensor that data may have given its extents, else None."""
    if isinstance(label, (Public, Rows)) or tensor.shape.is_fully_defined():
        return None
    return dataclasses.replace(label, exact=False) if isinstance(label, Summed) else label


def _size_label(walk: Walk, tensor: tf.Tensor) -> Label:
    if tensor.op.type == "VariableShape":
        return Public()
    if depends_on_count(walk.sizes.symbols(tensor)):
        return Sizes()
    return EVERYWHERE if tensor.shape.rank == 0 else Public()
