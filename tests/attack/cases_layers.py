"""Right models of plain layers: each must be accepted in graph mode."""

import tensorflow as tf

from adaclip_tf._internal import keras
from tests.attack.case import binary, case, copies, features, mse, net, regression, tagged

L = tf.keras.layers


@case("accepted", fast=("graph", "eager"))
def dense():
    return net([L.Dense(6, "tanh"), L.Dense(3)], features())


@case("accepted")
def dense_on_sequences():
    return net([L.Dense(4, "relu"), L.Flatten(), L.Dense(3)], features(5, 3))


@case("accepted")
def residual():
    def build(x):
        h = L.Dense(5, "relu")(x)
        return L.Dense(3)(L.Add()([x, L.Dense(5)(h)]))

    return net(build, features())


@case("accepted", fast=("graph",))
def convolution_2d():
    return net([L.Conv2D(3, 3, activation="relu"), L.GlobalAveragePooling2D(), L.Dense(3)], features(6, 6, 2))


@case("accepted")
def convolution_1d():
    return net(
        [L.Conv1D(4, 3, padding="same", activation="relu"), L.MaxPooling1D(), L.Flatten(), L.Dense(3)], features(8, 2)
    )


@case("accepted")
def convolution_3d():
    return net([L.Conv3D(2, 2), L.GlobalMaxPooling3D(), L.Dense(3)], features(4, 4, 4, 1))


@case("accepted")
def convolution_causal():
    return net([L.Conv1D(4, 2, padding="causal", dilation_rate=2), L.GlobalMaxPooling1D(), L.Dense(3)], features(8, 2))


@case("accepted")
def convolution_strided_grouped():
    return net([L.Conv2D(4, 3, strides=2, groups=2, padding="same"), L.Flatten(), L.Dense(3)], features(6, 6, 2))


@case("accepted")
def convolution_dilated():
    return net([L.Conv2D(3, 2, dilation_rate=2, activation="tanh"), L.Flatten(), L.Dense(3)], features(6, 6, 2))


@case("accepted")
def separable():
    return net([L.SeparableConv2D(3, 3), L.GlobalAveragePooling2D(), L.Dense(3)], features(6, 6, 2))


@case("accepted")
def separable_1d():
    return net([L.SeparableConv1D(3, 3), L.GlobalAveragePooling1D(), L.Dense(3)], features(6, 2))


@case("accepted")
def depthwise():
    return net([L.DepthwiseConv2D(3, depth_multiplier=2), L.Flatten(), L.Dense(3)], features(5, 5, 2))


@case("accepted")
def transposed():
    return net([L.Conv2DTranspose(2, 3, strides=2), L.GlobalAveragePooling2D(), L.Dense(3)], features(4, 4, 2))


@case("accepted")
def transposed_1d():
    return net([L.Conv1DTranspose(2, 3), L.Flatten(), L.Dense(3)], features(4, 2))


def locally_connected():
    return net([L.LocallyConnected1D(2, 3), L.Flatten(), L.Dense(3)], features(6, 2))


if keras.GENERATION == 2:  # Keras 3 has no such layer
    case("accepted")(locally_connected)


@case("accepted")
def poolings():
    def build(x):
        h = L.Conv2D(3, 3, padding="same")(x)
        pooled = [L.MaxPooling2D()(h), L.AveragePooling2D(2)(h)]
        ends = [L.Flatten()(p) for p in pooled] + [L.GlobalMaxPooling2D()(h), L.GlobalAveragePooling2D()(h)]
        return L.Dense(3)(L.Concatenate()(ends))

    return net(build, features(4, 4, 2))


@case("accepted")
def padding_cropping_upsampling():
    layers = [L.ZeroPadding2D(1), L.Conv2D(2, 3), L.UpSampling2D(), L.Cropping2D(1), L.Flatten(), L.Dense(3)]
    return net(layers, features(4, 4, 2))


@case("accepted")
def reshape_permute_repeat():
    def build(x):
        h = L.Reshape((3, 4))(L.Dense(12)(x))
        h = L.Dense(2)(L.Permute((2, 1))(h))
        return L.Dense(3)(L.Concatenate()([L.Flatten()(h), L.Flatten()(L.RepeatVector(2)(x))]))

    return net(build, features())


@case("accepted")
def layer_normalization():
    return net([L.Dense(6), L.LayerNormalization(), L.Activation("relu"), L.Dense(3)], features())


@case("accepted")
def layer_normalization_of_sequences():
    return net([L.Dense(6), L.LayerNormalization(), L.GlobalAveragePooling1D(), L.Dense(3)], features(5, 3))


@case("accepted")
def layer_normalization_of_images():
    return net([L.Conv2D(4, 3), L.LayerNormalization(axis=[1, 2, 3]), L.Flatten(), L.Dense(3)], features(5, 5, 2))


@case("accepted")
def group_normalization():
    return net([L.Conv2D(4, 3), L.GroupNormalization(2), L.Flatten(), L.Dense(3)], features(5, 5, 2))


@case("accepted")
def unit_normalization():
    return net([L.Dense(6, "tanh"), L.UnitNormalization(), L.Dense(3)], features())


