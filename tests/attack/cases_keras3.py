"""What only Keras 3 has: `keras.ops`, its layers, losses and reductions. With Keras 2 there are no cases here."""

import numpy as np
import tensorflow as tf

from adaclip_tf._internal import keras as generation
from tests.attack.case import Apply, PerExample, case, cross_entropy, features, floats, net, tokens

L = tf.keras.layers


def _cases(ops):
    """(expectation, function of [batch, 4]) by name."""
    return {
        "ops_cumsum": ("refused", lambda x: ops.cumsum(x, axis=0)),
        "ops_cumprod": ("refused", lambda x: ops.cumprod(x, axis=0)),
        "ops_sort": ("refused", lambda x: ops.sort(x, axis=0)),
        "ops_argsort": ("refused", lambda x: x * ops.cast(ops.argsort(x, axis=0), "float32")),
        "ops_median": ("refused", lambda x: x - ops.median(x, axis=0)),
        "ops_quantile": ("refused", lambda x: x - ops.quantile(x, 0.9, axis=0)),
        "ops_flip": ("refused", lambda x: x + 0.5 * ops.flip(x, axis=0)),
        "ops_roll": ("refused", lambda x: ops.roll(x, 1, axis=0)),
        "ops_diff": ("refused", lambda x: x + ops.sum(ops.diff(x, axis=0))),
        "ops_moments": ("refused", lambda x: (x - ops.moments(x, 0)[0]) / ops.sqrt(1 + ops.moments(x, 0)[1])),
        "ops_std": ("refused", lambda x: x / (1 + ops.std(x))),
        "ops_norm_of_all": ("refused", lambda x: x / (1 + ops.norm(x))),
        "ops_logsumexp": ("refused", lambda x: x - ops.logsumexp(x, axis=0)),
        "ops_scan": ("refused", lambda x: ops.scan(lambda c, r: (0.5 * c + r, 0.5 * c + r), ops.zeros((4,)), x)[1]),
        "ops_map_over_others": ("refused", lambda x: ops.map(lambda row: row - ops.mean(x, axis=0), x)),
        "ops_vectorized_map": ("refused", lambda x: ops.vectorized_map(lambda row: row - ops.max(x, axis=0), x)),
        "ops_fori_loop": ("refused", lambda x: ops.fori_loop(0, 3, lambda i, h: h - 0.1 * ops.mean(h, axis=0), x)),
        "ops_while_of_data": (
            "refused",
            lambda x: ops.while_loop(lambda h: ops.max(h) > 0.1, lambda h: (0.5 * h,), (x,), maximum_iterations=9)[0],
        ),
        "ops_cond_on_data": ("refused", lambda x: ops.cond(ops.sum(x) > 0, lambda: x, lambda: -x)),
        "ops_segment_sum": ("refused", lambda x: ops.segment_sum(x, ops.cast(x[:, 0] > 0, "int32"), 2)[:1] + x),
        "ops_unstack": ("refused", lambda x: x + ops.unstack(ops.transpose(x), axis=0)[0][0]),
        "ops_scatter_update": ("refused", lambda x: ops.scatter_update(x, [[0]], x[-1:])),
        "ops_take_first": ("refused", lambda x: x * ops.take(x, [0], axis=0)),
        "ops_einsum_gram": ("refused", lambda x: ops.einsum("bi,bj,cj->ci", x, x, x)),
        "ops_tensordot": ("refused", lambda x: x @ ops.tensordot(x, x, axes=[[0], [0]])),
        "ops_svd": ("refused", lambda x: x / (1 + ops.svd(x, compute_uv=False)[0])),
        "ops_qr": ("refused", lambda x: x @ ops.qr(ops.transpose(x) @ x + ops.eye(4))[0]),
        "ops_fft": ("refused", lambda x: ops.transpose(ops.fft((ops.transpose(x), ops.transpose(x) * 0.0))[0])),
        "ops_bincount": ("refused", lambda x: x * ops.cast(ops.bincount(ops.argmax(x, 1), minlength=4), "float32")[:4]),
        "ops_correlate": ("refused", lambda x: x + ops.correlate(x[:, 0], x[:, 1], mode="valid")),
        "ops_batch_normalization": (
            "refused",
            lambda x: ops.batch_normalization(x, *[ops.stop_gradient(m) for m in ops.moments(x, 0)], axis=-1),
        ),
        "ops_softmax_over_batch": ("refused", lambda x: ops.softmax(x, axis=0)),
        "ops_dot_product_attention": (
            "refused",
            lambda x: ops.dot_product_attention(x[None, :, None], x[None, :, None], x[None, :, None])[0, :, 0],
        ),
        "ops_top_k": ("refused", lambda x: x - ops.transpose(ops.top_k(ops.transpose(x), 1)[0])),
        "ops_in_batch": ("refused", lambda x: x * ops.cast(ops.shape(x)[0], "float32")),
        "ops_of_one_example": (
            "accepted",
            lambda x: ops.concatenate([ops.sort(x, axis=1)[:, :2], ops.cumsum(x, axis=1)[:, 2:]], axis=1),
        ),
        "ops_vectorized_per_example": (
            "accepted",
            lambda x: ops.vectorized_map(lambda row: row / (1 + ops.sum(row**2)), x),
        ),
        "ops_map_per_example": ("accepted", lambda x: ops.map(lambda row: row - ops.mean(row), x)),
        "ops_normalize": ("accepted", lambda x: ops.normalize(x, axis=1)),
        "ops_one_hot_of_own": ("accepted", lambda x: x + ops.one_hot(ops.argmax(x, axis=1), 4)),
        "ops_erf_gelu": ("accepted", lambda x: ops.gelu(x, approximate=False) + ops.silu(x) + ops.hard_tanh(x)),
    }


