"""Scales that all coordinates of a row share, and a = 0: the same norms as written out in full, by less work."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf._internal import keras
from adaclip_tf.gradients import ghost

layers = tf.keras.layers
MODELS = {
    "dense": ([5], [layers.Dense(4, "tanh"), layers.Dense(3)]),
    "sequence": ([6, 5], [layers.Dense(4), layers.Flatten()]),
    "few rows": ([2, 5], [layers.Dense(4), layers.Flatten()]),
    "convolution": ([6, 6, 2], [layers.Conv2D(3, 3), layers.Flatten()]),
    "embedding": ([7], [layers.Embedding(9, 4), layers.Flatten()]),
}


def _data(shape, name):
    rng = np.random.default_rng(1)
    return rng.integers(0, 9, [8, *shape]) if name == "embedding" else rng.normal(size=[8, *shape]).astype(np.float32)


@pytest.mark.parametrize("name", MODELS)
def test_a_scale_of_rows_is_what_it_is_written_out(name):
    shape, stack = MODELS[name]
    data = tf.constant(_data(shape, name))
    model = tf.keras.Sequential(stack)
    model(data)
    rng = np.random.default_rng(2)
    rows = [np.exp(rng.normal(size=[*v.shape[:-1], 1])).astype(np.float32) for v in model.get_weights()]
    products = {}

    @tf.function
    def norms(written_out):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(model(data)), axis=1)
        trained = [keras.native(variable) for variable in model.trainable_variables]
        seed = tf.identity(tf.ones_like(loss))
        plan = ghost.analyse(tape.gradient(loss, trained, output_gradients=seed), trained, seed)
        before = len(tf.compat.v1.get_default_graph().get_operations())
        found = []
        for index, handle in plan.recognised.items():
            scale = tf.broadcast_to(rows[index], trained[index].shape) if written_out else tf.constant(rows[index])
            found.append(handle.squared_norms(tf.constant(0.0), scale).value)
        operations = tf.compat.v1.get_default_graph().get_operations()[before:]
        products[written_out] = [op for op in operations if "MatMul" in op.type]
        assert len(found) == len(trained)
        return found

    for by_rows, plain in zip(norms(False), norms(True)):
        np.testing.assert_allclose(by_rows, plain, rtol=1e-5)
    if name == "dense":
        assert not products[False]
        assert products[True]


def test_no_center_is_no_product():
    """With a = 0 there is one product for the kernel, with an a that only the run knows there are two."""
    kernel, x = tf.Variable(tf.ones([5, 4])), tf.ones([3, 5])
    counts = []
    for center in (tf.zeros([5, 4]), None):

        @tf.function
        def norms(center=center):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(x @ kernel, axis=1)
            seed = tf.identity(tf.ones_like(loss))
            plan = ghost.analyse(tape.gradient(loss, [kernel], output_gradients=seed), [kernel], seed)
            a = tf.constant(0.0) if center is None else tf.identity(center)
            return plan.recognised[0].squared_norms(a, 2.0 * tf.ones([5, 4])).value

        np.testing.assert_allclose(norms(), [5.0] * 3)
        counts.append([op.type for op in norms.get_concrete_function().graph.get_operations()].count("MatMul"))
    assert counts[0] == counts[1] + 1
