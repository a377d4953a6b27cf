"""Static facts about graph tensors: constants, permutations, partly known shapes, zeros."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf


def constant(tensor: tf.Tensor) -> np.ndarray | None:
    """The value of `tensor` if the graph fixes it, else None."""
    if tensor.op.type == "InvertPermutation":
        permutation = constant(tensor.op.inputs[0])
        return None if permutation is None else np.argsort(permutation)
    return tf.get_static_value(tensor)


def axes(tensor: tf.Tensor, rank: int) -> list[int] | None:
    """The constant axes in `tensor`, counted from the front, or None if they are not constant."""
    value = constant(tensor)
    return None if value is None else [int(axis) % rank for axis in np.ravel(value)]


def shape_of_shape(tensor: tf.Tensor) -> list[int | None] | None:
    """The dimensions that a shape vector holds, as far as they are known."""
    value = constant(tensor)
    if value is not None:
        return [int(dimension) for dimension in value]
    if tensor.op.type in ("Shape", "ShapeN"):
        return dimensions(tensor.op.inputs[tensor.value_index])
    return None


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
    if op.type in ("Identity", "BroadcastTo", "Reshape", "Cast", "ExpandDims", "Tile"):
        return is_zero(op.inputs[0])
    value = tf.get_static_value(tensor) if op.type == "Const" else None
    return value is not None and not np.any(value)


def partial_shape(tensor: tf.Tensor, start: int = 0) -> list[int | tf.Tensor]:
    """The shape from axis `start` on: ints where static, scalar tensors elsewhere."""
    dynamic = None
    result: list[int | tf.Tensor] = []
    for axis, dimension in list(enumerate(tensor.shape.as_list()))[start:]:
        if dimension is None:
            dynamic = tf.shape(tensor) if dynamic is None else dynamic
            dimension = dynamic[axis]
        result.append(dimension)
    return result


def describe(op: tf.Operation) -> str:
    """How messages name an op."""
    return f"{op.type} op {op.name!r}"
