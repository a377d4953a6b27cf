"""Entries for ops that change the shape: they must leave each example's entries together, and in their place."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from adaclip_tf.gradients.proof import elementwise
from adaclip_tf.gradients.proof.labels import Public, Rows, Sizes, Unproven, rank
from adaclip_tf.gradients.proof.sizes import Count, known_product
from adaclip_tf.gradients.proof.walk import Labels, Walk, describe, entry


def only_first(labels: Labels) -> Rows:
    """The label of the first input, which must be the only one that depends on data."""
    if not isinstance(labels[0], Rows) or any(isinstance(label, Rows) for label in labels[1:]):
        raise Unproven("is told by data what to do")
    return labels[0]


def single_block(label: Rows) -> Rows:
    if label.outer != 1:
        raise Unproven("is not followed between SpaceToBatchND and BatchToSpaceND")
    return label


@entry("Reshape", sizes=[1])
def _reshape(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    """Row-major order is kept: with the same number of entries in front, examples lie along one axis again.

    In front of the examples there are P entries, behind them E per row: chunk k of each of the P blocks is example k's,
    rows * E entries long. In the new shape an axis with P entries in front of it and E' behind has (rows * E) / E' rows
    per example, if that is a whole number.
    """
    label = only_first(labels)
    before = walk.sizes.extents(op.inputs[0])
    after = _new_shape(walk, op)
    if label.outer != 1:
        return _same_rows(label, before, after)
    front, unknown = known_product(before[: label.axis])
    if unknown:
        return _same_front(label, before, after)
    axis = _axis_after(after, front)
    elementwise.not_counted(after, axis)
    if isinstance(after[axis], Count) and after[axis].multiple is not None:
        return dataclasses.replace(label, axis=axis, rows=after[axis].multiple)
    behind, unknown_behind = known_product(before[label.axis + 1 :])
    inner, unknown_inner = known_product(after[axis + 1 :])
    if not unknown_inner and inner and label.rows is not None:
        if label.rows * behind % inner == 0:
            rows = None if unknown_behind else label.rows * behind // inner
            return dataclasses.replace(label, axis=axis, rows=rows)
        if not unknown_behind:
            raise Unproven("puts several examples into one row")
    check = walk.checks.add(op.outputs[0], axis, f"{describe(op)} does not split evenly among the examples")
    return dataclasses.replace(label, axis=axis, rows=None, checks=label.checks | {check})


def _new_shape(walk: Walk, op: tf.Operation) -> list[Any]:
    static: list[Any] = op.outputs[0].shape.as_list() if rank(op.outputs[0]) else []
    if not static:
        raise Unproven("flattens the examples into a scalar", mixing=True)
    symbols = walk.sizes.symbols(op.inputs[1])
    if symbols is None or len(symbols) != len(static):
        return static
    return [s if s is not None or r == -1 else r for s, r in zip(static, symbols)]


def _axis_after(after: list[Any], front: int) -> int:
    """The first axis with `front` entries before it that can hold the examples: one of extent 1 can't."""
    product = 1
    for axis, extent in enumerate(after):
        if product == front and extent != 1:
            return axis
        if not isinstance(extent, int):
            break
        product *= extent
    raise Unproven("moves the axis that holds the examples")


def _same_rows(label: Rows, before: list[Any], after: list[Any]) -> Rows:
    """Between SpaceToBatchND and BatchToSpaceND only the axes behind the examples may change."""
    sizes = [known_product(shape[1:]) for shape in (before, after)]
    if label.axis == 0 and sizes[0] == sizes[1] and not sizes[0][1]:
        return label
    raise Unproven("regroups rows between SpaceToBatchND and BatchToSpaceND")


def _same_front(label: Rows, before: list[Any], after: list[Any]) -> Rows:
    """A number of entries in front that is not known: nothing but the axes behind the examples may change."""
    front = after[: label.axis]
    if before[: label.axis] == front and None not in front and before[label.axis] == after[label.axis]:
        return label
    raise Unproven("has a shape that is only known in the run")


