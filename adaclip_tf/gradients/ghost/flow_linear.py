"""The table's entries for ops that contract: reductions, products, convolutions, pooling, normalisation."""

from __future__ import annotations

import dataclasses
import math

import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.ghost.flow import Labels, axis_zero, entry, only, rank, same_extent, single_block
from adaclip_tf.gradients.ghost.labels import Context, Label, Lead, Lost, Summed, Unknown


def reduced_axes(op: tf.Operation) -> tuple[set[int], set[int]]:
    """The axes over which a Sum or Mean certainly reduces, and those over which it may."""
    rank(op.inputs[0])
    return graph.reduced_axes(op, graph.axes, graph.shape_of_shape)


@entry("Sum", "Mean")
def _reduce(ctx: Context, op: tf.Operation, labels: Labels) -> Label:
    label = single_block(only(labels, 0))
    if label.axis == 0 and graph.with_ones(op.outputs[0]) is not op.outputs[0]:
        return label  # an axis of extent 1 that holds examples holds one: there is no other to be told from it
    certain, possible = reduced_axes(op)
    if label.axis in certain:
        return Summed()
    keep_dims = op.get_attr("keep_dims")
    if label.axis in possible:
        if not keep_dims:
            return _of_a_batched_product(ctx, op, label)
        # Reduced to 1 or left alone: the extent tells.
        label = same_extent(ctx, op, label, op.inputs[0], op.outputs[0])
    dropped = 0 if keep_dims else sum(axis < label.axis for axis in certain)
    return dataclasses.replace(label, axis=label.axis - dropped)


def _of_a_batched_product(ctx: Context, op: tf.Operation, label: Lead) -> Lead:
    """The gradient of one operand of a product [examples, ...] by [examples, ...].

    It is summed over the first axis only where that operand has extent 1 there. If what is summed is as long as the
    operand, which the run must show, that is an axis of extent 1 with one chunk, and the sum changes nothing.
    """
    operands = graph.batch_operands(op)
    if operands is None or label.axis != 0:
        raise Unknown("reduces over axes that are only known at run time")
    check = ctx.check(op.inputs[0], 0, op, equals=operands[0])
    return dataclasses.replace(label, checks=label.checks | {check})


@entry("MatMul")
def _matmul(ctx: Context, op: tf.Operation, labels: Labels) -> Label:
    """dy W: rows stay rows. x^T dy contracts them: the gradient of a variable."""
    del ctx
    if labels[0] is not None and labels[1] is not None:
        raise Unknown("is not linear")
    first = labels[0] is not None
    label = axis_zero(labels[0] if first else labels[1])
    transposed = op.get_attr("transpose_a" if first else "transpose_b")
    if transposed == first:
        return Summed()
    if not first:
        raise Unknown("moves the axis that holds the examples")
    return label


@entry("BiasAddGrad", "Conv2DBackpropFilter", "DepthwiseConv2dNativeBackpropFilter", "Conv3DBackpropFilterV2")
def _gradient_of_a_variable(ctx: Context, op: tf.Operation, labels: Labels) -> Label:
    """Sums over the rows by definition; whether a rule applies is for the rule to say."""
    del ctx, op, labels
    return Summed()


@entry(*graph.BATCH_PRODUCTS)
def _batch_matmul(ctx: Context, op: tf.Operation, labels: Labels) -> Label:
    del ctx
    index = 0 if labels[0] is not None else 1
    label = axis_zero(only(labels, index))
    ranks = [rank(tensor) for tensor in op.inputs]
    if ranks[index] < ranks[1 - index]:
        raise Unknown("broadcasts new axes in front of the examples")
    if ranks[index] == 2 and (index == 1 or op.get_attr("adj_x")):
        raise Unknown("contracts or moves the axis that holds the examples")
    return label


