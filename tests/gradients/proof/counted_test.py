"""Public arrays that are as long as the batch: what may be done to them, and what would tell how long they are."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.gradients import proof

W = tf.Variable(np.linspace(-1.0, 1.0, 12).reshape(3, 4).astype(np.float32))
TABLE = np.arange(64, dtype=np.float32)
GENERATOR = tf.random.Generator.from_seed(1)
RAW = tf.raw_ops


def _proof(function):
    """The proof for x [batch, 3], where the batch size is not known before the run."""
    found = []

    def step(x):
        found.append(proof.prove(tf.reduce_sum(function(x, tf.shape(x)[0]), axis=1)))

    tf.function(step, input_signature=[tf.TensorSpec([None, 3])], autograph=False).get_concrete_function()
    return found[-1]


def _noise(n, *shape):
    return tf.random.normal([n, *shape])


def _fresh_seed(n):
    return tf.random.stateless_normal([n, 3], tf.random.uniform([2], maxval=2**30, dtype=tf.int32))


def _never_put_in(shape):
    handle = RAW.TensorListReserve(element_shape=shape, num_elements=1, element_dtype=tf.float32)
    zeros = RAW.TensorListGetItem(input_handle=handle, index=0, element_shape=shape, element_dtype=tf.float32)
    return tf.reduce_sum(tf.ones_like(zeros))


def _length(handle):
    return tf.cast(RAW.TensorListLength(input_handle=handle), tf.float32)


def _ones(x):
    """A one for each example, [n, 1, 1, 1]."""
    return tf.ones_like(x[:, :1, tf.newaxis, tf.newaxis])


def _transposed(x, *shape):
    image = tf.nn.conv2d_transpose(_ones(x), tf.ones([9, 1, 1, 1]), tf.stack(shape), [1, 9, 1, 1], "SAME")
    return tf.reduce_sum(image, [1, 2])


def _bins(x, size):
    bins = RAW.DenseBincount(input=tf.cast(x, tf.int32), size=size, weights=tf.zeros([0]))
    return tf.reduce_sum(tf.ones_like(bins), 1, keepdims=True)


def _put_back(x, *shape):
    whole = {"begin": [0, 0], "end": [0, 1], "strides": [1, 1], "begin_mask": 1, "end_mask": 1}
    put = RAW.StridedSliceGrad(shape=tf.stack(shape), dy=x[:, :1], **whole)
    return tf.reduce_sum(tf.ones_like(put), 1, keepdims=True)


def _kernel_as_long(x, n):
    return tf.nn.conv2d(tf.tile(_ones(x), [1, 9, 1, 1]), tf.ones([n, 1, 1, 1]), 1, "VALID")[:, 0, 0, :]


def _counts(n):
    return tf.tile(tf.reshape(n, [1]), tf.reshape(n, [1]))


def _summed_where_eight(x, n):
    """The gradient of a product by what has as many rows as there are examples beyond seven."""
    axes = RAW.BroadcastGradientArgs(s0=tf.stack([n - 7, 3]), s1=tf.constant([], tf.int32))[0]
    return tf.reshape(RAW.Sum(input=x, axis=axes), [-1, 3])


def _place_in_a_table(x, n):
    return tf.gather(tf.concat([tf.zeros([n]), tf.ones([64])], 0), tf.cast(x, tf.int32))


def _drawn_places(n, most=3):
    return tf.random.uniform([n], maxval=most, dtype=tf.int32)


def _repeated(n):
    """A row for each example, of [3, 4] numbers that all share."""
    return tf.tile(tf.convert_to_tensor(W)[tf.newaxis], [n, 1, 1])


def _pictures(n):
    return tf.nn.relu(tf.nn.conv2d(tf.zeros([n, 3, 3, 1]) + W[0, 0], tf.ones([3, 3, 1, 3]), 1, "VALID"))[:, 0, 0]


PROVEN = {
    "the rest of a reshape by examples": lambda x, n: x * tf.reduce_sum(tf.reshape(x, [n, -1]), 1, keepdims=True),
    "the rest of a reshape by parts": lambda x, n: x + tf.reshape(tf.reshape(x, [-1]), [-1, 3]),
    "an output shape": lambda x, n: x * _transposed(x, n, 7, 1, 1),
    "bins": lambda x, n: x * _bins(x, 5),
    "a shape to put into": lambda x, n: x * _put_back(x, n, 5),
    "noise": lambda x, n: x + 0.1 * _noise(n, 3),
    "noise of a generator": lambda x, n: x + GENERATOR.normal([n, 3]),
    "noise of a drawn seed": lambda x, n: x + _fresh_seed(n),
    "a net of noise": lambda x, n: x + tf.nn.bias_add(tf.nn.relu(_noise(n, 4) @ tf.transpose(W)), W[:, 0]),
    "sums within a place": lambda x, n: x * tf.reduce_sum(_noise(n, 3, 5), axis=2),
    "noise of other axes": lambda x, n: x * tf.reshape(tf.reshape(_noise(n, 6), [-1, 2, 3])[:, 0], [n, 3]),
    "halves of noise": lambda x, n: x * tf.split(_noise(n, 6), 2, axis=1)[1],
    "noise in reverse, of one place": lambda x, n: x * tf.reverse(_noise(n, 3), [1]),
    "one draw for all": lambda x, n: x * tf.tile(tf.random.normal([1, 3]), [n, 1]),
    "parts side by side": lambda x, n: x + tf.concat([tf.broadcast_to(W[:1, :1], [n, 1]), tf.zeros([n, 2])], axis=1),
    "parts on top": lambda x, n: x + tf.stack([tf.zeros([n]), tf.fill([n], W[0, 0]), tf.ones([n])], axis=1),
    "zeros in reverse": lambda x, n: x + tf.reverse(tf.zeros([n, 3]), [0]),
    "zeros of other places": lambda x, n: x + tf.zeros([n + 1, 3])[1:][0],
    "a table looked up by draws": lambda x, n: x * tf.gather(TABLE, _drawn_places(n))[:, tf.newaxis],
    "a variable looked up by draws": lambda x, n: x * tf.gather(W, _drawn_places(n))[:, :3],
    "codes of draws": lambda x, n: x * tf.one_hot(_drawn_places(n), 3),
    "codes of draws, the other way": lambda x, n: x * tf.transpose(tf.one_hot(_drawn_places(n), 3, axis=0)),
    "draws that are sorted": lambda x, n: x * tf.sort(_noise(n, 3), axis=1),
    "softmax of draws": lambda x, n: x * tf.nn.softmax(_noise(n, 3)),
    "draws by a function of its own gradient": lambda x, n: x * tf.grad_pass_through(tf.sign)(_noise(n, 3)),
    "rows in an order that is drawn": lambda x, n: (
        x + tf.tensordot(tf.gather(x, tf.argsort(_noise(n, 3), axis=1)[:, :2], batch_dims=1), W[:2, :3], 1)
    ),
    "pictures that start as zeros": lambda x, n: x + _pictures(n),
    "squeezed draws": lambda x, n: x * tf.squeeze(_noise(n, 1, 3) @ W[:, :3], axis=1),
    "repeated for each": lambda x, n: x + tf.reduce_sum(_repeated(n), 2),
    "repeated for each, by several rows": lambda x, n: (
        x + tf.reduce_sum(tf.reshape(tf.reshape(_repeated(n), [-1, 4]) @ tf.transpose(W), [n, 3, 3]), 2)
    ),
    "repeated for each by another op": lambda x, n: (
        x + tf.reduce_sum(tf.reshape(tf.repeat(W[tf.newaxis], n, axis=0), [n, 12]), 1, keepdims=True)
    ),
    "products of what is repeated": lambda x, n: (
        x * tf.reduce_sum(tf.einsum("nij,nkj->nik", _repeated(n), _repeated(n)), 2)
    ),
    "a fixed seed, for all alike": lambda x, n: x + tf.random.stateless_normal([3], [1, 2]),
}
NOT_PROVEN = {
    "the rest of a reshape": lambda x, n: x * tf.cast(tf.shape(tf.reshape(x, [3, -1]))[1], tf.float32),
    "the rest of a reshape by a number": lambda x, n: (
        x * tf.cast(tf.shape(tf.reshape(x, [tf.cast(W[0, 0] + 4.0, tf.int32), -1]))[1], tf.float32)
    ),
    "the rest behind a square": lambda x, n: x * tf.cast(tf.shape(tf.reshape(x, [n * n, -1]))[1], tf.float32),
    "an output shape as long": lambda x, n: x * _transposed(x, n, n, 1, 1),
    "as many bins": lambda x, n: x * _bins(x, n),
    "put into as many places": lambda x, n: x * _put_back(x, n, n),
    "a kernel as long": lambda x, n: x * _kernel_as_long(x, n),
    "a place in a table": lambda x, n: x * _place_in_a_table(x, n),
    "an outer product as long": lambda x, n: x * tf.reduce_sum(x[:, :1] @ tf.ones([1, n]), 1, keepdims=True),
    "einsum as long": lambda x, n: x * tf.reduce_sum(tf.einsum("bi,ij->bj", x[:, :1], tf.ones([1, n])), 1)[:, None],
    "as long as a vector of counts": lambda x, n: (
        x * tf.reduce_sum(tf.broadcast_to(x[:, tf.newaxis, :1], tf.concat([[n], tf.shape(_counts(n)), [1]], 0)), 1)
    ),
    "a sum where there are eight": lambda x, n: x + _summed_where_eight(x, n),
    "noise in reverse": lambda x, n: x * tf.reverse(_noise(n, 3), [0]),
    "rolled noise": lambda x, n: x * tf.roll(_noise(n, 3), 1, axis=0),
    "the first draw": lambda x, n: x * _noise(n, 3)[:1],
    "some of more draws": lambda x, n: x * tf.random.normal([64, 3])[:n],
    "part of the draws, sliced": lambda x, n: x * tf.slice(tf.random.normal([64, 3]), [1, 0], [n, 3]),
    "draws by turns": lambda x, n: x * tf.tile(tf.random.normal([4, 3]), [n // 4, 1]),
    "draws of other places": lambda x, n: x * tf.reshape(tf.transpose(_noise(n, 3)), [n, 3]),
    "chosen draws": lambda x, n: x * tf.gather(_noise(n, 3), [0]),
    "unstacked draws": lambda x, n: x * tf.split(_noise(n, 3), 2, axis=0)[0],
    "a fixed seed": lambda x, n: x + tf.random.stateless_normal([n, 3], [1, 2]),
    "a seed by the step": lambda x, n: x + tf.random.stateless_normal([n, 3], tf.cast(W[0, :2], tf.int32)),
    "draws of drawn places": lambda x, n: x * tf.gather(_noise(n, 3), _drawn_places(n, 1)),
    "a fixed seed, in other rows": lambda x, n: (
        x * tf.reshape(tf.reshape(tf.random.stateless_normal([n, 3], [1, 2]), [-1, 1]), [n, 3])
    ),
    "repeated for each pair": lambda x, n: (
        x * tf.reshape(tf.tile(tf.convert_to_tensor(W)[tf.newaxis, :1, :3], [n // 2, 1, 2]), [n, 3])
    ),
    "what is repeated, in another order": lambda x, n: (
        x * tf.reshape(tf.transpose(tf.reduce_sum(_repeated(n), 2)), [n, 3])
    ),
    "what is repeated, cut otherwise": lambda x, n: x * tf.reshape(_repeated(n), [3, -1])[:, :1][:, 0],
    "the best of all draws": lambda x, n: x * tf.math.top_k(tf.transpose(_noise(n, 3)), 1).values[:, 0],
    "an entry of a table": lambda x, n: x * tf.constant(TABLE)[n],
    "a slice of a table": lambda x, n: x * tf.slice(tf.constant(TABLE), [n], [1]),
    "the length of a list": lambda x, n: (
        x * _length(RAW.TensorListFromTensor(tensor=tf.ones([n, 1]), element_shape=[1]))
    ),
    "the length of an empty list": lambda x, n: (
        x * _length(RAW.TensorListReserve(element_shape=[1], num_elements=n, element_dtype=tf.float32))
    ),
    "rounds of a loop": lambda x, n: x * tf.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s + 1.0), (0, 0.0))[1],
    "an op that nobody knows": lambda x, n: x * tf.linalg.trace(tf.eye(n)),
    "sorted": lambda x, n: x * tf.cast(tf.size(tf.where(tf.ones([n]))), tf.float32),
}
REFUSED = {
    "which axes were stretched": lambda x, n: (
        x * tf.cast(tf.size(RAW.BroadcastGradientArgs(s0=tf.shape(x), s1=[8, 3])[0]), tf.float32)
    ),
    "an element that was never put in": lambda x, n: x * _never_put_in(tf.reshape(n, [1])),
    "ones that are summed": lambda x, n: x * tf.reduce_sum(tf.ones([n])),
    "ones that are multiplied": lambda x, n: x * (tf.ones([1, n]) @ tf.ones([n, 1])),
    "ones in einsum": lambda x, n: x * tf.einsum("ij,ik->jk", tf.ones([n, 1]), tf.ones([n, 3])),
    "ones in a batched product": lambda x, n: x * tf.matmul(tf.ones([1, 1, n]), tf.ones([1, n, 3]))[0],
    "what is repeated, summed": lambda x, n: x * tf.reduce_sum(_repeated(n), [0, 2]),
    "ones in a function": lambda x, n: x * tf.function(tf.reduce_sum)(tf.ones([n])),
    "ones of a loop": lambda x, n: (
        x * tf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s + tf.reduce_sum(tf.ones([n]))), (0, 0.0))[1]
    ),
    "tiled": lambda x, n: x * tf.reduce_sum(tf.tile(tf.ones([1]), [n])),
    "the mean of noise": lambda x, n: x * tf.reduce_mean(_noise(n, 3), axis=0),
    "the largest draw": lambda x, n: x * tf.reduce_max(_noise(n)),
    "mapped one by one": lambda x, n: x * tf.reduce_sum(tf.map_fn(lambda v: 2.0 * v, tf.ones([2, 1]) * tf.ones([n]))),
}


@pytest.mark.parametrize("name", PROVEN)
def test_entries_that_stay_in_their_places_are_recognised(name):
    assert _proof(PROVEN[name]).unproven is None


@pytest.mark.parametrize("name", NOT_PROVEN)
def test_what_may_tell_the_number_of_examples_is_run_one_by_one(name):
    assert _proof(NOT_PROVEN[name]).unproven is not None


@pytest.mark.parametrize("name", REFUSED)
def test_what_tells_the_number_of_examples_is_refused(name):
    with pytest.raises(ValueError, match="how many examples"):
        _proof(REFUSED[name])


def test_zeros_of_a_fixed_batch_are_not_taken_for_closed_over_data():
    """TensorFlow folds them to a constant, which then lies behind other public things."""

    @tf.function(input_signature=[tf.TensorSpec([8, 3])], autograph=False)
    def step(x):
        unknown = tf.linalg.trace(tf.random.normal([8, 2, 2]))[:, tf.newaxis]  # alike nowhere, for all that is known
        found.append(proof.prove(tf.reduce_sum(x + unknown + tf.zeros([8, 1]), axis=1)))

    found = []
    step.get_concrete_function()
    assert "trace" in found[0].unproven.lower() or "by their place" in found[0].unproven
