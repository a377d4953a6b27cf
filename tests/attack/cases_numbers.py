"""Whole numbers in the graph that are not what they seem: overflown, rounded, told by data, of another shape."""

import tensorflow as tf

from adaclip_tf._internal import keras
from tests.attack.case import case, features, mlp_around, net

L = tf.keras.layers
_RAW = tf.raw_ops


def _n(x):
    return tf.shape(x)[0]


def _times(x, number):
    return x * (1.0 + tf.cast(number, x.dtype)) / 4.0


def _axes_of(first, second):
    """Those that the gradient of a product of arrays of these shapes is summed over."""
    return _RAW.BroadcastGradientArgs(s0=first, s1=second).r0


def _axes_that_data_choose(x):
    """Whether features are added up hangs on the sign of what the batch adds up to."""
    width = tf.cast(tf.reduce_sum(x) > 0.0, tf.int32) + 1
    return x + tf.reduce_sum(x, axis=_axes_of(tf.stack([2, width]), tf.constant([2, 2])), keepdims=True)


def _axes_of_one_example(x):
    """The same, and one number of each example decides."""
    widths = tf.cast(x[:, 0] > 0.0, tf.int32) + 1
    return x + tf.reduce_sum(x[None], axis=_axes_of(widths[None, :2][0], tf.constant([2, 2])), keepdims=True)[0]


def _axes_of_another_shape(x):
    """A sum over axes that are said to have extent 1, and have not."""
    sums = tf.reduce_sum(x, axis=_axes_of(tf.constant([1]), tf.zeros([0], tf.int32)), keepdims=True)
    return x - tf.stop_gradient(sums) / 8.0


