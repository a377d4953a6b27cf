"""The table's entries for ops that change the shape: reshapes, transposes, slices, pads, concatenations."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.ghost.flow import (
    Labels,
    axis_zero,
    entry,
    joined,
    only,
    others_are_zero,
    rank,
    same_extent,
    single_block,
)
from adaclip_tf.gradients.ghost.labels import Context, Inner, Lead, Unknown


@entry("Reshape", "Squeeze", "ExpandDims")
def _reshape(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    """Row-major order is kept, so chunks stay chunks: only the axis that holds them is to be found."""
    label = only(labels, 0)
    rank(graph.reshaped_from(op))
    result = op.outputs[0]
    after = _known_shape(op) if rank(result) else []
    if not after:
        raise Unknown("flattens the examples into a scalar")
    axis = 0
    if ctx.static_n != 1:
        axis = next((i for i, dimension in enumerate(after) if dimension != 1), 0)
    rows = _rows_after_reshape(op, label, after, axis)
    if label.outer != 1 and (rows is None or rows != label.rows or axis != 0):
        raise Unknown("regroups rows between SpaceToBatchND and BatchToSpaceND")
    if rows is not None and rows == int(rows):
        return dataclasses.replace(label, axis=axis, rows=int(rows))
    divides = ctx.divides(after[axis])
    if divides is False or (rows is not None and ctx.microbatch_size == 1):
        raise Unknown("puts several examples into one row")
    checks = label.checks if divides else label.checks | {ctx.check(result, axis, op)}
    return dataclasses.replace(label, axis=axis, rows=None, checks=checks)


def _known_shape(op: tf.Operation) -> list[int | None]:
    """The shape after a reshape, from the static shape and from how the requested shape is computed."""
    static = op.outputs[0].shape.as_list()
    requested = graph.shape_of_shape(op.inputs[1]) if op.type == "Reshape" else None
    if requested is None or len(requested) != len(static):
        return static
    return [r if s is None else s for s, r in zip(static, requested)]


def _rows_after_reshape(op: tf.Operation, label: Lead, after: list[int | None], axis: int) -> Any:
    """Rows per seed after the reshape, a fraction if it is not whole, None if not known."""
    before = graph.reshaped_from(op).shape.as_list()
    if op.type != "Reshape" and [d for d in before if d != 1] == [d for d in after if d != 1]:
        moved = sum(d != 1 for d in before[: label.axis]) == sum(d != 1 for d in after[:axis])
        if moved and before[label.axis] == after[axis]:
            return label.rows
    if axis == label.axis and _undoes_broadcast(op):
        return label.rows
    inner = graph.size(after[axis + 1 :])
    if not label.elements or not inner:
        return None
    return label.elements / (inner * label.outer)


def _undoes_broadcast(op: tf.Operation) -> bool:
    """Whether the op is the second half of `reshape(sum(dy, axes, keepdims), shape(a))`, a's own gradient.

    Every op that broadcasts has this in its gradient. Where a has dy's rank, the reshape changes nothing.
    """
    if graph.given_own_shape(op) is not None:
        return True  # the sum's label says that it left the examples alone
    total = op.inputs[0].op
    if op.type != "Reshape" or total.type != "Sum" or not total.get_attr("keep_dims"):
        return False
    axes = total.inputs[1]
    if axes.op.type != "BroadcastGradientArgs" or op.outputs[0].shape.rank != op.inputs[0].shape.rank:
        return False
    return axes.op.inputs[axes.value_index] is op.inputs[1]


@entry("Transpose")
def _transpose(ctx: Context, op: tf.Operation, labels: Labels) -> Lead | Inner:
    del ctx
    label = only(labels, 0)
    permutation = graph.axes(op.inputs[1], rank(op.inputs[0]))
    if permutation is not None and label.axis == 0 and label.outer == 1 and permutation[0] != 0:
        return Inner(permutation.index(0), label.rows, label.checks)
    if permutation is None or permutation[: label.axis + 1] != list(range(label.axis + 1)):
        raise Unknown("moves the axis that holds the examples")
    return label


@entry("BroadcastTo")
def _broadcast(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    del ctx
    label = axis_zero(only(labels, 0))
    if rank(op.inputs[0]) != rank(op.outputs[0]):
        raise Unknown("broadcasts new axes in front of the examples")
    return label


@entry("Tile", "Pad", "PadV2", "Slice")
def _resize(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    label = single_block(axis_zero(only(labels, 0)))
    if op.type == "PadV2" and not graph.is_zero(op.inputs[2]):
        raise Unknown("pads with something else than 0")
    if op.type == "Slice" and _takes_all_rows(op):
        return label
    # A tile, pad or slice that keeps the extent of an axis leaves that axis as it is.
    return same_extent(ctx, op, label, op.inputs[0], op.outputs[0])


def _takes_all_rows(op: tf.Operation) -> bool:
    begin, size = graph.constant(op.inputs[1]), graph.constant(op.inputs[2])
    return begin is not None and size is not None and (int(begin[0]), int(size[0])) == (0, -1)


@entry("ReverseSequence")
def _reverse_sequence(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    """Turns each row around along another axis."""
    del ctx
    if op.get_attr("batch_dim") != 0:
        raise Unknown("works along the axis that holds the examples")
    return axis_zero(only(labels, 0))


@entry("MirrorPadGrad")
def _mirror_pad_grad(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    return same_extent(ctx, op, axis_zero(only(labels, 0)), op.inputs[0], op.outputs[0])


@entry("StridedSliceGrad")
def _strided_slice_grad(ctx: Context, op: tf.Operation, labels: Labels) -> Lead | Inner:
    """Forward x[:, ...]: the first axis is taken whole, so the gradient's rows go back where they were."""
    del ctx
    label = single_block(axis_zero(only(labels, 4)))
    if _one_of_the_first_axis(op):
        return Inner(1, label.rows, label.checks)
    mask = {name: op.get_attr(f"{name}_mask") & 1 for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    strides = graph.constant(op.inputs[3])
    if mask["new_axis"] or mask["shrink_axis"] or strides is None:
        raise Unknown("slices along the axis that holds the examples")
    if mask["ellipsis"]:
        added = bin(op.get_attr("new_axis_mask")).count("1")
        if rank(op.outputs[0]) <= len(strides) - 1 - added:
            raise Unknown("slices along the axis that holds the examples")
        return label
    if not (mask["begin"] and mask["end"] and strides[0] == 1):
        raise Unknown("slices along the axis that holds the examples")
    return label


def _one_of_the_first_axis(op: tf.Operation) -> bool:
    """Whether x[i] was taken, of x [time, examples, ...]: the examples come back behind the first axis."""
    strides = graph.constant(op.inputs[3])
    if op.get_attr("ellipsis_mask") or op.get_attr("new_axis_mask"):
        return False
    return strides is not None and len(strides) == 1 and op.get_attr("shrink_axis_mask") == 1


@entry("ConcatV2")
def _concat(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    if labels[-1] is not None:
        raise Unknown("is not linear")
    return _stacked(ctx, op, labels[:-1], graph.axes(op.inputs[-1], rank(op.outputs[0])))


@entry("Pack")
def _pack(ctx: Context, op: tf.Operation, labels: Labels) -> Lead | Inner:
    along = op.get_attr("axis") % rank(op.outputs[0])
    if along == 0:  # a new axis in front of the examples, time above all
        others_are_zero(ctx, op.inputs, labels)
        label = single_block(axis_zero(joined([label for label in labels if label is not None])))
        return Inner(1, label.rows, label.checks)
    return _stacked(ctx, op, labels, [along])


def _stacked(ctx: Context, op: tf.Operation, labels: Labels, along: list[int] | None) -> Lead:
    others_are_zero(ctx, op.inputs[: len(labels)], labels)
    label = axis_zero(joined([label for label in labels if label is not None]))
    if along is None or 0 in along:
        raise Unknown("joins gradients along the axis that holds the examples")
    return label


@entry("Unpack")
def _unpack(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    del ctx
    return _untouched(op, only(labels, 0), [op.get_attr("axis") % rank(op.inputs[0])])


@entry("Split")
def _split(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    del ctx
    return _untouched(op, only(labels, 1), graph.axes(op.inputs[0], rank(op.inputs[1])))


@entry("SplitV", "Roll")
def _axis_comes_third(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    del ctx
    return _untouched(op, only(labels, 0), graph.axes(op.inputs[2], rank(op.inputs[0])))


@entry("ReverseV2", "Cumsum")
def _along_axis(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    del ctx
    return _untouched(op, only(labels, 0), graph.axes(op.inputs[1], rank(op.inputs[0])))


def _untouched(op: tf.Operation, label: Lead, along: list[int] | None) -> Lead:
    del op
    axis_zero(label)
    if along is None or 0 in along:
        raise Unknown("works along the axis that holds the examples")
    return label
