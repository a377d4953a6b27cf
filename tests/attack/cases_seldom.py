"""Ops that are seldom used, over the batch: each must be refused, or turn out to be safe (run alone)."""

import tensorflow as tf

from tests.attack.case import case, mlp_around

L = tf.keras.layers


def _vectorised(x):
    """Each example asks for all others."""
    return tf.vectorized_map(lambda row: row - tf.reduce_mean(x, 0), x)


def _mapped_over(x):
    return tf.map_fn(lambda row: row - 0.5 * x[0], x)


def _diagonal(x):
    """[B, B] by the diagonal of an outer product, and a band of it."""
    gram = tf.matmul(x, x, transpose_b=True)
    return x + tf.matmul(tf.linalg.band_part(gram, 1, 1), x) * 0.1


def _inverse(x):
    return tf.matmul(x, tf.linalg.inv(tf.matmul(x, x, transpose_a=True) + tf.eye(4)))


def _cholesky(x):
    root = tf.linalg.cholesky(tf.matmul(x, x, transpose_a=True) + tf.eye(4))
    return tf.transpose(tf.linalg.triangular_solve(root, tf.transpose(x)))


def _singular(x):
    return x / (1 + tf.linalg.svd(x, compute_uv=False)[0])


def _lstsq(x):
    return x @ tf.linalg.lstsq(x, x[:, :1] * 2.0 + 1.0, l2_regularizer=0.1) * tf.ones([1, 4])


def _frames(x):
    """Overlapping windows over the examples."""
    return tf.reduce_mean(tf.signal.frame(x, 2, 1, axis=0, pad_end=True), axis=1)


def _as_image(x):
    """The batch as one picture, resized and back."""
    return tf.ensure_shape(tf.image.resize(x[None, :, :, None], tf.shape(x) * 2)[0, ::2, ::2, 0], [None, 4])


def _sorted(x):
    return tf.sort(x, axis=0)


def _one_hot_rank(x):
    return x * tf.cast(tf.argsort(tf.argsort(x[:, 0])), tf.float32)[:, None]


def _segment(x):
    ids = tf.cast(x[:, :1] > 0, tf.int32)[:, 0]
    return x - tf.gather(tf.math.unsorted_segment_mean(x, ids, 2), ids)


def _scatter(x):
    return x + tf.tensor_scatter_nd_add(x, [[0]], x[-1:])


def _where(x):
    return x * tf.cast(tf.shape(tf.where(x[:, 0] > 0))[0], tf.float32)


def _repeat(x):
    """Pairs of all with all, averaged back."""
    n = tf.shape(x)[0]
    pairs = tf.reshape(tf.repeat(x, n, axis=0) * tf.tile(x, [n, 1]), [n, n, 4])
    return tf.reduce_mean(pairs, axis=1)


def _strided(x):
    """Even ones get what odd ones have."""
    n = tf.shape(x)[0] // 2 * 2
    return x + tf.pad(x[1::2], [[0, tf.shape(x)[0] - tf.shape(x[1::2])[0]], [0, 0]]) + 0.0 * tf.cast(n, tf.float32)


def _nested_map(x):
    return tf.function(lambda rows: tf.map_fn(lambda i: rows[i] - rows[0], tf.range(tf.shape(rows)[0]), tf.float32))(x)


def _cross(x):
    """Self-attention in which the batch is the time."""
    return tf.squeeze(L.Attention()([x[None], x[None]]), 0)


def _matrix_power(x):
    gram = tf.nn.softmax(tf.matmul(x, x, transpose_b=True), axis=0)
    return gram @ (gram @ x)


def _cumulative(x):
    return tf.math.cumulative_logsumexp(x, axis=0)


