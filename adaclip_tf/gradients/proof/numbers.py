"""Single numbers that a function, or a round of a loop, is given: the step in it takes them for public.

A rate, a step number, how much noise: a number in an argument of its own is no example's, so nothing in the graph of a
step tells that it was computed from a batch. Who calls that graph can tell. What must be public is what the step needs:
for its loss, or for anything that it writes. A sum of losses that is only handed on and returned need not be.
"""

from __future__ import annotations

import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.proof import memory
from adaclip_tf.gradients.proof.walk import Walk


def check(walked: Walk, needed: set[tf.Operation], outer: Walk, op: tf.Operation) -> set[tf.Operation]:
    """What of the graph of `op`, which calls the walked graph, is needed for what is `needed` in there.

    Args:
      walked: over the graph that is called, which is complete.
      needed: ops of it.
      outer: over the graph of `op`.

    Raises:
      ValueError: if `op` hands it numbers that are needed and tell something of data.
    """
    inner = walked.graph
    if op.type not in graph.CALLS or len(op.inputs) != len(inner.inputs):
        return graph.ancestors(op)
    is_loop = "body" in graph.CALLS[op.type] and len(inner.outputs) == len(inner.inputs)
    rounds = Walk(inner) if is_loop else None  # anew: it has grown since the step was made
    if rounds is not None:
        rounds.advance()
    places = {tensor.op: place for place, tensor in enumerate(inner.inputs)}
    pending = {places[source] for source in needed if source in places}
    seen: set[int] = set()
    while pending:
        place = pending.pop()
        seen.add(place)
        if not _is_number(walked, inner.inputs[place]):
            continue
        given = op.inputs[place]
        if memory.tells([outer.label(given)]):
            raise ValueError(_message(op, given, "gets"))
        if rounds is not None:
            result = inner.outputs[place]
            if memory.tells([rounds.label(result)]):
                raise ValueError(_message(op, result, "hands on from round to round"))
            pending |= {places[source] for source in graph.ancestors(result.op) if source in places} - seen
    return set().union(*(graph.ancestors(op.inputs[place].op) for place in seen))


def behind_writes(walk: Walk) -> set[tf.Operation]:
    """What is needed for all that the walked graph writes, Keras metrics aside."""
    return set().union(*(graph.ancestors(op) for op in walk.graph.get_operations() if _writes(walk, op)))


def _is_number(walk: Walk, tensor: tf.Tensor) -> bool:
    is_captured = tensor.ref() in walk.captured
    return tensor.shape.rank == 0 and tensor.dtype not in (tf.resource, tf.variant) and not is_captured


def _writes(walk: Walk, op: tf.Operation) -> bool:
    if op.type in graph.CALLS:
        return any(map(graph.may_write, graph.inside(op)))
    handles = [tensor for tensor in op.inputs if tensor.dtype == tf.resource]
    return bool(handles) and graph.may_write(op) and not walk.memory.is_metric(memory.root(walk, handles[0]))


def _message(op: tf.Operation, tensor: tf.Tensor, how: str) -> str:
    return (
        f"{op.name!r} ({op.type}), in which a step is taken, {how} the number {tensor.name!r}, which was computed from "
        "a batch or from how many examples it has, and the step needs it: so one example changes the gradients of "
        "others. What a step is told besides its batch must be public. Compute it for each example inside of the "
        "step, or make it a constant or a variable."
    )
