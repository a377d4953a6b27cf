"""The table's entries for loops and for the lists of tensors that they work on.

A loop's labels must be such that a round leaves them as they are, and its condition must not depend on the seed. What
starts a loop without depending on the seed, and depends on it after a round, must start as zeros: the loop as a whole
is then linear. Inside of a loop nothing is left to be checked in the run.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.ghost import flow
from adaclip_tf.gradients.ghost.flow import Labels, layered, rank
from adaclip_tf.gradients.ghost.labels import Context, Inner, Lead, Listed, Lost, Summed, Unknown

_ROUNDS = 4  # after which a loop whose labels still change is given up


class _Inside(Context):
    """What is known inside of a function: the same n, and no checks."""

    def __init__(self, outer: Context):
        self.n, self.static_n, self.microbatch_size = outer.n, outer.static_n, outer.microbatch_size
        self.labels, self.zeros, self.checks = {}, set(), []

    def check(self, tensor: tf.Tensor, axis: int, op: tf.Operation, equals: tf.Tensor | None = None) -> int:
        del tensor, axis, equals
        raise Unknown("needs a fact that is only known at run time, inside of a loop")


def _through(ctx: Context, function: tf.Graph, labels: Labels, zeros: set[int]) -> Context:
    """The labels of a function's tensors, given its arguments' and which of them are 0."""
    inside = _Inside(ctx)
    for index, (tensor, label) in enumerate(zip(function.inputs, labels)):
        if label is not None:
            inside.labels[tensor.ref()] = label
        elif index in zeros:
            inside.zeros.add(tensor.ref())
    flow.propagate_through(inside, function)
    return inside


@layered("While", "StatelessWhile")
def _loop(ctx: Context, op: tf.Operation, labels: Labels) -> Any:
    try:
        body, condition = graph.bodies(op)
    except (AttributeError, ValueError) as error:
        raise Unknown("is a loop that can't be looked into") from error
    current = list(labels)
    zeros = {i for i, tensor in enumerate(op.inputs) if labels[i] is None and ctx.is_zero(tensor)}
    for _ in range(_ROUNDS):
        inside = _through(ctx, body, current, zeros)
        results = [inside.label(tensor) for tensor in body.outputs]
        joined = [_joined(i in zeros, *pair) for i, pair in enumerate(zip(current, results))]
        still = {i for i in zeros if joined[i] is None and inside.is_zero(body.outputs[i])}
        if joined == current and still == zeros:
            break
        current, zeros = joined, still
    else:
        raise Unknown("is a loop whose values keep changing their layout")
    if _through(ctx, condition, current, set()).label(condition.outputs[0]) is not None:
        raise Unknown("goes on for as long as the gradient says")
    return current


def _joined(starts_as_zero: bool, before: Any, after: Any) -> Any:
    """One label for a loop's variable, before and after a round."""
    if before == after:
        return before
    if isinstance(before, Lost) or isinstance(after, Lost):
        return before if isinstance(before, Lost) else after
    if before is None and starts_as_zero and not isinstance(after, Summed):
        return after
    return _of_both(before, after) or Lost("a loop changes how a value depends on the examples")


def _of_both(first: Any, second: Any) -> Any:
    """What holds for a value that has either of two labels, or for their sum; None where they are laid out otherwise.

    What only one of them knows, as how many rows there are, is forgotten, and both rest on the checks of either.
    """
    if isinstance(first, Listed) and isinstance(second, Listed):
        element = _of_both(first.element, second.element)
        return None if element is None else Listed(element)
    if type(first) is not type(second) or not isinstance(first, (Lead, Inner)):
        return first if first == second else None
    if first.axis != second.axis or getattr(first, "outer", 1) != getattr(second, "outer", 1):
        return None
    checks = first.checks | second.checks
    rows = first.rows if first.rows == second.rows else None
    if isinstance(first, Inner):
        return Inner(first.axis, rows, checks)
    elements = first.elements if first.elements == second.elements else None
    return Lead(first.axis, rows, elements, first.outer, checks)


def _with_element(ctx: Context, op: tf.Operation, so_far: Any, tensor: tf.Tensor, label: Any) -> Listed:
    """The label of a list into which `tensor` is put."""
    if isinstance(so_far, Listed):
        if label is None and ctx.is_zero(tensor):
            return so_far
        element = _of_both(label, so_far.element)
        if element is not None:
            return Listed(element)
        raise Unknown("puts gradients of different layouts into a list")
    if not isinstance(label, Lead) or not ctx.is_zero(op.inputs[0]):
        raise Unknown("puts a gradient into a list of other things")
    return Listed(label)


