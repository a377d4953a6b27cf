"""Functions with gradients, loops and branches of their own: right ones and ones that mix backwards."""

import numpy as np
import tensorflow as tf

from tests.attack.case import Apply, case, features, mlp_around, net

L = tf.keras.layers


def _around(expect, name, function, **options):
    def build():
        return mlp_around(function)

    build.__name__ = name
    case(expect, **options)(build)


def _with_gradient(backward, forward=tf.identity):
    """forward(x), whose gradient is backward(x, dy)."""

    @tf.custom_gradient
    def function(x):
        return forward(x), lambda dy: backward(x, dy)

    return function


def _straight_through(x):
    return x + tf.stop_gradient(tf.round(4 * x) / 4 - x)


_CUSTOM = {
    "gradient_reversal": _with_gradient(lambda x, dy: -0.3 * dy),
    "gradient_clipped_per_row": _with_gradient(lambda x, dy: tf.clip_by_norm(dy, 0.1, axes=[1])),
    "gradient_clipped_by_value": _with_gradient(lambda x, dy: tf.clip_by_value(dy, -0.05, 0.05)),
    "gradient_of_input": _with_gradient(lambda x, dy: dy * x),
    "gradient_where": _with_gradient(lambda x, dy: tf.where(x > 0, dy, tf.zeros_like(dy))),
    "straight_through": _straight_through,
    "recomputed": tf.recompute_grad(lambda t: tf.tanh(2 * t)),
}
for _name, _function in _CUSTOM.items():
    _around("accepted", _name, _function)

_MIXING_BACKWARDS = {
    "gradient_mean_of_batch": _with_gradient(lambda x, dy: dy - tf.reduce_mean(dy, axis=0)),
    "gradient_mean_negative_axis": _with_gradient(lambda x, dy: dy + tf.reduce_mean(dy, axis=-2, keepdims=True)),
    "gradient_rolled": _with_gradient(lambda x, dy: tf.roll(dy, 1, axis=0)),
    "gradient_reversed": _with_gradient(lambda x, dy: dy[::-1]),
    "gradient_of_first": _with_gradient(lambda x, dy: dy * tf.sign(dy[:1])),
    "gradient_summed": _with_gradient(lambda x, dy: tf.ones_like(dy) * tf.reduce_sum(dy)),
    "gradient_of_other_inputs": _with_gradient(lambda x, dy: dy * tf.roll(x, 1, axis=0)),
    "gradient_times_batch_mean": _with_gradient(lambda x, dy: dy * tf.reduce_mean(tf.abs(x))),
    "gradient_clipped_by_batch_norm": _with_gradient(lambda x, dy: tf.clip_by_norm(dy, 0.05)),
    "gradient_times_batch_size": _with_gradient(lambda x, dy: dy * tf.cast(tf.shape(x)[0], tf.float32) / 4),
    "gradient_where_of_others": _with_gradient(lambda x, dy: tf.where(tf.roll(x, 1, 0) > 0, dy, -dy)),
    # Not linear in dy: rows of other examples get a gradient where theirs is zero.
    "gradient_where_not_zero": _with_gradient(lambda x, dy: tf.where(x > 0, dy, tf.ones_like(dy))),
    "gradient_in_function": tf.function(_with_gradient(lambda x, dy: dy - tf.reduce_mean(dy, axis=0))),
}
for _name, _function in _MIXING_BACKWARDS.items():
    # Clipping dy as a whole is harmless row by row of a Jacobian, and mixes where all rows go backwards at once.
    _expect = "either" if _name == "gradient_clipped_by_batch_norm" else "refused"
    _fast = ("graph",) if _name == "gradient_of_other_inputs" else ()
    _around(_expect, _name, _function, fast=_fast, size_only=_name == "gradient_times_batch_size")


def _while_per_example(x):
    """As many turns as each row needs, rows on their own."""

    def body(h, i):
        return tf.where(i < tf.cast(tf.abs(h[:, :1]) * 5, tf.int32), 0.9 * h, h), i + 1

    return tf.while_loop(lambda h, i: i < 4, body, (x, 0))[0]


def _cond_per_example(row):
    return tf.cond(row[0] > 0, lambda: 2 * row, lambda: -row)


def _top_two(x):
    values, indices = tf.math.top_k(x, 2)
    return tf.concat([x, values, tf.cast(indices, tf.float32)], axis=1)


def _gather_own_feature(x):
    return x + tf.gather(x, tf.argmax(x, 1), axis=1, batch_dims=1)[:, None]


def _scatter_own_feature(x):
    rows = tf.range(tf.shape(x)[0])
    places = tf.stack([rows, tf.argmax(x, 1, tf.int32)], axis=1)
    return x + tf.scatter_nd(places, x[:, 0], tf.shape(x))


def _pairs_of_features(x):
    return tf.reshape(x[:, :, None] * x[:, None, :], [-1, 16])


def _spectrum(x):
    return tf.abs(tf.signal.rfft(x))


def _determinant(x):
    return tf.concat([x, tf.linalg.det(tf.reshape(x, [-1, 2, 2]) + 2 * tf.eye(2))[:, None]], axis=1)


