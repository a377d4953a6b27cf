"""The gradients of `tf.gather(x, places, batch_dims=1)` and `tf.math.top_k(x)`, which take entries of each example, as
products.

TensorFlow numbers the rows of the whole batch, adds up by number, and cuts the result apart again: no label follows
that. The same sum is one_hot(places)^T dy, example by example, which the proof and the ghost rules know.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from adaclip_tf.gradients import graph

WIDEST = 512  # rows: as one-hot codes of all places, wider ones would take too much memory


class Gathered(NamedTuple):
    """What a gradient of a gather was made of."""

    dy: tf.Tensor  # [batch, places, width], each of the last two or neither
    places: tf.Tensor  # [batch, places] or [batch]
    params: tf.Tensor  # [batch, entries, width] or [batch, entries]


def gathered(op: tf.Operation) -> Gathered | None:
    """What the gradient by the parameters of a gather was made of, where `op` is what cuts it apart; else None."""
    if op.type != "Reshape" or op.inputs[0].op.type != "UnsortedSegmentSum":
        return None
    values, numbers, _ = op.inputs[0].op.inputs
    numbers = graph.behind(numbers, ("Reshape",))
    dy = _same_order(values, "Reshape", "Transpose", "Reshape")
    if dy is None or numbers.op.type != "AddV2":
        return None
    places, starts = numbers.op.inputs
    for forward in places.consumers():
        if forward.type != "GatherV2" or forward.get_attr("batch_dims") != 1 or graph.constant(forward.inputs[2]) != 1:
            continue
        params = forward.inputs[0]
        fits = (
            places.shape.rank in (1, 2)
            and params.shape.rank in (2, 3)
            and op.outputs[0].shape.rank == params.shape.rank
        )
        if fits and dy.shape.rank == forward.outputs[0].shape.rank and _are_starts(starts, params):
            return Gathered(dy, places, params)
    return None


def sorted_out(op: tf.Operation) -> Gathered | None:
    """The same of `top_k`, and so of a sort: `places` are those of the largest entries in rows of `params`."""
    if op.type != "Reshape" or op.inputs[0].op.type != "ScatterNd":
        return None
    numbers, dy, _ = op.inputs[0].op.inputs
    numbers = graph.behind(numbers, ("Reshape", "ExpandDims"))
    if numbers.op.type != "AddV2" or dy.op.type != "Reshape":
        return None
    places, starts = (graph.behind(tensor, ("Reshape", "Cast", "ExpandDims")) for tensor in numbers.op.inputs)
    dy, params = dy.op.inputs[0], places.op.inputs[0] if places.op.type in ("TopKV2", "TopK") else None
    if params is None or starts.op.type != "Range" or dy.shape.rank != places.shape.rank:
        return None
    width, shape = params.shape[-1] if params.shape.rank else None, op.inputs[1].op
    counts = graph.constant(starts.op.inputs[0]) == 0 and _is_last_extent(starts.op.inputs[2], params)
    is_own = (shape.type == "Shape" and shape.inputs[0] is params) or graph.constant(op.inputs[1]) is not None
    if params.shape.rank < 2 or not width or width > WIDEST or not counts or not is_own:
        return None
    return Gathered(dy, places, params)


def _is_last_extent(tensor: tf.Tensor, params: tf.Tensor) -> bool:
    """Whether it is how many entries a row has."""
    value = graph.constant(graph.behind(tensor, ("Cast",)))
    if value is not None:
        return int(value) == params.shape[-1]
    op = tensor.op
    if op.type != "GatherV2":
        return False
    shape, place = graph.behind(op.inputs[0], ("Cast",)), graph.constant(op.inputs[1])
    return place == params.shape.rank - 1 and shape.op.type == "Shape" and shape.op.inputs[0] is params


def gradient_of_sorted(found: Gathered) -> tf.Tensor:
    """The gradient by the rows."""
    dy, places, params = found
    chosen = tf.one_hot(places, params.shape[-1], dtype=dy.dtype)
    return tf.squeeze(tf.matmul(tf.expand_dims(dy, -2), chosen), -2)


def gradient(found: Gathered) -> tf.Tensor:
    """The gradient by the parameters. A place that is none adds nothing to anybody's."""
    dy, places, params = found
    chosen = tf.one_hot(places, params.shape[1] or tf.shape(params)[1], dtype=dy.dtype)
    if places.shape.rank == 1:
        chosen, dy = tf.expand_dims(chosen, 1), tf.expand_dims(dy, 1)
    if params.shape.rank == 2:
        return tf.squeeze(tf.matmul(chosen, tf.expand_dims(dy, -1), transpose_a=True), -1)
    return tf.matmul(chosen, dy, transpose_a=True)


def _same_order(tensor: tf.Tensor, *types: str) -> tf.Tensor | None:
    """What `tensor` was before ops of these types, the last one first; None if it was not, or one moves entries."""
    for op_type in types:
        op = tensor.op
        if op.type != op_type:
            return None
        if op_type == "Transpose":
            permutation = graph.constant(op.inputs[1])
            if permutation is None or list(permutation) != list(range(len(permutation))):
                return None
        tensor = op.inputs[0]
    return tensor


def _are_starts(tensor: tf.Tensor, params: tf.Tensor) -> bool:
    """Whether it is [0, G, 2 G, ...], where G is how many entries each example has."""
    product = graph.behind(tensor, ("Reshape",)).op
    if product.type != "Mul" or product.inputs[0].op.type != "Range":
        return False
    start, stop, step = product.inputs[0].op.inputs
    each = product.inputs[1].op
    if (graph.constant(start), graph.constant(step)) != (0, 1) or each.type != "Mul":
        return False
    return graph.constant(each.inputs[0]) == 1 and _is_extent(stop, params, 0) and _is_extent(each.inputs[1], params, 1)


def _is_extent(tensor: tf.Tensor, params: tf.Tensor, axis: int) -> bool:
    """Whether it is `tf.shape(params)[axis]`."""
    op = tensor.op
    begin = graph.constant(op.inputs[1]) if op.type == "StridedSlice" else None
    if begin is None or list(begin) != [axis] or op.get_attr("shrink_axis_mask") != 1:
        return False
    shape = graph.behind(op.inputs[0], ("Identity", "Cast"))
    if shape.op.type == "GatherV2":  # in an order that moves nothing
        order = graph.constant(shape.op.inputs[1])
        if order is None or list(order) != list(range(len(order))):
            return False
        shape = graph.behind(shape.op.inputs[0], ("Identity", "Cast"))
    return shape.op.type == "Shape" and shape.op.inputs[0] is params
