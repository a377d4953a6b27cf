"""Entries for lists of tensors, what a loop reads from and writes to.

All elements of a list have one label. No op may choose an element, or make one, by data; and none may join elements
along the axis that holds the examples.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf.gradients.proof.calls import joined_label
from adaclip_tf.gradients.proof.labels import EVERYWHERE, Public, Rows, Sizes, Unproven
from adaclip_tf.gradients.proof.symbols import Count
from adaclip_tf.gradients.proof.table import LISTS, PUBLIC, SIZE_ARGUMENTS, Listed, entry
from adaclip_tf.gradients.proof.walk import Walk, listed


def _empty_list(walk: Walk, op: tf.Operation, labels: Any) -> Any:
    return Listed(None, holes=op.type == "TensorListReserve", long=_long(walk, op.inputs[0], labels[0]))


def _long(walk: Walk, shape: tf.Tensor, label: Any) -> frozenset[int] | None:
    """The axes for which a shape says that they are as long as there are examples; None: nobody knows."""
    if not isinstance(label, Sizes) or label.places is not None:
        return label.places if isinstance(label, Sizes) else frozenset()
    symbols = walk.sizes.symbols(shape)
    if symbols is None or symbols.ndim != 1:
        return None
    return frozenset(axis for axis, symbol in enumerate(symbols) if isinstance(symbol, Count))


def _long_in(label: Any) -> frozenset[int] | None:
    """The axes of a list's elements, and of what is read where there are none, that may be as long."""
    if not isinstance(label, Listed) or label.long is None:
        return None
    if isinstance(label.element, Rows):
        return label.long | {label.element.axis}
    known = label.element is None or (isinstance(label.element, Public) and not label.element.counted)
    return label.long if known else None


def _no_long_holes(walk: Walk, label: Listed, shape: tf.Tensor, shape_label: Any) -> None:
    """Raises if elements that nobody put in, read as `shape`, may be long along another axis than the examples'."""
    if label.holes and isinstance(label.element, Rows):
        asked = _long(walk, shape, shape_label)
        if asked is None or label.long is None or (asked | label.long) - {label.element.axis}:
            raise Unproven("may read zeros that are as long as there are examples")


PUBLIC["TensorListReserve"] = PUBLIC["EmptyTensorList"] = _empty_list
SIZE_ARGUMENTS["TensorListReserve"] = SIZE_ARGUMENTS["EmptyTensorList"] = frozenset({0, 1})


def _element(label: Any) -> Any:
    if isinstance(label, Rows):
        if label.axis == 0 or label.outer != 1:
            raise Unproven("makes a list with an element for each row")
        return dataclasses.replace(label, axis=label.axis - 1)
    if isinstance(label, Public):
        uniform = None if label.uniform is None else frozenset(axis - 1 for axis in label.uniform if axis)
        return dataclasses.replace(label, uniform=uniform)
    raise Unproven("makes a list of what is not followed")


@entry("TensorListFromTensor", sizes=[1])
def _from_tensor(walk: Walk, op: tf.Operation, labels: Any) -> Any:
    walk.settle(op.inputs[1])  # what the shape of an element must be; it does not make it so
    return Listed(_element(labels[0]))


PUBLIC["TensorListFromTensor"] = _from_tensor


@entry("TensorListGetItem", sizes=[2])
def _get_item(walk: Walk, op: tf.Operation, labels: Any) -> Any:
    if not isinstance(labels[0], Listed) or not isinstance(labels[1], Public):
        raise Unproven("takes an element that data chooses")
    _no_long_holes(walk, labels[0], op.inputs[2], labels[2])
    return _taken(walk, labels[0], op.outputs[0])


def _taken(walk: Walk, label: Listed, element: tf.Tensor) -> Any:
    """The label of an element, which is also told what entries it has."""
    if label.symbols is not None and not label.holes:
        walk.symbols[element.ref()] = _vector(label.symbols)
    return _nothing(element) if label.element is None else label.element


def _nothing(tensor: tf.Tensor) -> Public:
    """What a list gives that nothing was put in: zeros, of a shape that may depend on the number of examples."""
    return EVERYWHERE.but(counted=not tensor.shape.is_fully_defined())


def _vector(symbols: tuple[Any, ...]) -> np.ndarray:
    result = np.empty([len(symbols)], object)
    result[:] = symbols
    return result


@entry("TensorListPopBack", sizes=[1])
def _pop_back(walk: Walk, op: tf.Operation, labels: Any) -> Any:
    """The list without its last element, and that one."""
    if not isinstance(labels[0], Listed):
        raise Unproven("works on a list that is not followed")
    _no_long_holes(walk, labels[0], op.inputs[1], labels[1])
    return [labels[0], _taken(walk, labels[0], op.outputs[1])]


@entry("TensorListSetItem", sizes=[])
def _set_item(walk: Walk, op: tf.Operation, labels: Any) -> Any:
    if not isinstance(labels[0], Listed) or not isinstance(labels[1], Public):
        raise Unproven("writes to a place that data chooses")
    return joined_label(op, labels[0], listed(walk, labels[2], op.inputs[2]))


@entry("TensorListPushBack")
def _push_back(walk: Walk, op: tf.Operation, labels: Any) -> Any:
    if not isinstance(labels[0], Listed):
        raise Unproven("works on a list that is not followed")
    return joined_label(op, labels[0], listed(walk, labels[1], op.inputs[1]))


PUBLIC["TensorListSetItem"], PUBLIC["TensorListPushBack"] = _set_item, _push_back


@entry("TensorListStack", "TensorListConcatV2", sizes=[1])
def _stack(walk: Walk, op: tf.Operation, labels: Any) -> Any:
    if op.type != "TensorListStack" or not isinstance(labels[0], Listed):
        raise Unproven("joins a list along the axis that holds the examples")
    _no_long_holes(walk, labels[0], op.inputs[1], labels[1])
    element = labels[0].element
    if isinstance(element, Rows):
        return dataclasses.replace(element, axis=element.axis + 1)
    if isinstance(element, Public) and element.uniform is not None:
        return dataclasses.replace(element, uniform=frozenset(axis + 1 for axis in element.uniform))
    return element or _nothing(op.outputs[0])


def _added(walk: Walk, op: tf.Operation, labels: Any) -> Any:
    """Lists are added element by element."""
    del walk
    if not all(isinstance(label, Listed) for label in labels):
        raise Unproven("adds a list that is not followed")
    total = labels[0]
    for label in labels[1:]:
        total = joined_label(op, total, label)
    return dataclasses.replace(total, symbols=None)


def _zeros(walk: Walk, op: tf.Operation, labels: Any) -> Any:
    del walk, op
    return Listed(None, holes=True, long=_long_in(labels[0]))


LISTS["AddN"], LISTS["ZerosLike"] = _added, _zeros


@entry("TensorListElementShape")
def _element_shape(walk: Walk, op: tf.Operation, labels: Any) -> Any:
    """How gradients make a list like another."""
    del walk, op
    return Sizes(_long_in(labels[0]))


@entry("TensorListLength")
def _length(walk: Walk, op: tf.Operation, labels: Any) -> Any:
    del walk, op, labels
    return EVERYWHERE