_RIGHT = {
    "where_per_example": lambda x: tf.where(x[:, :1] > 0, x, 2 * x),
    "map_fn_per_example": lambda x: tf.map_fn(lambda row: row / (1 + tf.norm(row)), x),
    "vectorized_map_per_example": lambda x: tf.vectorized_map(lambda row: row / (1 + tf.reduce_sum(row * row)), x),
    "cond_per_example": lambda x: tf.map_fn(_cond_per_example, x),
    "cond_on_constant": lambda x: tf.cond(tf.constant(True), lambda: x, lambda: -x),
    "while_over_constant": _while_per_example,
    "tf_function_layer": tf.function(lambda x: tf.tanh(x) * 2),
    "cumsum_over_features": lambda x: tf.cumsum(x, axis=1),
    "cumprod_over_features": lambda x: tf.math.cumprod(1 + 0.1 * x, axis=-1),
    "sort_features": lambda x: tf.sort(x, axis=-1),
    "top_k_features": _top_two,
    "roll_features": lambda x: tf.roll(x, 1, axis=1) + 0.1 * x,
    "reverse_features": lambda x: tf.reverse(x, [-1]),
    "gather_features": lambda x: tf.gather(x, [2, 0, 1, 1], axis=1),
    "gather_own_feature": _gather_own_feature,
    "scatter_own_feature": _scatter_own_feature,
    "normalised_features": lambda x: (
        (x - tf.reduce_mean(x, -1, keepdims=True)) / (tf.norm(x, axis=1, keepdims=True) + 1)
    ),
    "softmax_of_features": lambda x: tf.nn.softmax(x, axis=-1),
    "pairs_of_features": _pairs_of_features,
    "einsum_per_example": lambda x: tf.reshape(tf.einsum("bi,bj->bij", x, x), [-1, 16]),
    "batched_matmul": lambda x: tf.reshape(tf.matmul(tf.reshape(x, [-1, 2, 2]), tf.reshape(x, [-1, 2, 2])), [-1, 4]),
    "fft_of_features": _spectrum,
    "determinant": _determinant,
    "transpose_and_back": lambda x: tf.transpose(tf.tanh(tf.transpose(x))),
    "reshape_and_back": lambda x: tf.reshape(tf.tanh(tf.reshape(x, [-1, 2])), [-1, 4]),
    "split_and_concat_features": lambda x: tf.concat(tf.split(x, 2, axis=1)[::-1], axis=1),
    "stack_features": lambda x: tf.stack(tf.unstack(x, axis=1)[::-1], axis=1),
    "pad_features": lambda x: tf.pad(x, [[0, 0], [1, 1]]),
    "broadcast_constant": lambda x: x * tf.constant([1.0, 2.0, 3.0, 4.0]) + tf.ones_like(x),
    "clip_features": lambda x: tf.clip_by_norm(x, 0.5, axes=[1]),
    "strided_features": lambda x: x[:, ::2],
    "one_hot_of_argmax": lambda x: tf.concat([x, tf.one_hot(tf.argmax(x, -1), 4)], -1),
    "quantised": lambda x: tf.quantization.fake_quant_with_min_max_args(x, -1, 1, 8),
}
for _name, _function in _RIGHT.items():
    _fast = {"map_fn_per_example": ("graph",), "top_k_features": ("static",)}.get(_name, ())
    _around("accepted", _name, _function, fast=_fast, infinite=_name != "determinant")


@case("accepted")
def einsum_layers():
    layers = [L.EinsumDense("btd,dhk->bthk", (4, 2, 3)), L.EinsumDense("bthk,hkd->btd", (4, 4)), L.Flatten()]
    return net([*layers, L.Dense(3)], features(4, 3))


@case("accepted")
def own_weights_used_twice():
    class Twice(L.Layer):
        def build(self, shape):
            self.kernel = self.add_weight(name="kernel", shape=(4, 4))

        def call(self, x):
            return tf.tanh(tf.matmul(tf.tanh(tf.matmul(x, self.kernel)), self.kernel, transpose_b=True))

    return net([L.Dense(4), Twice(), L.Dense(3)], features())


@case("accepted")
def low_rank_adapter():
    class Adapter(L.Layer):
        def build(self, shape):
            self.frozen = self.add_weight(name="frozen", shape=(5, 4), trainable=False)
            self.down, self.up = self.add_weight(name="down", shape=(5, 2)), self.add_weight(name="up", shape=(2, 4))

        def call(self, x):
            return tf.matmul(x, self.frozen) + tf.matmul(tf.matmul(x, self.down), self.up)

    return net([Adapter(), L.Dense(3)], features())


@case("accepted")
def weights_as_a_function():
    """Weight normalisation: the kernel is a function of variables."""

    class WeightNorm(L.Layer):
        def build(self, shape):
            self.v = self.add_weight(name="v", shape=(5, 4))
            self.g = self.add_weight(name="g", shape=(4,), initializer="ones")

        def call(self, x):
            return tf.matmul(x, self.g * tf.math.l2_normalize(self.v, axis=0))

    return net([WeightNorm(), L.Dense(3)], features())


@case("either")
def numpy_function_per_example():
    """A Python function of each row; it hangs on nothing else, but who can tell?"""
    look = Apply(lambda x: tf.ensure_shape(tf.numpy_function(np.tanh, [x], tf.float32), [None, 4]))
    return net(lambda x: L.Dense(3)(L.Dense(4)(look(x))), features(4))
