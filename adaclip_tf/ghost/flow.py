"""How labels pass through backward ops: one table, keyed by op type.

An entry gets the op and the labels of its inputs (None: does not depend on the seed) and returns the
label of the outputs, or raises `Unknown`. It may rely on this: no input is `Lost` or `Summed`, and at least
one is `Lead`. It must establish two things, from the graph alone or by a registered run-time check: the
op is LINEAR in its seed-dependent inputs, and row r of an output depends on rows r of those inputs only.

Why broadcasting is safe. A labelled axis has an extent divisible by n. If n >= 2 the extent is 0 or at least 2, so
that axis is never stretched against another operand; if n is 1 there is one chunk and nothing to mix.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from adaclip_tf.ghost import _graph
from adaclip_tf.ghost.labels import Context, Label, Lead, Lost, Summed, Unknown

Labels = Sequence[Any]
Entry = Callable[[Context, tf.Operation, Labels], Any]
TABLE: dict[str, Entry] = {}

# Outputs that depend on the shapes of inputs only.
SHAPE_ONLY = frozenset({"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike", "BroadcastGradientArgs"})
# Outputs as large as the seed-dependent input.
_KEEPS_SIZE = frozenset(
    {"AddN", "Cast", "EnsureShape", "ExpandDims", "Identity", "Neg", "Reshape", "Squeeze", "StopGradient"}
    | {"FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3", "Transpose"}
)
_ADDITIVE = frozenset({"AddN", "AddV2", "Add", "Sub", "ConcatV2", "Pack"})


def entry(*types: str) -> Callable[[Entry], Entry]:
    """Registers a function as the table's entry for these op types."""

    def register(function: Entry) -> Entry:
        for op_type in types:
            TABLE[op_type] = function
        return function

    return register


def propagate(ctx: Context, seed: tf.Tensor) -> None:
    """Labels every tensor of the graph that depends on `seed`."""
    ctx.labels[seed.ref()] = _seed_label(ctx, seed)
    for op in seed.graph.get_operations():
        if op.type in SHAPE_ONLY or not op.inputs:
            continue
        labels = [ctx.label(tensor) for tensor in op.inputs]
        if all(label is None for label in labels):
            continue
        result = _transfer(ctx, op, labels)
        per_output = result if isinstance(result, list) else [result] * len(op.outputs)
        for tensor, label in zip(op.outputs, per_output):
            ctx.labels.setdefault(tensor.ref(), _sized(op, tensor, label) if isinstance(label, Lead) else label)


def _seed_label(ctx: Context, seed: tf.Tensor) -> Label:
    divides = ctx.divides(seed.shape[0])
    if divides is False:
        return Lost(f"{seed.shape[0]} examples do not split evenly into {ctx.static_n} microbatches")
    known = divides or ctx.microbatch_size is not None
    return Lead(checks=frozenset() if known else frozenset({ctx.check(seed, 0, seed.op)}))


