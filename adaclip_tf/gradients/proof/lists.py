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
    long = _long(walk, op.inputs[0], labels[0])
    return Listed(None, holes=op.type == "TensorListReserve", long=long, sized=_sized(walk, op.inputs[0]))


def _sized(walk: Walk, shape: tf.Tensor) -> frozenset[int] | None:
    """The axes for which a shape has an extent that is not how many examples there are; None: nobody knows."""
    if shape.op.type == "TensorListElementShape":
        return _sized_in(walk.label(shape.op.inputs[0]))
    symbols = walk.sizes.symbols(shape)
    if symbols is None:
        return None
    return frozenset(axis for axis, symbol in enumerate(symbols.ravel()) if symbol != -1 and symbol != Count(1))


def _sized_in(label: Any) -> frozenset[int] | None:
    """The same of what is read from a list where there are no elements, or of others that are made like them."""
    return label.sized if isinstance(label, Listed) and isinstance(label.element, Rows) else None


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


def _with_holes(walk: Walk, label: Any, shape: tf.Tensor, shape_label: Any) -> Any:
    """The label of an element, which may be one that nobody put in, read as `shape`; None where there are no others.

    Raises Unproven if such zeros may be long along another axis than the examples'. Along this one they may be shorter.
    """
    element = label.element
    if not label.holes or not isinstance(element, Rows):
        return element
    asked, sized = _long(walk, shape, shape_label), _sized(walk, shape)
    if asked is None or label.long is None or (asked | label.long) - {element.axis}:
        raise Unproven("may read zeros that are as long as there are examples")
    short = sized is None or label.sized is None or element.axis in sized | label.sized
    return dataclasses.replace(element, rows=None) if short else element


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
    extents = walk.sizes.extents(op.inputs[0]) if isinstance(labels[0], Public) else None
    return Listed(_element(labels[0]), extents=None if extents is None else tuple(extents[1:]))


PUBLIC["TensorListFromTensor"] = _from_tensor


@entry("TensorListGetItem", sizes=[2])
def _get_item(walk: Walk, op: tf.Operation, labels: Any) -> Any:
    if not isinstance(labels[0], Listed) or not isinstance(labels[1], Public):
        raise Unproven("takes an element that data chooses")
    return _taken(walk, op, labels, 2)


def _taken(walk: Walk, op: tf.Operation, labels: Any, shape: int) -> Any:
    """The label of an element, the last of the results, which is also told what entries it has."""
    label, element = _with_holes(walk, labels[0], op.inputs[shape], labels[shape]), op.outputs[-1]
    if labels[0].symbols is not None and not labels[0].holes:
        walk.symbols[element.ref()] = _vector(labels[0].symbols)
    return _nothing(element) if label is None else label


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
    return [labels[0], _taken(walk, op, labels, 1)]


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
    element = _with_holes(walk, labels[0], op.inputs[1], labels[1])
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
    return Listed(None, holes=True, long=_long_in(labels[0]), sized=_sized_in(labels[0]))


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
