"""BatchNormalization in its hiding places: each must be refused, and leave no statistics behind."""

import tensorflow as tf

from tests.attack.case import case, features, net

L = tf.keras.layers


@case("refused", fast=("graph", "eager"))
def batch_norm():
    return net([L.Dense(4), L.BatchNormalization(), L.ReLU(), L.Dense(3)], features())


@case("refused")
def batch_norm_of_inputs():
    return net([L.BatchNormalization(), L.Dense(4, "relu"), L.Dense(3)], features())


@case("refused")
def batch_norm_of_images():
    return net([L.Conv2D(3, 3), L.BatchNormalization(), L.ReLU(), L.Flatten(), L.Dense(3)], features(5, 5, 2))


@case("refused")
def batch_norm_without_scale():
    return net([L.Dense(4), L.BatchNormalization(center=False, scale=False), L.ReLU(), L.Dense(3)], features())


@case("refused", fast=("static",))
def batch_norm_time_distributed():
    inner = tf.keras.Sequential([L.Dense(4), L.BatchNormalization(), L.ReLU()])
    return net([L.TimeDistributed(inner), L.GlobalAveragePooling1D(), L.Dense(3)], features(4, 3))


@case("refused")
def batch_norm_time_distributed_layer():
    return net(
        [L.Dense(4), L.TimeDistributed(L.BatchNormalization()), L.ReLU(), L.Flatten(), L.Dense(3)], features(4, 3)
    )


@case("refused")
def batch_norm_of_sequences():
    return net([L.Dense(4), L.BatchNormalization(), L.ReLU(), L.GlobalAveragePooling1D(), L.Dense(3)], features(4, 3))


@case("refused")
def batch_norm_nested_models():
    inner = tf.keras.Sequential([tf.keras.Sequential([L.Dense(4), L.BatchNormalization()]), L.ReLU()])
    return net([inner, L.Dense(3)], features())


@case("refused", fast=("graph",))
def batch_norm_in_tf_function():
    """A layer whose `call` is a tf.function."""

    class Block(L.Layer):
        def __init__(self):
            super().__init__()
            self.dense, self.norm = L.Dense(4), L.BatchNormalization()

        @tf.function
        def call(self, x, training=None):
            return tf.nn.relu(self.norm(self.dense(x), training=training))

    return net([Block(), L.Dense(3)], features())


@case("refused")
def batch_norm_synchronized():
    norm = L.BatchNormalization(synchronized=True)
    return net([L.Dense(4), norm, L.ReLU(), L.Dense(3)], features())


@case("refused")
def batch_norm_in_bidirectional_block():
    def build(x):
        h = L.Bidirectional(L.GRU(2, return_sequences=True))(x)
        return L.Dense(3)(L.Flatten()(L.ReLU()(L.BatchNormalization()(h))))

    return net(build, features(4, 2))


@case("refused")
def batch_norm_frozen_but_called_in_training():
    """`trainable` is True, momentum 1: nothing is stored, but the batch is still normalised."""
    return net([L.Dense(4), L.BatchNormalization(momentum=1.0), L.ReLU(), L.Dense(3)], features())


@case("refused", fast=("eager",))
def batch_norm_of_inputs_without_scale():
    """Nothing is trained before it, so no gradient goes through the statistics."""
    return net([L.BatchNormalization(center=False, scale=False), L.Dense(4, "relu"), L.Dense(3)], features())
