"""Every layer that Keras has, by itself between two layers that are trained.

`test_no_layer_and_no_loss_is_left_out` fails where Keras has one that is not here. Each must be right, or refused.
"""

# ruff: noqa: PLW0108 (a layer that this Keras does not have must not be asked for)

from __future__ import annotations

import tensorflow as tf

from adaclip_tf._internal import keras as generation
from tests.attack.case import Apply, case, features, net, tokens

L = tf.keras.layers

# By shape of one example: [layer by name, whether it draws random numbers].
_VECTORS = {
    "Activation": lambda: L.Activation("gelu"),
    "BatchNormalization": lambda: L.BatchNormalization(),
    "Dense": lambda: L.Dense(4, use_bias=False),
    "Dropout": lambda: L.Dropout(0.3),
    "AlphaDropout": lambda: L.AlphaDropout(0.3),
    "GaussianDropout": lambda: L.GaussianDropout(0.3),
    "GaussianNoise": lambda: L.GaussianNoise(0.3),
    "ELU": lambda: L.ELU(),
    "EinsumDense": lambda: L.EinsumDense("ab,bc->ac", 4, bias_axes="c"),
    "Flatten": lambda: L.Flatten(),
    "GroupNormalization": lambda: L.GroupNormalization(2),
    "Identity": lambda: L.Identity(),
    "Lambda": lambda: L.Lambda(lambda t: tf.nn.l2_normalize(t, axis=-1)),
    "LayerNormalization": lambda: L.LayerNormalization(),
    "LeakyReLU": lambda: L.LeakyReLU(),
    "Masking": lambda: L.Masking(),
    "Normalization": lambda: L.Normalization(mean=0.2, variance=2.0),
    "PReLU": lambda: L.PReLU(),
    "ReLU": lambda: L.ReLU(6.0, 0.1, 0.2),
    "RepeatVector": lambda: L.RepeatVector(3),
    "Rescaling": lambda: L.Rescaling(0.5, 0.1),
    "Reshape": lambda: L.Reshape((2, -1)),
    "RMSNormalization": lambda: L.RMSNormalization(),
    "Softmax": lambda: L.Softmax(),
    "ThresholdedReLU": lambda: L.ThresholdedReLU(0.1),
    "UnitNormalization": lambda: L.UnitNormalization(),
    "Discretization": lambda: L.Discretization([-1.0, 0.0, 1.0], output_mode="multi_hot"),
    "Pipeline": lambda: L.Pipeline([L.Rescaling(0.5), L.UnitNormalization()]),
}
_SEQUENCES = {
    "AdaptiveAveragePooling1D": lambda: L.AdaptiveAveragePooling1D(3),
    "AdaptiveMaxPooling1D": lambda: L.AdaptiveMaxPooling1D(3),
    "AveragePooling1D": lambda: L.AveragePooling1D(2),
    "Bidirectional": lambda: L.Bidirectional(L.GRU(3), merge_mode="mul"),
    "Conv1D": lambda: L.Conv1D(3, 3, padding="same", data_format="channels_last"),
    "Conv1DTranspose": lambda: L.Conv1DTranspose(3, 3, 2),
    "Cropping1D": lambda: L.Cropping1D(1),
    "DepthwiseConv1D": lambda: L.DepthwiseConv1D(3, depth_multiplier=2),
    "GRU": lambda: L.GRU(3, go_backwards=True),
    "GlobalAveragePooling1D": lambda: L.GlobalAveragePooling1D(keepdims=True),
    "GlobalMaxPooling1D": lambda: L.GlobalMaxPooling1D(),
    "LSTM": lambda: L.LSTM(3, return_sequences=True, time_major=False) if generation.GENERATION == 2 else L.LSTM(3),
    "LocallyConnected1D": lambda: L.LocallyConnected1D(3, 3),
    "MaxPooling1D": lambda: L.MaxPooling1D(3, 1, "same"),
    "Permute": lambda: L.Permute((2, 1)),
    "RNN": lambda: L.RNN([L.LSTMCell(3), L.GRUCell(2), L.SimpleRNNCell(2)]),
    "SeparableConv1D": lambda: L.SeparableConv1D(3, 3),
    "SimpleRNN": lambda: L.SimpleRNN(3, unroll=True),
    "SpatialDropout1D": lambda: L.SpatialDropout1D(0.3),
    "TimeDistributed": lambda: L.TimeDistributed(L.LayerNormalization()),
    "UpSampling1D": lambda: L.UpSampling1D(3),
    "ZeroPadding1D": lambda: L.ZeroPadding1D((1, 2)),
    "STFTSpectrogram": lambda: L.STFTSpectrogram(frame_length=4, frame_step=2, fft_length=4),
}
_IMAGES = {
    "AdaptiveAveragePooling2D": lambda: L.AdaptiveAveragePooling2D(3),
    "AdaptiveMaxPooling2D": lambda: L.AdaptiveMaxPooling2D(3),
    "AugMix": lambda: L.AugMix((0, 1)),
    "AutoContrast": lambda: L.AutoContrast((0, 1)),
    "AveragePooling2D": lambda: L.AveragePooling2D(3, 2, "same"),
    "CenterCrop": lambda: L.CenterCrop(4, 4),
    "ContrastLimitedAdaptiveHistogramEqualization": lambda: L.ContrastLimitedAdaptiveHistogramEqualization((0, 1)),
    "Conv2D": lambda: L.Conv2D(3, 3, 2),
    "Conv2DTranspose": lambda: L.Conv2DTranspose(2, 3, 2),
    "ConvLSTM1D": lambda: L.ConvLSTM1D(2, 3),
    "Cropping2D": lambda: L.Cropping2D(1),
    "CutMix": lambda: _of_images(L.CutMix()),
    "DepthwiseConv2D": lambda: L.DepthwiseConv2D(3),
    "GlobalAveragePooling2D": lambda: L.GlobalAveragePooling2D(),
    "GlobalMaxPooling2D": lambda: L.GlobalMaxPooling2D(),
    "LocallyConnected2D": lambda: L.LocallyConnected2D(2, 3),
    "MaxPooling2D": lambda: L.MaxPooling2D(),
    "MixUp": lambda: _of_images(L.MixUp()),
    "RandAugment": lambda: L.RandAugment((0, 1)),
    "RandomBrightness": lambda: L.RandomBrightness(0.2, (0, 1)),
    "RandomColorDegeneration": lambda: L.RandomColorDegeneration(0.5, (0, 1)),
    "RandomColorJitter": lambda: L.RandomColorJitter((0, 1), 0.2, 0.2, 0.2, 0.2),
    "RandomCrop": lambda: L.RandomCrop(5, 5),
    "RandomElasticTransform": lambda: L.RandomElasticTransform(0.5, 1.0),
    "RandomErasing": lambda: L.RandomErasing(0.5, value_range=(0, 1)),
    "RandomFlip": lambda: L.RandomFlip(),
    "RandomGaussianBlur": lambda: L.RandomGaussianBlur(0.5, 3, 1.0, (0, 1)),
    "RandomGrayscale": lambda: L.RandomGrayscale(0.5),
    "RandomHue": lambda: L.RandomHue(0.2, (0, 1)),
    "RandomInvert": lambda: L.RandomInvert(0.5, (0, 1)),
    "RandomPerspective": lambda: L.RandomPerspective(0.5, 0.2),
    "RandomPosterization": lambda: L.RandomPosterization(4, (0, 1)),
    "RandomRotation": lambda: L.RandomRotation(0.1),
    "RandomSaturation": lambda: L.RandomSaturation(0.2, (0, 1)),
    "RandomSharpness": lambda: L.RandomSharpness(0.5, (0, 1)),
    "RandomShear": lambda: L.RandomShear(0.2, 0.2),
    "RandomTranslation": lambda: L.RandomTranslation(0.1, 0.1),
    "RandomZoom": lambda: L.RandomZoom(0.1),
    "Resizing": lambda: L.Resizing(5, 3, "bicubic", crop_to_aspect_ratio=True),
    "SeparableConv2D": lambda: L.SeparableConv2D(3, 3),
    "Solarization": lambda: L.Solarization(0.2, 0.4, (0, 1)),
    "SpatialDropout2D": lambda: L.SpatialDropout2D(0.3),
    "UpSampling2D": lambda: L.UpSampling2D(2, interpolation="bilinear"),
    "ZeroPadding2D": lambda: L.ZeroPadding2D(((1, 0), (0, 2))),
}
_VOLUMES = {
    "AdaptiveAveragePooling3D": lambda: L.AdaptiveAveragePooling3D(2),
    "AdaptiveMaxPooling3D": lambda: L.AdaptiveMaxPooling3D(2),
    "AveragePooling3D": lambda: L.AveragePooling3D(2),
    "Conv3D": lambda: L.Conv3D(2, 2, dilation_rate=2),
    "Conv3DTranspose": lambda: L.Conv3DTranspose(2, 2),
    "ConvLSTM2D": lambda: L.ConvLSTM2D(2, 3),
    "Cropping3D": lambda: L.Cropping3D(1),
    "GlobalAveragePooling3D": lambda: L.GlobalAveragePooling3D(),
    "GlobalMaxPooling3D": lambda: L.GlobalMaxPooling3D(),
    "MaxPooling3D": lambda: L.MaxPooling3D(),
    "SpatialDropout3D": lambda: L.SpatialDropout3D(0.3),
    "UpSampling3D": lambda: L.UpSampling3D(),
    "ZeroPadding3D": lambda: L.ZeroPadding3D(1),
}
_MERGES = {
    "Add": lambda a, b: L.Add()([a, b]),
    "AdditiveAttention": lambda a, b: L.AdditiveAttention()([a, b]),
    "Attention": lambda a, b: L.Attention(use_scale=True, score_mode="concat")([a, b]),
    "Average": lambda a, b: L.Average()([a, b]),
    "Concatenate": lambda a, b: L.Concatenate(axis=1)([a, b]),
    "Dot": lambda a, b: L.Dot(axes=2, normalize=True)([a, b]),
    "GroupQueryAttention": lambda a, b: L.GroupQueryAttention(2, 2, 1)(a, b),
    "Maximum": lambda a, b: L.Maximum()([a, b]),
    "Minimum": lambda a, b: L.Minimum()([a, b]),
    "MultiHeadAttention": lambda a, b: L.MultiHeadAttention(2, 2, use_bias=False)(a, b, use_causal_mask=True),
    "Multiply": lambda a, b: L.Multiply()([a, b]),
    "Subtract": lambda a, b: L.Subtract()([a, b]),
}
_TOKENS = {
    "CategoryEncoding": lambda: L.CategoryEncoding(11, output_mode="count"),
    "Embedding": lambda: L.Embedding(11, 3, mask_zero=True),
    "HashedCrossing": lambda: _crossed(L.HashedCrossing(5, output_mode="one_hot")),
    "Hashing": lambda: _one_hot(L.Hashing(5), 5),
    "IntegerLookup": lambda: (
        L.IntegerLookup(vocabulary=[1, 2, 3, 5], output_mode="tf_idf", idf_weights=[0.1] * 4)
        if generation.GENERATION == 2
        else L.IntegerLookup(vocabulary=[1, 2, 3, 5], output_mode="count")
    ),
    "ReversibleEmbedding": lambda: L.ReversibleEmbedding(11, 3),
    "StringLookup": lambda: _strings(L.StringLookup(vocabulary=["1", "2", "3"], output_mode="multi_hot")),
    "TextVectorization": lambda: _strings(
        L.TextVectorization(
            vocabulary=["1", "2"], output_mode="count", pad_to_max_tokens=True, max_tokens=4, split=None
        )
    ),
}
_RANDOM = {"Dropout", "AlphaDropout", "GaussianDropout", "GaussianNoise", "AugMix", "CutMix", "MixUp", "RandAugment"}
_RANDOM |= {"Solarization"}
# TensorFlow raises an error of its own for numbers that are none.
_FINITE = {"ContrastLimitedAdaptiveHistogramEqualization"}
# What can't stand here: abstract, for others than TensorFlow, other names, or with cases of their own elsewhere.
LEFT_OUT = {
    *("InputLayer", "InputSpec", "Layer", "Wrapper", "FlaxLayer", "JaxLayer", "TFSMLayer", "TorchModuleWrapper"),
    *("AbstractRNNCell", "GRUCell", "LSTMCell", "SimpleRNNCell", "StackedRNNCells", "DenseFeatures", "Input"),
    *("ConvLSTM3D", "MelSpectrogram", "MaxNumBoundingBoxes", "RandomFourierFeatures", "SyncBatchNormalization"),
    *(
        "ActivityRegularization",
        "Equalization",
        "RandomContrast",
        "RandomHeight",
        "RandomWidth",
        "SpectralNormalization",
    ),
}
_SHORT = {"AvgPool": "AveragePooling", "MaxPool": "MaxPooling", "Convolution": "Conv"}