@layered("TensorListSetItem")
def _set_item(ctx: Context, op: tf.Operation, labels: Labels) -> Listed:
    if labels[1] is not None:
        raise Unknown("is not linear")
    return _with_element(ctx, op, labels[0], op.inputs[2], labels[2])


@layered("TensorListPushBack")
def _push_back(ctx: Context, op: tf.Operation, labels: Labels) -> Listed:
    return _with_element(ctx, op, labels[0], op.inputs[1], labels[1])


@layered("TensorListGetItem")
def _get_item(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    del ctx, op
    return _list(labels).element


def _list(labels: Labels) -> Listed:
    if not isinstance(labels[0], Listed) or any(label is not None for label in labels[1:]):
        raise Unknown("is not linear")
    return labels[0]


@layered("TensorListPopBack")
def _pop_back(ctx: Context, op: tf.Operation, labels: Labels) -> list[Any]:
    del ctx, op
    return [_list(labels), _list(labels).element]


@layered("TensorListStack")
def _stack(ctx: Context, op: tf.Operation, labels: Labels) -> Inner:
    del ctx
    element = _list(labels).element
    if element.axis != 0 or element.outer != 1:
        raise Unknown("stacks gradients whose examples are not along axis 0")
    rank(op.outputs[0])
    return Inner(1, element.rows, element.checks)


@layered("TensorListFromTensor")
def _from_tensor(ctx: Context, op: tf.Operation, labels: Labels) -> Listed:
    del ctx
    if not isinstance(labels[0], Inner) or labels[0].axis != 1:
        raise Unknown("makes a list with an element for each example")
    inner = labels[0]
    dims = op.inputs[0].shape.as_list()[2:]
    size = graph.size(dims)
    elements = None if inner.rows is None or size is None else inner.rows * size
    return Listed(Lead(0, inner.rows, elements, 1, inner.checks))


# ---------------------------------------------------------------------------------------------------
# Ops on tensors that hold the examples along another axis than the first, and on lists.


@layered("Identity", "StopGradient", "PreventGradient")
def _unchanged(ctx: Context, op: tf.Operation, labels: Labels) -> Any:
    del ctx, op
    return labels[0]


@layered("AddN")
def _add(ctx: Context, op: tf.Operation, labels: Labels) -> Any:
    """AddN does not broadcast."""
    found = [label for label in labels if label is not None]
    for tensor, label in zip(op.inputs, labels):
        if label is None and not ctx.is_zero(tensor):
            raise Unknown(f"adds {tensor.op.name!r}, which is not part of the gradient of the loss")
    total = found[0]
    for label in found[1:]:
        total = _of_both(total, label)
        if total is None:
            raise Unknown("combines gradients with different layouts")
    return total


@layered("Transpose")
def _transpose(ctx: Context, op: tf.Operation, labels: Labels) -> Any:
    del ctx
    label = labels[0]
    permutation = graph.axes(op.inputs[1], rank(op.inputs[0]))
    if permutation is None or not isinstance(label, Inner):
        raise Unknown("moves axes in a way that is only known at run time")
    return _along(label, permutation.index(label.axis))


def _along(label: Inner, axis: int) -> Inner | Lead:
    """The label where the examples are now along `axis`."""
    return dataclasses.replace(label, axis=axis) if axis else Lead(0, label.rows, None, 1, label.checks)


@layered("Unpack")
def _unpack(ctx: Context, op: tf.Operation, labels: Labels) -> Any:
    """[time, examples, ...] taken apart along time."""
    del ctx
    label, along = labels[0], op.get_attr("axis") % rank(op.inputs[0])
    if not isinstance(label, Inner) or along == label.axis:
        raise Unknown("works along the axis that holds the examples")
    return _along(label, label.axis - (along < label.axis))


@layered("ReverseV2")
def _reverse(ctx: Context, op: tf.Operation, labels: Labels) -> Any:
    del ctx
    along = graph.axes(op.inputs[1], rank(op.inputs[0]))
    if along is None or not isinstance(labels[0], Inner) or labels[0].axis in along:
        raise Unknown("works along the axis that holds the examples")
    return labels[0]


@layered("UnsortedSegmentSum")
def _put_back(ctx: Context, op: tf.Operation, labels: Labels) -> Any:
    """[entries, ..., examples, ...] added up by where each was taken from: the gradient of a gather of features."""
    del ctx
    label, front = labels[0], rank(op.inputs[1])
    if not isinstance(label, Inner) or any(own is not None for own in labels[1:]) or label.axis < front or not front:
        raise Unknown("adds up the rows of several examples")
    return _along(label, label.axis - front + 1)
