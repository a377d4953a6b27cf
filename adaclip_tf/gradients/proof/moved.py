"""Whole numbers that are others in every step: what random numbers may be drawn from.

Numbers that are drawn from a seed go to places. If the seed is the same in each step, or is one of few, these are
values by place that anybody knows, and the second example gets others when the first one leaves. So a seed must hold
something that the step moves on, and never sets back: a count, the state of Keras 3's seeds, that of a generator. And
nothing on the way from there to the draws may take it out again, as a product by 0 would. A state less something that
was computed from the same state may be 0, too: so what is added to it, or taken from it, is a constant.
"""

from __future__ import annotations

import math
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
_OF_KERAS = (5387, 933199)  # of `SeedGenerator.next(ordered=False)`: all numbers below a prime but one, in turn
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
    """Whether it is what `handle` holds and a constant more, perhaps modulo a large number; or as Keras goes on."""
    step: Any = 0
    factors, moduli = [], [2 ** (8 * value.dtype.size)]
    while value.op.type != "ReadVariableOp":
        op = value.op
        if not _is_long(value) or not (op.type in _SAME or op.type in ("Add", "AddV2", "Mul", "FloorMod")):
            return False
        if op.type in _SAME:
            value = op.inputs[0]
            continue
        place = _with_a_constant(op)
        if place is None:
            return False
        number = _numbers(op.inputs[1 - place])
        if op.type == "Mul":
            factors.append(number)
        elif op.type == "FloorMod":
            moduli.extend(number.ravel())
        else:
            step = step + number
        value = op.inputs[place]
    if value.op.inputs[0] is not handle or not _is_a_step(step):
        return False
    if any(np.any(factor != 1) for factor in factors):
        return (*(factor.item() for factor in factors if factor.size == 1), *moduli[1:]) == _OF_KERAS
    return any(all(_leaves_many(int(one), modulus) for modulus in moduli) for one in np.ravel(step) if one)


def _is_long(tensor: tf.Tensor) -> bool:
    return tensor.dtype.is_integer and tensor.dtype.size >= 4


def _numbers(tensor: tf.Tensor) -> np.ndarray:
    """A constant, in Python's integers, which never overflow."""
    return np.asarray(tf.get_static_value(tensor)).astype(object)


def _is_step(tensor: tf.Tensor) -> bool:
    return tf.get_static_value(tensor) is not None and _is_a_step(_numbers(tensor))


def _is_a_step(step: Any) -> bool:
    """Whether it is above 0 somewhere, nowhere below, and so small that many of them come before the first again."""
    values = np.ravel(step)
    return all(0 <= value < _MANY for value in values) and any(value > 0 for value in values)


def _leaves_many(multiple: int, modulus: int) -> bool:
    """Whether multiples of a number are many, modulo another one."""
    return modulus // math.gcd(multiple, modulus) >= _MANY


def _keeps_apart(op: tf.Operation, number: tf.Tensor) -> bool:
    """Whether a calculation with a constant gives other results for other whole numbers, but for very few."""
    value = _numbers(number)
    if op.type == "Mul":
        return bool(np.all(value != 0))
    if op.type == "FloorMod":
        return number is op.inputs[1] and bool(np.all(value >= _MANY))
    return True


def _multiple(tensor: tf.Tensor) -> int:
    """What all it was multiplied with makes together, on the way from a state, and the steps by which that goes on."""
    on_the_way = graph.ancestors(tensor.op)
    found = [part for op in on_the_way if op.type == "Mul" for part in op.inputs]
    for write in (reader for op in on_the_way if moves_on(op) for reader in op.inputs[0].consumers()):
        if graph.may_write(write):
            found += [part for op in graph.ancestors(write.inputs[1].op) for part in op.inputs] + [write.inputs[1]]
    numbers = [_numbers(part) for part in found if part.dtype.is_integer and tf.get_static_value(part) is not None]
    return math.prod(math.prod({abs(int(one)) for one in number.ravel() if one}) for number in numbers)


def _still_many(op: tf.Operation) -> bool:
    """Whether what `op` cuts short are not multiples of so much that few are left: 65536 c % 65536 is always 0."""
    if op.type not in ("Mul", "FloorMod", "Cast"):
        return True
    moduli = _numbers(op.inputs[1]).ravel() if op.type == "FloorMod" else [2 ** (8 * op.outputs[0].dtype.size)]
    multiple = _multiple(op.outputs[0])
    return all(_leaves_many(multiple, int(modulus)) for modulus in moduli)


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
    if op.type in ("Cast", "Bitcast") and not _is_long(op.outputs[0]):
        return False
    if op.type in ("Pack", "StatelessRandomGetKeyCounter"):
        return True
    if op.type == "ConcatV2":
        return places[0] < len(op.inputs) - 1
    if op.type in _SAME:
        return places == [0] and _still_many(op)
    if op.type in _PARTS:  # a count may be in one entry alone
        place = _PARTS[op.type]
        return places == [place] and labels[place].drawn and _each_is_drawn(op, label_of)
    return _with_a_constant(op) == places[0] and _still_many(op)


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
