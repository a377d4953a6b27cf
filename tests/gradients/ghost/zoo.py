"""Small Keras models over every layer that has a rule: name -> (model, input shape, input dtype)."""

import tensorflow as tf

layers = tf.keras.layers
ZOO = {}


def model(shape, dtype=tf.float32):
    """Registers a function that makes a layer stack from an input tensor."""

    def register(function):
        def build():
            inputs = tf.keras.Input(shape, dtype=dtype)
            return tf.keras.Model(inputs, function(inputs))

        ZOO[function.__name__] = (build, shape, dtype)
        return function

    return register


def stack(name, shape, *makers, dtype=tf.float32):
    """Registers a plain stack of layers. Layers are made when the model is built."""

    def build():
        return tf.keras.Sequential([tf.keras.Input(shape, dtype=dtype), *(make() for make in makers)])

    ZOO[name] = (build, shape, dtype)


def dense(units, activation=None, **options):
    return lambda: layers.Dense(units, activation=activation, **options)


stack("softmax_regression", (5,), dense(3))
stack("mlp", (5,), dense(7, "relu"), dense(3))
stack("no_bias", (5,), dense(4, "tanh", use_bias=False), dense(1))
stack("one_feature", (1,), dense(1, "sigmoid"), dense(1))
stack("wide_in", (40,), dense(2, "elu"), dense(3, "selu"))
stack("softmax_output", (5,), dense(4, "softplus"), dense(3, "softmax"))
stack("gelu_swish", (5,), dense(4, "gelu"), dense(6, "swish"), dense(2))
stack("dense_on_time", (6, 5), dense(4, "relu"), dense(3))
stack("dense_on_time_gelu", (3, 5), dense(4, "gelu"), dense(3))
stack("dense_rank_4", (2, 3, 4), dense(5, "softsign"), layers.GlobalMaxPooling2D, dense(2))
stack("long_sequence", (40, 3), dense(2), layers.GlobalAveragePooling1D, dense(2))
stack("conv1d", (9, 3), lambda: layers.Conv1D(4, 3, activation="tanh"), layers.GlobalAveragePooling1D, dense(2))
stack("conv1d_causal_dilated", (9, 3), lambda: layers.Conv1D(4, 3, padding="causal", dilation_rate=2), layers.Flatten)
stack(
    "conv2d",
    (8, 8, 3),
    lambda: layers.Conv2D(4, 3, strides=2, padding="same", activation="relu"),
    layers.MaxPooling2D,
    layers.Flatten,
    dense(3),
)
stack(
    "conv2d_valid_average",
    (8, 7, 2),
    lambda: layers.Conv2D(3, (3, 2), strides=(1, 2), activation="sigmoid"),
    lambda: layers.AveragePooling2D(2),
    lambda: layers.Conv2D(2, 1),
    layers.GlobalAveragePooling2D,
)
stack("conv2d_dilated", (9, 9, 2), lambda: layers.Conv2D(3, 3, dilation_rate=2), lambda: layers.Conv2D(2, 2))
stack("conv2d_dilated_same", (7, 7, 2), lambda: layers.Conv2D(3, 3, dilation_rate=2, padding="same"), layers.Flatten)
stack("conv2d_transpose", (4, 4, 2), lambda: layers.Conv2DTranspose(3, 3, strides=2, activation="relu"), layers.Flatten)
stack("depthwise", (6, 6, 3), lambda: layers.DepthwiseConv2D(3, depth_multiplier=2, strides=2, padding="same"))
stack("separable", (6, 6, 3), lambda: layers.SeparableConv2D(4, 3, activation="relu"), layers.Flatten, dense(2))
stack("embedding", (6,), lambda: layers.Embedding(5, 4), layers.GlobalAveragePooling1D, dense(2), dtype=tf.int32)
stack("embedding_flat", (3,), lambda: layers.Embedding(50, 4), layers.Flatten, dense(2), dtype=tf.int32)
stack("layer_norm", (6,), dense(4), layers.LayerNormalization, dense(2))
stack("layer_norm_on_time", (3, 6), dense(4, "relu"), layers.LayerNormalization, dense(2))
stack("layer_norm_axes", (3, 4), lambda: layers.LayerNormalization(axis=[1, 2]), layers.Flatten, dense(2))
stack("group_norm", (5, 5, 2), lambda: layers.Conv2D(4, 2), lambda: layers.GroupNormalization(2), layers.Flatten)
stack("einsum_dense", (6, 5), lambda: layers.EinsumDense("abc,cd->abd", (None, 4), bias_axes="d"), dense(2))
stack("einsum_flat", (5,), lambda: layers.EinsumDense("ab,bcd->acd", (2, 3), bias_axes="cd"), layers.Flatten)
stack("einsum_reversed", (6, 5), lambda: layers.EinsumDense("abc,dc->adb", (4, 6)), layers.Flatten)
stack("prelu", (5,), dense(4), layers.PReLU, dense(2))
stack(
    "upsampling",
    (3, 3, 2),
    lambda: layers.Conv2D(2, 2),
    layers.UpSampling2D,
    lambda: layers.Conv2D(3, 3),
    layers.Flatten,
)
stack(
    "padding_cropping", (5, 5, 2), layers.ZeroPadding2D, lambda: layers.Conv2D(3, 3), layers.Cropping2D, layers.Flatten
)
stack(
    "permute_reshape",
    (4, 6),
    lambda: layers.Permute((2, 1)),
    lambda: layers.Reshape((3, 8)),
    dense(2, "relu"),
    layers.Flatten,
    dense(2),
)
stack("leaky_dropout", (5,), dense(4), layers.LeakyReLU, lambda: layers.Dropout(0.5), dense(2))
stack("unit_norm", (5,), dense(4), layers.UnitNormalization, dense(2))


