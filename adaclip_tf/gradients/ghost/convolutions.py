"""Rules for convolution kernels. The ordinary kernel-gradient op gives the weighted sum; patches the norms."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from adaclip_tf._internal import made
from adaclip_tf.gradients import graph
from adaclip_tf.gradients.ghost import cancelling, keeping, slices
from adaclip_tf.gradients.ghost.labels import Context, Unknown
from adaclip_tf.gradients.ghost.products import SumOfOuterProducts
from adaclip_tf.gradients.ghost.rules import Found, facts_about, lead, one_lead, rule
from adaclip_tf.gradients.ghost.terms import Examples, Rows, SquaredNorms

_MANY_CHANNELS = 16  # from here on a gather of single columns is faster than cutting


class Geometry:
    """Shapes and attributes of one kernel-gradient op on `image` [rows, H, W, C] and `out` [rows, H', W', D]."""

    def __init__(self, op: tf.Operation):
        if op.get_attr("data_format") != b"NHWC":
            raise Unknown("has channels first")
        self.op_type = op.type
        self.attributes = {name: op.get_attr(name) for name in ("strides", "padding", "dilations")}
        self.attributes["padding"] = self.attributes["padding"].decode()
        if op.type == "Conv2DBackpropFilter":
            self.attributes["explicit_paddings"] = op.get_attr("explicit_paddings")
        kernel = graph.shape_of_shape(op.inputs[1]) or []
        image, out = graph.dimensions(op.inputs[0]), graph.dimensions(op.inputs[2])
        if len(kernel) != 4 or None in kernel or not image or not out or None in image[1:] or None in out[1:]:
            raise Unknown("has image or kernel sizes that are only known at run time")
        self.kernel = [int(size or 0) for size in kernel]
        self.image = [int(size or 0) for size in image[1:]]
        self.out = [int(size or 0) for size in out[1:]]
        self.positions = self.out[0] * self.out[1]
        self.taps = self.kernel[0] * self.kernel[1]

    def patches(self, image: tf.Tensor) -> tf.Tensor:
        """[s, H, W, C] to [s, positions, taps * C], channels fastest.

        Windows along each row, then whole windows gathered by rows. Both copy stretches of numbers: on a CPU several
        times as fast as `tf.image.extract_patches`, which copies number by number.
        """
        (pad_rows, rows), (pad_columns, columns) = self._windows(0), self._windows(1)
        height, channels = sum(pad_rows) + self.image[0], self.image[2]
        if channels < _MANY_CHANNELS and self.attributes["dilations"][2] == 1:
            strips, windows, place = self._cut(image, pad_rows, pad_columns)
        else:
            image = _pad(image, [[0, 0], pad_rows, pad_columns, [0, 0]])
            strips, windows, place = tf.gather(image, columns.reshape(-1), axis=2), self.out[1], np.arange(self.out[1])
        strips = made.reshape(strips, [-1, height * windows, self.kernel[1] * channels])
        where = rows[:, np.newaxis, :] * windows + place[:, np.newaxis]
        patches = tf.gather(strips, where.reshape(-1), axis=1)
        return made.reshape(patches, [-1, self.positions, self.taps * self.image[2]])

    def _windows(self, axis: int) -> tuple[list[int], np.ndarray]:
        """Along rows (0) or columns (1): the padding, and [output, tap] as places in the padded image."""
        taps, size, out = self.kernel[axis], self.image[axis], self.out[axis]
        stride, dilation = (self.attributes[name][1 + axis] for name in ("strides", "dilations"))
        places = stride * np.arange(out)[:, np.newaxis] + dilation * np.arange(taps)
        padding = self.attributes["padding"]
        if padding == "EXPLICIT":
            return self.attributes["explicit_paddings"][2 + 2 * axis : 4 + 2 * axis], places
        missing = max(int(places.max()) + 1 - size, 0) if padding == "SAME" else 0
        return [missing // 2, missing - missing // 2], places

    def _cut(self, image: tf.Tensor, pad_rows: list[int], pad_columns: list[int]) -> tuple[tf.Tensor, int, np.ndarray]:
        """All windows along the rows of an image, how many a row has, and where among them each output's window is.

        Every `groups`-th window overlaps none of the others, so that these are a reshaped slice: no gather, which is
        slow where a number stands alone.
        """
        width, stride, out, channels = self.kernel[1], self.attributes["strides"][2], self.out[1], self.image[2]
        groups = -(-width // stride)
        span, count = stride * groups, -(-out // groups)
        size = self.image[1] + sum(pad_columns)
        missing = max(stride * (groups - 1) + count * span - size, 0)
        # Columns and channels as one axis: short ones are slow.
        rows = made.reshape(image, [-1, self.image[0], self.image[1] * channels])
        left, right = pad_columns
        rows = _pad(rows, [[0, 0], pad_rows, [left * channels, (right + missing) * channels]])
        starts = [stride * group * channels for group in range(groups)]
        cuts = [_columns(rows, start, count * span * channels) for start in starts]
        cuts = [made.reshape(cut, [-1, rows.shape[1], count, span * channels]) for cut in cuts]
        if width < span:
            cuts = [cut[..., : width * channels] for cut in cuts]
        outputs = np.arange(out)
        return tf.concat(cuts, axis=2), groups * count, outputs % groups * count + outputs // groups

    def kernel_gradient(self, image: tf.Tensor, out: tf.Tensor) -> tf.Tensor:
        """The sum over all rows, by the op that plain training uses."""
        operation = getattr(tf.raw_ops, self.op_type)
        return operation(input=image, filter_sizes=self.kernel, out_backprop=out, **self.attributes)


def _columns(tensor: tf.Tensor, start: int, number: int) -> tf.Tensor:
    """[:, :, start : start + number], in a third of the ops."""
    return made.op("Slice", tensor, made.constant([0, 0, start]), made.constant([-1, -1, number]))


def _pad(tensor: tf.Tensor, paddings: list[list[int]]) -> tf.Tensor:
    return tf.pad(tensor, paddings) if any(map(sum, paddings)) else tensor


class _Images:
    """The two operands of a kernel-gradient op, as [n, rows per microbatch, ...] and as they are."""

    def __init__(self, ctx: Context, op: tf.Operation):
        index = one_lead(ctx, op, (0, 2))
        label = lead(ctx, op.inputs[index])
        self.rows = Rows(ctx, label)
        operands = {i: op.inputs[i] for i in (0, 2)}
        self.facts = facts_about(ctx, label, operands[index], self.rows)
        self.image, self.out = (tf.cast(operands[i], tf.float32) for i in (0, 2))
        self.split = [self.rows.split(self.image), self.rows.split(self.out)]

    def to_keep(self) -> list[keeping.Kept]:
        return [keeping.Kept(self.image, lambda used: self.rows.weigh(self.image, used))]

    def weighted(self, weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return self.rows.keep(self.image, weights), self.rows.weigh(self.out, weights)


def _merge(array: tf.Tensor) -> tf.Tensor:
    """[s, rows, ...] as [s * rows, ...]."""
    return made.reshape(array, [-1, *array.shape[2:]])


@rule("Conv2DBackpropFilter")
def _conv2d(ctx: Context, gradient: tf.Tensor, shape: tf.TensorShape) -> Found:
    del shape
    geometry, images = Geometry(gradient.op), _Images(ctx, gradient.op)
    groups = geometry.image[2] // max(geometry.kernel[2], 1)
    if groups != 1:
        return Found(_Grouped(ctx, geometry, images, groups), images.facts)
    inner, outer = geometry.taps * geometry.image[2], geometry.out[2]

    def make(arrays: list[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        examples, each = made.extent(arrays[0], 0), made.extent(arrays[0], 1)
        patches = geometry.patches(_merge(arrays[0]))
        positions = each * geometry.positions
        return (
            made.reshape(patches, [examples, positions, inner]),
            made.reshape(arrays[1], [examples, positions, outer]),
        )

    def total(weights: tf.Tensor) -> tf.Tensor:
        return geometry.kernel_gradient(*images.weighted(weights))

    each = images.rows.per_microbatch
    length = None if each is None else each * geometry.positions
    term = SumOfOuterProducts(
        n=ctx.n,
        arrays=images.split,
        make=make,
        shape=(inner, outer),
        length=length,
        total=total,
        kept=images.to_keep(),
    )
    return Found(term, images.facts)


class _Grouped:
    """Kernels where an input channel meets some output channels only: grouped and depthwise convolutions."""

    def __init__(self, ctx: Context, geometry: Geometry, images: _Images, groups: int):
        self._n, self._geometry, self._images, self._groups = ctx.n, geometry, images, groups

    def squared_norms(self, center: tf.Tensor, scale: tf.Tensor) -> SquaredNorms:
        return slices.norms_of_examples(self.examples(), self._n, center, scale, self.bounds())

    def examples(self) -> Examples:
        geometry = self._geometry
        size = math.prod(geometry.kernel)

        def make(arrays: list[tf.Tensor]) -> tf.Tensor:
            gradients = tf.einsum("epkgc,epgd->ekcgd", *self._factors(arrays))
            return tf.reshape(self._in_kernel_order(gradients), [tf.shape(gradients)[0], size])

        each = self._images.rows.per_microbatch or 1
        floats = 3 * size + 3 * each * geometry.positions * (geometry.taps * geometry.image[2] + geometry.out[2])
        return Examples(self._images.split, make, floats)

    def bounds(self) -> Examples:
        """By Cauchy and Schwarz over the positions: no more products than there are coordinates."""
        inner, size = self.examples(), math.prod(self._geometry.kernel)

        def make(arrays: list[tf.Tensor]) -> tf.Tensor:
            lengths = [tf.norm(factor, axis=1) for factor in self._factors(arrays)]
            return tf.reshape(self._in_kernel_order(tf.einsum("ekgc,egd->ekcgd", *lengths)), [-1, size])

        return inner._replace(make=make)

    def to_keep(self) -> list[keeping.Kept]:
        return self._images.to_keep()

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        image, out = self._images.weighted(weights)
        if self._geometry.op_type != "Conv2DBackpropFilter":
            # The depthwise op leaves its output uninitialised for an empty batch.
            return tf.where(self._n > 0, self._geometry.kernel_gradient(image, out), 0.0)
        # TensorFlow has no grouped kernel gradient on the CPU.
        factors = self._factors([image[:, tf.newaxis], out[:, tf.newaxis]])
        return self._in_kernel_order(tf.einsum("epkgc,epgd->kcgd", *factors)[tf.newaxis])

    def _factors(self, arrays: list[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        geometry, groups = self._geometry, self._groups
        examples, each = tf.shape(arrays[0])[0], tf.shape(arrays[0])[1]
        positions = each * geometry.positions
        patches = geometry.patches(_merge(arrays[0]))
        per_group = geometry.image[2] // groups
        return (
            tf.reshape(patches, [examples, positions, geometry.taps, groups, per_group]),
            tf.reshape(arrays[1], [examples, positions, groups, geometry.out[2] // groups]),
        )

    def _in_kernel_order(self, gradients: tf.Tensor) -> tf.Tensor:
        """[s, taps, channels per group, groups, outputs per group] is both layouts of a kernel already.

        Grouped kernels are [H, W, channels per group, groups x outputs per group]; depthwise kernels, with one
        channel per group, [H, W, channels = groups, multiplier = outputs per group].
        """
        return tf.reshape(gradients, [tf.shape(gradients)[0], *self._geometry.kernel])


class _OneByOne:
    """Kernels of which no patches are cut: the op itself, on one microbatch after the other."""

    def __init__(self, ctx: Context, op: tf.Operation, images: _Images, kernel: list[int]):
        self._n, self._images, self._kernel = ctx.n, images, kernel
        self._attributes = {name: op.get_attr(name) for name in ("strides", "dilations")}
        self._attributes |= {name: op.get_attr(name).decode() for name in ("padding", "data_format")}

    def squared_norms(self, center: tf.Tensor, scale: tf.Tensor) -> SquaredNorms:
        return slices.norms_of_examples(self.examples(), self._n, center, scale, self.bounds())

    def examples(self) -> Examples:
        size = math.prod(self._kernel)

        def make(arrays: list[tf.Tensor]) -> tf.Tensor:
            each = lambda pair: tf.reshape(self._gradient(*pair), [size])  # noqa: E731
            return tf.map_fn(each, tuple(arrays), fn_output_signature=tf.TensorSpec([size], tf.float32))

        return Examples(self._images.split, make, 2 * size)

    def bounds(self) -> Examples:
        return cancelling.of_absolutes(self.examples())

    def to_keep(self) -> list[keeping.Kept]:
        return self._images.to_keep()

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        return tf.where(self._n > 0, self._gradient(*self._images.weighted(weights)), 0.0)

    def _gradient(self, image: tf.Tensor, out: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.Conv3DBackpropFilterV2(
            input=image, filter_sizes=self._kernel, out_backprop=out, **self._attributes
        )


@rule("Conv3DBackpropFilterV2")
def _conv3d(ctx: Context, gradient: tf.Tensor, shape: tf.TensorShape) -> Found:
    del shape
    op = gradient.op
    kernel = graph.shape_of_shape(op.inputs[1])
    if kernel is None or None in kernel:
        raise Unknown("has a kernel size that is only known at run time")
    images = _Images(ctx, op)
    return Found(_OneByOne(ctx, op, images, [int(size or 0) for size in kernel]), images.facts)


@rule("DepthwiseConv2dNativeBackpropFilter")
def _depthwise(ctx: Context, gradient: tf.Tensor, shape: tf.TensorShape) -> Found:
    del shape
    geometry, images = Geometry(gradient.op), _Images(ctx, gradient.op)
    return Found(_Grouped(ctx, geometry, images, geometry.image[2]), images.facts)
