"""Which variables are Keras metrics' own: not what they track of a layer, an optimizer or a module."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf._internal import keras
from adaclip_tf.gradients import proof
from adaclip_tf.gradients.proof import metrics

W = tf.Variable(np.linspace(-1.0, 1.0, 3).astype(np.float32))


class Keeps(tf.keras.layers.Layer):
    """A layer with a mean of what it saw, and metrics of its own."""

    def __init__(self):
        super().__init__()
        self.mean = self.add_weight(shape=(3,), trainable=False, initializer="zeros", name="mean")
        self.seen = tf.keras.metrics.Mean()
        self.more = [tf.keras.metrics.Mean()]

    def call(self, x):
        self.mean.assign(0.9 * self.mean + 0.1 * tf.reduce_mean(x, axis=0))
        return x


class Shows(tf.keras.metrics.Metric):
    """Tracks what it is given."""

    def __init__(self, shown):
        super().__init__()
        self.shown = shown

    update_state = result = None


class Adds(tf.keras.metrics.Metric):
    """Has variables of its own, in three ways."""

    def __init__(self):
        super().__init__()
        self.total = self.add_weight(shape=(), initializer="zeros", name="total")
        self.largest = getattr(tf.keras, "Variable", tf.Variable)(0.0)
        self.inner = tf.keras.metrics.Mean()

    update_state = result = None


def _handles(*variables):
    return [id(keras.native(variable).handle) for variable in variables]


def _known():
    known = metrics.Known()
    known.look_everywhere()
    return known


TRACKED = {
    "the variable": lambda layer: layer.mean,
    "a list of it": lambda layer: [layer.mean],
    "the layer": lambda x: x,
}


@pytest.mark.parametrize("name", TRACKED)
def test_what_a_layer_holds_is_no_metrics(name):
    """It is in the model's weights, and in saved files."""
    layer = Keeps()
    shows = Shows(TRACKED[name](layer))

    def step(x):
        proof.prove(tf.reduce_sum(layer(x) * W, axis=1))

    traced = tf.function(step, input_signature=[tf.TensorSpec([None, 3])], autograph=False)
    with pytest.raises(ValueError, match="keeps what it saw of a batch in a variable"):
        traced.get_concrete_function()
    del shows


def test_nor_is_it_where_the_metric_was_made_while_a_model_is_at_work():
    class Model(tf.keras.Model):
        def work(self):
            known = _known()
            self.late, self.shows = tf.keras.metrics.Mean(), Shows(layer.mean)
            known.look_at_running_models()
            return [handle in known for handle in _handles(*self.late.variables, layer.mean)]

    layer = Keeps()
    assert Model().work() == [True, True, False]


def test_nor_is_what_an_optimizer_or_a_module_holds():
    module = tf.Module()
    variable = getattr(tf.keras, "Variable", tf.Variable)
    module.held, module.more = variable(0.0), {"a": [variable(0.0)]}
    optimizer = tf.keras.optimizers.SGD(0.1)
    rate = optimizer._learning_rate
    shows = Shows([module.held, module.more["a"][0], rate])
    known = _known()
    assert not any(handle in known for handle in _handles(module.held, module.more["a"][0], rate))
    del shows


def test_a_weight_that_a_metric_shows_may_be_read():
    layer = tf.keras.layers.Dense(2)
    layer.build((None, 3))
    shows = Shows(layer.kernel)

    def step(x):
        proof.prove(tf.reduce_sum(layer(x), axis=1))

    tf.function(step, input_signature=[tf.TensorSpec([None, 3])], autograph=False).get_concrete_function()
    del shows


def test_metrics_own_variables_are_theirs_wherever_they_are():
    layer, adds = Keeps(), Adds()
    own = [*layer.seen.variables, *layer.more[0].variables, adds.total, adds.largest, *adds.inner.variables]
    known = _known()
    assert len(own) == 8 and all(handle in known for handle in _handles(*own))


@pytest.mark.skipif(keras.GENERATION == 3, reason="Keras 3 has no `add_metric`")
def test_so_are_those_that_keras_2_adds_to_layers():
    class Adding(tf.keras.layers.Layer):
        def call(self, x):
            self.add_metric(tf.reduce_mean(x), name="added")
            return x

    layer = Adding()
    layer(tf.ones([2, 3]))
    known = _known()
    assert all(handle in known for handle in _handles(*layer.metrics[0].variables))


def test_models_are_not_kept_alive():
    layer = Keeps()
    known, gone = _known(), weakref.ref(layer)
    del layer
    gc.collect()
    assert gone() is None and known.has_looked
