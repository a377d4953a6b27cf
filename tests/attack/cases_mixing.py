"""Models in which one example reaches another: each must be refused, or turn out to be safe (run alone)."""

import tensorflow as tf

from adaclip_tf._internal import keras
from tests.attack.case import Apply, case, features, mlp_around, net

L = tf.keras.layers


def _by_hand(function, name, **options):
    def build():
        return mlp_around(function)

    build.__name__ = name
    case("refused", **options)(build)


def _moments(x, axes=(0,), stop=False):
    mean, variance = tf.nn.moments(x, list(axes), keepdims=True)
    if stop:
        mean, variance = tf.stop_gradient(mean), tf.stop_gradient(variance)
    return (x - mean) * tf.math.rsqrt(variance + 1e-3)


def _nested(function):
    return tf.function(function)


def _cond_in_statistic(x):
    return tf.cond(tf.reduce_mean(x) > 0.0, lambda: x, lambda: -x)


def _while_of_statistic(x):
    times = tf.cast(tf.math.ceil(tf.reduce_max(tf.abs(x)) * 4), tf.int32)
    return tf.while_loop(lambda i, _: i < times, lambda i, h: (i + 1, 0.7 * h + 0.1), (0, x), parallel_iterations=1)[1]


def _map_over_features(x):
    """map_fn over the features: each step sees one feature of all examples."""
    return tf.transpose(tf.map_fn(lambda column: column - tf.reduce_mean(column), tf.transpose(x)))


def _scan_over_examples(x):
    return tf.scan(lambda total, row: 0.5 * total + row, x)


def _reshape_moves(x):
    """[B, 4] read as [4, B], and back after a product: rows are no examples any more."""
    size = tf.shape(x)[0]
    return tf.reshape(tf.transpose(tf.reshape(x, [4, size])), [size, 4])


def _std_feature(x):
    """Minibatch standard deviation, as in progressive GANs."""
    std = tf.reduce_mean(tf.sqrt(tf.math.reduce_variance(x, axis=0) + 1e-3))
    return tf.concat([x, tf.fill([tf.shape(x)[0], 1], std)], axis=1)


def _discrimination(x):
    """Minibatch discrimination: closeness to the others."""
    distances = tf.reduce_sum(tf.abs(x[:, None] - x[None]), axis=2)
    return tf.concat([x, tf.reduce_sum(tf.exp(-distances), axis=1, keepdims=True)], axis=1)


def _attend(x):
    return tf.matmul(tf.nn.softmax(tf.matmul(x, x, transpose_b=True)), x)


def _unique_count(x):
    _, index, counts = tf.unique_with_counts(tf.cast(x[:, 0] > 0, tf.int32))
    return x * tf.cast(tf.gather(counts, index), tf.float32)[:, None]


def _segments(x):
    groups = tf.cast(x[:, 0] > 0, tf.int32)
    return tf.gather(tf.math.unsorted_segment_mean(x, groups, 2), groups)


def _mix_up(x):
    return 0.6 * x + 0.4 * tf.reverse(x, [0])


def _transposed_softmax(x):
    return tf.transpose(tf.nn.softmax(tf.transpose(x)))


def _top_rows(x):
    _, rows = tf.math.top_k(x[:, 0], tf.shape(x)[0])
    return tf.gather(x, rows)


def _scatter_rows(x):
    size = tf.shape(x)[0]
    return tf.scatter_nd(tf.reverse(tf.range(size), [0])[:, None], x, tf.shape(x))


def _dynamic_partition(x):
    positive = tf.cast(x[:, 0] > 0, tf.int32)
    parts = tf.dynamic_partition(x, positive, 2)
    return tf.concat(parts, axis=0)


def _boolean_mask(x):
    keep = tf.boolean_mask(x, x[:, 0] > 0)
    return x + tf.reduce_sum(keep, axis=0)