def _of_images(layer):
    return lambda x: layer({"images": x})["images"] if isinstance(x, tf.Tensor) else layer(x)


def _crossed(layer):
    return lambda x: layer((x[:, :1], x[:, 1:2]))


def _one_hot(layer, size):
    return lambda x: Apply(lambda t: tf.one_hot(t, size))(layer(x))


def _strings(layer):
    return lambda x: layer(Apply(tf.strings.as_string)(x))


def left_out() -> set[str]:
    """The layers of this Keras that have no case here, and no reason for it."""
    known = {*_VECTORS, *_SEQUENCES, *_IMAGES, *_VOLUMES, *_MERGES, *_TOKENS, *LEFT_OUT}
    found = {name for name in dir(L) if isinstance(getattr(L, name), type) and issubclass(getattr(L, name), L.Layer)}
    return {name for name in found if _long(name) not in known}


def _long(name: str) -> str:
    for short, long in _SHORT.items():
        name = name.replace(f"{short}ing", short).replace(short, long) if short in name else name
    return name.replace("AveragePoolinging", "AveragePooling")


def _register(name, build, **options):
    def problem():
        return build()

    problem.__name__ = f"layer_{name}"
    random = name in _RANDOM or name.startswith(("Random", "Spatial"))
    hostile = not name.startswith("Adaptive") and name not in _FINITE
    case("either", random=random, hostile=hostile, **options)(problem)


