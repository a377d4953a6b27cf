"""What a gradient is a sum of, where a variable is used more than once."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from adaclip_tf.gradients.graph.known import constant, is_zero

_ADDS = frozenset({"AddN", "AddV2", "Add"})


def contributions(gradient: Any) -> list[Any]:
    """The tensors and `tf.IndexedSlices` whose sum `gradient` is; itself where it is no such sum.

    A gradient that is 0 is left out, so the list may be empty. Sparse gradients are added up by laying them one behind
    the other, and made dense, where others are dense, by an `UnsortedSegmentSum`: those are sparse again here.
    """
    if isinstance(gradient, tf.IndexedSlices):
        return _sparse(gradient)
    op = gradient.op
    if op.type == "Identity":
        return contributions(op.inputs[0]) if op.inputs[0].op.type in _ADDS else [gradient]
    if op.type == "UnsortedSegmentSum" and op.inputs[1].shape.rank == 1:
        return _sparse(tf.IndexedSlices(op.inputs[0], op.inputs[1]))
    if op.type not in _ADDS or not _same_shapes(op):
        return [gradient]
    return [part for tensor in op.inputs if not is_zero(tensor) for part in contributions(tensor)]


def _same_shapes(op: tf.Operation) -> bool:
    """Whether nothing is broadcast. AddN sees to that itself."""
    first, *others = (tensor.shape for tensor in op.inputs)
    return op.type == "AddN" or (first.is_fully_defined() and all(other == first for other in others))


def _sparse(gradient: tf.IndexedSlices) -> list[tf.IndexedSlices]:
    values, indices = (_laid_out(tensor) for tensor in (gradient.values, gradient.indices))
    if values is None or indices is None or len(values) != len(indices):
        return [gradient]
    # That a part has as many values as indices is checked where it is used.
    return [part for pair in zip(values, indices) for part in _sparse(tf.IndexedSlices(*pair))]


def _laid_out(tensor: tf.Tensor) -> list[tf.Tensor] | None:
    """The tensors that were laid one behind the other along the first axis, or None."""
    op = tensor.op
    if op.type != "ConcatV2" or tensor.shape.rank is None:
        return None
    axis = constant(op.inputs[-1])
    return list(op.inputs)[:-1] if axis is not None and int(axis) % tensor.shape.rank == 0 else None
