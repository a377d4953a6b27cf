"""`fix_model`: copies that private training takes, and what is said of them."""

import doctest

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import DPFixedClipSGD, check_model, fix_model
from adaclip_tf.optimizers import fix_model as module
from tests import generations

L = tf.keras.layers


def _fixed(model):
    said = []
    fixed = fix_model(model, report=said.append)
    check_model(fixed)
    return fixed, said[0]


def _images():
    """Convolutions with BatchNormalization, a frozen one, regularizers, and a nested model."""
    block = tf.keras.Sequential([L.Input((8, 8, 6)), L.Conv2D(6, 3), L.BatchNormalization(name="inner")], name="block")
    inputs = tf.keras.Input((8, 8, 3))
    x = L.Conv2D(6, 3, padding="same", use_bias=False, kernel_regularizer=tf.keras.regularizers.L2(0.01), name="c")(
        inputs
    )
    x = L.BatchNormalization(name="outer", epsilon=0.01)(x)
    x = block(L.ReLU()(x))
    x = L.GlobalAveragePooling2D()(x)
    x = L.BatchNormalization(name="frozen", trainable=False)(x)
    x = L.Dense(4, activity_regularizer="l2", name="d")(x)
    x = L.BatchNormalization(name="flat", scale=False)(x)
    return tf.keras.Model(inputs, L.Dense(3)(x))


def test_what_is_refused_is_replaced_and_named():
    model = _images()
    model.get_layer("outer").gamma.assign(np.arange(6.0))
    fixed, text = _fixed(model)
    assert text.splitlines()[0] == "This model was changed for private training:"
    assert set(text.splitlines()[1:]) == {
        "- c: no kernel_regularizer any more; give the optimizer weight_decay=0.02 in its place",
        "- outer: BatchNormalization is now GroupNormalization of 3 groups",
        "- inner: BatchNormalization is now GroupNormalization of 3 groups",
        "- d: no activity_regularizer any more, which is a sum over the batch",
        "- flat: BatchNormalization is now LayerNormalization",
    }
    assert type(fixed.get_layer("frozen")).__name__ == "BatchNormalization"
    assert fixed.get_layer("outer").epsilon == 0.01
    np.testing.assert_array_equal(np.asarray(fixed.get_layer("outer").gamma), np.arange(6.0))
    np.testing.assert_array_equal(fixed.get_layer("c").get_weights()[0], model.get_layer("c").get_weights()[0])
    ours, theirs = (m.get_layer("block").layers[0].get_weights()[0] for m in (fixed, model))
    np.testing.assert_array_equal(ours, theirs)
    # The model itself is as it was.
    assert type(model.get_layer("outer")).__name__ == "BatchNormalization"
    assert model.get_layer("c").kernel_regularizer is not None


def test_the_copy_trains_privately():
    fixed, _ = _fixed(_images())
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    fixed.compile(DPFixedClipSGD(0.1, l2_norm_clip=1.0, noise_multiplier=1.0, gradient_path="ghost"), loss)
    fixed.fit(np.random.default_rng(0).normal(size=(4, 8, 8, 3)), np.zeros(4), batch_size=4, verbose=0)
    assert int(fixed.optimizer.noised_steps) == 1


def test_layers_in_layers_and_states():
    model = tf.keras.Sequential(
        [
            L.Input((5, 4), batch_size=2),
            L.TimeDistributed(L.BatchNormalization(name="bn"), name="each"),
            L.LSTM(3, stateful=True, name="lstm", recurrent_regularizer=tf.keras.regularizers.L1(0.1)),
            L.Dense(2),
        ]
    )
    fixed, text = _fixed(model)
    assert "- lstm: it no longer carries its state into the next batch" in text
    assert "- lstm: no recurrent_regularizer any more\n" in text + "\n"
    assert "- bn: BatchNormalization is now" in text
    assert not fixed.get_layer("lstm").stateful
    assert fixed(np.zeros((2, 5, 4), np.float32)).shape == (2, 2)


def test_a_model_that_needs_nothing_is_copied():
    model = tf.keras.Sequential([L.Input((4,)), L.Dense(3)])
    fixed, text = _fixed(model)
    assert text == "This model needs no changes for private training."
    np.testing.assert_array_equal(model(np.ones((2, 4))), fixed(np.ones((2, 4))))
    assert fixed.layers[-1] is not model.layers[-1]


def test_the_example():
    assert doctest.testmod(module).failed == 0


class Own(tf.keras.Model):
    """A model with code of its own."""

    def call(self, inputs):
        return inputs


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (Own, "whose layers are called by its own code"),
        (lambda: L.Dense(3), "must be a Keras model; got a Dense"),
        (lambda: tf.keras.Sequential([L.Dense(3)]), "has no variables yet"),
    ],
)
def test_what_can_not_be_copied_is_named(model, says):
    with pytest.raises(ValueError, match=says):
        fix_model(model())


def _application(name, side=32, **options):
    """(the model, its copy, what was said of it) of an architecture that people use, without weights."""
    model = getattr(tf.keras.applications, name)(weights=None, input_shape=(side, side, 3), classes=3, **options)
    fixed, text = _fixed(model)
    norms = [layer for layer in model.layers if isinstance(layer, L.BatchNormalization)]
    assert text.count("BatchNormalization is now") == len(norms)
    assert not any(isinstance(layer, L.BatchNormalization) for layer in fixed.layers)
    assert len(fixed.layers) == len(model.layers)
    assert fixed(np.zeros((1, side, side, 3), np.float32)).shape == (1, 3)
    return model, fixed, len(norms)


@generations.keras3_only  # with Keras 2, which takes seconds to make so many layers, the slow ones do it
def test_an_application():
    _, fixed, norms = _application("MobileNet", alpha=0.25)
    assert norms == 27
    assert type(fixed.get_layer("conv1_bn")).__name__ == "GroupNormalization"


@generations.keras3_only
def test_operations_on_arrays_stay():
    x = L.Input((4,))
    fixed, text = _fixed(tf.keras.Model(x, L.BatchNormalization(name="norm")(x + 1.0) * 2.0))
    assert "norm: BatchNormalization is now" in text
    assert fixed(np.ones((3, 4), np.float32)).shape == (3, 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("MobileNetV2", 32),
        ("MobileNetV3Small", 32),
        ("ResNet50V2", 32),
        ("EfficientNetB0", 32),
        ("DenseNet121", 32),
        ("Xception", 71),
        ("InceptionV3", 75),
    ],
)
def test_applications(name, side):
    """The first one takes a private step."""
    _, fixed, norms = _application(name, side)
    assert norms > 10
    if name == "MobileNetV2":
        fixed.compile(DPFixedClipSGD(0.1, l2_norm_clip=1.0, noise_multiplier=1.0), "sparse_categorical_crossentropy")
        fixed.fit(np.zeros((2, side, side, 3), np.float32), np.zeros(2), verbose=0)
        assert int(fixed.optimizer.noised_steps) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["VGG16", "ConvNeXtTiny"])
def test_applications_without_batch_normalization(name):
    assert _application(name)[2] == 0


@generations.keras2_only
def test_synchronized_batch_normalization_of_keras_2():
    layers = [L.Input((4, 4, 4)), L.experimental.SyncBatchNormalization(name="sync")]
    fixed, text = _fixed(tf.keras.Sequential(layers))
    assert "- sync: SyncBatchNormalization is now GroupNormalization of 2 groups" in text
    assert type(fixed.layers[-1]).__name__ == "GroupNormalization"