def _axes_of_features_by_count(x):
    """Features are added up for batches of less than 8."""
    shape = tf.stack([2, 9 - 8 * tf.minimum(_n(x) // 8, 1)])
    return x + tf.stop_gradient(tf.reduce_sum(x, axis=_axes_of(shape, tf.constant([2, 9])), keepdims=True))


def _axes_of_a_constant_by_count(x):
    shape = tf.stack([9 - 8 * (_n(x) // 8)])
    ones = tf.reduce_sum(tf.ones([5]), axis=_axes_of(shape, tf.constant([9])), keepdims=True)
    return _times(x, ones[0])


def _axis_by_overflow(x):
    """(2^31 - 1 + 2) mod 3 is 0 for Python, and 2 in int32; less 1 and so on: axis 1 for the one, 0 for the other."""
    axis = tf.math.floormod(tf.constant(2**31 - 1) + tf.constant(2), 3)  # 0, really 2
    return x + tf.reduce_mean(tf.stop_gradient(x), axis=1 - axis // 2, keepdims=True)


def _axis_by_rounding(x):
    """2^24 + 1 is no float32."""
    axis = tf.cast(tf.cast(tf.constant(2**24 + 1), tf.float32), tf.int32) - 2**24  # 1, really 0
    return x - tf.stop_gradient(tf.reduce_mean(x, axis=axis, keepdims=True))


def _axis_by_a_narrow_type(x):
    odd = tf.math.floormod(tf.constant(127, tf.int8) + tf.constant(3, tf.int8), tf.constant(3, tf.int8))  # 1, really 0
    return x - tf.stop_gradient(tf.reduce_mean(x, axis=tf.cast(odd, tf.int32), keepdims=True))


def _axis_by_a_cut(x):
    """2^32 + 1 as int32 is 1."""
    axis = tf.cast(tf.constant(2**32 + 1, tf.int64), tf.int32) % 2 - 1 + tf.cast(tf.constant(2**32), tf.int32)
    return x - tf.stop_gradient(tf.reduce_mean(x, axis=axis, keepdims=True))


_MIXING = {
    "axes_that_data_choose": _axes_that_data_choose,
    "axes_of_another_shape": _axes_of_another_shape,
    "axes_of_two_examples": _axes_of_one_example,
    "axis_by_overflow": _axis_by_overflow,
    "axis_by_rounding": _axis_by_rounding,
    "axis_by_a_narrow_type": _axis_by_a_narrow_type,
    "axis_by_a_cut": _axis_by_a_cut,
    "nan_behind_a_minimum": lambda x: x * _nan_or_three(x) / 3.0,
}


def _nan_or_three(x):
    """3, unless an example has a number that is none."""
    three = tf.cast(tf.constant(3), tf.float32)
    return tf.stop_gradient(tf.minimum(three, tf.maximum(three, tf.reduce_sum(x))))


def _overflown(x):
    return _times(x, tf.cast((_n(x) * 2**30) // _n(x), tf.float32) / 2**29)


def _rounded(x):
    n = tf.cast(_n(x), tf.float32)
    return _times(x, 1e7 * (n * tf.cast(tf.constant(9999991), tf.float32) / n / 9999991.0 - 1.0))


def _state_of_one_row(x):
    """A loop that never runs, whose state would be as long as the batch."""
    _, state = tf.while_loop(
        lambda i, s: i < 0,
        lambda i, s: (i + 1, x),
        (tf.constant(0), tf.zeros([1, 4])),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, 4])),
    )
    return _times(x, _n(x) // _n(state))


def _row_in_a_list(x):
    items = tf.TensorArray(tf.float32, 2, infer_shape=False, clear_after_read=False)
    items = items.write(0, tf.ones([1, 4])).write(1, tf.stop_gradient(x))
    return _times(x, _n(x) // _n(tf.ensure_shape(items.read(0), [None, 4])))


def _hidden_zero():
    """0, of which nobody knows before the run that it is: an extent less itself."""
    unknown = tf.shape(tf.boolean_mask(tf.ones([3, 2]), [True, True, False]))[0]
    return unknown - unknown


def _reserved(x, rows):
    """A list of data, and one row that nobody, or somebody, put in: as long as the batch, says its label."""
    items = _RAW.TensorListReserve(element_shape=-1, num_elements=2, element_dtype=tf.float32)
    items = _RAW.TensorListSetItem(input_handle=items, index=1, item=tf.stop_gradient(x))
    if rows is not None:
        items = _RAW.TensorListSetItem(input_handle=items, index=0, item=rows)
    shape = tf.stack([1 + _hidden_zero(), 4]) if rows is None else tf.constant([-1, 4])
    row = _RAW.TensorListGetItem(
        input_handle=items, index=_hidden_zero(), element_shape=shape, element_dtype=tf.float32
    )
    return _times(x, _n(x) // _n(tf.ensure_shape(row, [None, 4])))


def _hole_by_a_loop(x):
    """A list in which a loop that never runs would put data, is read: it was made for one row."""
    items = _RAW.TensorListReserve(
        element_shape=tf.stack([1 + _hidden_zero(), 4]), num_elements=2, element_dtype=tf.float32
    )
    _, items = tf.while_loop(
        lambda i, s: i < 0,
        lambda i, s: (i + 1, _RAW.TensorListSetItem(input_handle=s, index=0, item=x)),
        (tf.constant(0), items),
    )
    row = _RAW.TensorListGetItem(input_handle=items, index=0, element_shape=-1, element_dtype=tf.float32)
    return _times(x, _n(x) // _n(tf.ensure_shape(row, [None, 4])))


def _branch_of_one_row(x):
    rows = tf.cond(tf.random.uniform([]) < 2.0, lambda: tf.ones([1, 4]), lambda: tf.ones([_n(x), 4]))
    return _times(x, _n(x) // _n(rows))


_COUNTS = {
    "count_overflown": _overflown,
    "count_rounded": _rounded,
    "state_of_one_row": _state_of_one_row,
    "row_in_a_list": _row_in_a_list,
    "row_that_is_read_of_a_list": lambda x: _reserved(x, tf.zeros(tf.stack([1 + _hidden_zero(), 4]))),
    "hole_of_one_row_in_a_list": lambda x: _reserved(x, None),
    "hole_by_a_loop": _hole_by_a_loop,
    "axes_of_features_by_count": _axes_of_features_by_count,
    "axes_of_a_constant_by_count": _axes_of_a_constant_by_count,
    "branch_of_one_row": _branch_of_one_row,
}


def _register(cases, **options):
    for name, function in cases.items():

        def build(function=function):
            return mlp_around(function)

        build.__name__ = name
        case("refused", **options)(build)


_register(_MIXING)
_register(_COUNTS, size_only=True)


@case("accepted")
def sliced_features():
    """The gradient of a slice is padded by extents less extents."""
    return mlp_around(lambda x: tf.concat([tf.slice(x, [0, 1], [-1, 2]), tf.slice(x, [0, 0], [_n(x), 3])], 1))


@case("accepted")
def many_parts_joined():
    """The gradient of more than 16 parts is split by extents, which are slices of a table of shapes."""
    return mlp_around(lambda x: tf.concat([x * (0.1 * i) for i in range(18)], 1))


class _CountsLarge(tf.keras.layers.Layer):
    """Counts batches that are not of seven, by a write that waits for a switch whose other side is dead."""

    def build(self, shape):
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False, name="count")

    def call(self, x):
        count = keras.native(self.count)
        _, large = _RAW.Switch(data=tf.constant(1.0), pred=tf.shape(x)[0] != 7)
        with tf.control_dependencies([tf.identity(large)]):
            count.assign_add(1.0)
        return x


@case("refused", size_only=True)
def written_behind_a_switch():
    """What is dead does not run, and nobody who looks at the write's inputs sees why."""
    return net([L.Dense(4, "tanh"), _CountsLarge(), L.Dense(3)], features())
