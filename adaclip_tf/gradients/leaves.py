"""Sums over examples inside of a loop, and how each is taken once, over what all rounds gave (`spelled_out`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from adaclip_tf.gradients import graph, proof


class Leaf(NamedTuple):
    """A sum over the rows of `operands` inside of a loop; `again` takes it over stacks [rows, time, ...] of them."""

    operands: list[tf.Tensor]
    again: Callable[[list[tf.Tensor]], tf.Tensor]


def leaf(op: tf.Operation, walk: proof.Walk | None) -> Leaf | None:
    if op.type == "Conv2DBackpropFilter":
        return _kernel_of_images(op)
    if op.type == "BiasAddGrad" and op.get_attr("data_format") == b"NHWC" and op.inputs[0].shape.rank:
        axes = list(range(op.inputs[0].shape.rank))  # that of time is one more
        return Leaf(list(op.inputs), lambda stacks: tf.reduce_sum(stacks[0], axis=axes))
    if op.type == "Sum" and op.inputs[0].shape.rank:
        return _sum_over_examples(op, walk)
    if op.type != "MatMul" or any(tensor.shape.rank != 2 for tensor in op.inputs):
        return None
    if op.get_attr("transpose_a") and not op.get_attr("transpose_b"):
        return Leaf(list(op.inputs), lambda stacks: tf.raw_ops.Einsum(inputs=stacks, equation="nti,ntj->ij"))
    return None


def _sum_over_examples(op: tf.Operation, walk: proof.Walk | None) -> Leaf | None:
    """A sum over the first axis, and maybe over others."""
    axes = graph.axes(op.inputs[1], op.inputs[0].shape.rank) or proof.reduced_axes(walk, op)
    left = [1 if axis in (axes or []) else extent for axis, extent in enumerate(op.inputs[0].shape)]
    if not axes or 0 not in axes or None in left:
        return None
    shape = left if op.get_attr("keep_dims") else [extent for axis, extent in enumerate(left) if axis not in axes]
    summed = [0, *(axis + 1 for axis in sorted(axes))]  # the second axis is that of time
    return Leaf([op.inputs[0]], lambda stacks: tf.reshape(tf.reduce_sum(stacks[0], axis=summed), shape))


def _kernel_of_images(op: tf.Operation) -> Leaf | None:
    """The gradient of a convolution's kernel, of which all steps' pictures may be one batch."""
    pictures, sizes = [op.inputs[0], op.inputs[2]], op.outputs[0].shape
    if not all(tensor.shape[1:].is_fully_defined() for tensor in pictures) or not sizes.is_fully_defined():
        return None
    names = ("strides", "padding", "data_format", "dilations", "explicit_paddings", "use_cudnn_on_gpu")
    attributes = {name: op.get_attr(name) for name in names}

    def again(stacks: list[tf.Tensor]) -> tf.Tensor:
        x, dy = (tf.reshape(stack, [-1, *tensor.shape[1:]]) for stack, tensor in zip(stacks, pictures))
        return tf.raw_ops.Conv2DBackpropFilter(input=x, filter_sizes=sizes.as_list(), out_backprop=dy, **attributes)

    return Leaf(pictures, again)
