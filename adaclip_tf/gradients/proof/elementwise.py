"""Entries for ops that work entry by entry, with broadcasting."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.proof import sources
from adaclip_tf.gradients.proof.labels import Public, Rows, Unproven, rank
from adaclip_tf.gradients.proof.symbols import Count, same
from adaclip_tf.gradients.proof.table import Labels, entry
from adaclip_tf.gradients.proof.walk import Walk


def joined(labels: Sequence[Rows], axes: Sequence[int]) -> Rows:
    """One label for tensors that meet entry by entry, the examples lying along `axes` of the result."""
    first = labels[0]
    if len(set(axes)) > 1:
        raise Unproven("combines every example with every other one", mixing=True)
    rows = {label.rows for label in labels if label.rows is not None}
    if len(rows) > 1 or any(label.outer != first.outer for label in labels):
        raise Unproven("combines rows of examples that are laid out differently")
    checks = frozenset().union(*(label.checks for label in labels))
    return Rows(axes[0], rows.pop() if rows else None, first.outer, checks)


def meets(walk: Walk, tensor: tf.Tensor, label: Any, axis: int) -> None:
    """Whether something public may meet the examples along its `axis`: only if it is the same for all of them.

    Nor may another of its axes be as long as there are examples: sums along it would depend on their number.
    """
    if label.counted:
        not_counted(walk.sizes.extents(tensor), axis)
        walk.settle(tensor)
    if axis < 0 or tensor.shape[axis] == 1 or is_uniform(tensor, label, axis):
        return
    array = sources.closed_over(walk, tensor)
    if array is not None:
        raise Unproven(
            f"gives examples values of {array.name!r}, an array of shape {array.shape} that was closed over, by their "
            f"place in the batch. If it holds examples, {sources.PASS} As it is, one that leaves moves the others",
            mixing=True,
        )
    raise Unproven(f"gives examples values of {tensor.op.name!r} by their place in the batch")


def not_counted(extents: list[Any] | None, axis: int) -> None:
    """Raises unless all extents but that of `axis` are known not to depend on the number of examples."""
    if extents is None or any(isinstance(extent, Count) for i, extent in enumerate(extents) if i != axis):
        raise Unproven("has another axis that is as long as there are examples")


def is_uniform(tensor: tf.Tensor, label: Public, axis: int) -> bool:
    """Whether all entries along `axis` are alike, as they are where there is none. Constants are looked at only now."""
    if label.is_uniform(axis) or (tensor.shape[axis] and tensor.shape.num_elements() == 0):
        return True
    if tensor.op.type != "Const" or not 0 < (tensor.shape.num_elements() or 0) <= sources.LARGE:
        return False
    value = np.asarray(tf.get_static_value(tensor))
    return bool(np.all(value == np.take(value, [0], axis=axis)))


def combined(walk: Walk, op: tf.Operation, tensors: Sequence[tf.Tensor], labels: Labels, result: tf.Tensor) -> Rows:
    """The label of an entry by entry combination with broadcasting."""
    total = rank(result)
    offsets = [total - rank(tensor) for tensor in tensors]
    found = [(label, label.axis + o) for label, o in zip(labels, offsets) if isinstance(label, Rows)]
    label = joined([label for label, _ in found], [axis for _, axis in found])
    for tensor, own, offset in zip(tensors, labels, offsets):
        if isinstance(own, Public):
            meets(walk, tensor, own, label.axis - offset)
    return label


@entry(*graph.ENTRYWISE)
def _elementwise(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    if op.type in ("Equal", "NotEqual") and not op.get_attr("incompatible_shape_error"):
        _fit(walk, op)
    return combined(walk, op, list(op.inputs), labels, op.outputs[0])


def _fit(walk: Walk, op: tf.Operation) -> None:
    """`==` and `!=` of arrays that do not fit give one answer for all, where other ops fail: it must not hang on N."""
    first, second = (walk.sizes.extents(tensor) for tensor in op.inputs)
    if first is None or second is None:
        raise Unproven("works on a tensor of unknown rank")
    for one, other in zip(reversed(first), reversed(second)):
        if not same(one, other) and 1 not in (one, other) and any(isinstance(extent, Count) for extent in (one, other)):
            raise Unproven("compares arrays that may not fit, as the number of examples tells")


@entry("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV3", "QuantizeAndDequantizeV4")
def _quantised(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    """Entry by entry where the range is given; else that of all entries, the whole batch's."""
    if not op.get_attr("range_given"):
        raise Unproven("takes its range from the whole batch", mixing=True)
    if not isinstance(labels[0], Rows) or any(isinstance(label, Rows) for label in labels[1:]):
        raise Unproven("has a range that depends on data")
    if any(rank(tensor) for tensor in list(op.inputs)[1:]):
        raise Unproven("has a range for each place along an axis")
    return labels[0]


@entry("Bitcast")
def _bitcast(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    """Entries may fall apart into several along a new last axis, or several be put together."""
    del walk
    if rank(op.inputs[0]) > rank(op.outputs[0]) and labels[0].axis == rank(op.inputs[0]) - 1:
        raise Unproven("puts examples together", mixing=True)
    return labels[0]


@entry("IdentityN")
def _identity_n(walk: Walk, op: tf.Operation, labels: Labels) -> list[Any]:
    del walk, op
    return list(labels)


@entry("Select")
def _select(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    """Select(condition, x, y): a vector condition goes with the first axis."""
    condition, *values = op.inputs
    if rank(condition) == rank(values[0]):
        return combined(walk, op, list(op.inputs), labels, op.outputs[0])
    rest = [label for label in labels[1:] if isinstance(label, Rows)]
    axes = [0] * isinstance(labels[0], Rows) + [label.axis for label in rest]
    label = joined([own for own in labels if isinstance(own, Rows)], axes)
    for tensor, own in zip(op.inputs, labels):
        if isinstance(own, Public) and label.axis < rank(tensor):
            meets(walk, tensor, own, label.axis)
    return label


@entry("LookupTableFindV2")
def _look_up(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    if not isinstance(labels[1], Rows) or not isinstance(labels[2], Public):
        raise Unproven("is not followed")
    return labels[1]


@entry("BiasAdd")
def _bias_add(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    label = labels[0]
    if not isinstance(label, Rows) or not isinstance(labels[1], Public):
        raise Unproven("adds a bias that depends on data")
    channel = 1 if op.get_attr("data_format") == b"NCHW" else rank(op.inputs[0]) - 1
    if label.axis == channel:
        meets(walk, op.inputs[1], labels[1], 0)
    return label


def shifted(label: Rows, by: int) -> Rows:
    return dataclasses.replace(label, axis=label.axis + by)
