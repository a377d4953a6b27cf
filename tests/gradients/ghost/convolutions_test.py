"""Patches of `ghost.convolutions` against TensorFlow's own op, over geometries."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.gradients.ghost import convolutions


def geometry(image, kernel, strides, dilations, padding, pads=()):
    """The `Geometry` of a real kernel-gradient op."""
    with tf.Graph().as_default():
        x, shape = tf.zeros([2, *image]), [*kernel, image[2], 3]
        attributes = {"strides": [1, *strides, 1], "dilations": [1, *dilations, 1], "padding": padding}
        if pads:
            attributes["explicit_paddings"] = [0, 0, *pads, 0, 0]
        y = tf.raw_ops.Conv2D(input=x, filter=tf.zeros(shape), **attributes)
        gradient = tf.raw_ops.Conv2DBackpropFilter(input=x, filter_sizes=shape, out_backprop=y, **attributes)
        return convolutions.Geometry(gradient.op)


@pytest.mark.parametrize("channels", [1, 3, 16])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(
    ("kernel", "strides", "dilations"),
    [
        ((8, 8), (2, 2), (1, 1)),
        ((3, 3), (1, 1), (1, 1)),
        ((1, 1), (1, 1), (1, 1)),
        ((5, 2), (3, 3), (1, 1)),
        ((2, 5), (3, 3), (1, 1)),
        ((1, 3), (4, 2), (1, 1)),
        ((3, 2), (1, 1), (2, 3)),
        ((4, 4), (7, 7), (1, 1)),
    ],
)
def test_patches_are_tensorflows(kernel, strides, dilations, padding, channels, rng):
    size = (13, 11)
    made = geometry((*size, channels), kernel, strides, dilations, padding)
    image = rng.normal(size=(4, *size, channels)).astype(np.float32)
    expected = tf.image.extract_patches(image, [1, *kernel, 1], [1, *strides, 1], [1, *dilations, 1], padding)
    actual = made.patches(tf.constant(image))
    np.testing.assert_array_equal(actual, tf.reshape(expected, [4, made.positions, -1]))
    assert made.patches(tf.constant(image[:0])).shape == (0, *actual.shape[1:])


@pytest.mark.parametrize("channels", [1, 16])
def test_explicit_padding(channels, rng):
    made = geometry((9, 7, channels), (3, 4), (2, 1), (1, 1), "EXPLICIT", [1, 2, 0, 3])
    image = rng.normal(size=(2, 9, 7, channels)).astype(np.float32)
    padded = np.pad(image, [(0, 0), (1, 2), (0, 3), (0, 0)])
    expected = tf.image.extract_patches(padded, [1, 3, 4, 1], [1, 2, 1, 1], [1, 1, 1, 1], "VALID")
    np.testing.assert_array_equal(made.patches(tf.constant(image)), tf.reshape(expected, [2, made.positions, -1]))
