"""Small models and data that several tests share."""

import numpy as np
import tensorflow as tf

from adaclip_tf import core, gradients

FEATURES, CLASSES = 4, 3


def data(num_examples=12, features=FEATURES, seed=0):
    """Inputs and labels of a classification problem."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(num_examples, features)).astype(np.float32)
    return inputs, rng.integers(0, CLASSES, num_examples)


def out_of_sight(dataset):
    """The same batches, from a generator: nobody sees how they are formed, so they may be taken for Poisson-sampled."""
    signature = tf.nest.map_structure(lambda s: tf.TensorSpec([None, *s.shape[1:]], s.dtype), dataset.element_spec)
    made = tf.data.Dataset.from_generator(lambda: iter(dataset), output_signature=signature)
    return made.apply(tf.data.experimental.assert_cardinality(dataset.cardinality()))


def softmax_regression(features=FEATURES, seed=1):
    """One dense layer: its gradients are known in closed form."""
    tf.keras.utils.set_random_seed(seed)
    return tf.keras.Sequential([tf.keras.layers.Dense(CLASSES, input_shape=(features,))])


def mlp(features=FEATURES, seed=1):
    """Two dense layers."""
    tf.keras.utils.set_random_seed(seed)
    return tf.keras.Sequential(
        [
            tf.keras.layers.Dense(5, activation="tanh", input_shape=(features,)),
            tf.keras.layers.Dense(CLASSES),
        ]
    )


class AddedUp(tf.keras.layers.Layer):
    """A kernel whose rows are added up: a variable that has no ghost rule."""

    def build(self, shape):
        self.kernel = self.add_weight(name="kernel", shape=[shape[-1], 3], initializer="glorot_uniform")

    def call(self, inputs):
        return tf.nn.tanh(inputs @ tf.cumsum(tf.convert_to_tensor(self.kernel)))


def both_paths():
    """The first layer's kernel is run example by example, the rest is not: one clip for all of them."""
    tf.keras.utils.set_random_seed(5)
    return tf.keras.Sequential([tf.keras.Input([16]), AddedUp(), tf.keras.layers.Dense(CLASSES)])


def per_example_loss():
    """Cross entropy, one entry per example."""
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")


def forget_steps(model):
    """The model as if it had taken no step, without the second that tracing one takes."""
    model.optimizer.build(model.trainable_variables)
    for count in (model.optimizer.noised_steps, model.optimizer.iterations):
        count.assign(0)
    return model


def fit(model, optimizer, inputs, labels, batch_size, epochs=1, **compile_arguments):
    """Trains in the order of the data and returns the model."""
    model.compile(optimizer=optimizer, loss=per_example_loss(), **compile_arguments)
    if model.built and isinstance(optimizer, tf.keras.optimizers.Optimizer):  # tensorflow-privacy's are legacy ones
        optimizer.build(model.trainable_variables)  # a step that makes variables is traced twice
    model.fit(inputs, labels, batch_size=batch_size, epochs=epochs, shuffle=False, verbose=0)
    return model


def softmax_gradients(weights, inputs, labels):
    """Per-example gradients [dL/dW, dL/db] of softmax regression, by hand in float64."""
    kernel, bias = (np.asarray(w, np.float64) for w in weights)
    logits = inputs.astype(np.float64) @ kernel + bias
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    errors = exponentials / exponentials.sum(axis=1, keepdims=True) - np.eye(CLASSES)[labels]
    return [inputs[:, :, None] * errors[:, None, :], errors]


def pre_noise_sum(model, path, num_microbatches=None, clip=core.NORM):
    """A function of (inputs, labels, transform): sum_k u_k before any noise, as one flat NumPy vector."""
    loss = per_example_loss()

    def total(inputs, labels, transform):
        with tf.GradientTape() as tape:
            losses = loss(labels, model(inputs, training=True))
        variables = model.trainable_variables
        options = {"path": path, "num_microbatches": num_microbatches, "clip": clip}
        batch = gradients.clipped_sum(losses, variables, tape, transform, **options)
        return tf.concat([tf.reshape(part, [-1]) for part in batch.total], axis=0)

    traced = {}  # one graph for scalar scales and one for others, for any batch size: tracing takes seconds

    def call(inputs, labels, transform):
        inputs, labels = tf.constant(inputs), tf.constant(labels)
        kind = tuple(scale.shape.rank for scale in transform.scale)
        if kind not in traced:
            batches = [tf.TensorSpec([None, *t.shape[1:]], t.dtype) for t in (inputs, labels)]
            specs = core.Transform(*([tf.TensorSpec(t.shape) for t in part] for part in transform))
            traced[kind] = tf.function(total, input_signature=[*batches, specs])
        return traced[kind](inputs, labels, transform).numpy()

    return call
