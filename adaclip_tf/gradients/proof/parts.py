"""Entries for ops that take parts of tensors, or join them: slices, pads, splits, concatenations, look-ups.

None may take some of the examples, or some of them twice, or put one into another's place.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from adaclip_tf.gradients.proof import elementwise
from adaclip_tf.gradients.proof.labels import Public, Rows, Unproven, rank
from adaclip_tf.gradients.proof.shapes import fixed_sizes, only_first
from adaclip_tf.gradients.proof.strided import StridedSlice
from adaclip_tf.gradients.proof.symbols import same
from adaclip_tf.gradients.proof.table import Labels, describe, entry
from adaclip_tf.gradients.proof.walk import Walk


@entry("Tile", sizes=[1])
def _tile(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    label = only_first(labels)
    fixed_sizes(walk, op.inputs[1], labels[1], label.axis)
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
    fixed_sizes(walk, op.inputs[1], labels[1], label.axis)
    fixed_sizes(walk, op.inputs[2], labels[2], label.axis)
    begin, size = walk.sizes.symbols(op.inputs[1]), walk.sizes.symbols(op.inputs[2])
    whole = None
    if begin is not None and size is not None:
        extent = walk.sizes.extents(op.inputs[0])[label.axis]
        whole = begin[label.axis] == 0 and (size[label.axis] == -1 or same(size[label.axis], extent))
        whole = whole or None
    return _kept(walk, op, label, whole)


def whole_slice(walk: Walk | None, op: tf.Operation) -> tuple[list[int], list[int]] | None:
    """Where a slice starts and how far it goes (-1: to the end), where no run is needed to tell; else None."""
    if walk is None or op.type != "Slice":
        return None
    begin, size, extents = *map(walk.sizes.symbols, op.inputs[1:]), walk.sizes.extents(op.inputs[0])
    if begin is None or size is None or extents is None or not all(isinstance(start, int) for start in begin):
        return None
    whole = [start == 0 and same(own, extent) for start, own, extent in zip(begin, size, extents)]
    sizes = [-1 if to_end else own for to_end, own in zip(whole, size)]
    return (list(begin), sizes) if all(isinstance(own, int) for own in sizes) else None


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


@entry("StridedSlice", sizes=[1, 2])
def _strided_slice(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    label = only_first(labels)
    strides = walk.sizes.integers(op.inputs[3])
    if strides is None:
        raise Unproven("takes steps that are only known at run time")
    rank(op.inputs[0])
    begin, end = walk.sizes.symbols(op.inputs[1]), walk.sizes.symbols(op.inputs[2])
    taken = StridedSlice(op, begin, end, strides, op.inputs[0].shape, walk.sizes.extents(op.inputs[0]))
    if not taken.whole[label.axis]:
        raise Unproven("takes some of the examples")
    for position in (1, 2):  # one entry per entry of the slice's specification; that of the examples takes all
        fixed_sizes(walk, op.inputs[position], labels[position], taken.entry.get(label.axis, -1))
    return dataclasses.replace(label, axis=taken.output[label.axis])


@entry("StridedSliceGrad", sizes=[0, 1, 2])
def _strided_slice_grad(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    label = labels[4]
    strides = walk.sizes.integers(op.inputs[3])
    if strides is None or not isinstance(label, Rows):
        raise Unproven("takes steps that are only known at run time")
    rank(op.outputs[0])
    begin, end = walk.sizes.symbols(op.inputs[1]), walk.sizes.symbols(op.inputs[2])
    taken = StridedSlice(op, begin, end, strides, op.outputs[0].shape)
    for axis, result in taken.output.items():
        if result == label.axis and taken.whole[axis]:
            for position, own in ((0, axis), (1, taken.entry.get(axis, -1)), (2, taken.entry.get(axis, -1))):
                fixed_sizes(walk, op.inputs[position], labels[position], own)
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


@entry("ReverseSequence")
def _reverse_sequence(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    """Turns each row of `batch_dim` around along another axis, up to a length of its own."""
    values, lengths = labels[0], labels[1]
    along = op.get_attr("batch_dim")
    if not isinstance(values, Rows) or values.axis != along or op.get_attr("seq_dim") == along:
        raise Unproven("works across the examples of the batch")
    if isinstance(lengths, Rows):
        return elementwise.joined([values, lengths], [along, along + lengths.axis])
    elementwise.meets(walk, op.inputs[1], lengths, 0)
    return values


@entry("ConcatV2")
def _concat(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    axes = walk.sizes.axes(op.inputs[-1], rank(op.outputs[0]))
    if axes is None:
        raise Unproven("joins along an axis that is only known at run time")
    return _apart(walk, op, list(op.inputs)[:-1], labels[:-1], axes[0])


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
    return _untouched(labels[1], walk.sizes.axes(op.inputs[0], rank(op.inputs[1])), mixing=False)


@entry("SplitV")
def _split_v(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    return _untouched(only_first(labels), walk.sizes.axes(op.inputs[2], rank(op.inputs[0])), mixing=False)


@entry("ReverseV2", "Cumsum", "Cumprod", "CumulativeLogsumexp")
def _along_axis(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    return _untouched(only_first(labels), walk.sizes.axes(op.inputs[1], rank(op.inputs[0])))


@entry("Roll")
def _roll(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    return _untouched(only_first(labels), walk.sizes.axes(op.inputs[2], rank(op.inputs[0])))


def _untouched(label: Rows, along: list[int] | None, mixing: bool = True) -> Rows:
    if along is None:
        raise Unproven("works along an axis that is only known at run time")
    if label.axis in along:
        raise Unproven("works across the examples of the batch", mixing)
    return label


@entry("GatherV2", sizes=[])
def _gather(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    table, indices = labels[0], labels[1]
    axes = walk.sizes.axes(op.inputs[2], rank(op.inputs[0]))
    if axes is None:
        raise Unproven("gathers along an axis that is only known at run time")
    axis, shared = axes[0], op.get_attr("batch_dims")
    shared += rank(op.inputs[1]) if shared < 0 else 0
    if isinstance(table, Rows) and isinstance(indices, Rows):
        if table.axis < shared and indices.axis < shared:
            return elementwise.joined([table, indices], [table.axis, indices.axis])
        raise Unproven("looks up rows of the batch that data chooses")
    if isinstance(table, Rows) and table.axis < shared:
        elementwise.meets(walk, op.inputs[1], indices, table.axis)
        return table
    if isinstance(indices, Public) and indices.counted:
        raise Unproven("looks up as many entries as there are examples")
    if isinstance(table, Rows):
        if table.axis == axis:
            raise Unproven("takes some of the examples")
        return elementwise.shifted(table, rank(op.inputs[1]) - shared - 1 if table.axis > axis else 0)
    if indices.axis < shared:
        elementwise.meets(walk, op.inputs[0], table, indices.axis)
        return indices
    return elementwise.shifted(indices, axis - shared)


@entry("UnsortedSegmentSum")
def _put_back(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    """Adds up, along the first axes, what was taken from the same place: the examples must lie behind these."""
    label, front = only_first(labels), rank(op.inputs[1])
    if label.axis < front:
        raise Unproven("adds up rows of the batch")
    return elementwise.shifted(label, 1 - front)


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
