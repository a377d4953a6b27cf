"""Whole numbers that are others in every step: what random numbers may be drawn from.

Numbers that are drawn from a seed go to places. If the seed is the same in each step, or is one of few, these are
values by place that anybody knows, and the second example gets others when the first one leaves. So a seed must hold
something that the step moves on, and never sets back: a count, the state of Keras 3's seeds, that of a generator. And
nothing on the way from there to the draws may take it out again, as a product by 0 would. A state less something that
was computed from the same state may be 0, too: so what is added to it, or taken from it, is a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.proof.labels import Public

_SAME = graph.SAME_ORDER | {"StopGradient", "Bitcast"}
_PARTS = {"StridedSlice": 0, "Slice": 0, "Unpack": 0, "Split": 1, "SplitV": 0, "GatherV2": 0}  # of which input
_WITH_A_CONSTANT = frozenset({"Add", "AddV2", "Sub", "BitwiseXor", "Mul", "FloorMod"})
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


def handed_on(op: tf.Operation, labels: Sequence[Any], label_of: Callable[[tf.Tensor], Any]) -> frozenset[Any]:
    """The states that the outputs come from, as one of the inputs does, and that are still in them."""
    states = [label.moved if isinstance(label, Public) else frozenset() for label in labels]
    places = [place for place, found in enumerate(states) if found]
    if not places or not _keeps(op, labels, places, label_of):
        return frozenset()
    return frozenset().union(*states)


def _keeps(op: tf.Operation, labels: Sequence[Any], places: list[int], label_of: Callable[[tf.Tensor], Any]) -> bool:
    """Whether the outputs are moved on as the inputs at `places` are."""
    if op.type in graph.DRAWS:  # of a seed: `publics` says what of
        return False
    if op.type in ("Cast", "Bitcast") and not (op.outputs[0].dtype.is_integer and op.outputs[0].dtype.size >= 4):
        return False
    if op.type in ("Pack", "StatelessRandomGetKeyCounter"):
        return True
    if op.type == "ConcatV2":
        return places[0] < len(op.inputs) - 1
    if op.type in _SAME:
        return places == [0]
    if op.type in _PARTS:  # a count may be in one entry alone
        place = _PARTS[op.type]
        return places == [place] and labels[place].drawn and _each_is_drawn(op, label_of)
    return _with_a_constant(op) == places[0]


def _with_a_constant(op: tf.Operation) -> int | None:
    """Which input is calculated with a constant, so that other numbers give other results; None: none is."""
    if op.type not in _WITH_A_CONSTANT:
        return None
    for place, number in ((0, op.inputs[1]), (1, op.inputs[0])):
        if tf.get_static_value(number) is not None and _keeps_apart(op, number):
            return place
    return None


def _each_is_drawn(op: tf.Operation, label_of: Callable[[tf.Tensor], Any]) -> bool:
    """Whether a part that `op` takes has something of a draw, whichever it is: `make_seeds` joins draws and zeros."""
    source = op.inputs[_PARTS[op.type]]
    if source.op.type != "Pack":
        return _is_drawn(source, label_of)
    if op.type != "StridedSlice" or source.op.get_attr("axis") != 0:
        return False
    strides = tf.get_static_value(op.inputs[3])
    whole = op.get_attr("begin_mask") & op.get_attr("end_mask") & 1
    other = (op.get_attr("ellipsis_mask") | op.get_attr("new_axis_mask") | op.get_attr("shrink_axis_mask")) & 1
    takes_each = bool(whole) and not other and strides is not None and strides[0] == 1
    return takes_each and any(_is_drawn(part, label_of) for part in source.op.inputs)


def _is_drawn(tensor: tf.Tensor, label_of: Callable[[tf.Tensor], Any]) -> bool:
    """Whether every entry is a draw of many numbers, perhaps calculated with constants."""
    op = tensor.op
    if op.type in graph.DRAWS or op.type in graph.DRAWS_OF_A_STATE:
        return bool(label_of(tensor).moved)
    if op.type in _SAME:
        return _is_drawn(op.inputs[0], label_of)
    if op.type in _PARTS:
        return _each_is_drawn(op, label_of)
    place = _with_a_constant(op)
    return place is not None and _is_drawn(op.inputs[place], label_of)


def of_many(op: tf.Operation) -> bool:
    """Whether whole numbers that are drawn are of so many that nobody guesses them."""
    if not op.outputs[0].dtype.is_integer:
        return False
    if "FullInt" in op.type or op.type == "RngReadAndSkip":
        return True
    least, most = (tf.get_static_value(tensor) for tensor in list(op.inputs)[-2:])
    return least is not None and most is not None and int(most) - int(least) >= _MANY