def _sized(op: tf.Operation, tensor: tf.Tensor, label: Lead) -> Lead:
    """`label` with `rows` and `elements` as far as the static shape tells them."""
    dims = _graph.dimensions(tensor)
    inner = None if dims is None else _graph.size(dims[label.axis + 1 :])
    elements = label.elements if op.type in _KEEPS_SIZE else None
    if label.rows is not None and inner is not None:
        return dataclasses.replace(label, elements=label.rows * inner * label.outer)
    if elements is not None and inner and elements % (inner * label.outer) == 0:
        return dataclasses.replace(label, rows=elements // (inner * label.outer), elements=elements)
    return dataclasses.replace(label, elements=elements)


def _transfer(ctx: Context, op: tf.Operation, labels: Labels) -> Any:
    dependent = [label for label in labels if label is not None]
    for label in dependent:
        if isinstance(label, Lost):
            return label
    if all(isinstance(label, Summed) for label in dependent):
        return Summed()
    if any(isinstance(label, Summed) for label in dependent):
        mixing = op.type in _ADDITIVE
        return Lost(f"{_graph.describe(op)} combines one example's gradient with a sum over examples", mixing)
    if op.type not in TABLE:
        return Lost(f"{_graph.describe(op)} has no entry in the table of backward ops")
    try:
        return TABLE[op.type](ctx, op, labels)
    except Unknown as unknown:
        return Lost(f"{_graph.describe(op)} {unknown.reason}", unknown.mixing)


# ---------------------------------------------------------------------------------------------------
# Helpers.


def only(labels: Labels, index: int) -> Lead:
    """The label of input `index`, which must be the one seed-dependent input."""
    if any((label is not None) != (position == index) for position, label in enumerate(labels)):
        raise Unknown("is not linear in the gradient that flows into it, or takes it at another input")
    return labels[index]


def axis_zero(label: Lead) -> Lead:
    if label.axis != 0:
        raise Unknown("needs the examples along axis 0")
    return label


def single_block(label: Lead) -> Lead:
    if label.outer != 1:
        raise Unknown("is not followed between SpaceToBatchND and BatchToSpaceND")
    return label


def rank(tensor: tf.Tensor) -> int:
    if tensor.shape.rank is None:
        raise Unknown("works on a tensor of unknown rank")
    return tensor.shape.rank


def joined(labels: Sequence[Lead]) -> Lead:
    """One label for tensors of the same shape that are combined row by row."""
    first = labels[0]
    if any((label.axis, label.outer) != (first.axis, first.outer) for label in labels):
        raise Unknown("combines gradients with different layouts")
    rows = next((label.rows for label in labels if label.rows is not None), None)
    checks = frozenset().union(*(label.checks for label in labels))
    elements = next((label.elements for label in labels if label.elements is not None), None)
    return dataclasses.replace(first, rows=rows, elements=elements, checks=checks)


def same_extent(ctx: Context, op: tf.Operation, label: Lead, source: tf.Tensor, result: tf.Tensor) -> Lead:
    """`label`, if `result` is as long as `source` along the labelled axis: checked in the run if need be."""
    if rank(source) != rank(result):
        raise Unknown("changes the rank")
    before, after = source.shape[label.axis], result.shape[label.axis]
    if before is not None and after is not None:
        if before != after:
            raise Unknown("changes the extent of the axis that holds the examples")
        return label
    check = ctx.check(result, label.axis, op, equals=source)
    return dataclasses.replace(label, checks=label.checks | {check})


# ---------------------------------------------------------------------------------------------------
# Elementwise ops.


def _elementwise(op: tf.Operation, labels: Labels) -> Lead:
    """For ops that broadcast: no operand may add axes in front of the labelled ones."""
    label = joined([label for label in labels if label is not None])
    result_rank = rank(op.outputs[0])
    for tensor, own in zip(op.inputs, labels):
        if own is not None and rank(tensor) != result_rank:
            raise Unknown("broadcasts new axes in front of the examples")
        offset = result_rank - rank(tensor)
        for axis in range(offset, label.axis):
            if tensor.shape[axis - offset] != 1:
                raise Unknown("broadcasts in front of the examples")
    return label


@entry("Identity", "Snapshot", "StopGradient", "PreventGradient", "CheckNumerics", "Neg", "EnsureShape")
def _unary(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    del ctx, op
    return only(labels, 0)


@entry("IdentityN")
def _identity_n(ctx: Context, op: tf.Operation, labels: Labels) -> list[Label | None]:
    del ctx, op
    return list(labels)


@entry("Cast")
def _cast(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    del ctx
    if not op.outputs[0].dtype.is_floating:
        raise Unknown("is not linear")
    return only(labels, 0)


@entry("Mul")
def _mul(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    del ctx
    only(labels, 0 if labels[0] is not None else 1)
    return _elementwise(op, labels)


@entry("RealDiv", "DivNoNan", "Xdivy", "MulNoNan")
@entry("ReluGrad", "Relu6Grad", "LeakyReluGrad", "EluGrad", "SeluGrad", "SoftplusGrad", "SoftsignGrad")
def _first_operand(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    del ctx
    only(labels, 0)
    return _elementwise(op, labels)


@entry("TanhGrad", "SigmoidGrad", "RsqrtGrad", "SqrtGrad", "ReciprocalGrad", "InvGrad")
def _second_operand(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    del ctx
    only(labels, 1)
    return _elementwise(op, labels)


@entry("AddN", "AddV2", "Add", "Sub")
def _add(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    del ctx
    _others_are_zero(op.inputs, labels)
    return _elementwise(op, labels)


def _others_are_zero(tensors: Sequence[tf.Tensor], labels: Labels) -> None:
    """Adding something that does not depend on the seed would not be linear."""
    for tensor, label in zip(tensors, labels):
        if label is None and not _graph.is_zero(tensor):
            raise Unknown(f"adds {tensor.op.name!r}, which is not part of the gradient of the loss")


@entry("Select", "SelectV2")
def _select(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    del ctx
    if labels[0] is not None:
        raise Unknown("is not linear")
    _others_are_zero(op.inputs[1:], labels[1:])
    if op.type == "SelectV2":
        return _elementwise(op, labels)
    return joined([label for label in labels if label is not None])  # Select does not broadcast


# ---------------------------------------------------------------------------------------------------
# Ops that change the shape.


@entry("Reshape", "Squeeze", "ExpandDims")
def _reshape(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    """Row-major order is kept, so chunks stay chunks: only the axis that holds them is to be found."""
    label = only(labels, 0)
    source, result = op.inputs[0], op.outputs[0]
    rank(source)
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
    requested = _graph.shape_of_shape(op.inputs[1]) if op.type == "Reshape" else None
    if requested is None or len(requested) != len(static):
        return static
    return [r if s is None else s for s, r in zip(static, requested)]


def _rows_after_reshape(op: tf.Operation, label: Lead, after: list[int | None], axis: int) -> Any:
    """Rows per seed after the reshape, a fraction if it is not whole, None if not known."""
    before = op.inputs[0].shape.as_list()
    if op.type != "Reshape" and [d for d in before if d != 1] == [d for d in after if d != 1]:
        moved = sum(d != 1 for d in before[: label.axis]) == sum(d != 1 for d in after[:axis])
        if moved and before[label.axis] == after[axis]:
            return label.rows
    if axis == label.axis and _undoes_broadcast(op):
        return label.rows
    inner = _graph.size(after[axis + 1 :])
    if not label.elements or not inner:
        return None
    return label.elements / (inner * label.outer)


def _undoes_broadcast(op: tf.Operation) -> bool:
    """Whether the op is the second half of `reshape(sum(dy, axes, keepdims), shape(a))`, a's own gradient.

    Every op that broadcasts has this in its gradient. Where a has dy's rank, the reshape changes nothing.
    """
    total = op.inputs[0].op
    if op.type != "Reshape" or total.type != "Sum" or not total.get_attr("keep_dims"):
        return False
    axes = total.inputs[1]
    if axes.op.type != "BroadcastGradientArgs" or op.outputs[0].shape.rank != op.inputs[0].shape.rank:
        return False
    return axes.op.inputs[axes.value_index] is op.inputs[1]


@entry("Transpose")
def _transpose(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    del ctx
    label = only(labels, 0)
    permutation = _graph.axes(op.inputs[1], rank(op.inputs[0]))
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
    if op.type == "PadV2" and not _graph.is_zero(op.inputs[2]):
        raise Unknown("pads with something else than 0")
    # A tile, pad or slice that keeps the extent of an axis leaves that axis as it is.
    return same_extent(ctx, op, label, op.inputs[0], op.outputs[0])


@entry("MirrorPadGrad")
def _mirror_pad_grad(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    return same_extent(ctx, op, axis_zero(only(labels, 0)), op.inputs[0], op.outputs[0])


@entry("StridedSliceGrad")
def _strided_slice_grad(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    """Forward x[:, ...]: the first axis is taken whole, so the gradient's rows go back where they were."""
    del ctx
    label = single_block(axis_zero(only(labels, 4)))
    mask = {name: op.get_attr(f"{name}_mask") & 1 for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    strides = _graph.constant(op.inputs[3])
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


@entry("ConcatV2")
def _concat(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    del ctx
    if labels[-1] is not None:
        raise Unknown("is not linear")
    return _stacked(op, labels[:-1], _graph.axes(op.inputs[-1], rank(op.outputs[0])))


@entry("Pack")
def _pack(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    del ctx
    return _stacked(op, labels, [op.get_attr("axis") % rank(op.outputs[0])])


def _stacked(op: tf.Operation, labels: Labels, along: list[int] | None) -> Lead:
    _others_are_zero(op.inputs[: len(labels)], labels)
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
    return _untouched(op, only(labels, 1), _graph.axes(op.inputs[0], rank(op.inputs[1])))


@entry("SplitV")
def _split_v(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    del ctx
    return _untouched(op, only(labels, 0), _graph.axes(op.inputs[2], rank(op.inputs[0])))


@entry("ReverseV2", "Cumsum")
def _along_axis(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    del ctx
    return _untouched(op, only(labels, 0), _graph.axes(op.inputs[1], rank(op.inputs[0])))


@entry("Roll")
def _roll(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    del ctx
    return _untouched(op, only(labels, 0), _graph.axes(op.inputs[2], rank(op.inputs[0])))


def _untouched(op: tf.Operation, label: Lead, along: list[int] | None) -> Lead:
    del op
    axis_zero(label)
    if along is None or 0 in along:
        raise Unknown("works along the axis that holds the examples")
    return label