def _between(make, data, first):
    """first, the layer, and a dense one."""

    def build():
        return net(lambda x: L.Dense(3)(L.Flatten()(make()(first()(x)))), data)

    return build


for _kind, _data, _first in (
    (_VECTORS, features(4), lambda: L.Dense(4, "tanh")),
    (_SEQUENCES, features(6, 4), lambda: L.Dense(4, "tanh")),
    (_IMAGES, features(6, 6, 3), lambda: L.Dense(3, "sigmoid")),
    (_VOLUMES, features(4, 4, 4, 2), lambda: L.Dense(2, "sigmoid")),
):
    for _name, _make in _kind.items():
        if hasattr(L, _name):
            _register(_name, _between(_make, _data, _first))


def _merge(join):
    def build():
        return net(lambda x: L.Dense(3)(L.Flatten()(join(L.Dense(4, "tanh")(x), L.Dense(4)(x)))), features(5, 4))

    return build


for _name, _make in _MERGES.items():
    if hasattr(L, _name):
        _register(_name, _merge(_make))


def _of_tokens(make):
    def build():
        return net(lambda x: L.Dense(3)(L.Flatten()(make()(x))), tokens())

    return build


for _name, _make in _TOKENS.items():
    if hasattr(L, _name):
        _register(_name, _of_tokens(_make))
