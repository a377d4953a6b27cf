"""Images as people train them: from LeNet to ViT, fine-tuning with BatchNormalization frozen, generative models."""

import numpy as np
import tensorflow as tf

import adaclip_tf
from adaclip_tf._internal import keras
from tests.attack.case import Apply, PerExample, Problem, case, copies, features, floats, net
from tests.attack.cases_everyday_tables import apply_gradients

L = tf.keras.layers
SCCE = "sparse_categorical_crossentropy"


@case("accepted")
def le_net():
    layers = [
        L.Rescaling(1.0 / 255),
        L.Conv2D(3, 5, padding="same", activation="tanh"),
        L.AveragePooling2D(2),
        L.Conv2D(4, 3, activation="tanh"),
        L.AveragePooling2D(2),
        L.Flatten(),
        L.Dense(6, "tanh"),
        L.Dense(3, "softmax"),
    ]
    return net(layers, features(10, 10, 1), SCCE)


@case("accepted")
def vgg():
    layers = []
    for filters in (3, 4):
        layers += [L.Conv2D(filters, 3, padding="same", activation="relu") for _ in range(2)] + [L.MaxPooling2D()]
    layers += [L.Flatten(), L.Dense(6, "relu"), L.Dropout(0.0), L.Dense(3, "softmax")]
    return net(layers, features(8, 8, 2), SCCE)


def _res_net(normalise, start=lambda: L.Conv2D(4, 3, padding="same")):
    def build(x):
        h = start()(x)
        for filters, strides in ((4, 1), (6, 2)):
            left = L.Activation("relu")(normalise()(h))
            left = L.Conv2D(filters, 3, strides=strides, padding="same", use_bias=False)(left)
            left = L.Conv2D(filters, 3, padding="same")(L.ReLU()(normalise()(left)))
            if strides > 1:
                h = L.Conv2D(filters, 1, strides=strides)(h)
            h = L.Add()([h, left])
        return L.Dense(3, "softmax")(L.GlobalAveragePooling2D()(h))

    return net(build, features(6, 6, 2), SCCE)


@case("accepted")
def res_net_with_group_normalization():
    return _res_net(lambda: L.GroupNormalization(2))


@case("accepted")
def res_net_with_layer_normalization():
    return _res_net(L.LayerNormalization)


@case("accepted")
def mobile_net():
    """Inverted residuals with depthwise convolutions and ReLU6."""

    def build(x):
        h = L.Conv2D(4, 3, strides=2, padding="same", use_bias=False)(x)
        left = L.ReLU(6.0)(L.GroupNormalization(2)(L.Conv2D(8, 1, use_bias=False)(h)))
        left = L.ReLU(6.0)(L.GroupNormalization(2)(L.DepthwiseConv2D(3, padding="same", use_bias=False)(left)))
        h = L.Add()([h, L.Conv2D(4, 1, use_bias=False)(left)])
        return L.Dense(3, "softmax")(L.Dropout(0.0)(L.GlobalAveragePooling2D()(h)))

    return net(build, features(8, 8, 3), SCCE)


@case("accepted")
def xception():
    """Separable convolutions with a strided short cut."""

    def build(x):
        h = L.SeparableConv2D(4, 3, padding="same")(L.Activation("relu")(x))
        h = L.MaxPooling2D(3, strides=2, padding="same")(L.SeparableConv2D(4, 3, padding="same")(h))
        h = L.Add()([h, L.Conv2D(4, 1, strides=2, padding="same")(x)])
        return L.Dense(3, "softmax")(L.GlobalAveragePooling2D()(h))

    return net(build, features(6, 6, 2), SCCE)


class Scale(L.Layer):
    """ConvNeXt's layer scale."""

    def __init__(self, width):
        super().__init__()
        self.gamma = self.add_weight(shape=(width,), initializer=tf.keras.initializers.Constant(0.5), name="gamma")

    def call(self, x):
        return x * self.gamma


@case("accepted")
def conv_next():
    def build(x):
        h = L.LayerNormalization(epsilon=1e-6)(L.Conv2D(4, 2, strides=2)(x))
        left = L.LayerNormalization(epsilon=1e-6)(L.DepthwiseConv2D(3, padding="same")(h))
        left = L.Dense(4)(L.Activation("gelu")(L.Dense(8)(left)))
        return L.Dense(3, "softmax")(L.GlobalAveragePooling2D()(L.Add()([h, Scale(4)(left)])))

    return net(build, features(8, 8, 2), SCCE)


