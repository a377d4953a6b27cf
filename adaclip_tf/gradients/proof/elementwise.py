"""Entries for ops that work entry by entry, with broadcasting, and for what is public: constants, random draws."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.proof import sizes, sources
from adaclip_tf.gradients.proof.labels import DRAWN, EVERYWHERE, Public, Rows, Unproven, rank
from adaclip_tf.gradients.proof.symbols import Count
from adaclip_tf.gradients.proof.table import Labels, entry, public
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
    """Whether all entries along `axis` are alike. Constants are looked at only now."""
    if label.is_uniform(axis):
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
        if one != other and 1 not in (one, other) and any(isinstance(extent, Count) for extent in (one, other)):
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


# ---------------------------------------------------------------------------------------------------
# What no data goes into.


@public("Const")
def _constant(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    """Zeros and ones above all: where shapes are static, TensorFlow folds them."""
    del walk, labels
    tensor = op.outputs[0]
    if tensor.shape.rank == 0:
        return EVERYWHERE
    is_value = tensor.dtype.is_floating or tensor.dtype == tf.bool
    return EVERYWHERE if is_value and sources.is_one_number(tensor) else Public()


@public("Fill", sizes=[0])
@public("ZerosLike", "OnesLike")
def _alike(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    """One number everywhere."""
    del walk, op, labels
    return EVERYWHERE


@public("ReadVariableOp")
def _read(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    """A seed that the step itself moves on, as Keras 3's seed generators do, gives other numbers in every step."""
    del walk, labels
    label = EVERYWHERE if op.outputs[0].shape.rank == 0 else Public()
    return label.but(drawn=graph.moves_on(op))


@public(*graph.DRAWS, sizes=[0])
@public(*graph.DRAWS_OF_A_STATE, sizes=[2])
def _drawn(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    """Independent draws of one distribution; numbers that a fixed seed gives to places are none."""
    del walk
    if op.type.startswith("Stateless") and not labels[1].drawn:
        return EVERYWHERE if op.outputs[0].shape.rank == 0 else Public()
    return DRAWN


@public(*(graph.ENTRYWISE - {"ZerosLike", "OnesLike"}))
def _public_elementwise(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    """Uniform along an axis where all operands are, or have extent 1 there, or do not reach it."""
    del walk
    if all(isinstance(label, Public) and label.uniform is None for label in labels):
        return EVERYWHERE
    result = op.outputs[0]
    if result.shape.rank is None or any(tensor.shape.rank is None for tensor in op.inputs):
        return Public()
    axes = set(range(result.shape.rank))
    for tensor, label in zip(op.inputs, labels):
        offset = result.shape.rank - tensor.shape.rank
        for axis in range(tensor.shape.rank):
            if not label.is_uniform(axis) and tensor.shape[axis] != 1:
                axes.discard(axis + offset)
    return Public(frozenset(axes))


@public("BroadcastTo", "Tile", sizes=[1])
def _stretched(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    """Uniform along the axes that had extent 1, or were not there."""
    del walk
    if labels[0].uniform is None:
        return EVERYWHERE
    before, after = op.inputs[0].shape.rank, op.outputs[0].shape.rank
    if before is None or after is None:
        return Public()
    offset = after - before
    stretched = {axis + offset for axis in range(before) if op.inputs[0].shape[axis] == 1 or labels[0].is_uniform(axis)}
    return Public(frozenset(set(range(offset)) | stretched))


@public("Split", "SplitV")
def _public_split(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    """Uniform along the axes that are left whole, as before."""
    value, along = (1, 0) if op.type == "Split" else (0, 2)
    total, axes = rank(op.inputs[value]), walk.sizes.integers(op.inputs[along])
    if labels[value].uniform is None or axes is None:
        return EVERYWHERE if labels[value].uniform is None else Public()
    return Public(frozenset(labels[value].uniform - {axes[0] % total}))


@public("StridedSlice")
def _public_slice(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    """The same: an axis that is taken whole stays as it is."""
    if labels[0].uniform is None or op.outputs[0].shape.rank == 0:
        return EVERYWHERE
    strides = walk.sizes.integers(op.inputs[3])
    if strides is None or op.inputs[0].shape.rank is None:
        return Public()
    begin, end = walk.sizes.symbols(op.inputs[1]), walk.sizes.symbols(op.inputs[2])
    taken = sizes.StridedSlice(op, begin, end, strides, op.inputs[0].shape)
    return Public(frozenset(taken.output[axis] for axis in labels[0].uniform if taken.whole[axis]))


@public("Reshape", sizes=[1])
@public("Transpose", "Squeeze", "Slice", "GatherV2", "ReverseV2", "Roll")
@public("Unpack", "Sum", "Mean", "Max", "Min", "Prod", "ResourceGather", "OneHot")
def _rearranged(walk: Walk, op: tf.Operation, labels: Labels) -> Any:
    """Zeros, or independent draws, stay such however they are rearranged. So do their sums."""
    del walk
    alike = op.type not in ("OneHot", "ResourceGather", "GatherV2") and labels[0].uniform is None
    return [EVERYWHERE if alike or result.shape.rank == 0 else Public() for result in op.outputs]


@public("ConcatV2", "Pack")
def _side_by_side(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    """Uniform along the other axes, where all parts are."""
    total = rank(op.outputs[0])
    is_pack = op.type == "Pack"
    parts = labels if is_pack else labels[:-1]
    along = [op.get_attr("axis")] if is_pack else walk.sizes.integers(op.inputs[-1])
    if along is None:
        return Public()
    new = along[0] % total
    inner = range(total - 1) if is_pack else range(total)
    axes = {a for a in inner if all(p.is_uniform(a) or t.shape[a] == 1 for p, t in zip(parts, op.inputs))}
    return Public(frozenset(a + (a >= new) for a in axes) if is_pack else frozenset(axes - {new}))


@public("BiasAdd")
def _public_bias(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    del walk
    total = rank(op.outputs[0])
    channel = 1 if op.get_attr("data_format") == b"NCHW" else total - 1
    alike = {axis for axis in range(total) if labels[0].is_uniform(axis)}
    return Public(frozenset(alike if labels[1].is_uniform(0) else alike - {channel}))


@public("MatMul")
def _public_product(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    """Equal rows of the first operand, a state that starts as zeros, give equal rows."""
    del walk
    rows, columns = int(op.get_attr("transpose_a")), 1 - int(op.get_attr("transpose_b"))
    uniform = {0} if labels[0].is_uniform(rows) else set()
    return Public(frozenset(uniform | ({1} if labels[1].is_uniform(columns) else set())))


@public("ExpandDims")
def _expand_public(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    total = op.outputs[0].shape.rank
    dims = walk.sizes.integers(op.inputs[1])
    if labels[0].uniform is None or total is None or dims is None:
        return labels[0] if labels[0].uniform is None else Public()
    new = dims[0] % total
    return Public(frozenset({axis + (axis >= new) for axis in labels[0].uniform} | {new}))


def shifted(label: Rows, by: int) -> Rows:
    return dataclasses.replace(label, axis=label.axis + by)