@case("accepted", fast=("graph",))
def frozen_batch_normalization():
    norm = L.BatchNormalization()
    norm.trainable = False
    return net([L.Dense(6), norm, L.Activation("relu"), L.Dense(3)], features())


@case("accepted")
def frozen_batch_normalization_of_images():
    norm = L.BatchNormalization()
    norm.trainable = False
    return net([L.Conv2D(4, 3), norm, L.ReLU(), L.GlobalAveragePooling2D(), L.Dense(3)], features(5, 5, 2))


@case("accepted")
def input_normalization():
    """The statistics were set beforehand; they are constants."""
    return net([L.Normalization(mean=0.3, variance=2.0), L.Dense(4, "tanh"), L.Dense(3)], features())


@case("accepted")
def activations():
    kinds = ["elu", "gelu", "selu", "swish", "softplus", "softsign", "sigmoid", "softmax", "relu"]
    return net(lambda x: L.Dense(3)(L.Concatenate()([L.Dense(2, kind)(x) for kind in kinds])), features())


@case("accepted")
def activation_layers():
    return net([L.Dense(6), L.LeakyReLU(), L.PReLU(), L.ThresholdedReLU(0.1), L.Softmax(), L.Dense(3)], features())


@case("accepted")
def merges():
    def build(x):
        parts = [L.Dense(4, "tanh")(x) for _ in range(3)]
        kinds = [L.Add, L.Average, L.Maximum, L.Minimum, L.Multiply]
        ends = [kind()(parts) for kind in kinds] + [L.Subtract()(parts[:2]), L.Dot(1)(parts[:2])]
        return L.Dense(3)(L.Concatenate()(ends))

    return net(build, features())


@case("accepted", random=True, fast=("graph",))
def dropout():
    return net([L.Dense(6, "relu"), L.Dropout(0.4), L.Dense(3)], features())


@case("accepted", random=True)
def all_dropouts():
    layers = [L.Dense(6, "selu"), L.AlphaDropout(0.2), L.GaussianDropout(0.2), L.GaussianNoise(0.3), L.Dense(3)]
    return net(layers, features())


@case("accepted", random=True)
def spatial_dropout():
    return net([L.Conv2D(4, 3), L.SpatialDropout2D(0.3), L.Flatten(), L.Dense(3)], features(5, 5, 2))


@case("accepted", random=True)
def augmentation():
    layers = [L.RandomFlip(), L.RandomRotation(0.1), L.RandomZoom(0.1), L.Conv2D(3, 3), L.Flatten(), L.Dense(3)]
    return net(layers, features(6, 6, 2))


@case("accepted", random=True)
def augmentation_of_colours():
    layers = [L.RandomContrast(0.2), L.RandomTranslation(0.1, 0.1), L.RandomBrightness(0.1, (0, 1)), L.Flatten()]
    return net([*layers, L.Dense(3)], features(6, 6, 3))


@case("accepted", random=True)
def random_crop():
    return net([L.RandomCrop(4, 4), L.Conv2D(3, 3), L.Flatten(), L.Dense(3)], features(6, 6, 2))


@case("accepted")
def resizing_rescaling():
    return net([L.Rescaling(0.5), L.Resizing(3, 3), L.Conv2D(3, 2), L.Flatten(), L.Dense(3)], features(6, 6, 2))


@case("accepted")
def autoencoder():
    return net([L.Dense(3, "tanh"), L.Dense(5)], copies(), mse())


@case("accepted")
def convolutional_autoencoder():
    """The loss of an image is [batch, height, width] unless it is reduced: here per pixel, and flattened before."""
    layers = [L.Conv2D(2, 3, 2, "same", activation="relu"), L.Conv2DTranspose(1, 3, 2, "same"), L.Flatten()]
    problem = net(layers, copies(4, 4, 1), mse())
    problem.data = lambda rng, n: (lambda x: (x, x.reshape(n, -1)))(copies(4, 4, 1)(rng, n)[0])
    return problem


@case("accepted", clip=0.02)
def loss_per_time():
    """A loss of shape [batch, time]: its mean per example."""
    return net([L.Dense(4, "tanh"), L.Dense(3)], tagged(5, 2))


@case("accepted", clip=0.02)
def loss_per_pixel():
    """A loss of shape [batch, height, width]."""
    return net([L.Conv2D(2, 3, padding="same"), L.Conv2D(1, 1)], copies(4, 4, 1), mse())


@case("accepted")
def regression_with_huber():
    return net([L.Dense(4, "relu"), L.Dense(1)], regression(), tf.keras.losses.Huber(reduction="none"))


@case("accepted")
def several_losses_of_keras():
    def build(x):
        return [L.Dense(1)(L.Dense(4, "tanh")(x)) for _ in range(4)]

    kinds = [tf.keras.losses.LogCosh, tf.keras.losses.Hinge, tf.keras.losses.MeanAbsoluteError, tf.keras.losses.Poisson]
    make = binary()

    def data(rng, n):
        x, y = make(rng, n)
        return x, (y, y, y, y)

    problem = net(build, data, [kind(reduction="none") for kind in kinds])
    problem.compile["loss_weights"] = [1.0, 0.5, 2.0, 0.1]
    return problem
