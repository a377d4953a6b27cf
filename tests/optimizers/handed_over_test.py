"""Tests of `scale_loss` and what follows: training steps that differentiate by themselves, as Keras 3's does."""

import types

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import DPAdaClipSGD, DPFixedClipSGD
from adaclip_tf.optimizers import handed_over, shell, step
from tests import models


def optimizer(**options):
    return DPAdaClipSGD(0.5, **{"noise_multiplier": 0.0, "initial_std": 0.1, "h2": 1.0, **options})


def step_by_hand(
    model, optimizer_, change=lambda loss: loss, differentiate=lambda tape, loss, v: tape.gradient(loss, v)
):
    loss_function = models.per_example_loss()

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = change(optimizer_.scale_loss(loss_function(y, model(x, training=True))))
        gradients = differentiate(tape, loss, model.trainable_variables)
        optimizer_.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    return step


def test_a_step_by_hand_is_that_of_fit():
    inputs, labels = models.data(8)
    reference = models.fit(models.mlp(), optimizer(), inputs, labels, 8)
    model, ours = models.mlp(), optimizer()
    loss = step_by_hand(model, ours)(inputs, labels)
    assert loss.shape == [8] and int(ours.noised_steps) == 1
    for a, b in zip(model.get_weights(), reference.get_weights()):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_autograph_rewrites_the_loss_and_not_the_library(monkeypatch):
    """Eighty functions of the library it would be otherwise, in several seconds."""
    status = []

    def noting(original):
        def noted(*arguments, **options):
            status.append(tf.__internal__.autograph.control_status_ctx().status.name)
            return original(*arguments, **options)

        return noted

    monkeypatch.setattr(step.PrivateStep, "take", noting(step.PrivateStep.take))
    monkeypatch.setattr(shell.tags, "completes", noting(shell.tags.completes))
    weights, ours = tf.Variable([1.0, 2.0]), DPFixedClipSGD(0.5, l2_norm_clip=1.0, noise_multiplier=0.0)
    rate = tf.constant(1.0)

    def loss(x):
        # A tensor has no truth, unless AutoGraph sees to it.
        return tf.linalg.matvec(x, weights) if rate > 0.0 else tf.zeros([4])

    @tf.function
    def train(x):
        ours.minimize(lambda: loss(x), [weights])

    train(tf.ones([4, 2]))
    assert status == 2 * ["DISABLED"]
    assert int(ours.noised_steps) == 1


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "none"])
@pytest.mark.parametrize("path", ["auto", "jacobian"])
def test_a_mean_trains_like_the_losses_themselves(reduction, path):
    inputs, labels = models.data(8)
    reference = models.fit(models.mlp(), optimizer(), inputs, labels, 4)
    model = models.mlp()
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction)
    model.compile(optimizer(gradient_path=path), loss)
    model.fit(inputs, labels, batch_size=4, shuffle=False, verbose=0)
    for a, b in zip(model.get_weights(), reference.get_weights()):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize(
    "options,message",
    [
        ({"change": lambda loss: 2.0 * loss}, "changed after `scale_loss`"),
        ({"change": lambda loss: loss[:1]}, "changed after `scale_loss`"),
        ({"differentiate": lambda tape, loss, v: [tf.zeros_like(part) for part in v]}, "not private"),
    ],
)
def test_a_loss_that_is_changed_on_the_way_is_refused(options, message):
    inputs, labels = models.data(8)
    model, ours = models.mlp(), optimizer()
    before = model.get_weights()
    with pytest.raises(ValueError, match=message):
        step_by_hand(model, ours, **options)(inputs, labels)
    for a, b in zip(model.get_weights(), before):
        np.testing.assert_array_equal(a, b)


def test_nothing_to_train_on_is_refused():
    model, ours = models.mlp(), optimizer()
    pairs = [(None, variable) for variable in model.trainable_variables]
    with pytest.raises(ValueError, match="no loss that it could take them of"):
        tf.function(lambda: ours.apply_gradients(pairs))()


def test_two_losses_for_one_step_are_refused():
    ours = DPFixedClipSGD(l2_norm_clip=1.0, noise_multiplier=0.0)

    @tf.function
    def both(x):
        ours.scale_loss(x)
        ours.scale_loss(x)

    with pytest.raises(ValueError, match="two losses for one step"):
        both(tf.ones([3]))


def test_eager_losses_are_refused():
    with pytest.raises(ValueError, match="computed eagerly"):
        optimizer().scale_loss(tf.ones([3]))


def test_what_the_tape_sees_has_no_gradient():
    """Nothing un-noised gets out: the tape's gradients are None."""
    weight, ours = tf.Variable([1.0, 2.0]), optimizer()

    @tf.function
    def gradients(x):
        with tf.GradientTape() as tape:
            loss = ours.scale_loss(tf.linalg.matvec(x, weight))
        return tape.gradient(loss, [weight])

    assert gradients(tf.ones([3, 2])) == [None]


def test_replicas_in_one_graph_get_back_their_own_losses(monkeypatch):
    losses = handed_over.Losses()

    def on(number):
        context = types.SimpleNamespace(replica_id_in_sync_group=tf.constant(number))
        monkeypatch.setattr(tf.distribute, "get_replica_context", lambda: context)

    @tf.function(input_signature=[tf.TensorSpec([None])], autograph=False)
    def step(x):
        given = [x + 1.0, x + 2.0]
        for number, loss in enumerate(given):
            on(number)
            losses.take(loss, "X")
        for number, loss in enumerate(given):
            on(number)
            assert losses.give("X") is loss

    step.get_concrete_function()