@entry("ExpandDims", sizes=[1])
def _expand_dims(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    label = only_first(labels)
    dims = walk.sizes.integers(op.inputs[1])
    if dims is None:
        raise Unproven("adds an axis that is only known in the run")
    return elementwise.shifted(label, int(dims[0] % rank(op.outputs[0]) <= label.axis))


@entry("Squeeze")
def _squeeze(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    label = only_first(labels)
    total = rank(op.inputs[0])
    dims = {axis % total for axis in op.get_attr("squeeze_dims")}
    if not dims:
        if not op.inputs[0].shape.is_fully_defined():
            raise Unproven("drops axes that are only known in the run")
        dims = {axis for axis, extent in enumerate(op.inputs[0].shape) if extent == 1}
    if label.axis in dims:
        raise Unproven("drops the axis that holds the examples")
    return elementwise.shifted(label, -sum(axis < label.axis for axis in dims))


@entry("Transpose")
def _transpose(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    label = only_first(labels)
    permutation = walk.sizes.integers(op.inputs[1])
    if permutation is None:
        raise Unproven("moves axes in a way that is only known in the run")
    return dataclasses.replace(label, axis=permutation.index(label.axis))


@entry("BroadcastTo", sizes=[1])
def _broadcast_to(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    label = elementwise.shifted(only_first(labels), rank(op.outputs[0]) - rank(op.inputs[0]))
    _fixed(walk, op.inputs[1], labels[1], label.axis)
    return label


def _fixed(walk: Walk, sizes: tf.Tensor, label: Any, axis: int) -> None:
    """Raises if a vector of sizes lets another axis than `axis` depend on the number of examples."""
    if isinstance(label, Sizes):
        symbols = walk.sizes.symbols(sizes)
        elementwise.not_counted(None if symbols is None else list(symbols.ravel()), axis)


@entry("Tile", sizes=[1])
def _tile(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    label = only_first(labels)
    _fixed(walk, op.inputs[1], labels[1], label.axis)
    multiples = walk.sizes.symbols(op.inputs[1])
    return _kept(walk, op, label, None if multiples is None else multiples[label.axis] == 1)


@entry("Pad", "PadV2", "MirrorPad", "MirrorPadGrad")
def _pad(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    label = only_first(labels)
    paddings = walk.sizes.symbols(op.inputs[1])
    return _kept(walk, op, label, None if paddings is None else tuple(paddings[label.axis]) == (0, 0))


@entry("Slice", sizes=[1, 2])
def _slice(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    label = only_first(labels)
    _fixed(walk, op.inputs[1], labels[1], label.axis)
    _fixed(walk, op.inputs[2], labels[2], label.axis)
    begin, size = walk.sizes.symbols(op.inputs[1]), walk.sizes.symbols(op.inputs[2])
    whole = None
    if begin is not None and size is not None:
        extent = walk.sizes.extents(op.inputs[0])[label.axis]
        whole = begin[label.axis] == 0 and (
            size[label.axis] == -1 or (size[label.axis] == extent and extent is not None)
        )
        whole = whole or None
    return _kept(walk, op, label, whole)


def _kept(walk: Walk, op: tf.Operation, label: Rows, whole: bool | None) -> Rows:
    """The label, if the axis of the examples is left as it is: an axis that keeps its extent is left alone."""
    if whole:
        return label
    before, after = op.inputs[0].shape[label.axis], op.outputs[0].shape[label.axis]
    if whole is False or (before is not None and after is not None and before != after):
        raise Unproven("takes some of the examples, or some of them twice")
    if before is not None and before == after:
        return label
    check = walk.checks.add(op.outputs[0], label.axis, f"{describe(op)} changes the examples", equals=op.inputs[0])
    return dataclasses.replace(label, checks=label.checks | {check})


class _StridedSlice:
    """Which axis of the input becomes which one of the output, and which are taken whole."""

    def __init__(self, op: tf.Operation, begin: Any, end: Any, strides: Any, shape: Any):
        masks = {n: op.get_attr(f"{n}_mask") for n in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
        total, count = shape.rank, len(strides)
        bit = lambda name, i: bool(masks[name] >> i & 1)  # noqa: E731
        named = sum(not bit("new_axis", i) and not bit("ellipsis", i) for i in range(count))
        self.output: dict[int, Any] = {}  # None: the axis is dropped
        self.whole: dict[int, bool] = {}
        axis = result = 0
        for i in range(count):
            if bit("ellipsis", i):
                for _ in range(total - named):
                    self.output[axis], self.whole[axis] = result, True
                    axis, result = axis + 1, result + 1
            elif bit("new_axis", i):
                result += 1
            elif bit("shrink_axis", i):
                self.output[axis], self.whole[axis] = None, False
                axis += 1
            else:
                starts = bit("begin", i) or (begin is not None and begin[i] == 0)
                ends = bit("end", i)
                if not ends and end is not None and shape[axis] is not None and isinstance(end[i], int):
                    ends = end[i] >= shape[axis]
                self.output[axis], self.whole[axis] = result, bool(starts and ends and strides[i] == 1)
                axis, result = axis + 1, result + 1
        while axis < total:
            self.output[axis], self.whole[axis] = result, True
            axis, result = axis + 1, result + 1


@entry("StridedSlice", sizes=[1, 2])
def _strided_slice(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    label = only_first(labels)
    strides = walk.sizes.integers(op.inputs[3])
    if strides is None:
        raise Unproven("takes steps that are only known in the run")
    rank(op.inputs[0])
    begin, end = walk.sizes.symbols(op.inputs[1]), walk.sizes.symbols(op.inputs[2])
    taken = _StridedSlice(op, begin, end, strides, op.inputs[0].shape)
    if not taken.whole[label.axis]:
        raise Unproven("takes some of the examples")
    for position in (1, 2):  # one entry per entry of the slice's specification; that of the examples is masked
        _fixed(walk, op.inputs[position], labels[position], label.axis)
    return dataclasses.replace(label, axis=taken.output[label.axis])


@entry("StridedSliceGrad", sizes=[0, 1, 2])
def _strided_slice_grad(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    label = labels[4]
    strides = walk.sizes.integers(op.inputs[3])
    if strides is None or not isinstance(label, Rows):
        raise Unproven("takes steps that are only known in the run")
    rank(op.outputs[0])
    begin, end = walk.sizes.symbols(op.inputs[1]), walk.sizes.symbols(op.inputs[2])
    taken = _StridedSlice(op, begin, end, strides, op.outputs[0].shape)
    for axis, result in taken.output.items():
        if result == label.axis and taken.whole[axis]:
            return dataclasses.replace(label, axis=axis)
    raise Unproven("puts examples back into some places of a batch")


def _apart(walk: Walk, op: tf.Operation, tensors: list[tf.Tensor], labels: Labels, along: int) -> Rows:
    """The label of tensors that are laid side by side along an axis which is not that of the examples."""
    label = elementwise.joined(*zip(*[(label, label.axis) for label in labels if isinstance(label, Rows)]))
    if label.axis == along:
        raise Unproven("lays batches of examples one behind the other")
    for tensor, own in zip(tensors, labels):
        if isinstance(own, Public):
            elementwise.meets(walk, tensor, own, label.axis)
    return label


@entry("ConcatV2")
def _concat(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    axis = walk.sizes.integers(op.inputs[-1])
    if axis is None:
        raise Unproven("joins along an axis that is only known in the run")
    return _apart(walk, op, list(op.inputs)[:-1], labels[:-1], axis[0] % rank(op.outputs[0]))


@entry("Pack")
def _pack(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    along = op.get_attr("axis") % rank(op.outputs[0])
    label = _apart(walk, op, list(op.inputs), labels, -1)
    return elementwise.shifted(label, int(along <= label.axis))


@entry("Unpack")
def _unpack(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    label = _untouched(only_first(labels), [op.get_attr("axis") % rank(op.inputs[0])])
    return elementwise.shifted(label, -int(op.get_attr("axis") % rank(op.inputs[0]) < label.axis))


@entry("Split")
def _split(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    if not isinstance(labels[1], Rows):
        raise Unproven("is told by data what to do")
    return _untouched(labels[1], _axes(walk, op, 0, 1), mixing=False)


@entry("SplitV")
def _split_v(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    return _untouched(only_first(labels), _axes(walk, op, 2), mixing=False)


@entry("ReverseV2", "Cumsum", "Cumprod", "CumulativeLogsumexp")
def _along_axis(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    return _untouched(only_first(labels), _axes(walk, op, 1))


@entry("Roll")
def _roll(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    return _untouched(only_first(labels), _axes(walk, op, 2))


def _axes(walk: Walk, op: tf.Operation, position: int, of: int = 0) -> list[int] | None:
    axes = walk.sizes.integers(op.inputs[position])
    return None if axes is None else [axis % rank(op.inputs[of]) for axis in axes]


def _untouched(label: Rows, along: list[int] | None, mixing: bool = True) -> Rows:
    if along is None:
        raise Unproven("works along an axis that is only known in the run")
    if label.axis in along:
        raise Unproven("works across the examples of the batch", mixing)
    return label


@entry("GatherV2", sizes=[])
def _gather(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    table, indices = labels[0], labels[1]
    axes = walk.sizes.integers(op.inputs[2])
    if axes is None:
        raise Unproven("gathers along an axis that is only known in the run")
    axis, shared = axes[0] % rank(op.inputs[0]), op.get_attr("batch_dims")
    shared += rank(op.inputs[1]) if shared < 0 else 0
    if isinstance(table, Rows) and isinstance(indices, Rows):
        if table.axis < shared and indices.axis < shared:
            return elementwise.joined([table, indices], [table.axis, indices.axis])
        raise Unproven("looks up rows of the batch that data chooses")
    if isinstance(indices, Public) and indices.counted:
        raise Unproven("looks up as many entries as there are examples")
    if isinstance(table, Rows):
        if table.axis < shared:
            elementwise.meets(walk, op.inputs[1], indices, table.axis)
            return table
        if table.axis == axis:
            raise Unproven("takes some of the examples")
        return elementwise.shifted(table, rank(op.inputs[1]) - shared - 1 if table.axis > axis else 0)
    if indices.axis < shared:
        elementwise.meets(walk, op.inputs[0], table, indices.axis)
        return indices
    return elementwise.shifted(indices, axis - shared)


@entry("ResourceGather")
def _resource_gather(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    if op.get_attr("batch_dims"):
        raise Unproven("looks up rows by their place in the batch")
    return labels[1]


@entry("OneHot")
def _one_hot(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    label = only_first(labels)
    new = op.get_attr("axis") % rank(op.outputs[0])
    return elementwise.shifted(label, int(new <= label.axis))


@entry("SpaceToBatchND", "BatchToSpaceND")
def _space_batch(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    """Output row b * N + r of SpaceToBatchND is phase b of row r."""
    label = only_first(labels)
    blocks = walk.sizes.integers(op.inputs[1])
    if blocks is None or label.axis != 0:
        raise Unproven("regroups rows in a way that is only known in the run")
    phases = 1
    for block in blocks:
        phases *= block
    before, after = (1, phases) if op.type == "SpaceToBatchND" else (phases, 1)
    if label.outer != before:
        raise Unproven("regroups rows in a way that is not followed")
    return dataclasses.replace(label, outer=after)
