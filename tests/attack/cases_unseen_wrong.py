"""Examples that meet in ways that look harmless: each must be refused, or turn out to be safe (run alone)."""

import numpy as np
import tensorflow as tf

from tests.attack.case import (
    case,
    features,
    mlp_around,
    net,
)

L = tf.keras.layers
_NONE = tf.constant([], tf.int32)


def _n(x):
    return tf.shape(x)[0]


def _reduced_where_eight(x):
    axes = tf.raw_ops.BroadcastGradientArgs(s0=tf.stack([_n(x) - 7, 4]), s1=_NONE)[0]
    return x + tf.reshape(tf.raw_ops.Sum(input=x, axis=axes), [-1, 4])


def _reduced_where_one(x):
    """Three rows of each example are one where there is one example."""
    rows = tf.reshape(tf.stack([x, 2.0 * x, 3.0 * x], 1), [-1, 4])
    axes = tf.raw_ops.BroadcastGradientArgs(s0=tf.stack([_n(x), 4]), s1=_NONE)[0]
    total = tf.reshape(tf.raw_ops.Sum(input=rows, axis=axes), [-1, 4])
    return tf.reduce_sum(tf.reshape(total, [_n(x), -1, 4]), 1)


def _flipped_for_eight(x, length):
    """Another sign for eight examples than for seven, where as many rows as `length` says are made for each."""
    shape = tf.concat([[_n(x)], length, [1]], 0)
    count = tf.reduce_sum(tf.broadcast_to(tf.ones_like(x[:, None, :1]), shape), 1)
    return tf.sign(count - 7.5)


def _length_of_counts(x):
    """How long a vector is whose entries are told by the number of examples, and which has as many."""
    counts = tf.tile(tf.reshape(_n(x), [1]), tf.reshape(_n(x), [1]))
    return x * _flipped_for_eight(x, tf.shape(counts))


def _length_of_repeated_counts(x):
    counts = tf.repeat(_n(x), _n(x))
    return x * _flipped_for_eight(x, tf.shape(counts))


def _own_number_from_the_end(x):
    return x + 0.5 * tf.gather(x, _n(x) - 1 - tf.range(_n(x)))


def _rolled_by_data(x):
    return x + 0.5 * tf.roll(x, tf.cast(tf.round(10.0 * x[0, 0]), tf.int32), axis=0)


def _line_over_the_batch(x):
    return x * tf.linspace(0.0, 1.0, _n(x))[:, None]


def _sorted_noise(x):
    return x * tf.sort(tf.random.uniform([_n(x)]))[:, None]


def _random_walk(x):
    return x * (1.0 + tf.cumsum(tf.random.normal([_n(x), 4]), 0))


def _mask_over_its_mean(x):
    mask = tf.cast(tf.random.uniform([_n(x), 1]) < 0.5, tf.float32)
    return x * mask / (tf.reduce_mean(mask) + 0.1)


def _noise_of_pairs(x):
    noise = tf.random.normal([_n(x), 4])
    return x * tf.matmul(noise, noise, transpose_b=True)[:, :1]


def _shuffled_places(x):
    places = tf.cast(tf.random.shuffle(tf.range(_n(x))), tf.float32)
    return x * places[:, None]


def _dct(x):
    return tf.ensure_shape(tf.transpose(tf.signal.dct(tf.transpose(x))), [None, 4])


def _fft_of_all(x):
    return tf.abs(tf.signal.fft2d(tf.cast(x, tf.complex64)))


def _eigen(x):
    values, vectors = tf.linalg.eigh(tf.matmul(x, x, transpose_a=True) + tf.linalg.diag([1.0, 2.0, 3.0, 4.0]))
    return x @ vectors / tf.sqrt(1.0 + tf.abs(values))


def _exponential(x):
    return tf.linalg.expm(0.01 * tf.tanh(tf.matmul(x, x, transpose_b=True))) @ x


def _pseudo_inverse(x):
    return x @ tf.linalg.pinv(tf.tanh(tf.matmul(x, x, transpose_a=True)) + 3.0 * tf.eye(4))


