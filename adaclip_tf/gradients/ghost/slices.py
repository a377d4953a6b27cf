"""Per-example work in slices of examples that fit a memory budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from adaclip_tf._internal import made
from adaclip_tf.gradients.ghost import terms

# Bytes that one layer's per-example gradients may take at a time.
BUDGET = 64 * 2**20
# Up to this multiple of the activations they are computed from, no slices are made.
MODEST = 4


def map_examples(
    function: Callable[[list[tf.Tensor]], tf.Tensor],
    arrays: Sequence[tf.Tensor],
    n: tf.Tensor,
    floats_per_example: int,
    width: int | None = None,
) -> tf.Tensor:
    """`function` over slices of `arrays` (leading axis: the n examples); its results [slice] joined to [n].

    With `width`, results are [slice, width].

    Every slice has the same length, which XLA needs: the last one starts early enough to fit and repeats a
    few examples.
    """
    length = max(1, BUDGET // (4 * max(1, floats_per_example)))
    static = tf.get_static_value(n)
    if (static is not None and static <= length) or floats_per_example <= MODEST * floats_of(arrays):
        return function(list(arrays))
    length = tf.minimum(length, n)
    rest = [] if width is None else [width]

    def body(index: tf.Tensor, results: tf.Tensor):
        start = tf.minimum(index * length, n - length)
        values = function([_slice(array, start, length) for array in arrays])
        positions = (start + tf.range(length))[:, tf.newaxis]
        return index + 1, tf.tensor_scatter_nd_update(results, positions, values)

    count = tf.math.floordiv(n + length - 1, tf.maximum(length, 1))
    _, results = tf.while_loop(
        lambda index, _: index < count,
        body,
        (tf.constant(0), tf.zeros([n, *rest], tf.float32)),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, *rest])),
        parallel_iterations=1,
    )
    return results


def norms_of_examples(
    examples: terms.Examples, n: tf.Tensor, center: tf.Tensor, scale: tf.Tensor, bounds: terms.Examples | None = None
) -> terms.SquaredNorms:
    """|(g_k - center) / scale|^2 of all microbatches, from their gradients themselves.

    The gradient of one example is rounded as it is formed; their weighted sum, in which what cancels does so only after
    it was added up over all examples, by more: see `cancelling.bounds_of`. Without `bounds` nothing cancels.
    """
    value = map_examples(
        lambda arrays: terms.direct_norms(examples.make(arrays), center, scale), examples.arrays, n, examples.floats
    )
    if bounds is None:
        return terms.SquaredNorms(value, value)
    most = norms_of_examples(bounds, n, -tf.abs(center), scale).value
    return terms.SquaredNorms(value, tf.maximum(value, most))


def sum_row_norms(examples: terms.Examples, weights: tf.Tensor, width: int, size: int) -> tf.Tensor:
    """sum_k |weights_k row_i of g_k| over rows of `width` of the `size` coordinates; weight 0 leaves g_k out."""
    n = tf.size(weights)

    def sums(arrays: list[tf.Tensor], weights: tf.Tensor) -> tf.Tensor:
        weighted = tf.math.multiply_no_nan(examples.make(arrays), weights[:, tf.newaxis])
        rows = tf.reshape(weighted, [tf.shape(weights)[0], size // width, width])
        return tf.reduce_sum(tf.norm(rows, axis=2), axis=0)

    length = tf.minimum(max(1, BUDGET // (4 * max(1, examples.floats + 2 * size))), n)

    def body(start: tf.Tensor, total: tf.Tensor):
        stop = tf.minimum(start + length, n)
        part = [_slice(array, start, stop - start) for array in (*examples.arrays, weights)]
        return stop, total + sums(part[:-1], part[-1])

    _, total = tf.while_loop(
        lambda start, _: start < n, body, (tf.constant(0), tf.zeros([size // width])), parallel_iterations=1
    )
    return total


def floats_of(arrays: Sequence[tf.Tensor]) -> int:
    """The size of one example's part of `arrays`, which are in memory anyway; 0 if not known."""
    sizes = [array.shape[1:].num_elements() for array in arrays]
    return 0 if None in sizes else sum(sizes)


def _slice(array: tf.Tensor, start: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    rest = array.shape.rank - 1
    result = tf.raw_ops.Slice(
        input=array, begin=made.vector([start] + [0] * rest), size=made.vector([length] + [-1] * rest)
    )
    result.set_shape([None, *array.shape[1:]])
    return result
