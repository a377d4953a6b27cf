"""Entries for ops that give all entries another shape: they must leave each example's together, and in their place."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.proof import elementwise
from adaclip_tf.gradients.proof.labels import Rows, Sizes, Unproven, rank
from adaclip_tf.gradients.proof.symbols import Count, known_product, same
from adaclip_tf.gradients.proof.table import Labels, describe, entry
from adaclip_tf.gradients.proof.walk import Walk


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
    before = walk.sizes.extents(_reshaped(walk, op, label))
    after, rest = _new_shape(walk, op)
    walk.settle(op.inputs[1])  # no entry is lost or won, so the axes are looked at below, one and all
    if label.outer != 1:
        return _same_rows(label, before, after)
    front, unknown = known_product(before[: label.axis])
    if unknown:
        return _same_front(label, before, after)
    axis = _axis_after(after, front)
    elementwise.not_counted(after, axis)
    if isinstance(before[label.axis], Count):
        _grows(after, axis, rest)
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


def _reshaped(walk: Walk, op: tf.Operation, label: Rows) -> tf.Tensor:
    """What the op gets, or a tensor of known rank with the same entries, of the same examples."""
    source = graph.reshaped_from(op)
    other = walk.label(source)
    same = isinstance(other, Rows) and (other.axis, other.rows, other.outer) == (label.axis, label.rows, label.outer)
    # Only of the first axis does a label say where it lies in what such a sum was given.
    return source if same and label.axis == 0 else op.inputs[0]


def _new_shape(walk: Walk, op: tf.Operation) -> tuple[list[Any], int | None]:
    """The extents, and the axis that gets what is left for it, the -1 (None: there is none, or nobody knows which)."""
    static: list[Any] = op.outputs[0].shape.as_list() if rank(op.outputs[0]) else []
    if not static:
        raise Unproven("flattens the examples into a scalar", mixing=True)
    symbols = walk.sizes.symbols(op.inputs[1])
    if symbols is None or len(symbols) != len(static):
        return static, static.index(None) if static.count(None) == 1 else None
    shape = [s if s is not None or r == -1 else r for s, r in zip(static, symbols)]
    return shape, next((axis for axis, symbol in enumerate(symbols) if symbol == -1 and static[axis] is None), None)


def _grows(after: list[Any], axis: int, rest: int | None) -> None:
    """Raises unless it is `axis` whose extent grows with the number of examples, and no other."""
    extent = after[axis]
    if axis != rest and not isinstance(extent, Count):
        raise Unproven("has a shape in which another axis than that of the examples grows with their number")
    if rest not in (None, axis) and extent.multiple is None:  # N times N, say, and the rest the less
        raise Unproven("leaves to an axis what may depend on the number of examples")


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
    elementwise.not_counted(after, label.axis)
    if before[: label.axis] == front and None not in front and same(before[label.axis], after[label.axis]):
        return label
    raise Unproven("has a shape that is only known at run time")


@entry("ExpandDims", sizes=[1])
def _expand_dims(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    label = only_first(labels)
    dims = walk.sizes.integers(op.inputs[1])
    if dims is None:
        raise Unproven("adds an axis that is only known at run time")
    return elementwise.shifted(label, int(dims[0] % rank(op.outputs[0]) <= label.axis))


@entry("Squeeze")
def _squeeze(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    label = only_first(labels)
    total = rank(op.inputs[0])
    dims = {axis % total for axis in op.get_attr("squeeze_dims")}
    if not dims:
        if not op.inputs[0].shape.is_fully_defined():
            raise Unproven("drops axes that are only known at run time")
        dims = {axis for axis, extent in enumerate(op.inputs[0].shape) if extent == 1}
    if label.axis in dims:
        raise Unproven("drops the axis that holds the examples")
    return elementwise.shifted(label, -sum(axis < label.axis for axis in dims))


@entry("Transpose")
def _transpose(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    label = only_first(labels)
    permutation = walk.sizes.integers(op.inputs[1])
    if permutation is None:
        raise Unproven("moves axes in a way that is only known at run time")
    return dataclasses.replace(label, axis=permutation.index(label.axis))


@entry("BroadcastTo", sizes=[1])
def _broadcast_to(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    label = elementwise.shifted(only_first(labels), rank(op.outputs[0]) - rank(op.inputs[0]))
    fixed_sizes(walk, op.inputs[1], labels[1], label.axis)
    return label


def fixed_sizes(walk: Walk, sizes: tf.Tensor, label: Any, axis: int) -> None:
    """Raises if a vector of sizes lets another axis than `axis` depend on the number of examples."""
    if isinstance(label, Sizes):
        symbols = walk.sizes.symbols(sizes)
        elementwise.not_counted(None if symbols is None else list(symbols.ravel()), axis)
        walk.settle(sizes)


@entry("SpaceToBatchND", "BatchToSpaceND")
def _space_batch(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    """Output row b * N + r of SpaceToBatchND is phase b of row r."""
    label = only_first(labels)
    blocks = walk.sizes.integers(op.inputs[1])
    if blocks is None or label.axis != 0:
        raise Unproven("regroups rows in a way that is only known at run time")
    phases = 1
    for block in blocks:
        phases *= block
    before, after = (1, phases) if op.type == "SpaceToBatchND" else (phases, 1)
    if label.outer != before:
        raise Unproven("regroups rows in a way that is not followed")
    return dataclasses.replace(label, outer=after)