@model((6, 5))
def attention(x):
    return layers.MultiHeadAttention(2, 3)(x, x)


@model((6,), tf.int32)
def transformer(tokens):
    x = layers.Embedding(20, 8)(tokens)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
    x = layers.LayerNormalization()(x + layers.Dense(8)(layers.Dense(12, "gelu")(x)))
    return layers.Dense(2)(layers.GlobalAveragePooling1D()(x))


@model((6, 6, 2))
def residual(x):
    x = layers.Conv2D(4, 3, padding="same", activation="relu")(x)
    x = layers.Add()([x, layers.Conv2D(4, 3, padding="same")(x)])
    return layers.Dense(3)(layers.GlobalAveragePooling2D()(x))


@model((5,))
def two_branches(x):
    joined = layers.Concatenate()([layers.Dense(3, "relu")(x), layers.Dense(4, "tanh")(x[:, 1:3])])
    return layers.Dense(2)(layers.Multiply()([joined, layers.Dense(7, "sigmoid")(x)]))


def _largest(parts):
    return tf.reduce_max(tf.stack(parts, axis=1), axis=1)


@model((4, 5))
def slices_and_stacks(x):
    first, last = layers.Dense(3)(x[:, 0]), layers.Dense(3)(x[:, -1, ::2])
    return layers.Dense(2)(layers.Lambda(_largest)([first, last, layers.Multiply()([first, last])]))


stack(
    "conv3d",
    (5, 4, 4, 2),
    lambda: layers.Conv3D(3, 2, strides=(2, 1, 1), padding="same", activation="relu"),
    layers.GlobalAveragePooling3D,
    dense(2),
)
stack("time_distributed", (3, 5), lambda: layers.TimeDistributed(layers.Dense(4, activation="tanh")), layers.Flatten)


@model((3, 5))
def attention_of_products(inputs):
    """Products [examples, ...] by [examples, ...], whose gradients are summed over what was broadcast."""
    query, value = layers.Dense(4)(inputs), layers.Dense(4)(inputs)
    return layers.Dense(2)(layers.Flatten()(layers.Attention()([query, value])))


@model((6,))
def dot(inputs):
    return layers.Dense(2)(layers.Dot(1)([layers.Dense(4)(inputs), layers.Dense(4, "tanh")(inputs)]))


@model((4, 5))
def through_time_first(inputs):
    """An activation on [time, examples, features]."""
    hidden = layers.Dense(3)(inputs)
    time_first = layers.Lambda(lambda x: tf.transpose(tf.tanh(tf.transpose(x, [1, 0, 2])), [1, 0, 2]))
    return layers.Dense(2)(layers.Flatten()(time_first(hidden)))


class Places(layers.Layer):
    """Adds rows that are the same for all examples; one of them is used three times."""

    def __init__(self):
        super().__init__()
        self.table = layers.Embedding(9, 4)

    def call(self, inputs):
        return inputs + self.table(tf.constant([0, 3, 3, 7, 1, 3]))


@model((6,), tf.int32)
def embedding_of_places(tokens):
    hidden = Places()(layers.Embedding(20, 4)(tokens))
    return layers.Dense(2)(layers.Flatten()(layers.Dense(3, "tanh")(hidden)))


@model((5, 3))
def attention_pooling(inputs):
    """A softmax over time, which TensorFlow transposes by axes that it computes."""
    weights = layers.Softmax(axis=1)(layers.Dense(1, use_bias=False)(inputs))  # by a bias it has no gradient
    return layers.Dense(2)(layers.Flatten()(layers.Multiply()([layers.Dense(3)(inputs), weights])))
