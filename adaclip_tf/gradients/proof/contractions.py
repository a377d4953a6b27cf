"""Entries for ops that add up, compare or multiply along axes: reductions, products, convolutions, normalisation.

Along the axis of the examples they give a `Summed` where they are sums of one term per example, and are known to mix
examples otherwise.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.proof import elementwise
from adaclip_tf.gradients.proof.labels import Label, Public, Rows, Summed, Unproven, rank
from adaclip_tf.gradients.proof.shapes import fixed_sizes, only_first, single_block
from adaclip_tf.gradients.proof.table import SIZE_ARGUMENTS, Labels, describe, entry
from adaclip_tf.gradients.proof.walk import Walk


def summed(op: tf.Operation, *labels: Label) -> Summed:
    checks = frozenset().union(*(label.checks for label in labels if isinstance(label, Rows)))
    exact = op.type not in _NO_SUMS  # a mean hangs on how many there are
    return Summed(f"{describe(op)} reduces over the batch axis", checks, exact)


_NO_SUMS = frozenset({"Mean", "Max", "Min", "Prod", "All", "Any", "EuclideanNorm", "ArgMax", "ArgMin"})


@entry("L2Loss", "BiasAddGrad")
def _over_all(walk: Walk, op: tf.Operation, labels: Labels) -> Label:
    """Reduce over everything but, in BiasAddGrad, the channels."""
    label = single_block(labels[0])
    if op.type == "BiasAddGrad":
        channel = 1 if op.get_attr("data_format") == b"NCHW" else rank(op.inputs[0]) - 1
        if label.axis == channel:
            raise Unproven("has the examples where the channels should be")
    return summed(op, label)


_LAST = {
    "Softmax": 1,
    "LogSoftmax": 1,
    "TopKV2": 1,
    "TopK": 1,
    "FFT": 1,
    "IFFT": 1,
    "RFFT": 1,
    "IRFFT": 1,
}
_LAST |= {"FFT2D": 2, "IFFT2D": 2, "RFFT2D": 2, "IRFFT2D": 2, "AdjustContrastv2": 3, "MatrixInverse": 2, "Cholesky": 2}
_LAST |= {
    "MatrixDeterminant": 2,
    "LogMatrixDeterminant": 2,
    "MatrixDiagPartV3": 2,
    "MatrixBandPart": 2,
    "Qr": 2,
    "Svd": 2,
}
_LAST |= {"SelfAdjointEigV2": 2, "MatrixDiagV3": 1, "RGBToHSV": 1, "HSVToRGB": 1, "AdjustHue": 1, "AdjustSaturation": 1}


@entry(*_LAST)
def _last_axes(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    label = only_first(labels)
    last = _LAST[op.type]
    if op.type == "MatrixDiagV3" and rank(op.inputs[0]) + 1 != rank(op.outputs[0]):
        last = 2  # several diagonals of one matrix, side by side
    if label.axis >= rank(op.inputs[0]) - last:
        raise Unproven("works across the examples of the batch", mixing=True)
    return label


@entry("MatrixTriangularSolve", "MatrixSolve")
def _solved(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    """Systems of equations, each by itself; axes in front go entry by entry, and columns of right sides are apart."""
    total, sides = rank(op.outputs[0]), rank(op.inputs[1])
    if isinstance(labels[0], Public) and labels[1].axis == sides - 1:
        return elementwise.shifted(labels[1], total - sides)
    label = elementwise.combined(walk, op, list(op.inputs), labels, op.outputs[0])
    if label.axis >= total - 2:
        raise Unproven("works across the examples of the batch")
    return label


@entry("SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits", "InTopKV2")
def _cross_entropy(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    """Rows of logits [rows, classes], with labels [rows, classes] or [rows]; InTopKV2's last input is a number."""
    rows = [label for label in labels if isinstance(label, Rows)]
    label = elementwise.joined(rows, [label.axis for label in rows])
    if label.axis != 0:
        raise Unproven("works across the examples of the batch", mixing=True)
    for tensor, own in zip(op.inputs, labels):
        if isinstance(own, Public) and rank(tensor):
            elementwise.meets(walk, tensor, own, 0)
    return label


# ---------------------------------------------------------------------------------------------------
# Products.


