"""Tests of `adaclip_tf._internal.keras`: private names of the Keras that is installed mean what they are read for."""

import threading

import numpy as np
import pytest
import tensorflow as tf

import adaclip_tf
from adaclip_tf._internal import keras


class Fit(tf.keras.callbacks.Callback):
    """Looks at the `fit` that it is in."""

    def on_train_begin(self, logs=None):
        self.call = keras.running_fit(self.model)
        self.other = keras.running_fit(tf.keras.Sequential())


@pytest.fixture
def model():
    made = tf.keras.Sequential([tf.keras.layers.Input((2,)), tf.keras.layers.Dense(1, name="dense")])
    made.compile("sgd", "mse")
    return made


def test_a_running_fit(model):
    x, y, look = np.zeros((6, 2), np.float32), np.zeros((6, 1), np.float32), Fit()
    model.fit(x, y, batch_size=3, verbose=0, callbacks=[look])
    assert look.call.x is x
    assert look.call[1:3] == (True, 3)
    assert look in look.call.callbacks
    assert look.other is None
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(2)
    model.fit(dataset, verbose=0, callbacks=[look])
    assert look.call.x is dataset
    assert look.call[1:3] == (False, None)
    assert look in look.call.callbacks
    assert keras.running_fit(model) is None


def test_steps_per_execution(model):
    assert keras.steps_per_execution(model) == 1
    model.compile("sgd", "mse", steps_per_execution=4)
    assert keras.steps_per_execution(model) == 4
    if keras.GENERATION == 2:
        model.autotune_steps_per_execution = True
    else:
        model.steps_per_execution = "auto"
    assert keras.steps_per_execution(model) is None


class Nested(tf.keras.layers.Layer):
    """Layers and a module that `model.layers` does not list."""

    def __init__(self):
        super().__init__()
        self.parts = {"one": [tf.keras.layers.Dense(1, name="inner")]}
        self.module = tf.Module(name="plain")
        self.own = self.add_weight(name="own", shape=[1])
        self.still = self.add_weight(name="still", shape=[1], trainable=False)

    def call(self, inputs):
        return self.parts["one"][0](inputs) * self.own


def test_layers_modules_and_weights():
    nested = Nested()
    model = tf.keras.Sequential([nested])
    model.build((None, 2))
    assert [layer.name for layer in keras.layers_of(model)][-2:] == [nested.name, "inner"]
    assert [keras.module_name(module) for module in keras.modules_in(nested)] == ["inner", "plain"]
    assert [weight is mine for weight, mine in zip(keras.own_weights(nested), (nested.own, nested.still))] == [True] * 2
    assert len(keras.own_weights(nested)) == 2


def test_variables(model):
    kernel, _ = model.weights
    assert isinstance(keras.native(kernel), tf.Variable)
    np.testing.assert_array_equal(keras.native(kernel).numpy(), kernel.numpy())
    assert keras.native(keras.native(kernel)) is keras.native(kernel)
    # Keras 2 leaves the model's name out.
    assert keras.path_of(kernel) in ("dense/kernel", f"{model.name}/dense/kernel")
    assert keras.path_of(tf.Variable(1.0, name="plain")) == "plain"


def test_layers_that_adapt():
    layers = tf.keras.layers
    for layer in (
        layers.Normalization(),
        layers.StringLookup(),
        layers.TextVectorization(),
        layers.Discretization([1.0]),
    ):
        assert isinstance(layer, keras.Preprocessing)
    assert not isinstance(layers.Dense(1), keras.Preprocessing)
    assert isinstance(layers.BatchNormalization(synchronized=True), keras.BatchNormalization)


def test_an_optimizer_comes_back_from_its_settings():
    made = adaclip_tf.DPAdaClipSGD(0.5, noise_multiplier=1.5, momentum=0.9)
    again = type(made).from_config(made.get_config())
    assert type(again) is adaclip_tf.DPAdaClipSGD and again.get_config() == made.get_config()
    config = keras.saving.serialize_keras_object(made)
    assert type(keras.saving.deserialize_keras_object(config)) is adaclip_tf.DPAdaClipSGD


def test_variables_of_an_optimizer():
    optimizer, ours, other = tf.keras.optimizers.SGD(), tf.Variable(1.0), tf.Variable(1.0)
    optimizer.build([ours])
    assert keras.index_of(optimizer, ours) == 0
    assert keras.index_of(optimizer, other) is None
    dense = tf.keras.layers.Dense(1)
    dense.build((None, 2))
    optimizer = tf.keras.optimizers.SGD()
    optimizer.build(dense.trainable_variables)
    assert [keras.index_of(optimizer, weight) for weight in keras.own_weights(dense)] == [0, 1]
    assert keras.index_of(optimizer, keras.native(dense.bias)) == 1


def test_train_step(model):
    class Own(tf.keras.Model):
        def train_step(self, data):
            return {}

    assert keras.has_keras_train_step(model)
    assert not keras.has_keras_train_step(Own())


def test_the_function_around_a_train_step_is_known_in_a_replicas_thread():
    said, graphs = {}, []

    class Own(tf.keras.Model):
        def train_step(self, data):
            graph = tf.compat.v1.get_default_graph()
            graphs.append(graph)
            said["own"] = keras.is_step_function(graph)
            other = threading.Thread(target=lambda: said.update(other=keras.is_step_function(graph)))
            other.start()
            other.join()
            return {"loss": tf.constant(0.0)}

    own = Own()
    own.compile("sgd", jit_compile=True)  # for Keras 2 has no function of its own otherwise
    own.fit(np.zeros((2, 2), np.float32), verbose=0)
    assert said == {"own": True, "other": True}
    assert not keras.is_step_function(graphs[-1])  # Keras runs no more


def test_logs_are_left_as_tensors(model):
    class Look(tf.keras.callbacks.Callback):
        def __init__(self, takes):
            super().__init__()
            if takes:
                keras.takes_tensors_as_logs(self)

        def on_train_batch_end(self, batch, logs=None):
            self.loss = logs["loss"]

    looks = Look(True), Look(False)
    for look in looks:
        model.fit(np.zeros((2, 2), np.float32), np.zeros((2, 1), np.float32), verbose=0, callbacks=[look])
    assert [tf.is_tensor(look.loss) for look in looks] == [keras.GENERATION == 2, False]


def test_one_process_is_the_chief(model):
    assert keras.is_chief(model)
    assert not keras.has_several_workers(model)