def _segmented(rng, n):
    return floats(rng, n, 8, 8, 2), rng.integers(0, 2, (n, 8, 8, 1)).astype(np.float32)


def _u_net(x):
    first = L.Conv2D(3, 3, padding="same", activation="relu")(x)
    deep = L.Conv2D(4, 3, padding="same", activation="relu")(L.MaxPooling2D()(first))
    up = L.Conv2DTranspose(3, 3, strides=2, padding="same")(deep)
    return L.Conv2D(1, 1, activation="sigmoid")(
        L.Conv2D(3, 3, padding="same", activation="relu")(L.Concatenate()([first, up]))
    )


@case("accepted")
def u_net_per_pixel():
    return net(_u_net, _segmented, "binary_crossentropy")


def _dice(y, p):
    both, sizes = tf.reduce_sum(y * p, [1, 2, 3]), tf.reduce_sum(y + p, [1, 2, 3])
    return 1.0 - (2.0 * both + 1.0) / (sizes + 1.0)


@case("accepted")
def u_net_dice():
    return net(_u_net, _segmented, PerExample(_dice))


@case("accepted")
def u_net_of_any_size():
    """A fully convolutional model over images of unknown size."""
    x = tf.keras.Input((None, None, 2))
    return Problem(tf.keras.Model(x, _u_net(x)), _segmented, "binary_crossentropy")


@case("accepted")
def autoencoder_of_images():
    layers = [
        L.Conv2D(3, 3, strides=2, padding="same", activation="relu"),
        L.Conv2DTranspose(3, 3, strides=2, padding="same", activation="relu"),
        L.Conv2D(2, 3, padding="same"),
    ]
    return net(layers, copies(6, 6, 2), "mse")


@case("accepted")
def super_resolution():
    """Sub-pixel convolution: depth to space."""

    def data(rng, n):
        return floats(rng, n, 4, 4, 1), floats(rng, n, 8, 8, 1)

    layers = [
        L.Conv2D(4, 3, padding="same", activation="relu"),
        L.Conv2D(4, 3, padding="same"),
        Apply(lambda t: tf.nn.depth_to_space(t, 2)),
    ]
    return net(layers, data, "mse")


@case("accepted")
def upsampled_decoder():
    """A decoder of a code: Dense, Reshape, bilinear UpSampling."""
    layers = [
        L.Dense(12, "relu"),
        L.Reshape((2, 2, 3)),
        L.UpSampling2D(2, interpolation="bilinear"),
        L.Conv2D(3, 3, padding="same", activation="relu"),
        L.UpSampling2D(2),
        L.Conv2D(1, 3, padding="same", activation="sigmoid"),
    ]
    return net(layers, lambda rng, n: (floats(rng, n, 5), rng.uniform(size=(n, 8, 8, 1)).astype(np.float32)), "mse")


class Sampling(L.Layer):
    """Draws a code, and adds the divergence of its distribution to the loss."""

    def call(self, parts):
        mean, log_variance = parts
        divergence = -0.5 * tf.reduce_sum(1 + log_variance - tf.square(mean) - tf.exp(log_variance), axis=1)
        self.add_loss(tf.reduce_mean(divergence))
        return mean + tf.exp(0.5 * log_variance) * tf.random.normal(tf.shape(mean))


@case("accepted", random=True)
def variational_autoencoder_with_added_loss():
    def build(x):
        h = L.Dense(6, "relu")(L.Flatten()(x))
        code = Sampling()([L.Dense(2)(h), L.Dense(2)(h)])
        return L.Reshape((4, 4, 1))(L.Dense(16)(L.Dense(6, "relu")(code)))

    return net(build, copies(4, 4, 1), "mse")