def _tridiagonal(x):
    """An implicit step of diffusion along the examples."""
    diagonals = tf.stack([-tf.ones([_n(x)]), 4.0 * tf.ones([_n(x)]), -tf.ones([_n(x)])])
    return tf.linalg.tridiagonal_solve(diagonals, x)


def _diagonal_matrix(x):
    """Right: a diagonal of [batch, batch] takes each example to itself."""
    return tf.linalg.diag(x[:, 0]) @ x


def _lrn_over_batch(x):
    return tf.transpose(tf.nn.local_response_normalization(tf.transpose(x)[None, None], 1)[0, 0])


def _transposed_convolution(x):
    return tf.nn.conv1d_transpose(x[None], tf.ones([3, 4, 4]) / 12.0, tf.stack([1, _n(x), 4]), 1)[0]


def _pooled_as_time(x):
    return x + L.AveragePooling1D(3, 1, "same")(x[None])[0]


def _dilated_as_image(x):
    return (
        tf.nn.dilation2d(x[None, :, :, None], tf.zeros([3, 1, 1]), [1] * 4, "SAME", "NHWC", [1] * 4)[0, :, :, 0]
        + 0.0 * x
    )


def _sobel(x):
    return x + tf.reduce_sum(tf.image.sobel_edges(tf.tile(x, [2, 1])[None, :, :, None]), -1)[0, : _n(x), :, 0]


def _patches(x):
    found = tf.image.extract_patches(x[None, :, :, None], [1, 3, 1, 1], [1] * 4, [1] * 4, "SAME")
    return x + tf.reduce_mean(found[0], -1)


def _total_variation(x):
    return x / (1.0 + tf.image.total_variation(x[:, :, None]))


def _segments_of_own_class(x):
    ids = tf.argmax(x, 1)
    return tf.exp(x) / (1.0 + tf.gather(tf.math.unsorted_segment_sum(tf.exp(x), ids, 4), ids))


def _segment_maxima(x):
    ids = tf.cast(x[:, 0] > 0, tf.int32)
    return x - tf.gather(tf.math.unsorted_segment_max(x, ids, 2), ids)


def _scattered_by_class(x):
    ids = tf.argmax(x, 1)
    total = tf.tensor_scatter_nd_max(tf.zeros([4, 4]), ids[:, None], x)
    return x + tf.gather(total, ids)


def _stitched(x):
    places = _n(x) - 1 - tf.range(_n(x))
    return x + 0.5 * tf.dynamic_stitch([places], [x])


def _sorted_by_two_keys(x):
    order = tf.argsort(tf.argmax(x, 1), stable=True)
    mixed = tf.cumsum(tf.gather(x, order), 0)
    return tf.gather(mixed, tf.math.invert_permutation(order))


def _searched(x):
    return x * tf.cast(tf.searchsorted(tf.sort(x[:, 0]), [0.3])[0], tf.float32)


def _fake_quantised_by_moments(x):
    low, high = tf.reduce_min(x), tf.reduce_max(x)
    return tf.quantization.fake_quant_with_min_max_vars(x, low, high, num_bits=3)


def _quantised_types(x):
    low, high = tf.reduce_min(x), tf.reduce_max(x)
    parts, least, most = tf.quantization.quantize(tf.stop_gradient(x), low, high, tf.quint8)
    return x + tf.stop_gradient(tf.quantization.dequantize(parts, least, most))


def _count_in_a_byte(x):
    """300 examples are 44 in a byte."""
    return x * tf.cast(tf.cast(_n(x), tf.int8), tf.float32)


def _over_its_own_size(x):
    return x / tf.cast(tf.size(x), tf.float32)


def _ellipsis(x):
    return tf.einsum("b...,c...->c...", x, x)


def _einsum_diagonal(x):
    return x * tf.einsum("bb->b", tf.matmul(x, x, transpose_b=True))[:, None]


def _einsum_trace(x):
    return x * tf.einsum("bb->", tf.tanh(tf.matmul(x, x, transpose_b=True)))


