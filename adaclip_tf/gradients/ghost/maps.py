"""Variables that are made into something else before they are used: a kernel times a mask, exp(s), softmax(v), A B.

Their gradient is what is used's, G_k, through a linear map M by numbers that do not depend on the data: M G_k for every
example, where sum_k M G_k = M sum_k G_k. The gradients of this one variable are formed, for one slice of microbatches
at a time. M may cancel what G_k has; the sum of the absolute values of what it adds up is then told, too, for whoever
must reckon with rounding.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.ghost.labels import Context, Summed, Unknown
from adaclip_tf.gradients.ghost.several import Mapped
from adaclip_tf.gradients.ghost.terms import Term

# From arrays [s, *shape] of what is mapped to [s, *shape of the result].
Map = Callable[[list[tf.Tensor]], tf.Tensor]
_FACTORS = frozenset({"Mul", "RealDiv", "DivNoNan", "MulNoNan"})


def takes(ctx: Context, op: tf.Operation) -> bool:
    """Whether `op` is a linear map of gradients that are summed already, by what does not come from the loss."""
    labels = [ctx.label(tensor) for tensor in op.inputs]
    summed = [i for i, label in enumerate(labels) if label is not None]
    places = graph.LINEAR_MAPS.get(op.type, ())
    if not summed or any(i not in places or not isinstance(labels[i], Summed) for i in summed):
        return False
    if op.type == "SelectV2" and not ctx.is_zero(op.inputs[3 - summed[0]]):
        return False
    return summed == [0, 1] if op.type == "Sub" else len(summed) == 1


def mapped(ctx: Context, op: tf.Operation, find: Callable[[tf.Tensor], Term]) -> Mapped:
    """The term of the op's result; `find` gives that of an input."""
    sources = [tensor for tensor in op.inputs if ctx.label(tensor) is not None]
    if not all(tensor.shape.is_fully_defined() for tensor in (op.outputs[0], *sources)):
        raise Unknown("has a shape that is only known at run time")
    if not all(tensor.dtype.is_floating for tensor in (op.outputs[0], *sources)):
        raise Unknown("works on numbers that are not real")
    parts = [(find(tensor), tensor.shape.as_list()) for tensor in sources]
    function, bound = _functions(op, [i for i, tensor in enumerate(op.inputs) if ctx.label(tensor) is not None])
    return Mapped(ctx.n, parts, function, op.outputs[0].shape.num_elements(), bound)


def _functions(op: tf.Operation, places: list[int]) -> tuple[Map, Map]:
    """What the op does to several gradients at once, and the same of absolute values all over."""
    total = op.outputs[0].shape.rank
    if op.type == "Sub":
        return lambda parts: _padded(parts[0], total) - _padded(parts[1], total), (
            lambda parts: _padded(parts[0], total) + _padded(parts[1], total)
        )
    if op.type == "SelectV2":
        chosen = _chosen(op, places[0], total)
        return chosen, chosen
    if op.type in ("Sum", "Tile", "BroadcastTo"):
        moved = _moved(op)
        return moved, moved
    if op.type == "MatMul":
        return _product(op, places[0], lambda other: other), _product(op, places[0], tf.abs)
    plain = _entry_by_entry(op, places[0], total, lambda other: other)
    size = _entry_by_entry(op, places[0], total, tf.abs if op.type in _FACTORS else lambda other: other)
    return plain, lambda parts: tf.abs(size(parts))


def _padded(part: tf.Tensor, total: int) -> tf.Tensor:
    """[s, *shape] with as many axes behind the first as the result has."""
    shape = part.shape.as_list()[1:]
    return tf.reshape(part, [-1] + [1] * (total - len(shape)) + shape)


def _chosen(op: tf.Operation, place: int, total: int) -> Map:
    def function(parts: list[tf.Tensor]) -> tf.Tensor:
        part = _padded(parts[0], total)
        part = tf.broadcast_to(part, tf.concat([tf.shape(part)[:1], op.outputs[0].shape], axis=0))
        used = op.inputs[0] if place == 1 else tf.logical_not(op.inputs[0])
        return tf.where(used, part, tf.zeros_like(part))

    return function


def _entry_by_entry(op: tf.Operation, place: int, total: int, change: Callable[[tf.Tensor], tf.Tensor]) -> Map:
    """With broadcasting, which the ops of activations' gradients do not do by themselves."""
    names = [argument.name for argument in op.op_def.input_arg]
    attributes = {"alpha": op.get_attr("alpha")} if "alpha" in op.node_def.attr else {}

    def function(parts: list[tf.Tensor]) -> tf.Tensor:
        part = _padded(parts[0], total)
        shape = tf.concat([tf.shape(part)[:1], op.outputs[0].shape], axis=0)
        part = tf.broadcast_to(part, shape)
        inputs = {
            name: part if i == place else tf.broadcast_to(change(tf.cast(tensor, tf.float32)), shape)
            for i, (name, tensor) in enumerate(zip(names, op.inputs))
        }
        return getattr(tf.raw_ops, op.type)(**inputs, **attributes)

    return function


def _moved(op: tf.Operation) -> Map:
    """Sums along axes, and copies."""
    total = op.outputs[0].shape.rank
    if op.type == "Sum":
        certain, possible = graph.reduced_axes(op, graph.axes, graph.shape_of_shape)
        if possible:
            raise Unknown("sums over axes that are only known at run time")
        axes = [axis + 1 for axis in sorted(certain)]
        return lambda parts: tf.reduce_sum(parts[0], axis=axes, keepdims=op.get_attr("keep_dims"))
    known = graph.constant(op.inputs[1])
    if known is None:
        raise Unknown("makes copies, and how many is only known at run time")
    numbers = [int(number) for number in known.ravel()]
    if op.type == "Tile":
        return lambda parts: tf.tile(parts[0], [1, *numbers])
    return lambda parts: tf.broadcast_to(_padded(parts[0], total), tf.concat([tf.shape(parts[0])[:1], numbers], axis=0))


def _product(op: tf.Operation, place: int, change: Callable[[tf.Tensor], tf.Tensor]) -> Map:
    flips = {name: op.get_attr(name) for name in ("transpose_a", "transpose_b")}

    def function(parts: list[tf.Tensor]) -> tf.Tensor:
        other = change(tf.cast(op.inputs[1 - place], tf.float32))
        return tf.matmul(parts[0], other, **flips) if place == 0 else tf.matmul(other, parts[0], **flips)

    return function
