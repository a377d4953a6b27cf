"""Ops whose attributes, or the layout of whose arguments, decide whether examples meet; how N could get out by them."""

import tensorflow as tf

from adaclip_tf._internal import keras
from tests.attack.case import case, features, mlp_around, net

L = tf.keras.layers


def _n(x):
    return tf.shape(x)[0]


def _times(x, number):
    return x * (1.0 + tf.cast(number, x.dtype)) / 4.0


def _behind_an_ellipsis(x):
    """`x[..., :N]`: the entry of the slice that N is in is not that of the axis with the same number."""
    wide = tf.tile(tf.ones_like(x), [1, 9])[None]  # [1, N, 36]
    return _times(x, tf.reduce_sum(wide[..., : _n(x)], axis=[0, 2])[:, None])


def _hidden_zero():
    """0, of which nobody knows before the run that it is: an extent less itself."""
    unknown = tf.shape(tf.boolean_mask(tf.ones([3, 2]), [True, True, False]))[0]
    return unknown - unknown


def _shapes(x):
    return tf.stack([tf.stack([4, _n(x)]), [7, 7]])


def _never_run(x):
    """Ones [N, N] as the start of a state that each round would overwrite with data."""
    _, state = tf.while_loop(
        lambda i, s: i < 0,
        lambda i, s: (i + 1, x),
        (tf.constant(0), tf.ones([_n(x), _n(x)])),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, None])),
    )
    return _times(x, tf.reduce_sum(state, axis=1, keepdims=True))


def _ones_in_a_list(x):
    items = tf.TensorArray(tf.float32, 2, infer_shape=False, clear_after_read=False)
    items = items.write(0, tf.ones([_n(x), _n(x)])).write(1, x)
    return _times(x, tf.reduce_sum(tf.ensure_shape(items.read(0), [None, None]), axis=1, keepdims=True))


def _hole_in_a_list(x):
    """A list of data, of which an element is read that nobody put in."""
    items = tf.raw_ops.TensorListReserve(element_shape=-1, num_elements=2, element_dtype=tf.float32)
    items = tf.raw_ops.TensorListSetItem(input_handle=items, index=1, item=x)
    shape = tf.stack([_n(x), _n(x)])
    hole = tf.raw_ops.TensorListGetItem(input_handle=items, index=0, element_shape=shape, element_dtype=tf.float32)
    ones = tf.ones_like(tf.ensure_shape(hole, [None, None]))
    return _times(x, tf.reduce_sum(ones, axis=1, keepdims=True))


# What N gets into.
_COUNTS = {
    "ellipsis_before_a_size": _behind_an_ellipsis,
    "shape_at_an_unknown_place": lambda x: _times(x, tf.shape(x)[_hidden_zero()]),
    "shape_from_an_unknown_place": lambda x: _times(x, tf.slice(tf.shape(x), [_hidden_zero()], [-1])[0]),
    "shapes_gathered_across": lambda x: _times(x, tf.reshape(tf.gather(_shapes(x), [1], axis=1), [-1])[0]),
    "shapes_sliced_across": lambda x: _times(x, tf.reshape(tf.slice(_shapes(x), [0, 1], [2, 1]), [-1])[0]),
    "stitched_with_a_gap": lambda x: _times(x, tf.dynamic_stitch([[0], [2], [3]], [[7], [4], [_n(x)]])[3]),
    "narrow_count": lambda x: _times(x, tf.cast(tf.cast(_n(x) * 32, tf.uint8), tf.int32) // _n(x)),
    "largest_of_minus_n": lambda x: _times(x, -tf.maximum(_n(x) * -1, -7)),
    "state_of_a_loop_that_never_runs": _never_run,
    "list_with_ones_as_wide_as_the_batch": _ones_in_a_list,
}


def _through_an_optional(x):
    """An optional that the step fills itself is no dataset's element."""
    centered = tf.stop_gradient(x - tf.reduce_mean(x, axis=0))
    return x + tf.ensure_shape(tf.experimental.Optional.from_value(centered).get_value(), [None, 4])


def _through_an_iterator(x):
    """Nor is that of a dataset which the step makes of the batch."""
    centered = tf.stop_gradient(x - tf.reduce_mean(x, axis=0))
    return x + tf.ensure_shape(next(iter(tf.data.Dataset.from_tensors(centered))), [None, 4])


_MEETING = {
    "optional_of_the_mean": _through_an_optional,
    "iterator_of_the_batch": _through_an_iterator,
}


def _register(cases, **options):
    for name, function in cases.items():

        def build(function=function):
            return mlp_around(function)

        build.__name__ = name
        case("refused", fast=("graph",) if name == "ellipsis_before_a_size" else (), **options)(build)


_register(_COUNTS, size_only=True)
# XLA makes such zeros in the shape of the other elements, so that there is nothing to compare with: moves alone count.
_register({"list_with_a_hole_as_wide_as_the_batch": _hole_in_a_list}, size_only=True, tolerance=1.0)
_register(_MEETING)


class _Counts(tf.keras.layers.Layer):
    """Counts its calls, inside a function together with an op that is not known."""

    def __init__(self, how):
        super().__init__()
        self._how = how

    def build(self, shape):
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False, name="calls")

    def call(self, x):
        calls = keras.native(self.calls)
        if self._how == "function":

            @tf.function
            def counted(x):
                calls.assign_add(1.0)
                return tf.linalg.expm(tf.linalg.diag(x) * 0.01)[:, 0, :] + x

            return counted(x)
        with tf.control_dependencies([calls.assign_add(1.0)]):
            return tf.linalg.expm(tf.linalg.diag(tf.identity(x)) * 0.01)[:, 0, :] + x


@case("either", fast=("graph",))
def calls_counted_in_a_function():
    """Run alone, each example would count."""
    return net([L.Dense(4, "tanh"), _Counts("function"), L.Dense(3)], features())


@case("either")
def calls_counted_before():
    return net([L.Dense(4, "tanh"), _Counts("before"), L.Dense(3)], features())


class _Writes(tf.keras.layers.Layer):
    """Writes the batch into a variable from within a dataset."""

    def __init__(self, how):
        super().__init__()
        self._how = how

    def build(self, shape):
        self.kept = self.add_weight(shape=(4,), initializer="zeros", trainable=False, name="kept")

    def call(self, x):
        kept = keras.native(self.kept)
        rows = tf.data.Dataset.from_tensor_slices(x)
        if self._how == "map":
            done = rows.map(kept.assign_add).reduce(tf.zeros([4]), lambda a, b: a + b)
        elif self._how == "reduce":
            done = rows.reduce(tf.zeros([4]), lambda a, b: kept.assign_add(b))
        else:
            done = tf.data.Dataset.from_tensors(x).map(lambda t: kept.assign_add(t[0])).get_single_element()
        with tf.control_dependencies([done]):
            return tf.identity(x)


for _how in ("map", "reduce", "single"):

    def _build_writes(how=_how):
        return net([L.Dense(4, "tanh"), _Writes(how), L.Dense(3)], features())

    _build_writes.__name__ = f"written_in_a_dataset_{_how}"
    case("refused")(_build_writes)