def _percent(x):
    return x - tf.sort(x, axis=0)[tf.shape(x)[0] // 2]


def _bits(x):
    """Through integers and back."""
    bits = tf.bitcast(x, tf.int32)
    return x + 1e-9 * tf.cast(tf.bitwise.bitwise_xor(bits, tf.reverse(bits, [0])), tf.float32)


def _string(x):
    """All examples' numbers in one string, hashed."""
    text = tf.strings.reduce_join(tf.strings.as_string(x))
    return x * tf.cast(tf.strings.to_hash_bucket_fast(text, 3), tf.float32)


def _sparse_op(x):
    sparse = tf.sparse.from_dense(tf.nn.relu(x))
    return x * tf.ensure_shape(tf.sparse.reduce_sum(sparse, axis=0), [4])


def _ragged_op(x):
    ragged = tf.RaggedTensor.from_tensor(x, padding=0.0)
    return x - tf.reduce_mean(ragged.flat_values)


def _array(x):
    """A TensorArray, read in the other order."""
    array = tf.TensorArray(tf.float32, size=tf.shape(x)[0], element_shape=[4]).unstack(x)
    return array.gather(tf.range(tf.shape(x)[0])[::-1])


def _edit(x):
    own = tf.strings.as_string(tf.round(x[:, 0]))
    return x * (1.0 + tf.cast(own == own[0], tf.float32))[:, None]


def _confused(x):
    matrix = tf.math.confusion_matrix(tf.argmax(x, 1), tf.argmax(-x, 1), 4, dtype=tf.float32)
    return x @ matrix


def _histogram_over(x):
    counts = tf.histogram_fixed_width(x, [-1.0, 1.0], nbins=4)
    return x * tf.cast(counts, tf.float32)


def _random_partner(x):
    return 0.7 * x + 0.3 * tf.gather(x, tf.random.shuffle(tf.range(tf.shape(x)[0])))


def _fixed_partner(x):
    return 0.7 * x + 0.3 * tf.gather(x, tf.random.experimental.stateless_shuffle(tf.range(tf.shape(x)[0]), [1, 2]))


def _interpolated(x):
    """Each against the batch's first and last, by searchsorted."""
    edges = tf.sort(x[:, 0])
    return x * tf.cast(tf.searchsorted(edges, x[:, 0]), tf.float32)[:, None]


def _conv_1d(x):
    kernel = tf.ones([3, 4, 4]) / 12
    return tf.nn.conv1d(x[None], kernel, 1, "SAME")[0]


_MIXING = {
    "vectorised_over_others": _vectorised,
    "mapped_over_the_first": _mapped_over,
    "band_of_gram": _diagonal,
    "inverse_of_gram": _inverse,
    "cholesky_of_gram": _cholesky,
    "singular_value_of_batch": _singular,
    "least_squares_of_batch": _lstsq,
    "frames_over_batch": _frames,
    "batch_as_an_image": _as_image,
    "sorted_over_batch": _sorted,
    "rank_in_batch": _one_hot_rank,
    "segment_means": _segment,
    "scatter_last_to_first": _scatter,
    "where_counts": _where,
    "repeat_all_pairs": _repeat,
    "strided_partner": _strided,
    "mapped_in_a_function": _nested_map,
    "batch_as_time": _cross,
    "softmax_of_gram_squared": _matrix_power,
    "cumulative_logsumexp_over_batch": _cumulative,
    "minus_median": _percent,
    "bits_of_the_reverse": _bits,
    "hash_of_all": _string,
    "sparse_column_sums": _sparse_op,
    "ragged_mean_of_all": _ragged_op,
    "array_reversed": _array,
    "equal_to_the_first": _edit,
    "confusion_of_batch": _confused,
    "histogram_of_batch": _histogram_over,
    "fixed_partner": _fixed_partner,
    "searched_among_others": _interpolated,
    "convolved_as_one_signal": _conv_1d,
}
for _name, _function in _MIXING.items():

    def _build(function=_function):
        return mlp_around(function)

    _build.__name__ = _name
    case("refused", infinite=False)(_build)


@case("refused", random=True)
def random_partner():
    return mlp_around(_random_partner)