class Variational(tf.keras.Model):
    """Keras's example: a `train_step` that adds up two losses."""

    def __init__(self):
        super().__init__()
        self.encoder = tf.keras.Sequential([L.Flatten(), L.Dense(6, "relu"), L.Dense(4)])
        self.decoder = tf.keras.Sequential([L.Dense(6, "relu"), L.Dense(16), L.Reshape((4, 4, 1))])

    def call(self, x):
        return self.decoder(self.encoder(x)[:, :2])

    def train_step(self, data):
        x = data[0] if isinstance(data, tuple) else data
        with tf.GradientTape() as tape:
            mean, log_variance = tf.split(self.encoder(x), 2, axis=1)
            code = mean + tf.exp(0.5 * log_variance) * tf.random.normal(tf.shape(mean))
            error = tf.reduce_mean(tf.reduce_sum(tf.square(x - self.decoder(code)), axis=(1, 2, 3)))
            divergence = -0.5 * (1 + log_variance - tf.square(mean) - tf.exp(log_variance))
            loss = error + tf.reduce_mean(tf.reduce_sum(divergence, axis=1))
            if keras.GENERATION == 3:
                loss = self.optimizer.scale_loss(loss)
        apply_gradients(self, loss, tape)
        return {"loss": loss}


@case("accepted", random=True)
def variational_autoencoder_with_train_step():
    return Problem(Variational(), copies(4, 4, 1), "mse")


def _encode(h):
    left = L.LayerNormalization(epsilon=1e-6)(h)
    h = L.Add()([h, L.MultiHeadAttention(2, 2)(left, left)])
    left = L.LayerNormalization(epsilon=1e-6)(h)
    return L.Add()([h, L.Dense(4)(L.Dense(8, "gelu")(left))])


class Places(L.Layer):
    """Adds an embedding of the place to each patch."""

    def __init__(self, count, width):
        super().__init__()
        self.count, self.table = count, L.Embedding(count, width)

    def call(self, patches):
        return patches + self.table(tf.range(self.count))


@case("accepted", saturates=True)
def vision_transformer_by_convolution():
    def build(x):
        h = Places(4, 4)(L.Reshape((4, 4))(L.Conv2D(4, 3, strides=3)(x)))
        return L.Dense(3, "softmax")(L.GlobalAveragePooling1D()(_encode(h)))

    return net(build, features(6, 6, 2), SCCE)


class Patches(L.Layer):
    """Keras's example of a ViT."""

    def call(self, images):
        patches = tf.image.extract_patches(images, [1, 3, 3, 1], [1, 3, 3, 1], [1, 1, 1, 1], "VALID")
        return tf.reshape(patches, [tf.shape(images)[0], -1, patches.shape[-1]])


@case("accepted", saturates=True)
def vision_transformer_by_patches():
    def build(x):
        h = Places(4, 4)(L.Dense(4)(Patches()(x)))
        return L.Dense(3, "softmax")(L.Dense(4, "gelu")(L.Flatten()(_encode(h))))

    return net(build, features(6, 6, 2), SCCE)


class Patched(L.Layer):
    """Patches of feature maps that are themselves learnt: their gradient goes through the cutting."""

    def call(self, images):
        return tf.reshape(
            tf.image.extract_patches(images, [1, 2, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1], "VALID"), [-1, 9, 12]
        )


@case("accepted", saturates=True)
def vision_transformer_by_patches_of_features():
    def build(x):
        return L.Dense(3)(L.Flatten()(_encode(L.Dense(4)(Patched()(L.Conv2D(3, 3, padding="same")(x))))))

    return net(build, features(6, 6, 2), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))


@case("accepted", saturates=True)
def vision_transformer_with_class_token():
    class Token(L.Layer):
        def build(self, shape):
            self.token = self.add_weight(shape=(1, 1, shape[-1]), initializer="glorot_uniform", name="token")

        def call(self, x):
            token = tf.broadcast_to(self.token, [tf.shape(x)[0], 1, x.shape[-1]])
            return tf.concat([token, x], axis=1)

    def build(x):
        h = Places(5, 4)(Token()(L.Reshape((4, 4))(L.Conv2D(4, 3, strides=3)(x))))
        return L.Dense(3)(L.LayerNormalization()(_encode(h))[:, 0])

    return net(build, features(6, 6, 2), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))


@case("accepted")
def mlp_mixer():
    def build(x):
        h = L.Reshape((4, 4))(L.Conv2D(4, 3, strides=3)(x))
        left = L.Permute((2, 1))(L.LayerNormalization()(h))
        h = L.Add()([h, L.Permute((2, 1))(L.Dense(4)(L.Dense(5, "gelu")(left)))])
        h = L.Add()([h, L.Dense(4)(L.Dense(6, "gelu")(L.LayerNormalization()(h)))])
        return L.Dense(3, "softmax")(L.GlobalAveragePooling1D()(h))

    return net(build, features(6, 6, 2), SCCE)


