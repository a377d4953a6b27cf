"""What looks like memory and is none: accepted."""

import numpy as np
import tensorflow as tf

from tests.attack.case import Apply, case, features, floats, net

L = tf.keras.layers


@case("accepted")
def constant_table():
    """A table of constants that every example looks into by its own features."""
    table = tf.constant(floats(np.random.default_rng(3), 16, 4))
    look = Apply(lambda x: x + tf.gather(table, tf.cast(tf.abs(x[:, 0]) * 10, tf.int32) % 16))
    return net([L.Dense(4, "tanh"), look, L.Dense(3)], features())


@case("accepted")
def untrained_variable():
    """A variable that is read only."""
    kept = tf.Variable(tf.ones([4]) * 0.3, trainable=False)
    return net([L.Dense(4, "tanh"), Apply(lambda x: x * kept), L.Dense(3)], features())


@case("either")
def counts_steps():
    """Writes a number that hangs on no data."""

    class Counts(L.Layer):
        def __init__(self):
            super().__init__()
            self.steps = tf.Variable(0.0, trainable=False)

        def call(self, x):
            self.steps.assign_add(1.0)
            return x * tf.exp(-0.0 * self.steps)

    return net([L.Dense(4, "tanh"), Counts(), L.Dense(3)], features())


@case("accepted")
def metrics_of_keras():
    """Ordinary metrics, as `compile` takes them, are no memory."""
    problem = net([L.Dense(4, "tanh"), L.Dense(3)], features())
    problem.compile["metrics"] = ["accuracy"]
    return problem
