"""Integers that a graph computes from shapes, as far as they are known before the run.

They are told as `symbols`. Shapes in a Keras model mostly are such: [N, 7, None], or the product of the first two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.proof.labels import Public, Rows
from adaclip_tf.gradients.proof.symbols import BINARY, Count, add, all_fitting, multiply, product


class Evaluator:
    """Evaluates integer tensors of a graph; `label` and `input_symbols` tell what is known of other tensors."""

    def __init__(self, label: Callable[[tf.Tensor], Any], preset: Callable[[tf.Tensor], np.ndarray | None]):
        self._label, self._preset = label, preset
        self._known: dict[Any, np.ndarray | None] = {}
        self._requested: dict[Any, list[Any]] = {}

    def extents(self, tensor: tf.Tensor) -> Any:
        """The tensor's shape as a list of symbols, or None if not even its rank is known."""
        if tensor.shape.rank is None:
            return None
        dims: list[Any] = tensor.shape.as_list()
        label = self._label(tensor)
        if isinstance(label, Rows):
            if dims[label.axis] is None:
                dims[label.axis] = Count(None if label.rows is None else label.rows * label.outer)
        elif not isinstance(label, Public):  # a vector of counts, say, that is as long as there are examples
            dims = [Count(None) if extent is None else extent for extent in dims]
        elif label.counted:
            key = tensor.ref()
            if key not in self._requested:
                self._requested[key] = self._requested_shape(tensor) or [Count(None)] * len(dims)
            dims = [r if d is None else d for d, r in zip(dims, self._requested[key])]
        return dims

    def hand_on(self, tensor: tf.Tensor, extents: Any) -> None:
        """Tells what is known of a public array that a function is given."""
        if extents is not None and len(extents) == tensor.shape.rank:
            self._requested[tensor.ref()] = list(extents)

    def _requested_shape(self, tensor: tf.Tensor) -> list[Any] | None:
        """What fill, broadcast and random ops were asked for, also behind ops that go entry by entry."""
        if tensor.op.type in graph.ENTRYWISE:
            return self._broadcast(tensor.op)
        if tensor.op.type == "Tile":
            before, multiples = self.extents(tensor.op.inputs[0]), self.symbols(tensor.op.inputs[1])
            if before is None or multiples is None or len(before) != multiples.size:
                return None
            return [multiply(*pair) for pair in zip(before, multiples.ravel())]
        if tensor.op.type in ("GatherV2", "ResourceGather"):
            return self._looked_up(tensor.op)
        position = {"BroadcastTo": 1, "Fill": 0}.get(tensor.op.type, 0 if "Random" in tensor.op.type else None)
        symbols = None if position is None else self.symbols(tensor.op.inputs[position])
        return None if symbols is None or symbols.size != tensor.shape.rank else list(symbols.ravel())

    def _looked_up(self, op: tf.Operation) -> list[Any] | None:
        """The shape of what is gathered along the first axis."""
        indices = None if op.get_attr("batch_dims") else self.extents(op.inputs[1])
        if indices is None or op.outputs[0].shape.rank is None:
            return None
        if op.type == "GatherV2" and self.integers(op.inputs[2]) != [0]:
            return None
        rest = op.outputs[0].shape.as_list()[len(indices) :]
        return None if None in rest else [*indices, *rest]

    def _broadcast(self, op: tf.Operation) -> list[Any] | None:
        shapes = [self.extents(operand) for operand in op.inputs]
        if not shapes or any(shape is None for shape in shapes):
            return None
        result: list[Any] = [1] * max(map(len, shapes))
        for shape in shapes:
            for place, extent in enumerate(shape, len(result) - len(shape)):
                known = result[place]
                if isinstance(known, Count) and isinstance(extent, Count) and known != extent:
                    result[place] = Count(None)
                elif extent != 1 and not isinstance(known, Count):
                    result[place] = extent
        return result

    def symbols(self, tensor: tf.Tensor) -> np.ndarray | None:
        """The entries of an integer tensor as an object array of symbols, or None."""
        key = tensor.ref()
        if key not in self._known:
            found = self._evaluate(tensor)
            if found is not None:
                found = all_fitting(found, tensor.dtype)
            # What does not have the tensor's own shape was evaluated as another op than it is.
            fits = found is not None and tensor.shape.is_compatible_with(found.shape)
            self._known[key] = found if fits else None
        return self._known[key]

    def integers(self, tensor: tf.Tensor) -> list[int] | None:
        """The entries where all of them are plain integers."""
        symbols = self.symbols(tensor)
        if symbols is None or not all(isinstance(symbol, int) for symbol in symbols.ravel()):
            return None
        return [int(symbol) for symbol in symbols.ravel()]

    def axes(self, tensor: tf.Tensor, rank: int) -> list[int] | None:
        """The same for axes of a tensor of this rank, counted from the front."""
        found = self.integers(tensor)
        return None if found is None else [axis % rank for axis in found]

    def _evaluate(self, tensor: tf.Tensor) -> np.ndarray | None:
        preset = self._preset(tensor)
        if preset is not None:
            return preset
        op = tensor.op
        if op.type == "Const":
            return _constant(tensor)
        if op.type in ("Shape", "ShapeN"):
            dims = self.extents(op.inputs[tensor.value_index])
            return None if dims is None else _array(dims)
        if op.type == "Size":
            dims = self.extents(op.inputs[0])
            return None if dims is None else _array(product(dims))
        if op.type == "Rank":
            known = op.inputs[0].shape.rank
            return None if known is None else _array(known)
        if op.type == "ConcatOffset":
            return self._concat_offset(op, tensor.value_index)
        if op.type in graph.UNCHANGED:
            return self.symbols(op.inputs[0])
        if op.type == "SplitV":
            return self._part(op, tensor.value_index)
        if op.type in BINARY:
            fixed = (
                self._pinned(op) if op.type == "Minimum" and tensor.dtype.is_integer else None
            )  # no number, no bound
            return self._binary(op) if fixed is None else fixed
        return self._rearranged(op)

    def _pinned(self, op: tf.Operation) -> np.ndarray | None:
        """min(c, max(d, anything)) is c where d is not less: how many classes a one-hot code has, whatever the data."""
        for ceiling, other in (op.inputs, list(op.inputs)[::-1]):
            most = self.integers(ceiling)
            if other.op.type == "Maximum" and most is not None and op.outputs[0].shape.rank == ceiling.shape.rank == 0:
                least = [
                    floor for floor in map(self.integers, other.op.inputs) if floor is not None and len(floor) == 1
                ]
                if any(floor[0] >= most[0] for floor in least):
                    return _array(most[0])
        return None

    def _binary(self, op: tf.Operation) -> np.ndarray | None:
        first, second = (self.symbols(operand) for operand in op.inputs)
        if first is None or second is None:
            return None
        try:
            first, second = np.broadcast_arrays(first, second)
        except ValueError:
            return None
        pairs = zip(first.ravel(), second.ravel())
        return _array([BINARY[op.type](a, b) for a, b in pairs]).reshape(np.shape(first))

    def _concat_offset(self, op: tf.Operation, index: int) -> np.ndarray | None:
        """Where each part of a concatenation starts: 0 along all axes but one."""
        axis, *shapes = (self.symbols(operand) for operand in op.inputs)
        known = [shape for shape in shapes if shape is not None]
        if axis is None or len(known) != len(shapes):
            return None
        result = _array([0] * len(known[index]))
        for shape in known[:index]:
            result[axis[()]] = add(result[axis[()]], shape[axis[()]])
        return result

    def _part(self, op: tf.Operation, index: int) -> np.ndarray | None:
        """One of the parts that a vector falls into."""
        vector, lengths = self.symbols(op.inputs[0]), self.integers(op.inputs[1])
        if vector is None or vector.ndim != 1 or lengths is None or min(lengths) < 0:
            return None
        return vector[sum(lengths[:index]) : sum(lengths[: index + 1])]

    def _rearranged(self, op: tf.Operation) -> np.ndarray | None:
        """Ops that pick, join or multiply up entries."""
        if op.type not in _REARRANGE:
            return None
        parts = [part for part in map(self.symbols, op.inputs) if part is not None]
        if len(parts) != len(op.inputs):
            return None
        try:
            result = _REARRANGE[op.type](op, parts)
            return result if isinstance(result, np.ndarray) else _array(result)
        except (IndexError, KeyError, TypeError, ValueError):
            return None


