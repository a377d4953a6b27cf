"""What is known before the run: constants, permutations, partly known shapes, zeros, axes of reductions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf.gradients.graph.ops import SAME_ORDER, UNCHANGED

_ARITHMETIC: dict[str, Callable[..., np.ndarray]] = {
    "Add": np.add,
    "AddV2": np.add,
    "ConcatV2": lambda *parts: np.concatenate(parts[:-1], int(parts[-1])),
    "FloorMod": np.mod,
    "InvertPermutation": np.argsort,
    "Mul": np.multiply,
    "Pack": lambda *parts: np.array(parts),
    "Range": np.arange,
    "Sub": np.subtract,
}


def constant(tensor: tf.Tensor) -> np.ndarray | None:
    """The value of an integer `tensor` if the graph fixes it, else None."""
    op = tensor.op
    if op.type == "StridedSlice":
        return _one_entry(op)
    if op.type not in _ARITHMETIC or not tensor.dtype.is_integer or (op.type == "Pack" and tensor.shape.rank != 1):
        return tf.get_static_value(tensor)
    operands = [constant(operand) for operand in op.inputs]
    return None if any(operand is None for operand in operands) else _ARITHMETIC[op.type](*operands)


def _one_entry(op: tf.Operation) -> np.ndarray | None:
    """vector[i] of a constant vector."""
    vector, begin = tf.get_static_value(op.inputs[0]), tf.get_static_value(op.inputs[1])
    if vector is None or begin is None or len(begin) != 1 or op.get_attr("shrink_axis_mask") != 1:
        return tf.get_static_value(op.outputs[0])
    return np.asarray(vector)[int(begin[0])]


def axes(tensor: tf.Tensor, rank: int) -> list[int] | None:
    """The constant axes in `tensor`, counted from the front, or None if they are not constant."""
    value = constant(tensor)
    return None if value is None else [int(axis) % rank for axis in np.ravel(value)]


def shape_of_shape(tensor: tf.Tensor) -> list[int | None] | None:
    """The dimensions that a shape vector holds, as far as they are known (None: unknown)."""
    value = constant(tensor)
    if value is not None:
        return [None if dimension < 0 else int(dimension) for dimension in np.ravel(value)]
    op = tensor.op
    if op.type in ("Shape", "ShapeN"):
        return dimensions(op.inputs[tensor.value_index])
    if op.type in UNCHANGED:
        return shape_of_shape(op.inputs[0])
    if op.type == "StridedSlice":
        return _sliced_shape(op)
    if op.type == "Pack" and tensor.shape.rank == 1:
        return [_number(part) for part in op.inputs]
    if op.type == "Reshape" and tensor.shape.rank == 1:
        return _interleaved(op.inputs[0].op)
    if op.type == "DynamicStitch":  # how gradients of reductions compute a shape with 1s in it
        count = len(op.inputs) // 2
        return _stitched([constant(i) for i in op.inputs[:count]], [shape_of_shape(d) for d in op.inputs[count:]])
    return None


def _number(tensor: tf.Tensor) -> int | None:
    """The value of a scalar that was only cast or reshaped, if it is known."""
    while tensor.op.type in SAME_ORDER and tensor.op.inputs[0].shape.num_elements() == 1:
        tensor = tensor.op.inputs[0]
    value = constant(tensor)
    return None if value is None else int(np.ravel(value)[0])


def _interleaved(op: tf.Operation) -> list[int | None] | None:
    """[a0, b0, a1, b1, ...] of shapes a and b: how the gradient of Tile takes its axes apart."""
    if op.type != "Transpose" or op.inputs[0].op.type != "Pack" or op.inputs[0].shape.rank != 2:
        return None
    permutation, packed = constant(op.inputs[1]), op.inputs[0].op
    parts = [shape_of_shape(part) for part in packed.inputs]
    if permutation is None or list(permutation) != [1, 0] or packed.get_attr("axis") != 0 or None in parts:
        return None
    return [extent for extents in zip(*parts) for extent in extents]  # type: ignore[arg-type]


def _sliced_shape(op: tf.Operation) -> list[int | None] | None:
    """shape[begin:end] of a partly known shape vector: the batch dimensions in gradients of batched products."""
    shape = shape_of_shape(op.inputs[0])
    ends = [tf.get_static_value(tensor) for tensor in op.inputs[1:]]
    others = ("shrink_axis_mask", "new_axis_mask", "ellipsis_mask")
    if shape is None or any(end is None or len(end) != 1 for end in ends) or any(map(op.get_attr, others)):
        return None
    begin, end, stride = (int(value[0]) for value in ends)
    return shape[None if op.get_attr("begin_mask") else begin : None if op.get_attr("end_mask") else end : stride]


def _stitched(indices: Sequence[Any], parts: Sequence[list[int | None] | None]) -> list[int | None] | None:
    if any(index is None for index in indices) or any(part is None for part in parts):
        return None
    result: dict[int, int | None] = {}
    for index, part in zip(indices, parts):
        result.update(zip((int(i) for i in np.ravel(index)), part or []))
    return [result[position] for position in sorted(result)]


def dimensions(tensor: tf.Tensor) -> list[int | None] | None:
    """The static shape as a list, or None if not even the rank is known."""
    return None if tensor.shape.rank is None else tensor.shape.as_list()


def size(dims: Sequence[int | None]) -> int | None:
    """The product of the dimensions, or None if one of them is unknown."""
    known = [dimension for dimension in dims if dimension is not None]
    return math.prod(known) if len(known) == len(dims) else None


def is_zero(tensor: tf.Tensor) -> bool:
    """Whether every entry is certainly 0."""
    op = tensor.op
    if op.type == "ZerosLike":
        return True
    if op.type == "Fill":
        return is_zero(op.inputs[1])
    if op.type in SAME_ORDER or op.type in ("BroadcastTo", "Tile"):
        return is_zero(op.inputs[0])
    value = tf.get_static_value(tensor) if op.type == "Const" else None
    return value is not None and not np.any(value)


def reduced_axes(
    op: tf.Operation,
    known_axes: Callable[[tf.Tensor, int], Sequence[int] | None],
    shape: Callable[[tf.Tensor], Any],
    is_open: Callable[[Any], bool] = lambda extent: extent is None,
) -> tuple[set[int], set[int]]:
    """The axes over which a reduction certainly reduces, and those over which it may.

    The axes that gradients of broadcasting ops reduce are computed in the run, from the shapes of both operands. An
    operand's static 1 means "certainly" (reducing an axis of extent 1 changes nothing), another extent that is
    known "certainly not".

    Args:
      op: the reduction, of a tensor of known rank.
      known_axes: (tensor, rank) -> the axes that it holds, from the front, or None.
      shape: from a vector to the extents in it, or None.
      is_open: whether an extent may turn out to be 1.
    """
    total, indices = op.inputs[0].shape.rank, op.inputs[1]
    static = known_axes(indices, total)
    if static is not None:
        return set(static), set()
    if indices.op.type != "BroadcastGradientArgs":
        return set(), set(range(total))
    shapes = [shape(tensor) for tensor in indices.op.inputs]
    own, other = shapes[indices.value_index], shapes[1 - indices.value_index]
    if own is None or other is None:
        return set(), set(range(total))
    offset = max(len(own), len(other)) - len(own)
    certain = set(range(offset)) | {axis + offset for axis, extent in enumerate(own) if extent == 1}
    return certain, {axis + offset for axis, extent in enumerate(own) if is_open(extent)}


def with_ones(tensor: tf.Tensor) -> tf.Tensor:
    """What a Sum over axes of extent 1 was given, which its result is a reshape of; for others the tensor itself.

    In the gradient of `matmul(x [batch, time, features], kernel [features, units])` by x, the axes in which x was
    broadcast are summed over. The kernel has no axes of its own there, so these are axes of extent 1, if any.
    """
    op = tensor.op
    if op.type != "Sum" or op.inputs[1].op.type != "BroadcastGradientArgs":
        return tensor
    other = op.inputs[1].op.inputs[1 - op.inputs[1].value_index]
    return op.inputs[0] if other.shape == [0] else tensor


def batch_operands(op: tf.Operation) -> tuple[tf.Tensor, tf.Tensor] | None:
    """(own, other) of a batched product, where `op` sums own's gradient over the axes along which it was broadcast.

    TensorFlow writes such a sum behind every product of two operands whose axes but the last two are not all known,
    and reshapes it to own's shape. None where the op is no such sum, or the operands differ in rank.
    """
    indices = op.inputs[1] if op.type == "Sum" else None
    if indices is None or indices.op.type != "BroadcastGradientArgs" or op.get_attr("keep_dims"):
        return None
    measured = [_measured_but_the_last_two(tensor) for tensor in indices.op.inputs]
    own, other = measured[indices.value_index], measured[1 - indices.value_index]
    if own is None or other is None or own.shape.rank is None or own.shape.rank != other.shape.rank:
        return None
    return own, other


def given_own_shape(op: tf.Operation) -> tf.Tensor | None:
    """own, where a Reshape gives a sum of `batch_operands` the shape of own again; None for any other op."""
    operands = batch_operands(op.inputs[0].op) if op.type == "Reshape" else None
    if operands is None:
        return None
    shape = op.inputs[1].op
    return operands[0] if shape.type == "Shape" and shape.inputs[0] is operands[0] else None


def reshaped_from(op: tf.Operation) -> tf.Tensor:
    """A tensor with the entries that a Reshape or its like gets, in the same order; of known rank where there is one.

    Where these are a sum in a broadcast operand's gradient, the op's own input may have lost its rank.
    """
    own = given_own_shape(op)
    return with_ones(op.inputs[0]) if own is None else own


def _measured_but_the_last_two(extents: tf.Tensor) -> tf.Tensor | None:
    """x, where the extents are `tf.shape(x)[:-2]`."""
    op = extents.op
    if op.type != "StridedSlice" or op.inputs[0].op.type != "Shape":
        return None
    masks = [op.get_attr(f"{name}_mask") for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")]
    end, strides = constant(op.inputs[2]), constant(op.inputs[3])
    if masks != [1, 0, 0, 0, 0] or end is None or strides is None or list(end) != [-2] or list(strides) != [1]:
        return None
    return op.inputs[0].op.inputs[0]


def einsum_letters(op: tf.Operation) -> tuple[list[str], str]:
    """The operands' letters and the result's, for equations where every axis has its own letter; else ValueError."""
    equation = op.get_attr("equation").decode().replace(" ", "")
    if "." in equation or "->" not in equation:
        raise ValueError("has an equation with '...'")
    left, output = equation.split("->")
    inputs = left.split(",")
    if any(len(set(letters)) != len(letters) for letters in [*inputs, output]) or not all(inputs):
        raise ValueError("has an equation with repeated letters")
    return inputs, output


def describe(op: tf.Operation) -> str:
    """How messages name an op."""
    return f"{op.type} op {op.name!r}"