def _convolve_over_batch(x):
    return tf.nn.conv1d(x[None], tf.ones([3, 4, 4]) / 4, 1, "SAME")[0]


def _pool_over_batch(x):
    return tf.nn.max_pool1d(x[None], 3, 1, "SAME")[0]


def _fft_over_batch(x):
    return tf.transpose(tf.abs(tf.signal.fft(tf.cast(tf.transpose(x), tf.complex64))))


def _whiten(x):
    """Zero-phase whitening by the Cholesky factor of the batch's covariance."""
    centred = x - tf.reduce_mean(x, axis=0)
    covariance = tf.matmul(centred, centred, transpose_a=True) / tf.cast(tf.shape(x)[0], tf.float32)
    return tf.transpose(tf.linalg.triangular_solve(tf.linalg.cholesky(covariance + tf.eye(4)), tf.transpose(centred)))


MIXERS = {
    "moments_by_hand": _moments,
    "moments_stopped": lambda x: _moments(x, stop=True),
    "moments_negative_axis": lambda x: _moments(x, axes=(-2,), stop=True),
    "moments_in_tf_function": _nested(_moments),
    "moments_of_all": lambda x: _moments(x, axes=(0, 1)),
    "mean_subtracted": lambda x: x - tf.reduce_mean(x, axis=0),
    "mean_negative_axis_stopped": lambda x: x - tf.stop_gradient(tf.reduce_mean(x, axis=-2)),
    "max_of_batch": lambda x: x / tf.reduce_max(tf.abs(x)),
    "max_of_batch_stopped": lambda x: x / tf.stop_gradient(tf.reduce_max(tf.abs(x), axis=0)),
    "any_of_batch": lambda x: tf.where(tf.reduce_any(x > 0.9), x, -x),
    "global_norm": lambda x: 3 * x / tf.norm(x),
    "clip_by_global_norm": lambda x: tf.clip_by_global_norm([x], 1.0)[0][0],
    "l2_normalize_batch": lambda x: tf.math.l2_normalize(x, axis=0),
    "softmax_axis_0": lambda x: tf.nn.softmax(x, axis=0),
    "softmax_transposed": _transposed_softmax,
    "logsumexp_of_batch": lambda x: x - tf.reduce_logsumexp(x, axis=0),
    "cumsum_axis_0": lambda x: tf.cumsum(x, axis=0),
    "cumprod_axis_0": lambda x: tf.math.cumprod(1 + 0.1 * x, axis=0),
    "roll": lambda x: tf.roll(x, 1, axis=0) + 0.1 * x,
    "reverse": lambda x: tf.reverse(x, [0]),
    "reverse_by_slice": lambda x: x[::-1],
    "sort_axis_0": lambda x: tf.sort(x, axis=0),
    "argsort_axis_0": lambda x: x + 0.3 * tf.cast(tf.argsort(x, axis=0), tf.float32),
    "argmax_axis_0": lambda x: x + 0.3 * tf.cast(tf.argmax(x, axis=0), tf.float32),
    "top_k_rows": _top_rows,
    "first_example": lambda x: x * tf.sign(x[0, 0]),
    "first_example_added": lambda x: x + x[:1],
    "last_example_added": lambda x: x + x[-1],
    "gather_constant_row": lambda x: x * tf.gather(x, [0]),
    "gather_rows_shifted": lambda x: tf.gather(x, (tf.range(tf.shape(x)[0]) + 1) % tf.shape(x)[0]),
    "gather_nd_rows": lambda x: tf.gather_nd(x, tf.reverse(tf.range(tf.shape(x)[0]), [0])[:, None]),
    "concat_over_batch": lambda x: tf.concat([x[1:], x[:1]], axis=0),
    "stack_unstack": lambda x: x + tf.unstack(tf.stack([x[0], x[-1]]))[1],
    "split_over_batch": lambda x: x + tf.split(x, [1, tf.shape(x)[0] - 1])[0],
    "pad_over_batch": lambda x: x + tf.pad(x, [[1, 0], [0, 0]])[:-1],
    "tile_first": lambda x: x * tf.tile(x[:1], [tf.shape(x)[0], 1]),
    "gram_attention": _attend,
    "matmul_batch_contraction": lambda x: tf.matmul(x, tf.matmul(x, x, transpose_a=True)),
    "einsum_pairs": lambda x: tf.matmul(tf.nn.softmax(tf.einsum("bd,cd->bc", x, x)), x),
    "einsum_sum": lambda x: x * tf.einsum("bd->d", x),
    "tensordot": lambda x: tf.tensordot(x, tf.tensordot(x, x, [[0], [0]]), 1),
    "mix_up": _mix_up,
    "reshape_moves": _reshape_moves,
    "std_feature": _std_feature,
    "minibatch_discrimination": _discrimination,
    "unique_counts": _unique_count,
    "segment_mean": _segments,
    "scatter_rows": _scatter_rows,
    "dynamic_partition": _dynamic_partition,
    "boolean_mask": _boolean_mask,
    "cond_on_statistic": _cond_in_statistic,
    "while_of_statistic": _while_of_statistic,
    "map_over_features": _map_over_features,
    "vectorized_map_over_features": lambda x: tf.transpose(
        tf.vectorized_map(lambda column: column - tf.reduce_mean(column), tf.transpose(x))
    ),
    "scan_over_examples": _scan_over_examples,
    "convolution_over_batch": _convolve_over_batch,
    "pooling_over_batch": _pool_over_batch,
    "fft_over_batch": _fft_over_batch,
    "whitening": _whiten,
    "histogram": lambda x: x * tf.cast(tf.histogram_fixed_width(x, [-1.0, 1.0], 4), tf.float32),
    "bincount": lambda x: x * tf.math.bincount(tf.argmax(x, 1, tf.int32), minlength=4, maxlength=4, dtype=tf.float32),
    "batch_size": lambda x: x * tf.cast(tf.shape(x)[0], tf.float32) / 3,
    "position": lambda x: x * tf.cast(tf.range(tf.shape(x)[0]), tf.float32)[:, None],
    "count_of_positives": lambda x: x / (1.0 + tf.cast(tf.math.count_nonzero(x[:, 0] > 0), tf.float32)),
}
FAST = {"softmax_axis_0": "graph", "first_example": "graph", "roll": "graph", "moments_negative_axis": "graph"}

