"""Entries for public arrays that are as long as there are examples: a state of zeros, noise, a mask.

No entry of such an array depends on N, the number of examples; but how many there are does. A sum over them would tell
N to all examples, and so might the last of them. Random draws are a danger of their own: an example may get any, since
all are alike and independent. Added to themselves in reverse they are not: then places share a number, and which do
hangs on N. So what is done to such arrays needs an entry here, as what is done to data does elsewhere. An entry must
establish that no entry of the result depends on N, and that place k of what is drawn goes into place k alone.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.proof.contractions import IMAGE_OPS, letters_of, windows_of_one
from adaclip_tf.gradients.proof.labels import Public, Sizes, Unproven, rank
from adaclip_tf.gradients.proof.strided import StridedSlice
from adaclip_tf.gradients.proof.symbols import depends_on_count
from adaclip_tf.gradients.proof.table import COUNTED, Labels
from adaclip_tf.gradients.proof.walk import Walk

_FREE = (
    *graph.ENTRYWISE,
    *graph.DRAWS,
    *graph.DRAWS_OF_A_STATE,
    *("Fill", "BiasAdd", "IdentityN", "ExpandDims", "BroadcastTo", "Transpose", "ConcatV2", "Pack"),
    *("OneHot", "ResourceGather", "Select", "LookupTableFindV2"),
    *("TensorListStack", "TensorListGetItem", "TensorListSetItem", "TensorListPushBack"),
)
_PART = "takes a part of an array that is as long as there are examples, or as many entries"


def _may_be_long(tensor: tf.Tensor, label: Any) -> set[int]:
    """The axes that may be as long as there are examples."""
    if not isinstance(label, Public) or not label.counted:
        return set()
    rank(tensor)
    return {axis for axis, extent in enumerate(tensor.shape) if extent is None}


def _one_number(label: Any) -> bool:
    """Whether all entries are one number, so that it does not matter which are taken."""
    return isinstance(label, Public) and label.uniform is None and not label.drawn


def entry(*types: str) -> Any:
    """Registers the entry for these op types; it may return a label to be used instead."""

    def register(function: Any) -> Any:
        COUNTED.update(dict.fromkeys(types, function))
        return function

    return register


@entry(*_FREE)
def _free(walk: Walk, op: tf.Operation, labels: Labels) -> None:
    """Entries stay what and where they are."""


@entry("Sum", "Mean", "Max", "Min", "Prod", "All", "Any", "EuclideanNorm", "ArgMax", "ArgMin")
def _reduction(walk: Walk, op: tf.Operation, labels: Labels) -> Sizes | None:
    along = walk.sizes.axes(op.inputs[1], max(rank(op.inputs[0]), 1))
    long = _may_be_long(op.inputs[0], labels[0])
    return Sizes() if along is None or long & set(along) else None


@entry("MatMul", "Einsum", *graph.BATCH_PRODUCTS)
def _product(walk: Walk, op: tf.Operation, labels: Labels) -> Sizes | None:
    """Sums along the axes that the result does not have."""
    letters, output = letters_of(op)
    for tensor, own, label in zip(op.inputs, letters, labels):
        if any(own[axis] not in output for axis in _may_be_long(tensor, label)):
            return Sizes()
    return None


@entry("TopKV2", "TopK")
def _top(walk: Walk, op: tf.Operation, labels: Labels) -> None:
    _leaves(op.inputs[0], labels[0], [rank(op.inputs[0]) - 1])


@entry(*IMAGE_OPS)
def _images(walk: Walk, op: tf.Operation, labels: Labels) -> None:
    """A state of pictures that starts as zeros: as many pictures as examples, and nothing else that long."""
    windows_of_one(op)
    long = [_may_be_long(*pair) for pair in zip(op.inputs, labels)]
    if not long[0] <= {0} or any(long[1:]):
        raise Unproven("works along an array that is as long as there are examples")


@entry("Softmax", "LogSoftmax")
def _softmax(walk: Walk, op: tf.Operation, labels: Labels) -> None:
    _leaves(op.inputs[0], labels[0], [rank(op.inputs[0]) - 1])


@entry("ReverseV2", "Cumsum", "Cumprod")
def _along_second(walk: Walk, op: tf.Operation, labels: Labels) -> None:
    _leaves(op.inputs[0], labels[0], walk.sizes.axes(op.inputs[1], rank(op.inputs[0])), turns=op.type == "ReverseV2")


@entry("Roll", "SplitV")
def _along_third(walk: Walk, op: tf.Operation, labels: Labels) -> None:
    _leaves(op.inputs[0], labels[0], walk.sizes.axes(op.inputs[2], rank(op.inputs[0])), turns=True)


@entry("Split")
def _split(walk: Walk, op: tf.Operation, labels: Labels) -> None:
    _leaves(op.inputs[1], labels[1], walk.sizes.axes(op.inputs[0], rank(op.inputs[1])), turns=True)


@entry("Unpack")
def _unpack(walk: Walk, op: tf.Operation, labels: Labels) -> None:
    _leaves(op.inputs[0], labels[0], [op.get_attr("axis") % rank(op.inputs[0])], turns=True)


@entry("TensorListFromTensor")
def _to_list(walk: Walk, op: tf.Operation, labels: Labels) -> None:
    """The length of a list is asked for as something public."""
    _leaves(op.inputs[0], labels[0], [0])


@entry("TensorListReserve", "EmptyTensorList")
def _new_list(walk: Walk, op: tf.Operation, labels: Labels) -> None:
    if not isinstance(labels[1], Public):
        raise Unproven("makes a list that is as long as there are examples")


@entry("GatherV2")
def _gather(walk: Walk, op: tf.Operation, labels: Labels) -> None:
    _leaves(op.inputs[0], labels[0], walk.sizes.axes(op.inputs[2], rank(op.inputs[0])), turns=True)


def _leaves(tensor: tf.Tensor, label: Any, along: list[int] | None, turns: bool = False) -> None:
    """Raises unless the axes `along` are none that may be long; what only `turns` entries may have one number."""
    if turns and _one_number(label):
        return
    if along is None or _may_be_long(tensor, label) & set(along):
        raise Unproven("works along an array that is as long as there are examples")


@entry("Slice")
def _slice(walk: Walk, op: tf.Operation, labels: Labels) -> None:
    if _one_number(labels[0]):
        return
    begin, size = (walk.sizes.symbols(tensor) for tensor in op.inputs[1:])
    long = _may_be_long(op.inputs[0], labels[0])
    if begin is None or size is None or depends_on_count(begin) or depends_on_count(size):
        raise Unproven(_PART)
    if any(begin[axis] != 0 or size[axis] != -1 for axis in long):
        raise Unproven(_PART)


@entry("StridedSlice")
def _strided_slice(walk: Walk, op: tf.Operation, labels: Labels) -> None:
    if _one_number(labels[0]):
        return
    begin, end, strides = (walk.sizes.symbols(tensor) for tensor in op.inputs[1:])
    long = _may_be_long(op.inputs[0], labels[0])
    if not any(depends_on_count(symbols) for symbols in (begin, end, strides)):
        taken = StridedSlice(op, begin, end, strides, op.inputs[0].shape)
        if all(taken.whole[axis] for axis in long):
            return
    raise Unproven(_PART)


@entry("Tile")
def _tile(walk: Walk, op: tf.Operation, labels: Labels) -> None:
    """Draws may be repeated along an axis where there is one only."""
    multiples = walk.sizes.symbols(op.inputs[1])
    extents = op.inputs[0].shape.as_list()
    if _drawn(labels[0]) and (
        multiples is None or any(m != 1 and extent != 1 for m, extent in zip(multiples.ravel(), extents))
    ):
        raise Unproven("repeats random numbers")


@entry("Squeeze")
def _squeeze(walk: Walk, op: tf.Operation, labels: Labels) -> None:
    rank(op.outputs[0])


@entry("Reshape")
def _reshape(walk: Walk, op: tf.Operation, labels: Labels) -> None:
    """Draws may get other axes behind the first."""
    if not _drawn(labels[0]):
        return
    behind = [tensor.shape.as_list()[1:] for tensor in (op.inputs[0], op.outputs[0])]
    if any(None in extents for extents in behind) or math.prod(behind[0]) != math.prod(behind[1]):
        raise Unproven("gives random numbers to other places")


def _drawn(label: Any) -> bool:
    return isinstance(label, Public) and label.drawn