@case("accepted")
def squeeze_net():
    def fire(x):
        small = L.Conv2D(2, 1, activation="relu")(x)
        return L.Concatenate()(
            [L.Conv2D(3, 1, activation="relu")(small), L.Conv2D(3, 3, padding="same", activation="relu")(small)]
        )

    def build(x):
        return L.Softmax()(
            L.GlobalAveragePooling2D()(L.Conv2D(3, 1, activation="relu")(fire(L.MaxPooling2D()(fire(x)))))
        )

    return net(build, features(6, 6, 2), SCCE)


@case("accepted", random=True)
def augmentation_inside():
    layers = [
        L.RandomFlip("horizontal"),
        L.RandomRotation(0.1),
        L.RandomZoom(0.2),
        L.RandomTranslation(0.1, 0.1),
        L.RandomContrast(0.1),
        L.Conv2D(3, 3, activation="relu"),
        L.GlobalAveragePooling2D(),
        L.Dropout(0.5),
        L.Dense(3, "softmax"),
    ]
    return net(layers, features(8, 8, 3), SCCE)


@case("accepted")
def video_by_convolutions_and_lstm():
    layers = [
        L.TimeDistributed(L.Conv2D(3, 3, activation="relu")),
        L.TimeDistributed(L.MaxPooling2D()),
        L.TimeDistributed(L.Flatten()),
        L.LSTM(4),
        L.Dense(3, "softmax"),
    ]
    return net(layers, features(3, 6, 6, 1), SCCE)


@case("accepted")
def spectrograms():
    """Sound to a spectrogram inside of the model, then convolutions."""
    layers = [
        Apply(lambda t: tf.abs(tf.signal.stft(t, 8, 4))[..., None]),
        L.Conv2D(3, 2, activation="relu"),
        L.GlobalMaxPooling2D(),
        L.Dense(3, "softmax"),
    ]
    return net(layers, features(24), SCCE)


# ----------------------------------------------------------------------------------------------------------------
# Fine-tuning.


def _backbone():
    x = tf.keras.Input((8, 8, 2))
    h = L.BatchNormalization()(L.Conv2D(4, 3, padding="same", use_bias=False)(x))
    h = L.ReLU(6.0)(L.BatchNormalization()(L.DepthwiseConv2D(3, padding="same", use_bias=False)(L.ReLU()(h))))
    return tf.keras.Model(x, L.BatchNormalization()(L.Conv2D(4, 1, use_bias=False)(h)))


@case("accepted")
def frozen_backbone():
    """`base(x, training=False)` and a head, as in Keras's guide to transfer learning."""
    base = _backbone()
    base.trainable = False
    return net(
        lambda x: L.Dense(3, "softmax")(L.GlobalAveragePooling2D()(base(x, training=False))), features(8, 8, 2), SCCE
    )


@case("accepted")
def last_layers_unfrozen():
    """All layers but the last two frozen, and every BatchNormalization."""
    base = _backbone()
    for layer in base.layers:
        layer.trainable = layer in base.layers[-2:] and not isinstance(layer, L.BatchNormalization)
    return net(lambda x: L.Dense(3, "softmax")(L.GlobalAveragePooling2D()(base(x))), features(8, 8, 2), SCCE)


@case("accepted" if keras.GENERATION == 2 else "refused")
def whole_backbone_without_batch_statistics():
    """`base(x, training=False)` with all layers trained. Keras 3 says True to them all the same."""
    base = _backbone()
    return net(
        lambda x: L.Dense(3, "softmax")(L.GlobalAveragePooling2D()(base(x, training=False))), features(8, 8, 2), SCCE
    )


@case("accepted")
def fixed_backbone():
    """`fix_model` in the place of BatchNormalization."""
    base = _backbone()
    x = tf.keras.Input((8, 8, 2))
    model = tf.keras.Model(x, L.Dense(3, "softmax")(L.GlobalAveragePooling2D()(base(x))))
    return Problem(adaclip_tf.fix_model(model), features(8, 8, 2), SCCE)


@case("refused")
def backbone_in_training():
    """BatchNormalization as it is."""
    base = _backbone()
    return net(lambda x: L.Dense(3, "softmax")(L.GlobalAveragePooling2D()(base(x))), features(8, 8, 2), SCCE)
