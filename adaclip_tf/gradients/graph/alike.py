"""Whether two parts of a graph compute the same function: what replicas must do, each with its own part of a batch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from adaclip_tf.gradients.graph.ops import DRAWS_FROM_A_KEY, DRAWS_OF_A_STATE, RANDOM
from adaclip_tf.gradients.graph.reach import ancestors, body_of, called

# Differ from trace to trace and say nothing of the values. Attributes that begin with "_" are TensorFlow's own notes.
_NOTES = {"config", "config_proto", "executor_type"}
_SEEDS = {"seed", "seed2"}


def fingerprint(outputs: Any, data: Sequence[tf.Tensor]) -> str:
    """A digest of how `outputs` are computed from `data`: equal for equal computations on the same variables.

    Random draws are alike whatever their seeds. A variable of a strategy is one on all replicas if it has the same
    value on them, which is looked at now: BatchNormalization leaves its own averages on each. Nothing in a step may
    change such a value by data. The state of a generator is another one on each, and only draws are made from it.
    Pieces of `data` are told apart by the order in which the graph got them.
    """
    digest = _Digest()
    order = {op: place for place, op in enumerate(data[0].graph.get_operations())} if data else {}
    for number, tensor in enumerate(sorted(data, key=lambda tensor: (order[tensor.op], tensor.value_index))):
        digest.known[tensor.ref()] = f"data {number}"
    for tensor in tf.nest.flatten(outputs, expand_composites=True):
        if tensor is not None:
            digest.see(tensor)
    return digest.hash.hexdigest()


class _Digest:
    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self.known: dict[Any, str] = {}  # tensors, by what stands for them
        self._captures: dict[tf.Graph, dict[Any, Any]] = {}

    def see(self, target: tf.Tensor) -> None:
        pending = [(target, False)]
        while pending:
            tensor, is_ready = pending.pop()
            if tensor.ref() in self.known:
                continue
            outside = self._outside(tensor)
            is_around = outside is not None and not hasattr(outside, "numpy")  # of a graph around this one
            inputs = [outside] if is_around else _inputs(tensor.op)
            if is_ready:
                self._add(tensor, inputs, outside)
            else:
                pending.append((tensor, True))
                pending.extend((one, False) for one in reversed(inputs))
        self.hash.update(f"output {self.known[target.ref()]};".encode())

    def _add(self, tensor: tf.Tensor, inputs: Sequence[tf.Tensor], outside: Any) -> None:
        if outside is not None:
            name = self.known[inputs[0].ref()] if inputs else self._captured(outside, _only_draws(tensor))
            self.known[tensor.ref()] = name
            return
        op, number = tensor.op, len(self.known)
        is_call = op.graph._is_function(op.type)  # as TensorFlow 1 calls functions, in `tf.nn.ctc_loss`
        said = ["call" if is_call else op.type, *_attributes(op), *(self.known[one.ref()] for one in inputs)]
        self.hash.update((f"{number}: " + "|".join(said)).encode() + b";")
        for body in [body_of(op.graph._get_function(op.type))] if is_call else called(op):
            self.hash.update(fingerprint(body.outputs, body.inputs).encode())
        for index, output in enumerate(op.outputs):
            self.known[output.ref()] = f"{number}:{index}"

    def _outside(self, tensor: tf.Tensor) -> Any:
        """The tensor that `tensor` stands for in a function, where it is captured; None where it is not."""
        graph = tensor.graph
        if graph not in self._captures:
            self._captures[graph] = {inside.ref(): outside for outside, inside in getattr(graph, "captures", ())}
        return self._captures[graph].get(tensor.ref())

    def _captured(self, value: Any, only_draws: bool) -> str:
        """What stands for an eager tensor: a variable's handle, or a value."""
        if value.dtype not in (tf.resource, tf.variant):
            return "value " + hashlib.sha256(value.numpy().tobytes()).hexdigest()
        container = getattr(value, "_distributed_container", lambda: None)()  # noted by TensorFlow on each handle
        if container is None:
            return f"resource {id(value)}"
        if only_draws:
            return f"generator {id(container)}"
        with tf.init_scope():
            mine = next(one for one in container.values if one.handle is value)
            return f"variable {id(container)} {hashlib.sha256(mine.numpy().tobytes()).hexdigest()}"


def _inputs(op: tf.Operation) -> list[tf.Tensor]:
    """What decides on the distribution of the op's value: of a draw, not the key that a generator's state gives it."""
    inputs = list(op.inputs)
    if op.type not in DRAWS_FROM_A_KEY:
        return inputs
    made_of = {one.type for key in inputs[1:3] for one in ancestors(key.op)}
    return inputs if made_of.isdisjoint(DRAWS_OF_A_STATE) else [inputs[0], *inputs[3:]]


def _only_draws(handle: tf.Tensor) -> bool:
    """Whether nothing but random draws are made of the variable that `handle` is of."""
    for op in handle.consumers():
        if op.type in DRAWS_OF_A_STATE:
            continue
        inside = []
        for body in called(op):  # an If has its condition before the arguments
            places = [at - len(op.inputs) + len(body.inputs) for at, one in enumerate(op.inputs) if one is handle]
            inside += [body.inputs[place] for place in places if place >= 0]
        if not inside or not all(map(_only_draws, inside)):
            return False
    return True


def _attributes(op: tf.Operation) -> list[str]:
    left_out = _NOTES | (_SEEDS if op.type in RANDOM else set())
    return [
        f"{name}={op.node_def.attr[name].SerializeToString(deterministic=True)!r}"
        for name in sorted(op.node_def.attr)
        if not name.startswith("_") and name not in left_out and not _is_function(op.node_def.attr[name])
    ]


def _is_function(attribute: Any) -> bool:
    return attribute.HasField("func") or bool(attribute.list.func)