def _layers():
    """(expectation, options, layers in front of the last, data) by name."""
    return {
        "unit_normalization_of_batch": ("refused", {}, [L.Dense(4), L.UnitNormalization(axis=0)], features()),
        "softmax_layer_of_batch": ("refused", {}, [L.Dense(4), L.Softmax(axis=0)], features()),
        "spectral_normalization": ("accepted", {}, [L.SpectralNormalization(L.Dense(4, "tanh"))], features()),
        "rms_normalization": ("accepted", {}, [L.Dense(4), L.RMSNormalization()], features()),
        "group_query_attention": ("accepted", {}, [_SelfAttention(), L.Flatten()], features(4, 6)),
        "rescaling_random_flip": (
            "accepted",
            {"random": True},
            [L.Rescaling(0.5), L.RandomFlip(), L.RandomTranslation(0.1, 0.1), L.Flatten()],
            features(4, 4, 1),
        ),
        "random_erasing_and_grayscale": (
            "either",
            {"random": True},
            [L.RandomErasing(), L.RandomGrayscale(), L.Flatten()],
            features(4, 4, 3),
        ),
        "mix_up_layer": ("refused", {"random": True}, [L.MixUp(), L.Flatten()], features(4, 4, 3)),
        "equalization_and_auto_contrast": ("either", {}, [L.AutoContrast(), L.Flatten()], features(4, 4, 3)),
        "embedding_of_bags": ("accepted", {}, [L.Embedding(11, 4), L.GlobalAveragePooling1D()], tokens()),
        "adaptive_pooling": ("accepted", {}, [L.Conv1D(3, 2), L.GlobalMaxPooling1D()], features(6, 2)),
    }


class _SelfAttention(L.Layer):
    def __init__(self):
        super().__init__()
        self.attention = L.GroupQueryAttention(2, 4, 2)

    def call(self, x):
        return self.attention(x, x)


def _reduced(loss, **options):
    problem = net([L.Dense(4, "tanh"), L.Dense(3)], features(), loss)
    problem.compile.update(options)
    return problem


def _losses(losses):
    scce = losses.SparseCategoricalCrossentropy
    weighted = lambda rng, n: (floats(rng, n, 5), rng.integers(0, 3, n), rng.uniform(0.1, 3, n).astype(np.float32))  # noqa: E731
    return {
        "reduced_mean": ("accepted", lambda: _reduced(scce(from_logits=True))),
        "reduced_sum": ("either", lambda: _reduced(scce(from_logits=True, reduction="sum"))),
        "reduced_mean_with_weights": (
            "refused",
            lambda: net(
                [L.Dense(4, "tanh"), L.Dense(3)],
                weighted,
                scce(from_logits=True, reduction="mean_with_sample_weight"),
            ),
        ),
        "reduced_mean_of_weighted": (
            "accepted",
            lambda: net([L.Dense(4, "tanh"), L.Dense(3)], weighted, scce(from_logits=True)),
        ),
        "reduced_with_a_regularizer": (
            "refused",
            lambda: net(
                [L.Dense(4, "tanh", activity_regularizer="l2"), L.Dense(3)], features(), scce(from_logits=True)
            ),
        ),
        "reduced_mean_by_a_function": (
            "accepted",
            lambda: _reduced(lambda y, p: tf.reduce_mean(cross_entropy(tf.reshape(y, [-1]), p))),
        ),
        "reduced_cosine_over_batch": (
            "refused",
            lambda: _reduced(PerExample(lambda y, p: losses.cosine_similarity(p, p[::-1], axis=0)[0] + 0 * p[:, 0])),
        ),
        "reduced_mean_of_centred": (
            "refused",
            lambda: _reduced(lambda y, p: tf.reduce_mean(tf.reduce_sum(tf.square(p - tf.reduce_mean(p, 0)), 1))),
        ),
        "loss_weights_of_outputs": ("accepted", lambda: _reduced([scce(from_logits=True)], loss_weights=[0.3])),
        "loss_keras_ctc": ("accepted", lambda: _ctc(losses)),
    }


def _ctc(losses):
    def data(rng, n):
        return rng.normal(size=(n, 6, 3)).astype(np.float32), rng.integers(1, 4, (n, 2))

    return net([L.Dense(4, "tanh"), L.Dense(5)], data, losses.CTC(reduction="none"))


def _register(name, expect, build, **options):
    build.__name__ = name
    case(expect, **options)(build)


if generation.GENERATION == 3:
    import keras

    for _name, (_expect, _function) in _cases(keras.ops).items():
        _register(
            _name,
            _expect,
            lambda function=_function: net([L.Dense(4, "tanh"), Apply(function), L.Dense(3)], features()),
            infinite=_expect == "accepted",
            size_only=_name == "ops_in_batch",
        )
    for _name, (_expect, _options, _, _) in _layers().items():

        def _build(name=_name):
            _, _, layers, data = _layers()[name]
            return net([*layers, L.Dense(3)], data)

        _register(_name, _expect, _build, **_options)
    for _name, (_expect, _build) in _losses(keras.losses).items():
        _register(_name, _expect, _build)
