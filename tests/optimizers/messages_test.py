"""What newcomers get wrong first is answered by what to do, and tensorflow-privacy's names are understood."""

import re

import numpy as np
import pytest
import tensorflow as tf

import adaclip_tf
from adaclip_tf import DPAdaClip, DPAdaClipSGD, DPFixedClipSGD, DPOptimizer, DPPerLayerClipSGD, DPWhiteningSGD, core
from adaclip_tf.gradients import paths

CHOOSE = r"noise_multiplier\(target_epsilon=.*make_private"


@pytest.mark.parametrize(
    "make",
    [
        DPAdaClipSGD,
        lambda: DPAdaClipSGD(0.1, 0.9),
        lambda: DPAdaClip("adam"),
        lambda: DPFixedClipSGD(l2_norm_clip=1.0),
        lambda: DPPerLayerClipSGD(l2_norm_clip=1.0),
        DPWhiteningSGD,
        lambda: DPOptimizer(core.FixedClip(1.0)),
    ],
)
def test_a_missing_noise_multiplier_says_how_to_choose_it(make):
    with pytest.raises(TypeError, match=f"^DP[A-Za-z]+ needs `noise_multiplier`: .*{CHOOSE}"):
        make()


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("epsilon", CHOOSE),
        ("target_epsilon", CHOOSE),
        ("delta", CHOOSE),
        ("stddev", "use `noise_multiplier`"),
        ("max_grad_norm", "use `l2_norm_clip`"),
        ("batch_size", "use `expected_batch_size`"),
    ],
)
def test_other_names_point_to_ours(argument, says):
    with pytest.raises(TypeError, match=f"DPAdaClipSGD has no argument `{argument}`; .*{says}"):
        DPAdaClipSGD(noise_multiplier=1.0, **{argument: 1.0})


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: adaclip_tf.make_private(None, None, epsilon=1.0), "make_private has no argument `epsilon`; use `targ"),
        (lambda: adaclip_tf.make_private(None, None, optimizer="adam"), "it chooses one itself. To hand"),
        (lambda: adaclip_tf.make_private(None, None, epoch=1), "`epoch`; did you mean `epochs`?"),
        (lambda: adaclip_tf.poisson_batches(None, batch_size=3), "`batch_size`; use `expected_batch_size`."),
        (lambda: adaclip_tf.PrivacyBudget(epsilon=3), "PrivacyBudget has no argument `epsilon`; use `target_epsilon`."),
        (lambda: adaclip_tf.PrivacyTensorBoard("x", epsilon=3), "PrivacyTensorBoard has no argument `epsilon`; give"),
    ],
)
def test_other_names_of_functions(call, says):
    with pytest.raises(TypeError, match=re.escape(says)):
        call()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: adaclip_tf.epsilon(1.1, 1e-5), "epsilon takes its arguments by name: epsilon(noise_multiplier=...,"),
        (lambda: adaclip_tf.noise_multiplier(3.0), "noise_multiplier(target_epsilon=..."),
        (lambda: adaclip_tf.privacy_statement(1.1), "privacy_statement(noise_multiplier=..."),
    ],
)
def test_arguments_without_names(call, says):
    with pytest.raises(TypeError, match=re.escape(says)):
        call()


def test_the_slow_path_names_layers(caplog):
    variables = [tf.Variable(1.0, name=name) for name in ("first/kernel", "first/bias", "model/odd/w", "alone")]
    others = {1: "why.", 0: "why.", 2: "why.", 3: "other."}
    with caplog.at_level("WARNING", logger="absl"):
        paths.report(others, "auto", variables)
    assert "of 4 variables (first, odd, alone) take the slow path, one example at a time: why. other." in caplog.text
    with pytest.raises(ValueError, match=r"No ghost rule for some variables \(odd\)"):
        paths.report({2: "why."}, "ghost", variables)


def test_arguments_of_tensorflow_privacy():
    """Those of its DPKerasSGDOptimizer, with the same meaning."""
    optimizer = DPFixedClipSGD(
        l2_norm_clip=1.5,
        noise_multiplier=1.3,
        num_microbatches=250,
        gradient_accumulation_steps=2,
        unroll_microbatches=True,
        learning_rate=0.25,
    )
    assert (optimizer.l2_norm_clip, optimizer.num_microbatches, optimizer.accumulation_steps) == (1.5, 250, 2)


@pytest.mark.slow
def test_the_tutorial_of_tensorflow_privacy_ports_with_one_line():
    """Its classification tutorial on a few made-up images; `import tensorflow_privacy` is the line that changed."""
    from adaclip_tf import DPFixedClipSGD as DPKerasSGDOptimizer

    batch_size, num_microbatches = 20, 20
    rng = np.random.default_rng(0)
    train_data = rng.normal(size=(40, 28, 28, 1)).astype("float32")
    train_labels = tf.keras.utils.to_categorical(rng.integers(0, 10, 40), num_classes=10)
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(16, 8, strides=2, padding="same", activation="relu", input_shape=(28, 28, 1)),
            tf.keras.layers.MaxPool2D(2, 1),
            tf.keras.layers.Conv2D(32, 4, strides=2, padding="valid", activation="relu"),
            tf.keras.layers.MaxPool2D(2, 1),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(32, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    optimizer = DPKerasSGDOptimizer(
        l2_norm_clip=1.5, noise_multiplier=1.3, num_microbatches=num_microbatches, learning_rate=0.25
    )
    loss = tf.keras.losses.CategoricalCrossentropy(from_logits=True, reduction="none")
    model.compile(optimizer=optimizer, loss=loss, metrics=["accuracy"])
    model.fit(train_data, train_labels, epochs=1, batch_size=batch_size, verbose=0)
    assert int(optimizer.noised_steps) == 2
    assert optimizer.microbatch_sensitivity == 1.0
