"""Entries for ops that call functions: calls, branches, loops. `lists` has those for what loops work on.

A call is walked through with the labels of its arguments. Branches must agree, on a condition that is public. A loop
must leave every label as it found it, under a condition that is public. Everything else is not followed, but walked
through all the same, to see what it writes.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.proof import elementwise, memory
from adaclip_tf.gradients.proof.labels import EVERYWHERE, SECRET, Lost, Public, Rows, Sizes, Unproven
from adaclip_tf.gradients.proof.symbols import Count
from adaclip_tf.gradients.proof.table import CALLS, Listed, describe
from adaclip_tf.gradients.proof.walk import Walk

_ROUNDS = 8  # after which a loop whose labels still change counts as not followed


def _inside(
    walk: Walk,
    body: tf.Graph,
    arguments: list[tf.Tensor],
    labels: list[Any],
    constant: set[int] | None = None,
    told: bool = False,
) -> Walk:
    """The walk through a function that gets `arguments`; with `constant`, only those keep their value."""
    inner = Walk(body, dict(zip((tensor.ref() for tensor in body.inputs), labels)), walk, told)
    for index, (tensor, argument) in enumerate(zip(body.inputs, arguments)):
        if tensor.dtype == tf.resource:
            inner.handles[tensor.ref()] = memory.root(walk, argument)
        keeps_value = constant is None or index in constant
        symbols = walk.sizes.symbols(argument) if keeps_value and argument.dtype.is_integer else None
        if symbols is not None:
            inner.symbols[tensor.ref()] = symbols
        if keeps_value and isinstance(labels[index], Public) and labels[index].counted:
            inner.sizes.hand_on(tensor, walk.sizes.extents(argument))
    if len(body.inputs) != len(arguments):
        raise Unproven("calls a function in a way that is not followed")
    inner.advance()
    return inner


def _outputs(inner: Walk) -> list[Any]:
    return [inner.label(tensor) for tensor in inner.graph.outputs]


def _call(walk: Walk, op: tf.Operation, labels: list[Any]) -> Any:
    if _recurses(walk, op.get_attr("f").name):
        return Lost(f"{describe(op)} calls itself")
    try:
        (body,) = graph.bodies(op)
        walk.entered[op] = _inside(walk, body, list(op.inputs), labels)
        results = _outputs(walk.entered[op])
        if len(results) > len(op.outputs) and graph.returns(op, body.outputs[: len(op.outputs)]):
            results = results[: len(op.outputs)]
    except (Unproven, AttributeError, ValueError) as error:
        return _unfollowed(op, labels, str(error))
    if len(results) != len(op.outputs):
        return _unfollowed(op, labels, "its results are not followed")
    for tensor, result in zip(op.outputs, body.outputs):  # axes above all, which a function hands to its gradient
        symbols = walk.entered[op].sizes.symbols(result) if tensor.dtype.is_integer else None
        if symbols is not None:
            walk.symbols[tensor.ref()] = symbols
    return results


def _recurses(walk: Walk | None, name: str) -> bool:
    while walk is not None:
        if getattr(walk.graph, "name", None) == name:
            return True
        walk = walk.outer
    return False


def _unfollowed(op: tf.Operation, labels: list[Any], reason: str) -> Any:
    known = next((label for label in labels if isinstance(label, Lost) and label.mixing), None)
    if known is not None:
        return known
    if not memory.tells(labels) and not graph.is_stateful(op):
        return [EVERYWHERE if tensor.shape.rank == 0 else Public() for tensor in op.outputs]
    return Lost(f"{describe(op)} is not known to keep examples apart ({reason})")


def _branches(walk: Walk, op: tf.Operation, labels: list[Any]) -> Any:
    condition, told = labels[0], memory.tells(labels[:1])
    try:
        arguments = list(op.inputs)[1:]
        results = [_outputs(_inside(walk, body, arguments, labels[1:], told=told)) for body in graph.bodies(op)]
    except (Unproven, AttributeError, ValueError) as error:
        return _unfollowed(op, labels, str(error))
    if not isinstance(condition, Public):
        return Lost(f"{describe(op)} branches on data")
    return [_agreed(op, pair) for pair in zip(*results)]


def _agreed(op: tf.Operation, pair: tuple[Any, ...]) -> Any:
    for label in pair:
        if isinstance(label, Lost):
            return label
    if all(isinstance(label, Public) for label in pair):
        return _either(pair)
    if all(label == pair[0] for label in pair):
        return pair[0]
    return Lost(f"{describe(op)} has branches whose results are laid out differently")


def _either(labels: tuple[Public, ...]) -> Public:
    """What is the one or the other is alike nowhere, and a fresh draw only where both are."""
    return Public(
        counted=any(label.counted for label in labels),
        drawn=all(label.drawn for label in labels),
        moved=_moved(labels),
    )


def _moved(labels: tuple[Public, ...]) -> frozenset[Any]:
    """Where the one or the other comes from; nobody knows it where that holds for both."""
    if not all(label.moved for label in labels):
        return frozenset()
    states = frozenset().union(*(label.moved for label in labels))
    return states if all(SECRET in label.moved for label in labels) else states - {SECRET}


def _loop(walk: Walk, op: tf.Operation, labels: list[Any]) -> Any:
    try:
        body, condition = graph.bodies(op)
        arguments, constant = list(op.inputs), _constant_arguments(body)
        current = list(labels)
        for _ in range(_ROUNDS):
            walk.entered[op] = _inside(walk, body, arguments, current, constant)
            results = _outputs(walk.entered[op])
            if len(results) != len(current):
                return _unfollowed(op, labels, "a loop")
            joined = [joined_label(op, before, after) for before, after in zip(current, results)]
            joined = [_sound(walk, op, *each, walk.entered[op]) for each in enumerate(zip(labels, results, joined))]
            if joined == current:
                break
            settled = all(isinstance(now, Listed) or now == before for now, before in zip(joined, current))
            # Of lists, what was put in while other labels were not yet settled is forgotten.
            current = joined if settled else [_afresh(*pair) for pair in zip(labels, joined)]
        else:
            _inside(walk, body, arguments, current, constant, told=memory.tells(labels))
            return _unfollowed(op, labels, "a loop whose values keep changing their layout")
        goes_on = _outputs(_inside(walk, condition, arguments, current, constant))[0]
        if memory.tells([goes_on]):  # then so does what a round writes, whatever it is
            _inside(walk, body, arguments, current, constant, told=True)
    except (Unproven, AttributeError, ValueError) as error:
        return _unfollowed(op, labels, str(error))
    if isinstance(goes_on, Public) or not memory.tells(labels):
        return current
    return Lost(f"{describe(op)} goes on for as long as data says")


def _sound(walk: Walk, op: tf.Operation, index: int, labels: tuple[Any, Any, Any], inner: Walk) -> Any:
    """The label of a state, unless it may be the public array that it starts as, or is set to, and that is too long.

    Of such an array only the axis that holds the examples later may be as long as there are examples. Where it is not
    known to be, as a single row of zeros is not, nobody may take its extent for their number.
    """
    first, result, joined = labels
    if not isinstance(joined, Rows):
        return joined
    try:
        if isinstance(first, Public):
            joined = as_public(joined, walk.sizes.extents(op.inputs[index]), first.counted)
        if isinstance(result, Public):
            joined = as_public(joined, inner.sizes.extents(inner.graph.outputs[index]), result.counted)
    except Unproven as unproven:
        return Lost(f"{describe(op)} {unproven.reason}")
    return joined


def as_public(label: Rows, extents: Any, counted: bool = False) -> Rows:
    """The label of what may be data, with this label, or something public with these extents."""
    if counted:
        elementwise.not_counted(extents, label.axis)
    is_long = extents is not None and label.rows is not None and extents[label.axis] == Count(label.rows)
    return label if is_long else dataclasses.replace(label, rows=None)


def _afresh(first: Any, now: Any) -> Any:
    return first if isinstance(first, Listed) and isinstance(now, Listed) else now


def _constant_arguments(body: tf.Graph) -> set[int]:
    """Which arguments of a loop no round changes."""
    constant = set()
    for index, (start, end) in enumerate(zip(body.inputs, body.outputs)):
        if graph.behind(end, ("Identity",)) is start:
            constant.add(index)
    return constant


def joined_label(op: tf.Operation, before: Any, after: Any) -> Any:
    """One label for a loop variable, before and after a round."""
    if before == after:
        return before
    if isinstance(before, Lost) or isinstance(after, Lost):
        return before if isinstance(before, Lost) else after
    if isinstance(before, Listed) and isinstance(after, Listed):
        holes = before.holes or after.holes
        long, sized = _either_axes(before.long, after.long), _either_axes(before.sized, after.sized)
        if before.element is None or after.element is None:
            known = after if before.element is None else before
            return dataclasses.replace(known, holes=holes, long=long, sized=sized)
        symbols = _common(before.symbols, after.symbols)
        element = joined_label(op, before.element, after.element)
        if isinstance(element, Rows):
            for each in (before, after):
                element = element if isinstance(each.element, Rows) else as_public(element, each.extents)
        extents = before.extents if before.extents == after.extents else None
        return Listed(element, symbols, holes, long, sized, extents)
    if isinstance(before, Public) and isinstance(after, Public):
        return _either((before, after))
    if isinstance(before, Public) and isinstance(after, Rows) and before.is_uniform(after.axis):
        return after  # a state that starts as zeros
    if isinstance(after, Public) and isinstance(before, Rows) and after.is_uniform(before.axis):
        return before  # one that is set to zeros
    if isinstance(before, Public) and isinstance(after, Sizes):
        return Sizes()
    if isinstance(before, Sizes) and isinstance(after, Sizes):
        return Sizes(None if before.places is None or after.places is None else before.places | after.places)
    if (
        isinstance(before, Rows)
        and isinstance(after, Rows)
        and (before.axis, before.outer) == (after.axis, after.outer)
    ):
        rows = before.rows if before.rows == after.rows else None
        return dataclasses.replace(before, rows=rows, checks=before.checks | after.checks)
    return Lost(f"{describe(op)} changes how a value depends on the examples")


def _either_axes(first: frozenset[int] | None, second: frozenset[int] | None) -> frozenset[int] | None:
    return None if first is None or second is None else first | second


def _common(first: tuple[Any, ...] | None, second: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    """Symbols that hold for both."""
    if first == second:
        return first
    if first is None or second is None or len(first) != len(second):
        return None
    return tuple(_one_of(a, b) for a, b in zip(first, second))


def _one_of(a: Any, b: Any) -> Any:
    if a == b:
        return a
    return Count(None) if isinstance(a, Count) or isinstance(b, Count) else None


_BY_BODIES = {"f": _call, "then_branch": _branches, "branches": _branches, "body": _loop}
CALLS.update({op_type: _BY_BODIES[attributes[0]] for op_type, attributes in graph.CALLS.items()})