def _plain(*symbols: Any) -> None:
    """Raises unless these are whole numbers: a place that is not known could be any, and Python takes None for all."""
    if not all(isinstance(symbol, int) for symbol in symbols):
        raise ValueError("a place that only the run tells")


def _places(*symbols: Any) -> None:
    """The same of places that count from the front: XLA takes others for the first."""
    _plain(*symbols)
    if any(symbol < 0 for symbol in symbols):
        raise ValueError("no place")


def _constant(tensor: tf.Tensor) -> np.ndarray | None:
    if not tensor.dtype.is_integer or (tensor.shape.num_elements() or 0) > 1024:
        return None
    value = tf.get_static_value(tensor)
    return None if value is None else _array(np.asarray(value).tolist()).reshape(np.shape(value))


def _array(symbols: Any) -> np.ndarray:
    if not isinstance(symbols, list):
        result = np.empty([], object)
        result[()] = symbols
        return result
    shape = np.shape(np.array(symbols, object)) if symbols and isinstance(symbols[0], list) else (len(symbols),)
    result = np.empty(shape, object)
    for index in np.ndindex(*shape):
        entry: Any = symbols
        for position in index:
            entry = entry[position]
        result[index] = entry
    return result


def _strided_slice(op: tf.Operation, parts: list[np.ndarray]) -> np.ndarray:
    vector, begin, end, strides = parts
    masks = {name: op.get_attr(f"{name}_mask") for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    if len(begin) != 1 or masks["ellipsis"] or masks["new_axis"]:
        raise ValueError("not a plain slice of a vector")
    _plain(*([] if masks["begin"] and not masks["shrink_axis"] else begin), *([] if masks["end"] else end), *strides)
    if masks["shrink_axis"]:
        return vector[begin[0]] if vector.ndim > 1 else _array(vector[begin[0]])
    return vector[None if masks["begin"] else begin[0] : None if masks["end"] else end[0] : strides[0]]


def _gather(op: tf.Operation, parts: list[np.ndarray]) -> np.ndarray:
    if parts[0].ndim != 1 or op.get_attr("batch_dims"):
        raise ValueError("not of a vector")
    _places(*parts[1].ravel())
    picked = parts[0][np.array(parts[1].tolist(), int)]
    return picked if isinstance(picked, np.ndarray) else _array(picked)


def _slice(op: tf.Operation, parts: list[np.ndarray]) -> np.ndarray:
    del op
    starts, extents = parts[1].ravel(), parts[2].ravel()
    _places(*starts)
    _plain(*extents)
    return parts[0][tuple(slice(s, None if extent == -1 else s + extent) for s, extent in zip(starts, extents))]


def _prod(op: tf.Operation, parts: list[np.ndarray]) -> np.ndarray:
    if parts[0].ndim != 1:
        raise ValueError("not a vector")
    result = _array(product(list(parts[0])))
    return result.reshape([1]) if op.get_attr("keep_dims") else result


def _stitch(op: tf.Operation, parts: list[np.ndarray]) -> np.ndarray:
    """How gradients of reductions write a 1 into a shape."""
    del op
    half = len(parts) // 2
    result: dict[int, Any] = {}
    for indices, values in zip(parts[:half], parts[half:]):
        _plain(*indices.ravel())
        result.update(zip(indices.ravel(), values.ravel()))
    return _array([result[position] for position in range(len(result))])  # without gaps, or KeyError


_REARRANGE: dict[str, Callable[[tf.Operation, list[np.ndarray]], np.ndarray]] = {
    "StridedSlice": _strided_slice,
    "GatherV2": _gather,
    "Pack": lambda op, parts: np.stack(parts, axis=op.get_attr("axis")),
    "ConcatV2": lambda op, parts: np.concatenate([np.atleast_1d(part) for part in parts[:-1]], int(parts[-1][()])),
    "Slice": _slice,
    "Squeeze": lambda op, parts: np.squeeze(parts[0], tuple(op.get_attr("squeeze_dims")) or None),
    "ExpandDims": lambda op, parts: np.expand_dims(parts[0], int(parts[1][()])),
    "Reshape": lambda op, parts: parts[0].reshape([int(extent) for extent in parts[1]]),
    "Transpose": lambda op, parts: np.transpose(parts[0], [int(axis) for axis in parts[1]]),
    "InvertPermutation": lambda op, parts: _array(np.argsort(np.array(parts[0].tolist(), int)).tolist()),
    "Fill": lambda op, parts: np.full([int(extent) for extent in parts[0]], parts[1][()], object),
    "Prod": _prod,
    "DynamicStitch": _stitch,
    "Range": lambda op, parts: _array(list(range(*(int(part[()]) for part in parts)))),
}
