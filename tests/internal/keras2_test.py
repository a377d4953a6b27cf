"""Tests of `adaclip_tf._internal.keras2`: the private names are still there, and mean what they are read for."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf._internal import keras2


class Fit(tf.keras.callbacks.Callback):
    """Looks at the `fit` that it is in."""

    def on_train_begin(self, logs=None):
        self.call = keras2.running_fit(self.model)
        self.other = keras2.running_fit(tf.keras.Sequential())


@pytest.fixture
def model():
    made = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))])
    made.compile("sgd", "mse")
    return made


def test_a_running_fit(model):
    x, y, look = np.zeros((6, 2), np.float32), np.zeros((6, 1), np.float32), Fit()
    model.fit(x, y, batch_size=3, verbose=0, callbacks=[look])
    assert look.call.x is x
    assert look.call[1:] == (True, 3)
    assert look.other is None
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(2)
    model.fit(dataset, verbose=0, callbacks=[look])
    assert look.call.x is dataset
    assert look.call[1:] == (False, None)
    assert keras2.running_fit(model) is None


def test_steps_per_execution(model):
    assert keras2.steps_per_execution(model) == 1
    model.compile("sgd", "mse", steps_per_execution=4)
    assert keras2.steps_per_execution(model) == 4
    model.autotune_steps_per_execution = True
    assert keras2.steps_per_execution(model) is None


class Nested(tf.keras.layers.Layer):
    """Layers and a module that `model.layers` does not list."""

    def __init__(self):
        super().__init__()
        self.parts = {"one": [tf.keras.layers.Dense(1, name="inner")]}
        self.module = tf.Module(name="plain")
        self.own = self.add_weight("own", [1])
        self.still = self.add_weight("still", [1], trainable=False)

    def call(self, inputs):
        return self.parts["one"][0](inputs) * self.own


def test_layers_modules_and_weights():
    nested = Nested()
    model = tf.keras.Sequential([nested])
    model.build((None, 2))
    assert [layer.name for layer in keras2.layers_of(model)][-2:] == [nested.name, "inner"]
    assert [keras2.module_name(module) for module in keras2.modules_in(nested)] == ["inner", "plain"]
    assert [weight is mine for weight, mine in zip(keras2.own_weights(nested), (nested.own, nested.still))] == [
        True
    ] * 2
    assert len(keras2.own_weights(nested)) == 2


def test_variables_of_an_optimizer():
    optimizer, ours, other = tf.keras.optimizers.SGD(), tf.Variable(1.0), tf.Variable(1.0)
    optimizer.build([ours])
    assert keras2.index_of(optimizer, ours) == 0
    assert keras2.index_of(optimizer, other) is None


def test_train_step(model):
    class Own(tf.keras.Model):
        def train_step(self, data):
            return {}

    assert keras2.has_keras_train_step(model)
    assert not keras2.has_keras_train_step(Own())


def test_logs_are_left_as_tensors(model):
    class Look(tf.keras.callbacks.Callback):
        def __init__(self, takes):
            super().__init__()
            if takes:
                keras2.takes_tensors_as_logs(self)

        def on_train_batch_end(self, batch, logs=None):
            self.loss = logs["loss"]

    looks = Look(True), Look(False)
    for look in looks:
        model.fit(np.zeros((2, 2), np.float32), np.zeros((2, 1), np.float32), verbose=0, callbacks=[look])
    assert [tf.is_tensor(look.loss) for look in looks] == [True, False]


def test_one_process_is_the_chief(model):
    assert keras2.is_chief(model)
    assert not keras2.has_several_workers(model)
