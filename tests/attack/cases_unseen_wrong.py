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


def _rolled_by_data(x):
    return x + 0.5 * tf.roll(x, tf.cast(tf.round(10.0 * x[0, 0]), tf.int32), axis=0)


def _line_over_the_batch(x):
    return x * tf.linspace(0.0, 1.0, _n(x))[:, None]


def _sorted_noise(x):
    return x * tf.sort(tf.random.uniform([_n(x)]))[:, None]


def _noise_of_pairs(x):
    noise = tf.random.normal([_n(x), 4])
    return x * tf.matmul(noise, noise, transpose_b=True)[:, :1]


def _tridiagonal(x):
    """An implicit step of diffusion along the examples."""
    diagonals = tf.stack([-tf.ones([_n(x)]), 4.0 * tf.ones([_n(x)]), -tf.ones([_n(x)])])
    return tf.linalg.tridiagonal_solve(diagonals, x)


def _segments_of_own_class(x):
    ids = tf.argmax(x, 1)
    return tf.exp(x) / (1.0 + tf.gather(tf.math.unsorted_segment_sum(tf.exp(x), ids, 4), ids))


def _sorted_by_two_keys(x):
    order = tf.argsort(tf.argmax(x, 1), stable=True)
    mixed = tf.cumsum(tf.gather(x, order), 0)
    return tf.gather(mixed, tf.math.invert_permutation(order))


def _count_in_a_byte(x):
    """300 examples are 44 in a byte."""
    return x * tf.cast(tf.cast(_n(x), tf.int8), tf.float32)


def _columns_by_count(x):
    most = tf.minimum(_n(x) // 2, 4)
    return x * tf.ensure_shape(tf.pad(tf.ones([1, most]), [[0, 0], [0, 4 - most]]), [1, 4])


def _reshaped_folds(x):
    """Batch into features, scaled there, and back."""
    folded = tf.reshape(tf.transpose(x), [4, -1])
    return tf.transpose(folded / (1.0 + tf.norm(folded, axis=1, keepdims=True)))


def _of_a_ragged_batch(x):
    lengths = 1 + tf.cast(x[:, 0] > 0, tf.int64)
    ragged = tf.RaggedTensor.from_tensor(x, lengths)
    return x * tf.cast(ragged.bounding_shape()[1], tf.float32)


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
def _agreeing(x):
    """Gradient surgery: what points against the batch's mean is projected away."""

    def back(dy):
        mean = tf.reduce_mean(dy, 0, keepdims=True)
        along = tf.minimum(tf.reduce_sum(dy * mean, 1, keepdims=True), 0.0)
        return dy - along * mean / (tf.reduce_sum(mean**2) + 1e-6)

    return x, back


def _list_resized(x):
    handle = tf.raw_ops.TensorListReserve(element_shape=[4], num_elements=1, element_dtype=tf.float32)
    handle = tf.raw_ops.TensorListResize(input_handle=handle, size=_n(x))
    return x * tf.cast(tf.raw_ops.TensorListLength(input_handle=handle), tf.float32)


def _list_split(x):
    handle = tf.raw_ops.TensorListSplit(tensor=x, element_shape=[-1, 4], lengths=tf.ones([_n(x)], tf.int64))
    first = tf.raw_ops.TensorListGetItem(input_handle=handle, index=0, element_shape=[1, 4], element_dtype=tf.float32)
    return x - first


def _top_of_flat(x):
    values = tf.math.top_k(tf.reshape(x, [-1]), 3)[0]
    return tf.where(x >= values[-1], x, 0.5 * x)


_MIXING = {
    "reduced_where_there_are_eight": _reduced_where_eight,
    "reduced_where_there_is_one": _reduced_where_one,
    "length_of_counts": _length_of_counts,
    "rolled_as_the_first_says": _rolled_by_data,
    "line_over_the_batch": _line_over_the_batch,
    "implicit_diffusion": _tridiagonal,
    "softmax_among_own_class": _segments_of_own_class,
    "cumulated_in_sorted_order": _sorted_by_two_keys,
    "count_in_a_byte": _count_in_a_byte,
    "columns_by_count": _columns_by_count,
    "folded_into_features": _reshaped_folds,
    "bounding_shape": _of_a_ragged_batch,
    "forward_derivative_of_all": _forward_derivative,
    "gradient_of_a_product_of_all": _gradient_of_a_product,
    "gradient_surgery": _agreeing,
    "list_resized": _list_resized,
    "list_split": _list_split,
    "top_of_all_numbers": _top_of_flat,
}
_TOLD_BY_COUNT = {
    *("reduced_where_there_are_eight", "reduced_where_there_is_one", "length_of_counts", "count_in_a_byte"),
    *("columns_by_count", "list_resized"),
}
for _name, _function in _MIXING.items():

    def _build(function=_function):
        return mlp_around(function)

    _build.__name__ = _name
    fast = ("graph",) if _name == "length_of_counts" else ()
    case("refused", infinite=False, size_only=_name in _TOLD_BY_COUNT, fast=fast)(_build)

_DRAWN = {
    "noise_in_pairs": _noise_of_pairs,
    "sorted_noise": _sorted_noise,
}
for _name, _function in _DRAWN.items():

    def _build(function=_function):
        return mlp_around(function)

    _build.__name__ = _name
    case("refused", random=True)(_build)


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


def _less_itself(layer, x):
    layer.state.assign_add([1, 1])
    state = tf.identity(layer.state)
    return tf.random.stateless_normal(tf.shape(x), state - tf.cast(tf.cast(state, tf.float32), tf.int32))


def _zero_beside_a_draw(layer, x):
    del layer
    pair = tf.stack([tf.random.uniform([], maxval=2**30, dtype=tf.int32), 0, 0])
    return tf.random.stateless_normal(tf.shape(x), tf.cast(pair, tf.int64)[1:])


def _generator_reset(layer, x):
    layer.generator.reset_from_seed(1)
    return layer.generator.normal(tf.shape(x))


_ALIKE = (_set_back, _set_to_itself, _counted_up_and_back, _counted_elsewhere, _less_itself, _zero_beside_a_draw)
for _function in (*_ALIKE, _generator_reset):

    def _build(function=_function):
        return net([L.Dense(4, "tanh"), _Noisy(function), L.Dense(3)], features())

    _build.__name__ = "seed" + _function.__name__
    fast = ("graph",) if _function is _set_back else ()
    case("refused", tolerance=np.inf, fast=fast)(_build)  # XLA draws other numbers than the reference
