"""Whole numbers that are others in every step: what random numbers may be drawn from.

Numbers that are drawn from a seed go to places. If the seed is the same in each step, or is one of few, these are
values by place that anybody knows, and the second example gets others when the first one leaves. So a seed must hold
something that the step moves on, and never sets back: a count, the state of Keras 3's seeds, that of a generator. And
nothing on the way from there to the draws may take it out again, as a product by 0 would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.proof.labels import Public

_SAME = graph.SAME_ORDER | {"StopGradient", "Bitcast"}
_PARTS = frozenset({"StridedSlice", "Slice", "Unpack", "Split", "SplitV", "GatherV2"})
_MANY = 2**16  # seeds that are fewer could be tried one after the other
_BACKWARDS = 2**63  # a negative number without its sign


def moves_on(op: tf.Operation) -> bool:
    """Whether the op reads a whole number that the same graph moves on, and does nothing else to."""
    if op.type != "ReadVariableOp" or not op.outputs[0].dtype.is_integer:
        return False
    writes = [reader for reader in op.inputs[0].consumers() if graph.may_write(reader)]
    return bool(writes) and not any(map(sets_back, writes))


def sets_back(op: tf.Operation) -> bool:
    """Whether the op writes what may have been there before: all but what only counts up."""
    if op.type == "RngReadAndSkip":
        steps = tf.get_static_value(op.inputs[2])
        return steps is not None and int(steps) >= _BACKWARDS
    if not graph.may_write(op):
        return False
    if op.type == "AssignAddVariableOp":
        return not _is_step(op.inputs[1])
    return op.type != "AssignVariableOp" or not _counts_up(op.inputs[1], op.inputs[0])


def _counts_up(value: tf.Tensor, handle: tf.Tensor) -> bool:
    """Whether it is what `handle` holds and more, perhaps times something, or modulo a large number."""
    steps = 0
    while value.op.type != "ReadVariableOp":
        op = value.op
        if op.type in _SAME and value.dtype.is_integer:
            value = op.inputs[0]
        elif op.type in ("Add", "AddV2", "Mul", "FloorMod"):
            number = next((one for one in op.inputs if tf.get_static_value(one) is not None), None)
            if number is None or not _keeps_apart(op, number):
                return False
            steps += op.type != "Mul" and op.type != "FloorMod" and _is_step(number)
            value = op.inputs[1] if number is op.inputs[0] else op.inputs[0]
        else:
            return False
    return steps > 0 and value.op.inputs[0] is handle


def _is_step(tensor: tf.Tensor) -> bool:
    """Whether it is a constant that is above 0 somewhere, and nowhere below."""
    value = tf.get_static_value(tensor)
    return value is not None and bool(np.all(value >= 0) and np.any(value > 0))


def _keeps_apart(op: tf.Operation, number: tf.Tensor) -> bool:
    """Whether a calculation with a constant gives other results for other whole numbers, but for very few."""
    value = np.asarray(tf.get_static_value(number))
    if op.type == "Mul":
        return bool(np.all(value != 0))
    if op.type == "FloorMod":
        return number is op.inputs[1] and bool(np.all(value >= _MANY))
    return True


def hands_on(op: tf.Operation, labels: Sequence[Any]) -> bool:
    """Whether the outputs are moved on as one of the inputs is."""
    moved = [place for place, label in enumerate(labels) if isinstance(label, Public) and label.moved]
    if not moved:
        return False
    if op.type in graph.DRAWS:  # of a seed: `publics` says what of
        return False
    if op.type in ("Cast", "Bitcast") and not (op.outputs[0].dtype.is_integer and op.outputs[0].dtype.size >= 4):
        return False
    if op.type in _SAME or op.type in ("Pack", "ConcatV2", "StatelessRandomGetKeyCounter"):
        return True
    if op.type in _PARTS:  # a count may be in one entry alone
        return all(labels[place].drawn and _of_each(op, op.inputs[place]) for place in moved)
    if op.type in ("Add", "AddV2", "Sub", "BitwiseXor"):
        return len(moved) == 1  # two of them may cancel
    if op.type in ("Mul", "FloorMod"):
        other = op.inputs[1 - moved[0]]
        return len(moved) == 1 and tf.get_static_value(other) is not None and _keeps_apart(op, other)
    return False


def _of_each(op: tf.Operation, source: tf.Tensor) -> bool:
    """Whether a part of `source` has something of each that it was joined from: `make_seeds` joins draws and zeros."""
    if source.op.type not in ("Pack", "ConcatV2"):
        return True
    first = op.type == "StridedSlice" and op.get_attr("begin_mask") & op.get_attr("end_mask") & 1
    return source.op.type == "Pack" and source.op.get_attr("axis") == 0 and bool(first)


def of_many(op: tf.Operation) -> bool:
    """Whether whole numbers that are drawn are of so many that nobody guesses them."""
    if not op.outputs[0].dtype.is_integer:
        return False
    if "FullInt" in op.type or op.type == "RngReadAndSkip":
        return True
    least, most = (tf.get_static_value(tensor) for tensor in list(op.inputs)[-2:])
    return least is not None and most is not None and int(most) - int(least) >= _MANY
