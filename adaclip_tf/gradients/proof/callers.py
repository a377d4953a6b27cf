"""Who calls the function that holds a step: what it passes on, and what decides whether, and how often, it runs.

A step may be traced inside of other graphs: a function that another function calls, a branch, the body of a loop. What
the step's own graph calls data is data only if nothing was done to it further out, and a step that runs if, or as often
as, the data says tells about it. The graphs further out are not complete while the step is traced. So they are
watched: when the op is made that calls the step's graph, it is looked at.

| the step's graph is  | must hold                                                                                     |
|----------------------|-----------------------------------------------------------------------------------------------|
| a function           | data is passed on with a row for each example, each of that example alone; single numbers     |
|                      | that the step needs are public, as it takes them to be (`numbers`)                            |
| a branch             | no data decides on it                                                                         |
| the body of a loop   | no data decides how often it runs; single numbers that rounds hand on are public where a step |
|                      | needs them; each round gets its batch itself: several steps on one draw would count as draws  |
|                      | of their own                                                                                  |
| a dataset's function | the dataset is made of no data that is in the step                                            |

Keras's own functions around a `train_step` are taken as they are. Not seen: a function that was traced before, called
by itself, and is then called by another with the same types of arguments: nothing is traced anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops.control_flow_v2_func_graphs import WhileBodyFuncGraph

from adaclip_tf._internal import keras
from adaclip_tf.gradients import graph
from adaclip_tf.gradients.proof import memory, numbers
from adaclip_tf.gradients.proof.labels import Public, Rows
from adaclip_tf.gradients.proof.walk import Walk

_ENTERS = ("Placeholder", "RaggedTensorFromVariant", "DeserializeSparse")


def watch(walked: Walk, data: Sequence[tf.Tensor], needed: Callable[[], set[tf.Operation]]) -> None:
    """Looks at the op that calls the walked graph, as soon as it is made.

    Args:
      walked: over the graph that is called.
      data: the tensors by which data enters it.
      needed: tells its ops that a step hangs on, once it is complete.

    Raises:
      ValueError: if it can be told already that it must not be, from here and from where that op is made.
    """
    inner = walked.graph
    outer = getattr(inner, "outer_graph", None)
    if not isinstance(outer, FuncGraph) or keras.is_step_function(inner):
        return
    entered = _entering(inner, data)
    if entered and isinstance(inner, WhileBodyFuncGraph):
        raise ValueError(
            f"The step is in a loop, and gets {entered[0].name!r} from outside of it: it would take several steps on "
            "one batch, and the accounting counts each as a separate draw. Draw a batch in each round, as by "
            "`next(iterator)`, or loop outside of the `tf.function`."
        )
    handed = _handed(inner, entered)

    def look(op: tf.Operation) -> None:
        walk = Walk(outer)
        walk.advance()
        passed = handed.passed(op)
        _look_at(walk, op, passed)
        needed_there = numbers.check(walked, needed(), walk, op)
        data_there = [*(source for tensor in passed for source in _sources(tensor)), *handed.captured]
        watch(walk, data_there, lambda: needed_there)

    _when_called(outer, inner, look)


def follow(inner: tf.Graph, data: Sequence[tf.Tensor], told: Callable[[tf.Operation, list[tf.Tensor]], None]) -> None:
    """Tells where data comes from further out: `told(op, tensors)` for each op that calls `inner`, once it is made.

    Keras's own functions around a `train_step` get a batch of their own in each call, and are where it ends.

    Args:
      inner: the graph of a step.
      data: the tensors by which data enters it.
      told: gets the op, and the tensors around it that are handed on as data.
    """
    outer = getattr(inner, "outer_graph", None)
    if not isinstance(outer, FuncGraph) or keras.is_step_function(inner):
        return
    handed = _handed(inner, _entering(inner, data))

    def tell(op: tf.Operation) -> None:
        tensors = [*handed.passed(op), *handed.captured]
        if tensors:
            told(op, tensors)
            follow(outer, [source for tensor in tensors for source in _sources(tensor)], told)

    _when_called(outer, inner, tell)


def _entering(inner: tf.Graph, data: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """What `data` is in what `inner` is given: itself, or what ragged and sparse data come out of."""
    found = [source for tensor in data if tensor.graph is inner for source in _sources(tensor)]
    return [tensor for tensor in found if tensor.dtype != tf.resource]


class _Handed(NamedTuple):
    """What comes into a function as data: arguments, by number, and what it has captured, further out."""

    places: list[int]
    captured: list[tf.Tensor]

    def passed(self, op: tf.Operation) -> list[tf.Tensor]:
        """The arguments that `op`, which calls the function, hands on as data."""
        return [op.inputs[index] for index in self.places] if op.type in _FUNCTIONS else []


def _handed(inner: Any, entered: Sequence[tf.Tensor]) -> _Handed:
    captured = {internal.ref(): external for external, internal in inner.captures}
    places = {tensor.ref(): place for place, tensor in enumerate(inner.inputs)}
    outside = [captured[tensor.ref()] for tensor in entered if tensor.ref() in captured]
    return _Handed(
        [places[tensor.ref()] for tensor in entered if tensor.ref() not in captured],
        [tensor for tensor in outside if getattr(tensor, "graph", None) is inner.outer_graph],
    )


_FUNCTIONS = tuple(name for name, attributes in graph.CALLS.items() if attributes == ("f",))
_BRANCHES = tuple(name for name, attributes in graph.CALLS.items() if "branch" in attributes[0])


def _when_called(outer: Any, inner: tf.Graph, look: Callable[[tf.Operation], None]) -> None:
    create = outer._create_op_internal

    def create_and_look(*arguments: Any, **options: Any) -> tf.Operation:
        op = create(*arguments, **options)
        if any(function is inner for function in graph.called(op)):
            look(op)
        return op

    outer._create_op_internal = create_and_look


def _sources(tensor: tf.Tensor) -> list[tf.Tensor]:
    return [op.outputs[0] for op in graph.ancestors(tensor.op) if op.type == "Placeholder"]


def _look_at(walk: Walk, op: tf.Operation, passed: Sequence[tf.Tensor]) -> None:
    labels = [walk.label(tensor) for tensor in op.inputs]
    if op.type in _FUNCTIONS:
        for tensor in passed:
            label = walk.label(tensor)
            whole = isinstance(label, Rows) and (label.axis, label.rows, label.outer) == (0, 1, 1) and not label.checks
            untouched = graph.behind(tensor, ("Identity",)).op.type in _ENTERS
            if not (whole or untouched or isinstance(label, Public)):
                raise ValueError(
                    f"The function {op.name!r}, in which a step is taken, gets {tensor.name!r}, and it is not known "
                    f"that each of its rows is one example's alone{_because(label)}. Pass the examples on as they are, "
                    "and compute inside what the loss needs."
                )
    elif op.type in _BRANCHES:
        if memory.tells(labels[:1]):
            raise ValueError(f"The step is in the branch {op.name!r} ({op.type}), on which data decides. {_PUBLIC}")
    elif op.type in graph.CALLS:
        if _data_decides(walk, op):
            raise ValueError(f"The step is in the loop {op.name!r}, and data decides how often it runs. {_PUBLIC}")
    elif memory.tells(labels):
        raise ValueError(
            f"The step is in a function of {op.name!r} ({op.type}), which gets what was computed from data. Give the "
            "step batches of a dataset that is made outside of it."
        )


def _because(label: Any) -> str:
    return f": {label.reason}" if hasattr(label, "reason") else ""


_PUBLIC = "Whether a step is taken must depend on public things only: constants, a number of steps."


_HARMLESS = graph.HARMLESS | {"ReadVariableOp"}


def _data_decides(walk: Walk, op: tf.Operation) -> bool:
    """Whether the condition of a loop may depend on data: on what was passed to it, or on what a round computes."""
    body, condition = graph.bodies(op)
    pending = _needed(condition.outputs[0], condition)
    seen: set[int] = set()
    while pending is not None and pending:
        index = pending.pop()
        if index not in seen:
            seen.add(index)
            more = _needed(body.outputs[index], body)
            pending = None if more is None else pending | more
    return pending is None or memory.tells([walk.label(op.inputs[index]) for index in seen])


def _needed(tensor: tf.Tensor, function: Any) -> set[int] | None:
    """The numbers of the arguments that a result needs; None if it needs something else than constants besides."""
    numbers = {argument.op: number for number, argument in enumerate(function.inputs)}
    found: set[int] = set()
    for op in graph.ancestors(tensor.op):
        if op in numbers:
            found.add(numbers[op])
        elif op.type in graph.CALLS or (graph.is_stateful(op) and op.type not in _HARMLESS):
            return None
    return found