@entry("MatrixTriangularSolve", "MatrixSolve")
def _solved(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    """Linear in the right sides."""
    del ctx
    label = axis_zero(only(labels, 1))
    if rank(op.inputs[1]) < 3 or rank(op.inputs[0]) > rank(op.inputs[1]):
        raise Unknown("contracts or moves the axis that holds the examples")
    return label


@entry("MatrixBandPart", "MatrixDiagPartV3", "MatrixDiagV3")
def _within_matrices(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    """Takes or puts diagonals of each matrix by itself."""
    del ctx
    label = axis_zero(only(labels, 0))
    if rank(op.inputs[0]) < 3 and (op.type != "MatrixDiagV3" or rank(op.inputs[0]) + 1 != rank(op.outputs[0])):
        raise Unknown("takes a diagonal across the examples")
    padding = {"MatrixDiagV3": 4, "MatrixDiagPartV3": 2}.get(op.type)
    if padding is not None and not graph.is_zero(op.inputs[padding]):
        raise Unknown("puts something else than 0 beside the diagonal")
    return label


@entry("Einsum")
def _einsum(ctx: Context, op: tf.Operation, labels: Labels) -> Label:
    del ctx
    inputs, output = parse_einsum(op)
    index = next(i for i, label in enumerate(labels) if label is not None)
    label = single_block(axis_zero(only(labels, index)))
    letter = inputs[index][0]
    if letter not in output:
        return Summed()
    if output[0] != letter:
        raise Unknown("moves the axis that holds the examples")
    return label


def parse_einsum(op: tf.Operation) -> tuple[list[str], str]:
    """The operands' letters and the result's, for equations where every axis has its own letter."""
    try:
        return graph.einsum_letters(op)
    except ValueError as error:
        raise Unknown(str(error)) from error


@entry("Conv2DBackpropInput", "DepthwiseConv2dNativeBackpropInput", "Conv3DBackpropInputV2")
@entry("MaxPoolGrad", "MaxPool3DGrad")
def _third_operand_rows(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    del ctx, op
    return axis_zero(only(labels, 2))


@entry("AvgPoolGrad", "AvgPool3DGrad")
def _second_operand_rows(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    del ctx, op
    return axis_zero(only(labels, 1))


@entry("Conv2D", "Conv3D", "DepthwiseConv2dNative", "AvgPool", "AvgPool3D")
@entry("ResizeBilinearGrad", "ResizeNearestNeighborGrad", "ResizeBicubicGrad", "LRNGrad")
@entry("SpaceToDepth", "DepthToSpace", "ImageProjectiveTransformV2", "ImageProjectiveTransformV3")
def _first_operand_rows(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    del ctx, op
    return axis_zero(only(labels, 0))


@entry("SpaceToBatchND", "BatchToSpaceND")
def _space_batch(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    """Output row b * batch + r of SpaceToBatchND is phase b of row r."""
    del ctx
    label = axis_zero(only(labels, 0))
    block_shape = graph.constant(op.inputs[1])
    if block_shape is None:
        raise Unknown("has a block shape that is only known at run time")
    phases = math.prod(int(block) for block in block_shape)
    before, after = (1, phases) if op.type == "SpaceToBatchND" else (phases, 1)
    if label.outer != before:
        raise Unknown("regroups rows in a way that is not followed")
    return dataclasses.replace(label, outer=after)


@entry(*graph.BATCH_NORM_GRADIENTS)
def _fused_batch_norm_grad(ctx: Context, op: tf.Operation, labels: Labels) -> list[Label]:
    """Normalises every channel over all other axes: the batch's, or, in LayerNormalization, the features'.

    Keras computes LayerNormalization on a tensor of shape [1, rows, features, 1] in NCHW layout, where the
    rows are the channels: those stay apart.
    """
    del ctx
    label = single_block(only(labels, 0))
    parameters: Label = Lost(f"{graph.describe(op)} sums its parameters' gradients over the examples")
    rest = [parameters] * (len(op.outputs) - 1)
    if not op.get_attr("is_training"):
        return [axis_zero(label), *rest]
    dims = graph.dimensions(op.inputs[0])
    channels_first = op.get_attr("data_format") == b"NCHW"
    # With axis 0 labelled and of extent 1 there is one microbatch, which axis 1 holds just as well.
    if channels_first and dims is not None and dims[0] == 1 and label.axis in (0, 1):
        rows = label.rows if label.axis == 1 else None
        return [dataclasses.replace(label, axis=1, rows=rows), *rest]
    raise Unknown("normalises over the batch (BatchNormalization in training mode)")
