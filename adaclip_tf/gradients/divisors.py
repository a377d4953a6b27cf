"""What a sum over a batch was divided by: whether it is a number of entries or of examples, so that a mean was meant.

| divisor                                              | the sum is                                           |
|------------------------------------------------------|------------------------------------------------------|
| the size of what was added up                        | its mean                                             |
| how long the first axis of it is                     | a mean of what the other axes add up to              |
| the number of examples, proven to be that many       | the same                                             |
| a constant that is the optimizer's expected batch    | that of a batch as large as expected; of others not: |
|                                                      | the private step divides by that number, too         |

Any of them may be some times as much. Nothing else over the batch is taken for a number of examples: not a count of
what a mask leaves, nor the length of an input that the sum does not depend on.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.proof.elements import hands_out_examples
from adaclip_tf.gradients.proof.labels import Rows
from adaclip_tf.gradients.proof.symbols import Count
from adaclip_tf.gradients.proof.walk import Walk

_WIDE = ("int32", "int64", "uint32", "uint64", "float16", "bfloat16", "float32", "float64")  # a byte wraps around


def undone(
    entries: tf.Tensor, divisor: tf.Tensor, walk: Callable[[], Walk], replicas: int, batch_size: int | None
) -> tf.Tensor | None:
    """One number for each place along the first axis of `entries`, whose mean is `Sum(entries) / divisor`; or None.

    Args:
      entries: what was added up, of rank 1 at least.
      divisor: a scalar.
      walk: makes one over their graph.
      replicas: how many replicas add up their losses.
      batch_size: B, by which the private step divides; None if nobody said.
    """
    value = tf.get_static_value(divisor)
    if value is not None:
        return _by_number(entries, float(value), replicas, batch_size)
    extents = _product(divisor, entries)
    found = None if extents is None else _by_extents(entries, extents, replicas)
    return _by_count(entries, divisor, walk(), replicas) if found is None else found


def behind_first(entries: tf.Tensor, reduce: Any) -> tf.Tensor:
    """What `reduce` makes of all axes but the first, in float32."""
    entries = tf.cast(entries, tf.float32)
    return reduce(entries, axis=list(range(1, entries.shape.rank))) if entries.shape.rank > 1 else entries


def times(entries: tf.Tensor, factor: Any) -> tf.Tensor:
    """Nothing where it is 1, so that weights of examples are still seen as the last factor (`weighted`)."""
    return entries if isinstance(factor, float) and factor == 1.0 else entries * factor


def _by_number(entries: tf.Tensor, value: float, replicas: int, batch_size: int | None) -> tf.Tensor | None:
    """A number that is the size of the entries, as it is known, that of their first axis, or B."""
    for share in {1, replicas}:
        if entries.shape.is_fully_defined() and math.isclose(value, entries.shape.num_elements() * share):
            return times(behind_first(entries, tf.reduce_mean), 1.0 / share)
        if entries.shape[0] is not None and math.isclose(value, entries.shape[0] * share):
            return times(behind_first(entries, tf.reduce_sum), 1.0 / share)
    if batch_size is not None and math.isclose(value, batch_size):
        return times(behind_first(entries, tf.reduce_sum), 1.0 / replicas)
    return None


def _by_extents(entries: tf.Tensor, extents: list[Any], replicas: int) -> tf.Tensor | None:
    """A product of extents of the entries themselves and of numbers."""
    number, open_axes = _split(extents)
    own_number, own_axes = _split(_extents(entries))
    all_axes, is_open = collections.Counter(open_axes) == collections.Counter(own_axes), entries.shape[0] is None
    if all_axes and number == own_number:
        return behind_first(entries, tf.reduce_mean)
    if number <= 0:
        return None
    if open_axes == [("extent", 0)]:
        return times(behind_first(entries, tf.reduce_sum), 1.0 / number)
    if all_axes and (is_open or number == replicas * own_number):
        return times(behind_first(entries, tf.reduce_mean), own_number / number)
    return None if open_axes else _by_number(entries, number, replicas, None)


def _by_count(entries: tf.Tensor, divisor: tf.Tensor, walk: Walk, replicas: int) -> tf.Tensor | None:
    """A multiple of the number of examples, of which the entries are known to have so many each."""
    symbols = walk.sizes.symbols(divisor)
    symbol: Any = None if symbols is None or symbols.shape else symbols.item()
    if isinstance(symbol, int):
        return _by_number(entries, symbol, replicas, None)
    label = walk.label(entries)
    if not isinstance(symbol, Count) or symbol.multiple is None or symbol.multiple <= 0:
        return None
    if not isinstance(label, Rows) or (label.axis, label.outer, label.checks) != (0, 1, frozenset()):
        return None
    if label.rows is None or not _is_count_of(divisor, entries, walk):
        return None
    return times(behind_first(entries, tf.reduce_sum), label.rows / symbol.multiple)


def _is_count_of(divisor: tf.Tensor, entries: tf.Tensor, walk: Walk) -> bool:
    """Whether it is counted in data that the entries depend on: of that the proof asks that it is as long as the loss.

    Nor may the count hang on anything that is left to the run.
    """
    counted, used = graph.ancestors(divisor.op), graph.ancestors(entries.op)
    for op in counted:
        for tensor in op.outputs:
            label = walk.label(tensor)
            if getattr(label, "checks", None):
                return False
            enters = isinstance(label, Rows) and (op.type == "Placeholder" or hands_out_examples(op))
            is_ours = tensor is entries or graph.is_used(tensor, used)
            if enters and graph.is_used(tensor, counted) and not is_ours:
                return False
    return True


def _extents(entries: tf.Tensor) -> list[Any]:
    """The extents of its axes other than 1: numbers, or ("extent", axis) where the run decides."""
    shape = [("extent", axis) if extent is None else extent for axis, extent in enumerate(entries.shape)]
    return [extent for extent in shape if extent != 1]


def _split(extents: list[Any]) -> tuple[int, list[Any]]:
    """The product of the numbers, and the others."""
    numbers = [extent for extent in extents if isinstance(extent, int)]
    return math.prod(numbers), [extent for extent in extents if not isinstance(extent, int)]


def _same_number(tensor: tf.Tensor) -> tf.Tensor:
    """The number before it was made one of other types, which hold it but for rounding."""
    while tensor.op.type == "Identity" or (tensor.op.type == "Cast" and tensor.dtype.base_dtype.name in _WIDE):
        tensor = tensor.op.inputs[0]
    return tensor


def _product(tensor: tf.Tensor, entries: tf.Tensor) -> list[Any] | None:
    """The extents of `entries` that the scalar `tensor` is the product of; None where that is not known."""
    tensor = _same_number(tensor)
    op, value = tensor.op, tf.get_static_value(tensor)
    if value is not None:
        return [int(value)] if np.ndim(value) == 0 and float(value).is_integer() else None
    if op.type == "Size":
        return _extents(entries) if op.inputs[0] is entries else None
    if op.type == "Prod":
        return _listed(op.inputs[0], entries)
    if op.type == "Mul":
        parts = [_product(part, entries) for part in op.inputs]
        return None if None in parts else [extent for part in parts for extent in part]  # type: ignore[union-attr]
    return _one_extent(op, entries)


def _one_extent(op: tf.Operation, entries: tf.Tensor) -> list[Any] | None:
    """The extent that is taken out of the shape of the entries."""
    if op.type != "StridedSlice":
        return None
    shape, begin = _same_number(op.inputs[0]).op, tf.get_static_value(op.inputs[1])
    masks = [op.get_attr(f"{name}_mask") for name in ("begin", "ellipsis", "new_axis", "shrink_axis")]
    if shape.type != "Shape" or shape.inputs[0] is not entries or begin is None or masks != [0, 0, 0, 1]:
        return None
    axis = int(begin[0]) % entries.shape.rank
    return [("extent", axis) if entries.shape[axis] is None else entries.shape[axis]]


def _listed(shape: tf.Tensor, entries: tf.Tensor) -> list[Any] | None:
    """The extents in the vector `shape`."""
    shape = _same_number(shape)
    op, value = shape.op, tf.get_static_value(shape)
    if value is not None:
        return [int(extent) for extent in value]
    if op.type == "Shape":
        return _extents(entries) if op.inputs[0] is entries else None
    if op.type != "Pack":
        return None
    parts = [_product(part, entries) for part in op.inputs]
    return None if None in parts else [extent for part in parts for extent in part]  # type: ignore[union-attr]
