"""Layers that people do use and that look at the batch as a whole, most of them without naming its axis."""

import numpy as np
import tensorflow as tf

from tests.attack.case import Apply, Problem, case, features, floats, mlp_around, net, scce, tagged

L = tf.keras.layers


@case("refused")
def ghost_batch_norm():
    """Virtual batches of two: a reshape puts pairs of examples together."""

    def ghost(x):
        size = tf.minimum(tf.shape(x)[0], 2)
        parts = tf.reshape(x[: tf.shape(x)[0] // size * size], [-1, size, 4])
        mean, variance = tf.nn.moments(parts, [1], keepdims=True)
        normalised = tf.reshape((parts - mean) * tf.math.rsqrt(variance + 1e-2), [-1, 4])
        return tf.concat([normalised, x[tf.shape(normalised)[0] :]], 0)

    return mlp_around(ghost)


@case("refused")
def first_as_reference():
    """Virtual batch normalisation: the batch's first examples are the reference."""

    def layer(x):
        mean, variance = tf.nn.moments(x[:4], [0])
        return (x - mean) * tf.math.rsqrt(variance + 1e-2)

    return mlp_around(layer)


@case("accepted")
def constants_as_reference():
    """The same with a public reference batch: right."""
    reference = np.random.default_rng(3).normal(size=(6, 5)).astype(np.float32)

    class Virtual(L.Layer):
        def __init__(self):
            super().__init__()
            self.dense = L.Dense(4)

        def call(self, x):
            mean, variance = tf.nn.moments(self.dense(tf.constant(reference)), [0])
            return (self.dense(x) - mean) * tf.math.rsqrt(variance + 1e-2)

    return net([Virtual(), L.Dense(3)], features())


@case("refused")
def renormalised():
    """Batch renormalisation by hand, the correction behind a stop_gradient."""

    def layer(x):
        mean, variance = tf.nn.moments(x, [0])
        r = tf.stop_gradient(tf.clip_by_value(tf.sqrt(variance), 0.5, 2.0))
        return (x - mean) * tf.math.rsqrt(variance + 1e-2) * r

    return mlp_around(layer)


@case("refused")
def instance_norm_of_one_picture():
    """The batch as the channels' places of a single picture: fused normalisation over [1, B, W, C]."""

    def layer(x):
        out, _, _ = tf.compat.v1.nn.fused_batch_norm(x[None, :, None], tf.ones([4]), tf.zeros([4]), is_training=True)
        return out[0, :, 0]

    return mlp_around(layer)


@case("refused")
def group_norm_over_rows():
    """GroupNormalization of [1, B, C]: groups of channels, over all rows."""
    norm = L.GroupNormalization(2)
    return mlp_around(lambda x: norm(x[None])[0])


@case("refused")
def layer_norm_of_axis_0():
    norm = L.LayerNormalization(axis=1)
    return mlp_around(lambda x: tf.transpose(norm(tf.transpose(x)[None])[0]) * 2.0)


@case("refused")
def attention_between_examples():
    """Non-parametric transformers: the batch is the sequence."""
    attend = L.MultiHeadAttention(2, 2)
    return mlp_around(lambda x: x + attend(x[None], x[None])[0])


@case("refused")
def attention_between_examples_of_sequences():
    """`attention_axes` that are right, on a transposed batch."""

    class Across(L.Layer):
        def __init__(self):
            super().__init__()
            self.attend = L.MultiHeadAttention(2, 2)

        def call(self, x):
            t = tf.transpose(x, [1, 0, 2])
            return tf.transpose(self.attend(t, t), [1, 0, 2])

    return net([Across(), L.Flatten(), L.Dense(3)], features(3, 4))


@case("refused")
def memory_of_queries():
    """Every example reads all others' values, weighed by its own mask, so that shapes stay [batch, batch]."""

    def layer(x):
        scores = tf.matmul(x, x, transpose_b=True)
        scores = tf.linalg.set_diag(scores, tf.zeros_like(x[:, 0]))
        return tf.matmul(tf.nn.softmax(scores), x)

    return mlp_around(layer)


@case("refused")
def evo_norm():
    """EvoNorm-B0: batch variance under a maximum with the instance's."""

    def layer(x):
        batch = tf.sqrt(tf.math.reduce_variance(x, 0, keepdims=True) + 1e-2)
        return x / tf.maximum(batch, 0.5 * x + tf.math.reduce_std(x, 1, keepdims=True))

    return mlp_around(layer)


@case("refused")
def no_nan_anywhere():
    """Zeros for all if anyone has a NaN."""
    return mlp_around(lambda x: tf.where(tf.reduce_any(tf.abs(x) > 0.9), tf.zeros_like(x), x))


@case("refused")
def range_of_the_batch():
    """Quantised to the range of all entries."""
    return mlp_around(lambda x: tf.quantization.quantize_and_dequantize_v2(x, 0.0, 0.0, range_given=False))


@case("refused")
def fake_quantised_by_the_batch():
    return mlp_around(lambda x: tf.quantization.fake_quant_with_min_max_vars(x, tf.reduce_min(x), tf.reduce_max(x)))


@case("refused")
def fake_quantised_per_column():
    return mlp_around(
        lambda x: tf.quantization.fake_quant_with_min_max_vars_per_channel(
            x, tf.reduce_min(x, 0) - 0.1, tf.reduce_max(x, 0) + 0.1
        )
    )


@case("refused")
def sequences_reversed_with_wrong_axes():
    """`reverse_sequence` with time and batch exchanged."""

    def layer(x):
        return tf.reverse_sequence(x, tf.fill([4], tf.shape(x)[0]), seq_axis=0, batch_axis=1)

    return mlp_around(layer)


@case("accepted")
def sequences_reversed():
    def data(rng, n):
        return (floats(rng, n, 5, 2), rng.integers(1, 6, (n, 1))), rng.integers(0, 3, n)

    def model(t):
        h = L.Dense(3, "tanh")(t[0])
        turned = Apply(lambda t: tf.reverse_sequence(t[0], tf.reshape(t[1], [-1]), seq_axis=1, batch_axis=0))([h, t[1]])
        return L.Dense(3)(L.GRU(3)(turned))

    return net(lambda t: model(list(t)), data)


@case("refused")
def neighbours_by_number():
    """GraphSAGE within the batch: each example names another by its place."""

    def data(rng, n):
        return (floats(rng, n, 5), rng.integers(0, 6, (n, 2))), rng.integers(0, 3, n)

    def model(t):
        h = L.Dense(4, "tanh")(t[0])
        mean = Apply(lambda t: tf.reduce_mean(tf.gather(t[0], t[1] % tf.shape(t[0], tf.int64)[0]), 1))([h, t[1]])
        return L.Dense(3)(L.Concatenate()([h, mean]))

    return net(lambda t: model(list(t)), data)


@case("refused")
def rows_of_lengths():
    """Ragged rows by lengths from the data: tokens run over into the next example."""

    def layer(x):
        lengths = tf.fill([tf.shape(x)[0]], 4) + tf.cast(tf.range(tf.shape(x)[0]) < 1, tf.int32)
        lengths -= tf.cast(tf.range(tf.shape(x)[0]) == tf.shape(x)[0] - 1, tf.int32)
        rows = tf.RaggedTensor.from_row_lengths(tf.reshape(x, [-1]), lengths)
        return rows.to_tensor(shape=[None, 4])

    return mlp_around(layer)


@case("refused")
def blocks_to_space():
    """`batch_to_space` takes examples for phases of one picture."""

    def layer(x):
        up = tf.batch_to_space(tf.tile(x, [2, 1])[:, :, None, None], [2, 1], [[0, 0], [0, 0]])
        return up[:, ::2, 0, 0] + up[:, 1::2, 0, 0]

    return mlp_around(layer)


@case("refused")
def shuffled_labels_of_a_layer():
    """Manifold mixup by a permutation that is drawn."""

    def layer(x):
        order = tf.random.shuffle(tf.range(tf.shape(x)[0]))
        return 0.6 * x + 0.4 * tf.gather(x, order)

    return mlp_around(layer)


@case("refused")
def partners_that_are_drawn():
    def layer(x):
        n = tf.shape(x)[0]
        return 0.6 * x + 0.4 * tf.gather(x, tf.random.uniform([n], 0, n, tf.int32))

    return mlp_around(layer)


@case("refused", random=True)
def seeds_of_the_data():
    """Draws for all, by a seed that the first example gives."""

    def layer(x):
        seed = tf.bitcast(x[0, :2], tf.int32)
        return x * tf.random.stateless_uniform(tf.shape(x), seed)

    return mlp_around(layer)


@case("refused")
def seeds_of_the_sum():
    def layer(x):
        seed = tf.cast(tf.stack([tf.reduce_sum(x), tf.reduce_max(x)]) * 1e4, tf.int32)
        return x * tf.random.stateless_uniform([1, 4], seed)

    return mlp_around(layer)


@case("refused")
def sorted_by_length():
    """Packed by length, as PyTorch does, and unsorted again behind a layer that counts places."""

    def layer(x):
        order = tf.argsort(tf.norm(x, axis=1))
        places = tf.cast(tf.range(tf.shape(x)[0]), tf.float32)[:, None]
        return tf.gather(tf.gather(x, order) * (1.0 + places), tf.argsort(order))

    return mlp_around(layer)


@case("refused")
def until_all_are_done():
    """Halves until no example is above 1, however often the largest needs it."""

    def layer(x):
        return tf.while_loop(lambda h: tf.reduce_any(tf.abs(h) > 0.2), lambda h: (0.5 * h,), (x,))[0]

    return mlp_around(layer)


@case("refused")
def residual_of_all():
    """Fixed-point rounds until the batch's residual is small."""

    def layer(x):
        def body(h, last):
            return tf.tanh(h) * 0.8 + 0.1 * x, h

        goes_on = lambda h, last: tf.norm(h - last) > 0.05  # noqa: E731
        return tf.while_loop(goes_on, body, (x, x + 1.0), maximum_iterations=20)[0]

    return mlp_around(layer)


@case("refused")
def jacobian_of_all():
    """`tape.jacobian` of the batch's outputs by all inputs, summed."""

    class Slopes(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden, self.out = L.Dense(4, "tanh"), L.Dense(3)

        def call(self, x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                h = tf.reduce_sum(self.hidden(x), 0)
            return self.out(tf.concat([x, tf.tile(tape.gradient(h, x)[:1], [tf.shape(x)[0], 1])], 1))

    return Problem(Slopes(), features(), scce())


@case("refused")
def mean_in_a_function_of_xla():
    @tf.function(jit_compile=True)
    def centred(x):
        return x - tf.reduce_mean(x, 0)

    return mlp_around(centred)


@case("refused")
def matrix_of_the_data():
    """A sparse adjacency of [batch, batch], multiplied as a sparse tensor."""

    def layer(x):
        near = tf.sparse.from_dense(tf.cast(tf.matmul(x, x, transpose_b=True) > 0, tf.float32))
        return tf.sparse.sparse_dense_matmul(near, x)

    return mlp_around(layer)


@case("refused")
def texts_joined_over_the_batch():
    def data(rng, n):
        return np.array([["red"], ["green"], ["blue"]])[rng.integers(0, 3, n)], rng.integers(0, 3, n)

    def layer(x):
        joined = tf.strings.reduce_join(tf.reshape(x, [-1]))
        number = tf.strings.to_hash_bucket_fast(joined, 7)
        own = tf.strings.to_hash_bucket_fast(x, 5)
        return tf.concat([tf.one_hot(own[:, 0], 5), tf.tile(tf.one_hot([number], 7), [tf.shape(x)[0], 1])], 1)

    return net([Apply(layer), L.Dense(4, "tanh"), L.Dense(3)], data)


@case("refused")
def padded_to_a_multiple():
    """Rows of zeros up to a multiple of four, then means of four."""

    def layer(x):
        missing = (-tf.shape(x)[0]) % 4
        full = tf.reshape(tf.pad(x, [[0, missing], [0, 0]]), [-1, 4, 4])
        full -= tf.reduce_mean(full, 1, keepdims=True)
        return tf.reshape(full, [-1, 4])[: tf.shape(x)[0]]

    return mlp_around(layer)


@case("refused")
def last_state_of_the_batch():
    """A recurrent layer over time-major data that is batch-major: the batch is time."""

    cell = L.GRUCell(4)

    def layer(x):
        state = tf.zeros([1, 4])
        rows = tf.TensorArray(tf.float32, tf.shape(x)[0], element_shape=[1, 4])

        def body(i, state, rows):
            out, new = cell(x[i : i + 1], [state])
            return i + 1, tf.reshape(tf.nest.flatten(new)[0], [1, 4]), rows.write(i, out)

        rows = tf.while_loop(lambda i, *_: i < tf.shape(x)[0], body, (0, state, rows))[2]
        return rows.concat()

    return mlp_around(layer)


@case("refused")
def tagger_of_the_joined_text():
    """All sequences joined to one before a convolution, and cut again."""

    def model(x):
        joined = Apply(lambda t: tf.reshape(t, [1, -1, 2]))(x)
        h = L.Conv1D(3, 3, padding="same")(joined)
        return L.Dense(3)(Apply(lambda t: tf.reshape(t, [-1, 4, 3]))(h))

    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    return net(model, tagged(4, 2), loss)


@case("refused")
def statistics_by_convolution():
    """A mean over the examples by a convolution whose kernel is as long as the batch, and by a cumulative sum."""

    def layer(x):
        total = tf.cumsum(x, 0)
        return x - total[-1:] / tf.cast(tf.shape(x)[0], tf.float32)

    return mlp_around(layer)


@case("refused")
def normalised_by_the_norm_of_all():
    return mlp_around(lambda x: tf.clip_by_norm(x, 1.0))


@case("refused")
def whole_tensor_normalised():
    return mlp_around(tf.math.l2_normalize)


@case("refused")
def largest_length_as_a_scale():
    """Positions relative to the longest example of the batch."""

    def layer(x):
        lengths = tf.reduce_sum(tf.cast(x > 0, tf.float32), 1)
        return x * (lengths / (1.0 + tf.reduce_max(lengths)))[:, None]

    return mlp_around(layer)


@case("refused")
def top_of_the_batch():
    def layer(x):
        best = tf.math.top_k(tf.transpose(x), tf.minimum(tf.shape(x)[0], 2)).values
        return x - tf.transpose(best)[-1]

    return mlp_around(layer)


@case("refused")
def in_top_of_the_batch():
    def layer(x):
        hits = tf.math.in_top_k(tf.zeros([4], tf.int32), tf.transpose(x), 1)
        return x * tf.cast(hits, tf.float32)

    return mlp_around(layer)


@case("refused", fast=("graph",))
def half_of_pairs_of_unknown_number():
    """A width that only the run tells, in rows of two; of these the first half, cut into as many parts as examples."""

    def layer(x):
        n = tf.shape(x)[0]
        return tf.reshape(tf.slice(tf.reshape(x, [-1, 2]), [0, 0], [n + n, -1]), [n, 4])

    inputs = tf.keras.Input([None])
    outputs = L.Dense(3)(L.Dense(4, "tanh")(Apply(layer)(inputs)))

    def derive(x, y):
        return tf.reshape(x, tf.concat([tf.shape(x)[:1], [-1]], axis=0)), y  # the width is not known any more

    return Problem(tf.keras.Model(inputs, outputs), features(8), scce(), derive=derive)