def letters_of(op: tf.Operation) -> tuple[list[list[str]], list[str]]:
    """The letters of a product's operands, axis by axis, and of its result; what is not in that is summed over.

    A matrix product is [..., i, j] x [..., j, k]: axes in front go entry by entry; i and k are kept.
    """
    if op.type == "Einsum":
        try:
            inputs, output = graph.einsum_letters(op)
        except ValueError as error:
            raise Unproven(str(error)) from error
        return [list(letters) for letters in inputs], list(output)
    names = ("transpose_a", "transpose_b") if op.type == "MatMul" else ("adj_x", "adj_y")
    flips = [op.get_attr(name) for name in names]
    ranks = [rank(tensor) for tensor in op.inputs]
    total = rank(op.outputs[0])
    letters = []
    for which, (size, flip) in enumerate(zip(ranks, flips)):
        ends = ["j", "ik"[which]] if (which == 1) != flip else ["ik"[which], "j"]
        letters.append([str(axis) for axis in range(total - size, total - 2)] + ends)
    return letters, [*(str(axis) for axis in range(total - 2)), "i", "k"]


@entry("MatMul", "Einsum", *graph.BATCH_PRODUCTS)
def _product(walk: Walk, op: tf.Operation, labels: Labels) -> Label:
    return _contracted(walk, op, labels, *letters_of(op))


def _contracted(walk: Walk, op: tf.Operation, labels: Labels, inputs: list[list[str]], output: list[str]) -> Label:
    """The label of a product of tensors whose axes have letters; those that are not in `output` are summed over."""
    found = [(label, letters[label.axis]) for label, letters in zip(labels, inputs) if isinstance(label, Rows)]
    letter = found[0][1]
    if any(other != letter for _, other in found):
        raise Unproven("combines every example with every other one", mixing=True)
    for tensor, letters, own in zip(op.inputs, inputs, labels):
        if isinstance(own, Public) and letter in letters:
            elementwise.meets(walk, tensor, own, letters.index(letter))
    label = single_block(elementwise.joined([label for label, _ in found], [0] * len(found)))
    if letter not in output:
        return summed(op, label)
    return dataclasses.replace(label, axis=output.index(letter))


# ---------------------------------------------------------------------------------------------------
# Convolutions and their like: the first axis is that of the images.

# Of one batch of images and a kernel, or nothing else.
IMAGE_OPS = ("Conv2D", "Conv3D", "DepthwiseConv2dNative", "MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D")
# Attributes with an entry for each axis of an image, that of the examples first.
_WINDOWS = frozenset({"ksize", "ksizes", "strides", "rates"})
# Which inputs are images; all others must be public.
SIZE_ARGUMENTS["Bincount"] = frozenset({1})  # as wide as the largest entry
_IMAGES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(
        ("Conv2D", "Conv3D", "DepthwiseConv2dNative", "MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D"), (0,)
    ),
    **dict.fromkeys(("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic", "ResizeArea", "LRN"), (0,)),
    **dict.fromkeys(("SpaceToDepth", "DepthToSpace", "ExtractImagePatches", "Dilation2D"), (0,)),
    **dict.fromkeys(("ResizeNearestNeighborGrad",), (0,)),
    **dict.fromkeys(("ResizeBilinearGrad", "ResizeBicubicGrad"), (0, 1)),
    **dict.fromkeys(("Conv2DBackpropInput", "DepthwiseConv2dNativeBackpropInput", "Conv3DBackpropInputV2"), (2,)),
    **dict.fromkeys(("MaxPoolGrad", "MaxPool3DGrad", "LRNGrad"), (0, 1, 2)),
    **dict.fromkeys(("AvgPoolGrad", "AvgPool3DGrad"), (1,)),
    **dict.fromkeys(("ImageProjectiveTransformV2", "ImageProjectiveTransformV3"), (0, 1)),
}