def _rows_in_a_loop(x):
    """An exponential moving average along the examples, by AutoGraph's loop."""

    @tf.function
    def smooth(x):
        array = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=[4])
        state = tf.zeros([4])
        for i in tf.range(_n(x)):
            state = 0.5 * state + x[i]
            array = array.write(i, state)
        return tf.ensure_shape(array.stack(), [None, 4])

    return smooth(x)


def _until_all_small(x):
    @tf.function
    def halve(x):
        while tf.reduce_max(x) > 0.2:
            x *= 0.5
        return x

    return halve(x)


def _branch_by_parity(x):
    return tf.cond(tf.equal(_n(x) % 2, 0), lambda: x, lambda: -x)


def _switch_by_the_first(x):
    return tf.switch_case(tf.cast(x[0, 0] > 0, tf.int32), [lambda: x, lambda: 2.0 * x])


def _zeros_where_any_is_negative(x):
    return x * tf.cast(tf.reduce_all(x > -0.9), tf.float32)


def _nans_of_others(x):
    return tf.where(tf.reduce_any(tf.math.is_nan(x)), tf.zeros_like(x), x)


def _minus_the_last(x):
    return x - x[-1]


def _columns_by_count(x):
    most = tf.minimum(_n(x) // 2, 4)
    return x * tf.ensure_shape(tf.pad(tf.ones([1, most]), [[0, 0], [0, 4 - most]]), [1, 4])


def _reshaped_folds(x):
    """Batch into features, scaled there, and back."""
    folded = tf.reshape(tf.transpose(x), [4, -1])
    return tf.transpose(folded / (1.0 + tf.norm(folded, axis=1, keepdims=True)))


def _features_as_rows(x):
    rows = tf.reshape(x, [1, -1])
    return tf.reshape(tf.math.l2_normalize(rows, axis=1), [-1, 4])


def _of_a_ragged_batch(x):
    lengths = 1 + tf.cast(x[:, 0] > 0, tf.int64)
    ragged = tf.RaggedTensor.from_tensor(x, lengths)
    return x * tf.cast(ragged.bounding_shape()[1], tf.float32)


def _sparse_softmax(x):
    indices = tf.where(tf.transpose(x) > -9.0)
    sparse = tf.sparse.SparseTensor(
        indices, tf.gather_nd(tf.transpose(x), indices), tf.cast(tf.shape(x)[::-1], tf.int64)
    )
    return x + tf.transpose(tf.sparse.to_dense(tf.sparse.softmax(sparse)))


def _text_of_all(x):
    joined = tf.strings.reduce_join(tf.strings.as_string(tf.cast(x[:, 0] > 0, tf.int32)))
    return x * tf.cast(tf.strings.length(tf.strings.regex_replace(joined, "0", "")), tf.float32)


def _forward_derivative(x):
    """A derivative along all examples at once, of a sum of all."""
    with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as forward:
        total = tf.reduce_sum(tf.tanh(x))
    return x + forward.jvp(total)


def _gradient_of_a_product(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = tf.reduce_prod(tf.reduce_sum(tf.sigmoid(x), 1))
    return x + tape.gradient(value, x)


@tf.custom_gradient
def _signs(x):
    return x, lambda dy: tf.sign(dy) * tf.reduce_mean(tf.abs(dy))


@tf.custom_gradient
def _agreeing(x):
    """Gradient surgery: what points against the batch's mean is projected away."""

    def back(dy):
        mean = tf.reduce_mean(dy, 0, keepdims=True)
        along = tf.minimum(tf.reduce_sum(dy * mean, 1, keepdims=True), 0.0)
        return dy - along * mean / (tf.reduce_sum(mean**2) + 1e-6)

    return x, back


@tf.custom_gradient
def _masked_together(x):
    return x, lambda dy: tf.where(tf.norm(dy) > 0.1, dy, tf.zeros_like(dy))


@tf.custom_gradient
def _turned(x):
    return x, lambda dy: tf.gather(dy, tf.argsort(x[:, 0]))


def _stopped_mean(x):
    return x * tf.stop_gradient(1.0 / (1e-3 + tf.reduce_mean(tf.abs(x))))


def _list_resized(x):
    handle = tf.raw_ops.TensorListReserve(element_shape=[4], num_elements=1, element_dtype=tf.float32)
    handle = tf.raw_ops.TensorListResize(input_handle=handle, size=_n(x))
    return x * tf.cast(tf.raw_ops.TensorListLength(input_handle=handle), tf.float32)


def _list_split(x):
    handle = tf.raw_ops.TensorListSplit(tensor=x, element_shape=[-1, 4], lengths=tf.ones([_n(x)], tf.int64))
    first = tf.raw_ops.TensorListGetItem(input_handle=handle, index=0, element_shape=[1, 4], element_dtype=tf.float32)
    return x - first


def _equal_shapes(x):
    other = tf.zeros(tf.stack([tf.cast(x[0, 0] > 0, tf.int32) + 1, 4]))
    return x * tf.cast(_n(other), tf.float32)


def _sum_of_a_map(x):
    total = tf.foldl(lambda a, row: a + row, x, tf.zeros([4]))
    return x - total


def _folded_maxima(x):
    return x - tf.scan(tf.maximum, x)


def _gathered_by_counts(x):
    table = tf.constant(np.linspace(-1, 1, 64), tf.float32)
    return x * tf.gather(table, _n(x))


def _names_for_rows(x):
    """Row numbers by a cumulative sum of ones."""
    return x * tf.cumsum(tf.ones_like(x), 0)


def _unique_rows(x):
    _, ids, counts = tf.unique_with_counts(tf.argmax(x, 1))
    return x / tf.cast(tf.gather(counts, ids), tf.float32)[:, None]


def _top_of_flat(x):
    values = tf.math.top_k(tf.reshape(x, [-1]), 3)[0]
    return tf.where(x >= values[-1], x, 0.5 * x)


def _mean_by_avg_pool_of_channels(x):
    """The batch as channels of one picture, normalised in groups."""
    picture = tf.transpose(x)[None, :, :]
    mean, variance = tf.nn.moments(picture, [1, 2], keepdims=True)
    return tf.transpose(((picture - mean) * tf.math.rsqrt(variance + 1.0))[0])


_MIXING = {
    "reduced_where_there_are_eight": _reduced_where_eight,
    "reduced_where_there_is_one": _reduced_where_one,
    "length_of_counts": _length_of_counts,
    "length_of_repeated_counts": _length_of_repeated_counts,
    "own_number_from_the_end": _own_number_from_the_end,
    "rolled_as_the_first_says": _rolled_by_data,
    "line_over_the_batch": _line_over_the_batch,
    "cosines_over_batch": _dct,
    "fourier_of_all": _fft_of_all,
    "eigenvectors_of_gram": _eigen,
    "exponential_of_gram": _exponential,
    "pseudo_inverse_of_gram": _pseudo_inverse,
    "implicit_diffusion": _tridiagonal,
    "response_over_batch": _lrn_over_batch,
    "transposed_convolution_over_batch": _transposed_convolution,
    "pooled_as_time": _pooled_as_time,
    "dilated_as_image": _dilated_as_image,
    "sobel_over_batch": _sobel,
    "patches_over_batch": _patches,
    "total_variation_of_batch": _total_variation,
    "softmax_among_own_class": _segments_of_own_class,
    "maxima_of_segments": _segment_maxima,
    "scattered_by_class": _scattered_by_class,
    "stitched_backwards": _stitched,
    "cumulated_in_sorted_order": _sorted_by_two_keys,
    "searched_in_the_batch": _searched,
    "fake_quantised_by_extremes": _fake_quantised_by_moments,
    "quantised_types": _quantised_types,
    "count_in_a_byte": _count_in_a_byte,
    "over_its_own_size": _over_its_own_size,
    "einsum_with_ellipsis": _ellipsis,
    "einsum_of_diagonal": _einsum_diagonal,
    "einsum_of_trace": _einsum_trace,
    "rows_in_a_loop_of_python": _rows_in_a_loop,
    "until_all_are_small": _until_all_small,
    "branch_by_parity": _branch_by_parity,
    "switch_by_the_first": _switch_by_the_first,
    "zeros_if_one_is_low": _zeros_where_any_is_negative,
    "zeros_if_one_is_nan": _nans_of_others,
    "minus_the_last": _minus_the_last,
    "columns_by_count": _columns_by_count,
    "folded_into_features": _reshaped_folds,
    "features_as_rows": _features_as_rows,
    "bounding_shape": _of_a_ragged_batch,
    "sparse_softmax_over_batch": _sparse_softmax,
    "text_of_all": _text_of_all,
    "forward_derivative_of_all": _forward_derivative,
    "gradient_of_a_product_of_all": _gradient_of_a_product,
    "gradient_signs_and_mean": _signs,
    "gradient_surgery": _agreeing,
    "gradient_masked_together": _masked_together,
    "gradient_sorted": _turned,
    "stopped_mean_as_scale": _stopped_mean,
    "list_resized": _list_resized,
    "list_split": _list_split,
    "shape_by_the_first": _equal_shapes,
    "folded_sum": _sum_of_a_map,
    "scanned_maxima": _folded_maxima,
    "looked_up_by_count": _gathered_by_counts,
    "numbered_by_ones": _names_for_rows,
    "over_their_class_count": _unique_rows,
    "top_of_all_numbers": _top_of_flat,
    "batch_as_channels": _mean_by_avg_pool_of_channels,
}
_TOLD_BY_COUNT = {
    *("reduced_where_there_are_eight", "reduced_where_there_is_one", "length_of_counts", "length_of_repeated_counts"),
    *("count_in_a_byte", "over_its_own_size", "branch_by_parity", "columns_by_count", "list_resized"),
    *("looked_up_by_count",),
}
for _name, _function in _MIXING.items():

    def _build(function=_function):
        return mlp_around(function)

    _build.__name__ = _name
    case("refused", infinite=False, size_only=_name in _TOLD_BY_COUNT)(_build)

_DRAWN = {
    "noise_in_pairs": _noise_of_pairs,
    "sorted_noise": _sorted_noise,
    "random_walk_over_batch": _random_walk,
    "mask_over_its_mean": _mask_over_its_mean,
    "shuffled_places": _shuffled_places,
}
for _name, _function in _DRAWN.items():

    def _build(function=_function):
        return mlp_around(function)

    _build.__name__ = _name
    case("refused", random=True)(_build)


@case("either")
def diagonal_matrix():
    return mlp_around(_diagonal_matrix)


class _Noisy(L.Layer):
    """Noise whose seed is the same in every step, though it is written in each."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.state = tf.Variable([1, 2], trainable=False, dtype=tf.int32, name="state")
        self.generator = tf.random.Generator.from_seed(1)

    def call(self, x):
        return x * (1.0 + self.how(self, x))


def _set_back(layer, x):
    layer.state.assign([1, 2])
    return tf.random.stateless_normal(tf.shape(x), layer.state)


def _set_to_itself(layer, x):
    layer.state.assign(tf.maximum(layer.state, 1))
    return tf.random.stateless_normal(tf.shape(x), layer.state)


def _counted_up_and_back(layer, x):
    layer.state.assign_add([1, 1])
    noise = tf.random.stateless_normal(tf.shape(x), layer.state)
    layer.state.assign_sub([1, 1])
    return noise


def _counted_elsewhere(layer, x):
    layer.state.assign_add([1, 1])
    return tf.random.stateless_normal(tf.shape(x), 0 * layer.state)


def _generator_reset(layer, x):
    layer.generator.reset_from_seed(1)
    return layer.generator.normal(tf.shape(x))


for _function in (_set_back, _set_to_itself, _counted_up_and_back, _counted_elsewhere, _generator_reset):

    def _build(function=_function):
        return net([L.Dense(4, "tanh"), _Noisy(function), L.Dense(3)], features())

    _build.__name__ = "seed" + _function.__name__
    case("refused")(_build)
