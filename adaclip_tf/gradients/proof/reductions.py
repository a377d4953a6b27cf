"""Entries for reductions along axes, which the run may compute from shapes: in gradients of what was broadcast."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.proof import elementwise
from adaclip_tf.gradients.proof.contractions import summed
from adaclip_tf.gradients.proof.labels import Label, Sizes, Unproven, rank
from adaclip_tf.gradients.proof.shapes import only_first, single_block
from adaclip_tf.gradients.proof.symbols import Count
from adaclip_tf.gradients.proof.table import Labels, describe, entry
from adaclip_tf.gradients.proof.walk import Walk


def reduced_axes(walk: Walk | None, op: tf.Operation) -> list[int] | None:
    """The axes over which a sum reduces, where no run is needed to tell; an axis of extent 1 may be left out."""
    if walk is None or op.inputs[0].shape.rank is None:
        return None
    certain, possible = _reduced_axes(walk, op)
    return None if possible else sorted(certain)


def changes_nothing(walk: Walk | None, op: tf.Operation) -> bool:
    """Whether a reshape certainly gives its input, or what a sum over no axes left alone, the shape that it has."""
    if walk is None or op.type != "Reshape":
        return False
    source = op.inputs[0]
    while source.op.type == "Sum" and reduced_axes(walk, source.op) == []:
        source = source.op.inputs[0]
    before, after = walk.sizes.extents(source), walk.sizes.symbols(op.inputs[1])
    if before is None or after is None or after.ndim != 1:
        return False
    known = all(isinstance(extent, int) or (isinstance(extent, Count) and extent.multiple) for extent in before)
    return known and before == list(after)


def _reduced_axes(walk: Walk, op: tf.Operation) -> tuple[set[int], set[int]]:
    """The axes over which an op certainly reduces, and those over which it may."""
    rank(op.inputs[0])
    # As many rows as there are examples: reduced only where the other operand has more, which it can't.
    is_open = lambda extent: extent is None or extent == Count(None)  # noqa: E731
    return graph.reduced_axes(op, walk.sizes.axes, walk.sizes.symbols, is_open)


@entry("Sum", "Mean", "Max", "Min", "Prod", "All", "Any", "EuclideanNorm", sizes=[1])
def _reduce(walk: Walk, op: tf.Operation, labels: Labels) -> Label:
    label = single_block(only_first(labels))
    _not_told_by_count(walk, op, label.axis)
    if label.axis == 0 and _leaves_the_first(walk, op):
        return label  # what else it reduces lies behind
    certain, possible = _reduced_axes(walk, op)
    if label.axis in certain:
        return summed(op, label)
    keep_dims = op.get_attr("keep_dims")
    if possible and not keep_dims:
        raise Unproven("reduces over axes that are only known at run time")
    if label.axis in possible:
        check = walk.checks.add(
            op.outputs[0], label.axis, f"{describe(op)} reduces over the batch", equals=op.inputs[0]
        )
        label = dataclasses.replace(label, checks=label.checks | {check})
    dropped = 0 if keep_dims else sum(axis < label.axis for axis in certain)
    return elementwise.shifted(label, -dropped)


def _not_told_by_count(walk: Walk, op: tf.Operation, axis: int) -> None:
    """Raises if the number of examples may decide whether another axis than theirs is reduced.

    The axes that a gradient reduces are computed in the run, from two shapes; these may be any vectors.
    """
    if op.inputs[1].op.type != "BroadcastGradientArgs":
        return
    which, own = _told(walk, op)
    lengths = [tensor.shape.num_elements() for tensor in op.inputs[1].op.inputs]
    if own is None or None in lengths:
        told = isinstance(walk.label(op.inputs[1].op.inputs[which]), Sizes)
    else:
        places = enumerate(own, max(lengths) - len(own))
        told = any(isinstance(extent, Count) for place, extent in places if place != axis)
    if told:
        raise Unproven("reduces over axes that the number of examples tells")
    walk.settle(op.inputs[1])


def _told(walk: Walk, op: tf.Operation) -> tuple[int, Any]:
    """Of what the axes of a sum are computed from: the number of the own shape, and what is known of its entries."""
    which = op.inputs[1].value_index
    symbols = walk.sizes.symbols(op.inputs[1].op.inputs[which])
    return which, None if symbols is None else list(symbols.ravel())


def _leaves_the_first(walk: Walk, op: tf.Operation) -> bool:
    """Whether a sum in a broadcast operand's gradient is over axes of extent 1 alone, and not over the first."""
    if graph.with_ones(op.outputs[0]) is op.outputs[0]:
        return False
    _, own = _told(walk, op)
    if not own:
        return False
    if isinstance(own[0], Count):  # N - 7 is 1 for eight examples
        return bool(own[0].multiple)
    return isinstance(own[0], int) and own[0] > 1


@entry("ArgMax", "ArgMin")
def _argmax(walk: Walk, op: tf.Operation, labels: Labels) -> Label:
    label = only_first(labels)
    dims = walk.sizes.integers(op.inputs[1])
    if dims is None:
        raise Unproven("looks along an axis that is only known at run time")
    along = dims[0] % rank(op.inputs[0])
    if along == label.axis:
        return summed(op, label)
    return elementwise.shifted(label, -int(along < label.axis))