for _name, _function in MIXERS.items():
    _fast = (FAST[_name],) if _name in FAST else ()
    _by_hand(_function, _name, fast=_fast, size_only=_name == "batch_size", infinite=_name != "histogram")


@case("refused")
def dense_over_transposed_batch():
    """The batch axis hidden behind features, then contracted."""
    return net([L.Dense(4), Apply(lambda x: tf.transpose(tf.cumsum(tf.transpose(x), axis=1))), L.Dense(3)], features())


@case("refused")
def rnn_over_batch():
    """A recurrent layer that takes the batch for time."""

    def build(x):
        h = L.GRU(3, return_sequences=True)(Apply(lambda t: t[None])(x))
        return L.Dense(3)(Apply(lambda t: t[0])(h))

    return net(build, features())


def rnn_time_major():
    """`time_major` on input that is not: the batch is time."""

    def build(x):
        return L.Dense(3)(Apply(lambda t: t[:, 0])(L.SimpleRNN(3, return_sequences=True, time_major=True)(x)))

    return net(build, features(4, 2))


if keras.GENERATION == 2:  # Keras 3 has no such option
    case("refused")(rnn_time_major)


@case("refused")
def attention_across_batch():
    def build(x):
        h = Apply(lambda t: t[None])(L.Dense(4)(x))
        return L.Dense(3)(Apply(lambda t: t[0])(L.MultiHeadAttention(2, 2)(h, h)))

    return net(build, features())


@case("refused")
def shuffled():
    return mlp_around(tf.random.shuffle)
