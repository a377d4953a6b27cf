"""The number of examples, told to all of them by public arrays that are as long as the batch."""

import numpy as np
import tensorflow as tf

from tests.attack.case import case, mlp_around

_TABLE = np.float32([1.0] * 7 + [-1.0] * 57)


def _n(x):
    return tf.shape(x)[0]


def _many(count):
    """Another sign for 8 examples than for 7."""
    return tf.sign(tf.cast(count, tf.float32) - 7.5)


def _list_length(x):
    handle = tf.raw_ops.TensorListFromTensor(tensor=tf.ones([_n(x), 1]), element_shape=[1])
    return tf.raw_ops.TensorListLength(input_handle=handle)


def _mask(x):
    return tf.sequence_mask(tf.ones([_n(x)], tf.int32), 1, tf.float32)


def _rounds(x):
    return tf.while_loop(lambda i, s: i < _n(x), lambda i, s: (i + 1, s + 1.0), (0, 0.0))[1]


def _in_a_loop(x):
    ones = tf.ones([_n(x)])
    return tf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, tf.reduce_sum(ones)), (0, 0.0))[1]


def _one(x):
    """A one for each example, as data."""
    return tf.ones_like(x[:, :1])


def _table_as_long(x):
    """What stands at place 7 hangs on how many zeros are before it."""
    table = tf.concat([tf.zeros([_n(x)]), tf.ones([64])], 0)
    return 2.0 * tf.gather(table, tf.zeros_like(x[:, 0], tf.int32) + 7)[:, tf.newaxis] - 1.0


def _kernel_as_long(x):
    image = tf.tile(_one(x)[:, :, tf.newaxis, tf.newaxis], [1, 64, 1, 1])
    return tf.nn.conv2d(image, tf.ones([_n(x), 1, 1, 1]), 1, "VALID")[:, 0, 0, :]


def _transposed_as_long(x):
    """An output shape that the stride leaves open."""
    shape = tf.stack([_n(x), _n(x), 1, 1])
    image = _one(x)[:, :, tf.newaxis, tf.newaxis]
    return tf.reduce_sum(tf.nn.conv2d_transpose(image, tf.ones([64, 1, 1, 1]), shape, [1, 64, 1, 1], "SAME"), [1, 2])


def _bins(x):
    bins = tf.raw_ops.DenseBincount(input=tf.zeros_like(x, tf.int32), size=_n(x), weights=tf.zeros([0]))
    return tf.reduce_sum(tf.ones_like(bins), 1, keepdims=True)


def _put_back(x):
    put = tf.raw_ops.StridedSliceGrad(
        shape=tf.stack([_n(x), _n(x)]), begin=[0, 0], end=[0, 1], strides=[1, 1], dy=_one(x), begin_mask=1, end_mask=1
    )
    return tf.reduce_sum(tf.ones_like(put), 1, keepdims=True)


def _empty_element(x):
    shape = tf.reshape(_n(x), [1])
    handle = tf.raw_ops.TensorListReserve(element_shape=shape, num_elements=1, element_dtype=tf.float32)
    zeros = tf.raw_ops.TensorListGetItem(input_handle=handle, index=0, element_shape=shape, element_dtype=tf.float32)
    return tf.reduce_sum(tf.ones_like(zeros))


# An axis other than the examples' that is as long as there are examples.
_AXES = {
    "count_by_the_rest_of_a_reshape": lambda x: x * _many(tf.shape(tf.reshape(x, [2, -1]))[1] // 2),
    "count_by_a_place_in_a_table": lambda x: x * _table_as_long(x),
    "count_by_a_kernel": lambda x: x * _many(_kernel_as_long(x)),
    "count_by_an_outer_product": lambda x: (
        x * _many(tf.reduce_sum(tf.matmul(_one(x), tf.ones([1, _n(x)])), 1)[:, None])
    ),
    "count_by_einsum": lambda x: (
        x * _many(tf.reduce_sum(tf.einsum("bi,ij->bj", _one(x), tf.ones([1, _n(x)])), 1, keepdims=True))
    ),
    "count_by_an_output_shape": lambda x: x * _many(_transposed_as_long(x)),
    "count_of_bins": lambda x: x * _many(_bins(x)),
    "count_of_what_is_put_back": lambda x: x * _many(_put_back(x)),
    "count_of_an_empty_element": lambda x: x * _many(_empty_element(x)),
}
_COUNTS = {
    **{name: (function, ()) for name, function in _AXES.items()},
    "count_of_ones": (lambda x: x * _many(tf.reduce_sum(tf.ones([_n(x)]))), ("graph", "loop")),
    "count_of_ones_in_a_function": (lambda x: x * tf.function(lambda v: _many(tf.reduce_sum(v)))(tf.ones([_n(x)])), ()),
    "count_of_ones_in_a_loop": (lambda x: x * _many(_in_a_loop(x)), ()),
    "count_of_tiled_ones": (lambda x: x * _many(tf.reduce_sum(tf.tile(tf.ones([1]), [_n(x)]))), ()),
    "count_by_a_product": (lambda x: x * _many(tf.ones([1, _n(x)]) @ tf.ones([_n(x), 1])), ()),
    "count_by_a_trace": (lambda x: x * _many(tf.linalg.trace(tf.eye(_n(x)))), ("graph",)),
    "count_by_a_norm": (lambda x: x * _many(tf.norm(tf.eye(_n(x))) ** 2), ()),
    "count_by_noise": (lambda x: x * _many(tf.reduce_sum(tf.random.uniform([_n(x)], 1.0, 1.0001))), ()),
    "count_of_a_list": (lambda x: x * _many(_list_length(x)), ("graph",)),
    "count_of_rounds": (lambda x: x * _many(_rounds(x)), ("graph",)),
    "count_by_a_table": (lambda x: x * tf.constant(_TABLE)[_n(x) - 1], ("graph",)),
    "count_by_a_branch": (lambda x: x * tf.cond(_n(x) > 7, lambda: 1.0, lambda: -1.0), ()),
    "count_by_log_sum_exp": (lambda x: x * _many(tf.exp(tf.reduce_logsumexp(tf.zeros([_n(x)])))), ()),
    "count_by_a_mask": (lambda x: x * _many(tf.reduce_sum(_mask(x))), ()),
}
for _name, (_function, _fast) in _COUNTS.items():

    def _build(function=_function):
        return mlp_around(function)

    _build.__name__ = _name
    case("either", fast=_fast, size_only=True)(_build)


@case("either", fast=("graph", "static"), tolerance=np.inf)  # XLA has other numbers for the same seed
def numbers_of_a_fixed_seed():
    """Place k gets the k-th of them, in every step."""
    return mlp_around(lambda x: x * tf.random.stateless_uniform([_n(x), 1], [1, 2]))


@case("either", tolerance=np.inf)
def dropout_of_a_fixed_seed():
    return mlp_around(lambda x: tf.nn.experimental.stateless_dropout(x, 0.5, [1, 2]))
