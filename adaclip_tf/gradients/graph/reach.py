"""What is computed from what, and which functions are called on the way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

from adaclip_tf.gradients.graph.ops import CALLS, has_functions


def ancestors(operation: tf.Operation) -> set[tf.Operation]:
    """`operation` and all that its value is computed from."""
    found, pending = set(), [operation]
    while pending:
        op = pending.pop()
        if op not in found:
            found.add(op)
            pending.extend(tensor.op for tensor in op.inputs)
    return found


def in_order(target: tf.Operation, known: Callable[[Any], bool]) -> list[tf.Operation]:
    """The ops that must run for `target`, each behind what it needs. An op or tensor that is `known` is left out."""
    ordered: list[tf.Operation] = []
    seen: set[tf.Operation] = set()
    pending = [(target, False)]
    while pending:
        op, is_ready = pending.pop()
        if is_ready:
            ordered.append(op)
        elif op not in seen and not known(op):
            seen.add(op)
            pending.append((op, True))
            pending.extend((tensor.op, False) for tensor in op.inputs if not known(tensor))
            pending.extend((other, False) for other in op.control_inputs)
    return ordered


def behind(tensor: tf.Tensor, types: Collection[str]) -> tf.Tensor:
    """What `tensor` was before ops of these types handed it on."""
    while tensor.op.type in types:
        tensor = tensor.op.inputs[0]
    return tensor


def is_used(tensor: tf.Tensor, by: Collection[tf.Operation]) -> bool:
    return any(op in by for op in tensor.consumers())


def bodies(op: tf.Operation) -> list[tf.Graph]:
    """The functions that `op` calls, in the order of `CALLS`; ValueError or AttributeError where there is no such."""
    found: list[tf.Graph] = []
    for attribute in CALLS[op.type]:
        value = op.get_attr(attribute)
        found += [body_of(op.graph._get_function(f.name)) for f in (value if isinstance(value, list) else [value])]
    return found


def body_of(function: Any) -> tf.Graph:
    """Its graph; those of TensorFlow 1, as in `tf.nn.ctc_loss`, have their definition only."""
    return function.graph if hasattr(function, "graph") else function_def_to_graph(function.definition)


def returns(op: tf.Operation, results: Sequence[tf.Tensor]) -> bool:
    """Whether these, of its graph, are what the function returns that `op` calls.

    A graph has more results once it was differentiated: all that the gradient needs. The definition has what it had.
    """
    definition = op.graph._get_function(op.get_attr("f").name).definition
    said = [definition.ret[argument.name].split(":")[0] for argument in definition.signature.output_arg]
    return said == [tensor.op.name for tensor in results] and all(len(tensor.op.outputs) == 1 for tensor in results)


def called(op: tf.Operation) -> list[tf.Graph]:
    """The functions that `op` has something to do with: that it calls, or that a dataset of it will, in one order."""
    names: list[str] = []
    if not has_functions(op):
        return []
    for _, value in sorted(op.node_def.attr.items()):
        names += [value.func.name] if value.HasField("func") else [function.name for function in value.list.func]
    return [body_of(op.graph._get_function(name)) for name in names if op.graph._is_function(name)]


def inside(op: tf.Operation) -> Iterator[tf.Operation]:
    """All ops of the functions that `op` calls, and that these call; those of datasets too."""
    for body in called(op):
        for inner in body.get_operations():
            yield inner
            yield from inside(inner)
