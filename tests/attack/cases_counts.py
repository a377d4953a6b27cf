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


_COUNTS = {
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
