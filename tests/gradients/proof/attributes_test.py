"""Ops whose attributes, or the layout of whose arguments, decide whether examples meet, or how many there are."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.gradients import proof

W = tf.Variable(np.linspace(-1.0, 1.0, 4).astype(np.float32))


def _stays_apart(function, size=None) -> bool:
    """Whether it is proven, of a function of [N, 4] that returns [N, 4]."""
    found = []

    def step(x):
        found.append(proof.prove(tf.reduce_sum(function(x) * W, axis=1)))

    try:
        tf.function(step, input_signature=[tf.TensorSpec([size, 4])], autograph=False).get_concrete_function()
    except ValueError as error:
        assert "one example" in str(error) or "batch" in str(error)
        return False
    return found[0].unproven is None


def _n(x):
    return tf.shape(x)[0]


def _by(x, number):
    return x * tf.cast(number, tf.float32)


def _unknown_zero():
    """0, of which nobody knows before the run that it is."""
    count = tf.shape(tf.boolean_mask(tf.ones([3]), [True, True, False]))[0]
    return count - count


def _eight():
    """8, of which not even TensorFlow knows before the run that it is."""
    return 6 + tf.shape(tf.boolean_mask(W, W > 0.0))[0]


def _shapes(x):
    return tf.stack([tf.stack([4, _n(x)]), [7, 7]])


def _loop_of_ones(x, width):
    """A state that would be overwritten in each round, of which there are none."""
    _, state = tf.while_loop(
        lambda i, s: i < 0,
        lambda i, s: (i + 1, x),
        (tf.constant(0), tf.ones(tf.stack([_n(x), width(x)]))),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, None])),
    )
    return x * tf.reduce_sum(state, axis=1, keepdims=True)


def _list_with_a_hole(x, shape):
    items = tf.raw_ops.TensorListReserve(element_shape=-1, num_elements=2, element_dtype=tf.float32)
    items = tf.raw_ops.TensorListSetItem(input_handle=items, index=1, item=x)
    hole = tf.raw_ops.TensorListGetItem(input_handle=items, index=0, element_shape=shape(x), element_dtype=tf.float32)
    return x * tf.reduce_sum(tf.ones_like(tf.ensure_shape(hole, [None, None])), axis=1, keepdims=True)


def _list_of_ones(x):
    items = tf.raw_ops.EmptyTensorList(element_shape=-1, max_num_elements=2, element_dtype=tf.float32)
    for item in (tf.ones([_n(x), _n(x)]), x):
        items = tf.raw_ops.TensorListPushBack(input_handle=items, tensor=item)
    first = tf.raw_ops.TensorListGetItem(input_handle=items, index=0, element_shape=-1, element_dtype=tf.float32)
    return x * tf.reduce_sum(tf.ensure_shape(first, [None, None]), axis=1, keepdims=True)


def _optional(x):
    centered = tf.stop_gradient(x - tf.reduce_mean(x, axis=0))
    return tf.ensure_shape(tf.experimental.Optional.from_value(centered).get_value(), [None, 4])


def _iterated(x):
    return tf.ensure_shape(next(iter(tf.data.Dataset.from_tensors(x - tf.reduce_mean(x, axis=0)))), [None, 4])


def _pool(kind):
    return lambda x: kind(x[:, None, :, None], [2, 1, 1, 1], [1, 1, 1, 1], "SAME")[:, 0, :, 0]


def _axes(first, second):
    """Those that the gradient of a product of arrays of these shapes is summed over."""
    return tf.raw_ops.BroadcastGradientArgs(s0=first, s1=second).r0


def _summed(x, first, second):
    return x + tf.stop_gradient(tf.reduce_sum(x, axis=_axes(first, second), keepdims=True))


def _mean_along(x, axis):
    return x * tf.ensure_shape(tf.reduce_mean(x, axis=axis), [None])[:, None]


def _loop_of_one_row(x):
    _, state = tf.while_loop(
        lambda i, s: i < 0,
        lambda i, s: (i + 1, x),
        (tf.constant(0), tf.zeros([1, 4])),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, 4])),
    )
    return _by(x, _n(x) // _n(state))


def _list_of_one_row(x):
    items = tf.raw_ops.EmptyTensorList(element_shape=-1, max_num_elements=2, element_dtype=tf.float32)
    for item in (tf.zeros(tf.stack([_eight() - 7, 4])), x):
        items = tf.raw_ops.TensorListPushBack(input_handle=items, tensor=item)
    first = tf.raw_ops.TensorListGetItem(input_handle=items, index=0, element_shape=[-1, 4], element_dtype=tf.float32)
    return _by(x, _n(x) // _n(first))


def _list_made_for_one_row(x):
    """Nothing is put in, in a loop that would put data in."""
    shape = tf.stack([_eight() - 7, 4])
    items = tf.raw_ops.TensorListReserve(element_shape=shape, num_elements=2, element_dtype=tf.float32)
    _, items = tf.while_loop(
        lambda i, s: i < 0,
        lambda i, s: (i + 1, tf.raw_ops.TensorListSetItem(input_handle=s, index=0, item=x)),
        (tf.constant(0), items),
    )
    first = tf.raw_ops.TensorListGetItem(input_handle=items, index=0, element_shape=[-1, 4], element_dtype=tf.float32)
    return _by(x, _n(x) // _n(first))


def _no_number(x):
    """3, unless the batch adds up to what is no number."""
    three = tf.cast(tf.constant(3), tf.float32)
    return tf.stop_gradient(tf.minimum(three, tf.maximum(three, tf.reduce_sum(x))))


MEETING = {
    "axes that data tells": lambda x: _summed(
        x, tf.stack([2, tf.cast(tf.reduce_sum(x) > 0.0, tf.int32) + 1]), tf.constant([2, 2])
    ),
    "axes that N tells": lambda x: _summed(x, tf.stack([2, 9 - 8 * (_n(x) // 8)]), tf.constant([2, 9])),
    "axes of a constant that N tells": lambda x: _by(
        x, tf.reduce_sum(tf.ones([5]), _axes(tf.stack([9 - 8 * (_n(x) // 8)]), [9]), keepdims=True)[0]
    ),
    "axes that are said to be of extent 1": lambda x: _summed(x, tf.constant([1]), tf.zeros([0], tf.int32)),
    "an axis by overflow": lambda x: _mean_along(
        x, 1 - tf.math.floormod(tf.constant(2**31 - 1) + tf.constant(2), 3) // 2
    ),
    "an axis by rounding": lambda x: _mean_along(
        x, tf.cast(tf.cast(tf.constant(2**24 + 1), tf.float32), tf.int32) - 2**24
    ),
    "an axis that is cut": lambda x: _mean_along(x, tf.cast(tf.constant(2**32), tf.int32) // 2**30 // 4),
    "N times 2^30": lambda x: _by(x, (_n(x) * 2**30) // _n(x)),
    "N rounded": lambda x: _by(
        x, tf.cast(_n(x), tf.float32) * tf.cast(tf.constant(9999991), tf.float32) / tf.cast(_n(x), tf.float32)
    ),
    "a bound on what is no number": lambda x: _by(x, _no_number(x)),
    "a state that starts as one row": _loop_of_one_row,
    "one row in a list": _list_of_one_row,
    "a list made for one row": _list_made_for_one_row,
    "N in a slice behind an ellipsis": lambda x: _by(
        x, tf.reduce_sum(tf.tile(tf.ones_like(x), [1, 9])[None][..., : _n(x)], [0, 2])[:, None]
    ),
    "a shape at an unknown place": lambda x: _by(x, tf.shape(x)[_unknown_zero()]),
    "a shape from an unknown place on": lambda x: _by(x, tf.slice(tf.shape(x), [_unknown_zero()], [-1])[0]),
    "columns of two shapes": lambda x: _by(x, tf.reshape(tf.gather(_shapes(x), [1, 0], axis=1), [-1])[0]),
    "a part of two shapes": lambda x: _by(x, tf.reshape(tf.slice(_shapes(x), [0, 1], [2, 1]), [-1])[0]),
    "a product along no axis": lambda x: _by(x, tf.reduce_prod(tf.stack([_n(x), 0]), axis=[])[0]),
    "a shape with a gap": lambda x: _by(x, tf.dynamic_stitch([[0], [2], [3]], [[7], [4], [_n(x)]])[3]),
    "N in eight bits": lambda x: _by(x, tf.cast(tf.cast(_n(x) * 32, tf.uint8), tf.int32) // _n(x)),
    "the largest of -N and 1": lambda x: _by(x, tf.maximum(_n(x) * -1, 1) // _n(x)),
    "ones [N, N] that a loop starts with": lambda x: _loop_of_ones(x, _n),
    "zeros [N, N] of a list": lambda x: _list_with_a_hole(x, lambda x: tf.stack([_n(x), _n(x)])),
    "ones [N, N] in a list": _list_of_ones,
    "an optional of the step's own": _optional,
    "an iterator of the step's own": _iterated,
    "windows over examples": _pool(tf.nn.max_pool2d),
    "means of windows over examples": _pool(tf.nn.avg_pool2d),
    "arrays that may not fit": lambda x: x * tf.cast(x[:, :1] != tf.zeros([_eight(), 1]), tf.float32),
}


@pytest.mark.parametrize("name", MEETING)
def test_is_not_proven(name):
    assert not _stays_apart(MEETING[name])


def test_diagonals_side_by_side_make_one_matrix():
    assert not _stays_apart(lambda x: tf.linalg.diag(x, k=(-7, 0), num_rows=8, num_cols=4), size=8)
    assert _stays_apart(lambda x: tf.reduce_sum(tf.linalg.diag(x), axis=1), size=8)


def test_a_range_for_each_place_is_by_place():
    def quantised(x, low):
        return tf.raw_ops.QuantizeAndDequantizeV4(
            input=x, input_min=low, input_max=low + 2.0, range_given=True, axis=-1 if low.shape.rank == 0 else 0
        )

    assert _stays_apart(lambda x: quantised(x, tf.constant(-1.0)), size=8)
    assert not _stays_apart(lambda x: quantised(x, tf.linspace(-1.0, 0.0, 8)), size=8)


APART = {
    "a concatenation of more than 16, and its gradient's kind of sizes": lambda x: tf.concat(
        tf.split(tf.tile(x, [1, 5]), tf.squeeze(tf.slice(tf.stack([tf.shape(x)] * 5, 1), [1, 0], [1, -1])), 1)[:1], 1
    ),
    "N times 4": lambda x: tf.reshape(tf.reshape(x, [_n(x) * 4]), [(_n(x) * 4) // 4, 4]),
    "an axis that is computed": lambda x: _mean_along(x, tf.constant(3) - 2),
    "a slice behind an ellipsis": lambda x: x[None][..., :4][0],
    "N in the slice's entry of the examples": lambda x: x[: _n(x)] if False else x[:, : tf.shape(x)[1]],
    "a state that starts as zeros": lambda x: _loop_of_ones(x, lambda x: 4),
    "zeros [N, 4] of a list": lambda x: _list_with_a_hole(x, lambda x: tf.stack([_n(x), 4])),
    "pooled features": lambda x: tf.nn.max_pool2d(x[:, None, :, None], [1, 1, 2, 1], [1, 1, 1, 1], "SAME")[:, 0, :, 0],
    "compared numbers": lambda x: x * tf.cast(x != 0.0, tf.float32) * tf.cast(x == x, tf.float32),
}


@pytest.mark.parametrize("name", APART)
def test_is_proven(name):
    assert _stays_apart(APART[name])


class _Bank:
    def __init__(self):
        self.kept = tf.Variable(tf.zeros([4]))

    def map(self, x):
        rows = tf.data.Dataset.from_tensor_slices(x).map(self.kept.assign_add)
        return rows.reduce(tf.zeros([4]), lambda a, b: a + b)

    def reduce(self, x):
        return tf.data.Dataset.from_tensor_slices(x).reduce(tf.zeros([4]), lambda a, b: self.kept.assign_add(b))

    def python(self, x):
        rows = tf.data.Dataset.from_tensor_slices(x).map(lambda row: tf.numpy_function(lambda r: r, [row], tf.float32))
        return rows.reduce(tf.zeros([4]), lambda a, b: a + b)


@pytest.mark.parametrize("how", ["map", "reduce", "python"])
def test_a_dataset_in_the_step_writes_nothing(how):
    def step(x):
        getattr(_BANK, how)(x)
        proof.prove(tf.reduce_sum(x * W, axis=1))

    with pytest.raises(ValueError, match="what it saw of a batch"):
        tf.function(step, input_signature=[tf.TensorSpec([None, 4])], autograph=False).get_concrete_function()


_BANK = _Bank()


@pytest.mark.parametrize("change", [None, "in the branch", "beside it"])
def test_a_branch_hands_out_elements_as_they_are(change):
    """As distributed datasets do it, which may be at their end on some replicas."""
    iterator = iter(tf.data.Dataset.from_tensor_slices(np.ones([8, 4], np.float32)).batch(4))

    def step():
        element = iterator.get_next_as_optional()

        def taken():
            rows = element.get_value()
            return rows - tf.reduce_mean(rows, axis=0) if change == "in the branch" else rows

        x = tf.cond(element.has_value(), taken, lambda: tf.zeros([0, 4]))
        factor = tf.reduce_max(element.get_value()) if change == "beside it" else 1.0
        return proof.prove(tf.reduce_sum(tf.ensure_shape(x, [None, 4]) * W * factor, axis=1)).unproven

    traced = tf.function(lambda: step() and None, autograph=False)
    if change is None:
        traced.get_concrete_function()
    else:
        with pytest.raises(ValueError, match="one example"):
            traced.get_concrete_function()
