"""Training steps of one's own, two optimizers in one step, and number formats."""

import numpy as np
import tensorflow as tf

from tests.attack.case import Apply, Problem, case, cross_entropy, features, minimize, net, scce

L = tf.keras.layers


@case("accepted", own_step_only=True, random=True, fast=("static",))
def gan():
    """Generator and discriminator, two optimizers in one step. The discriminator sees one real and one generated
    example per record; the generator sees no data, but a record is still a draw of noise."""
    return _gan(lambda x: tf.random.normal(tf.stack([tf.shape(x)[0], 2])), discriminator_only=True)


@case("accepted", own_step_only=True, fast=("jacobian",))
def gan_of_given_noise():
    """The noise comes with the data, so that both losses are functions of the example."""
    return _gan(lambda x: x[:, :2] * 0.7)


def _gan(noise, discriminator_only=False):
    generator = tf.keras.Sequential([L.Dense(4, "tanh", input_shape=(2,)), L.Dense(5)])
    discriminator = tf.keras.Sequential([L.Dense(4, "tanh", input_shape=(5,)), L.Dense(1)])
    x = tf.keras.Input([5])
    model = tf.keras.Model(x, [discriminator(x), generator(Apply(lambda t: t[:, :2])(x))])

    def logistic(target, batch, fake):
        return tf.nn.sigmoid_cross_entropy_with_logits(tf.ones_like(fake) * target, fake)[:, 0]

    def discriminator_loss(batch):
        real, fake = discriminator(batch[0]), discriminator(generator(noise(batch[0])))
        return logistic(1.0, batch, real) + logistic(0.0, batch, fake)

    def generator_loss(batch):
        return logistic(1.0, batch, discriminator(generator(noise(batch[0]))))

    players = [(discriminator_loss, discriminator.trainable_variables)]
    if not discriminator_only:
        players.append((generator_loss, generator.trainable_variables))
    return Problem(model, features(), players=players)


class OwnTrainStep(tf.keras.Model):
    """A model with a training step of its own; `weigh` makes weights from the labels."""

    def __init__(self, weigh):
        super().__init__()
        self.hidden, self.last, self.weigh = L.Dense(4, "tanh"), L.Dense(3), weigh

    def call(self, x):
        return self.last(self.hidden(x))

    def loss_of(self, batch):
        x, y = batch
        return cross_entropy(y, self(x)) * self.weigh(y)

    def train_step(self, batch):
        with tf.GradientTape() as tape:
            loss = self.loss_of(batch)
        minimize(self.optimizer, loss, self.trainable_variables, tape)
        return {"loss": tf.reduce_mean(loss)}


def _own_train_step(weigh):
    model = OwnTrainStep(weigh)
    return Problem(model, features(), scce(), loss_fn=model.loss_of)


@case("accepted", fast=("graph",))
def train_step_of_ones_own():
    return _own_train_step(lambda y: 1.0 + tf.cast(y, tf.float32))


@case("refused")
def train_step_normalised_weights():
    def weigh(y):
        weights = 1.0 + tf.cast(y, tf.float32)
        return weights / tf.reduce_mean(weights)

    return _own_train_step(weigh)


@case("accepted", policy="mixed_float16", tolerance=3e-2, hostile=False)
def mixed_precision():
    layers = [L.Dense(4, "tanh"), L.Dense(3), L.Activation("linear", dtype="float32")]
    return net(layers, features())


@case("accepted", policy="mixed_bfloat16", tolerance=1e-1, hostile=False)
def mixed_precision_bfloat():
    layers = [L.Conv2D(3, 3, activation="relu"), L.Flatten(), L.Dense(3), L.Activation("linear", dtype="float32")]
    return net(layers, features(5, 5, 1))


@case("accepted", policy="float64")
def double_precision():
    return net([L.Dense(4, "tanh"), L.Dense(3)], features())


@case("accepted")
def integer_features():
    def data(rng, n):
        return rng.integers(-9, 9, (n, 5)), rng.integers(0, 3, n)

    return net([Apply(lambda x: tf.cast(x, tf.float32) / 4), L.Dense(4, "tanh"), L.Dense(3)], data)


@case("accepted")
def no_batch_constants():
    """Scalars and small constants of all kinds, none of them data."""
    scale = tf.constant(np.linspace(0.5, 1.5, 8, dtype=np.float32))  # as long as the batch of 8
    return net([L.Dense(8, "tanh"), Apply(lambda x: x * scale), L.Dense(3)], features())