@entry(
    *(name for name in _IMAGES if not name.startswith(("AvgPoolGrad", "AvgPool3DGrad", "Conv", "Depthwise"))), sizes=[]
)
@entry("Conv2D", "Conv3D", "DepthwiseConv2dNative")
@entry("AvgPoolGrad", "AvgPool3DGrad", sizes=[0])
@entry("Conv2DBackpropInput", "DepthwiseConv2dNativeBackpropInput", "Conv3DBackpropInputV2", sizes=[0])
def _images(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    label = _first_axis(walk, op, labels, _IMAGES[op.type])
    windows_of_one(op)
    others = [own for index, own in enumerate(labels) if index not in _IMAGES[op.type]]
    if any(isinstance(own, Rows) for own in others):
        raise Unproven("has a kernel, or a size, that depends on data")
    for index in SIZE_ARGUMENTS.get(op.type, ()):
        fixed_sizes(walk, op.inputs[index], labels[index], 0)
    return label


def windows_of_one(op: tf.Operation) -> None:
    """Raises if an op on images has a window, or a step, of several examples."""
    if not has_windows_of_one(op):
        raise Unproven("has a window over the examples of the batch", mixing=True)  # XLA has no qualms about it


def has_windows_of_one(op: tf.Operation) -> bool:
    """Whether an op on images looks at each of them by itself."""
    windows = [op.get_attr(attribute) for attribute in op.node_def.attr if attribute in _WINDOWS]
    return all(window[0] == 1 for window in windows)


@entry("Conv2DBackpropFilter", "DepthwiseConv2dNativeBackpropFilter", "Conv3DBackpropFilterV2", sizes=[1])
def _kernel_gradient(walk: Walk, op: tf.Operation, labels: Labels) -> Summed:
    label = _first_axis(walk, op, labels, (0, 2))
    fixed_sizes(walk, op.inputs[1], labels[1], -1)
    return summed(op, label)


def _first_axis(walk: Walk, op: tf.Operation, labels: Labels, images: tuple[int, ...]) -> Rows:
    rows = [labels[index] for index in images if isinstance(labels[index], Rows)]
    if not rows:
        raise Unproven("has a kernel, or a size, that depends on data")
    label = elementwise.joined(rows, [own.axis for own in rows])
    if label.axis != 0:
        raise Unproven("has the examples along another axis than the first")
    for index in images:
        if isinstance(labels[index], Public):
            elementwise.meets(walk, op.inputs[index], labels[index], 0)
    return label


@entry(*graph.BATCH_NORMS, *graph.BATCH_NORM_GRADIENTS)
def _fused_batch_norm(walk: Walk, op: tf.Operation, labels: Labels) -> list[Any]:
    """Normalises every channel over all other axes: the batch's, or, in LayerNormalization, the features'.

    Keras computes LayerNormalization on a tensor of shape [1, rows, features, 1] in NCHW layout, where the rows are the
    channels: those stay apart.
    """
    is_gradient = "Grad" in op.type
    images = 2 if is_gradient else 1
    rows = [label for label in labels[:images] if isinstance(label, Rows)]
    if not rows:
        raise Unproven("has parameters that depend on data")
    label = single_block(elementwise.joined(rows, [own.axis for own in rows]))
    channel = 1 if op.get_attr("data_format").startswith(b"NC") else rank(op.inputs[0]) - 1
    per_channel = dataclasses.replace(label, axis=0)
    if label.axis == channel:
        for tensor, own in zip(list(op.inputs)[images:], labels[images:]):
            if isinstance(own, Rows):
                elementwise.joined([per_channel, single_block(own)], [0, own.axis])
            elif isinstance(own, Public) and tensor.shape != [0]:
                elementwise.meets(walk, tensor, own, 0)
        return [label, *[per_channel] * (len(op.outputs) - 1)]
    if any(isinstance(own, Rows) for own in labels[images:]):
        raise Unproven("has parameters that depend on data")
    if op.get_attr("is_training"):
        raise Unproven("normalises over the batch (BatchNormalization in training mode)", mixing=True)
    rest: Any = summed(op, label) if is_gradient else Public()
    return [label, *[rest] * (len(op.outputs) - 1)]


@entry("DenseBincount", sizes=[1])
def _count_in_rows(walk: Walk, op: tf.Operation, labels: Labels) -> Rows:
    """Counts in each row of a matrix by itself; in a vector, over all examples."""
    if rank(op.inputs[0]) != 2:
        raise Unproven("counts over the batch", mixing=True)
    has_weights = op.inputs[2].shape.num_elements() != 0
    counted = [0, 2] if has_weights else [0]
    return _first_axis(walk, op, labels, tuple(counted))
