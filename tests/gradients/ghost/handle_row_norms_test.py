"""Sums of the norms of rows, read off the backward pass, against every example's own gradient."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.gradients import ghost
from adaclip_tf.gradients.ghost import slices
from tests.gradients.ghost.reference import Case, squared_error
from tests.gradients.ghost.zoo import ZOO

QUICK = {"mlp", "dense_on_time", "conv2d", "depthwise", "embedding", "einsum_flat", "einsum_reversed", "prelu"}


class RowCase(Case):
    """A `Case` that asks for row norms alone."""

    def _ghost(self, x, weights):
        with tf.GradientTape() as tape:
            loss = self.loss(x)
        seed = tf.identity(tf.ones_like(loss))
        gradients = tape.gradient(loss, self.variables, output_gradients=seed)
        self.plan = ghost.analyse(gradients, self.variables, seed, num_microbatches=tf.shape(loss)[0])
        return {index: handle.row_norms(weights) for index, handle in self.plan.recognised.items()}

    def check_rows(self, x, weights):
        assert len(self.ghost(x, weights)) == len(self.variables)
        for (index, found), g in zip(sorted(self.ghost(x, weights).items()), self.alone(x)):
            rows = np.linalg.norm(g, axis=-1, keepdims=True) if g.ndim > 1 else np.abs(g)
            expected = np.tensordot(weights.astype(np.float64), rows, 1)
            assert found.shape == expected.shape, self.variables[index].name
            np.testing.assert_allclose(
                found, expected, rtol=2e-4, atol=2e-6 * max(1.0, rows.max(initial=0.0)), err_msg=str(index)
            )


def make(name, rng):
    build, shape, dtype = ZOO[name]
    model = build()
    for variable in model.trainable_variables:
        variable.assign_add(tf.constant(rng.normal(size=variable.shape, scale=0.2), variable.dtype))
    spec = tf.TensorSpec([None, *shape], dtype)
    return RowCase(lambda x: squared_error(model(x)), model.trainable_variables, spec, rng)


def batch(case, size, rng):
    shape = [size, *case.spec.shape[1:]]
    if case.spec.dtype.is_integer:
        return rng.integers(0, 5, size=shape).astype(np.int32)
    return rng.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in sorted(ZOO)]
)
def test_every_layer_has_rows(name, rng):
    case = make(name, rng)
    case.check_rows(batch(case, 5, rng), rng.uniform(0.1, 1.0, 5).astype(np.float32))


@pytest.mark.parametrize("name", ["mlp", "conv2d", "embedding"])
def test_slices_hold_every_example_once(name, rng, monkeypatch):
    monkeypatch.setattr(slices, "BUDGET", 3000)
    case = make(name, rng)
    for size in (7, 1):
        case.check_rows(batch(case, size, rng), rng.uniform(0.1, 1.0, size).astype(np.float32))


@pytest.mark.parametrize("name", ["mlp", "dense_on_time", "conv2d", "depthwise", "layer_norm_on_time"])
def test_an_example_of_weight_zero_is_left_out_nans_and_all(name, rng):
    case = make(name, rng)
    x, weights = batch(case, 5, rng), np.array([1, 1, 0, 1, 1], np.float32)
    clean = case.ghost(x, weights)
    for extreme in (np.nan, np.inf, 1e30):
        bad = x.copy()
        bad[2].flat[0] = extreme
        for index, found in case.ghost(bad, weights).items():
            np.testing.assert_array_equal(found, clean[index])


def test_positions_of_one_example_are_added_before_the_norm(rng):
    """Of four look-ups of row 0 with gradients that cancel in part, the norm is of their sum."""
    table = tf.Variable(rng.normal(size=(6, 3)).astype(np.float32))
    case = RowCase(lambda x: squared_error(tf.gather(table, x)), [table], tf.TensorSpec([None, 4], tf.int32), rng)
    x = np.array([[0, 0, 0, 0], [1, 2, 1, 2], [5, 4, 3, 2]], np.int32)
    case.check_rows(x, np.float32([1.0, 0.5, 0.25]))


@pytest.mark.parametrize(
    "function, inputs, shape",
    [
        (lambda x, w: x @ tf.transpose(w), [5], [3, 5]),  # rows run over the inputs
        (lambda x, w: tf.tensordot(x, w, [[1, 2], [0, 1]]), [4, 5], [4, 5, 3]),
        (lambda x, w: tf.reshape(x @ tf.reshape(w, [5, 6]), [-1, 2, 3]), [5], [5, 2, 3]),  # a row is a part of dy
        (lambda x, w: x @ tf.reshape(w, [6, 1]), [6], [2, 3]),  # dy is a part of a row
        (lambda x, w: x * w, [4, 5], []),
    ],
)
def test_rows_are_those_of_the_variable(function, inputs, shape, rng):
    w = tf.Variable(rng.normal(size=shape).astype(np.float32))
    case = RowCase(lambda x: squared_error(function(x, w)), [w], tf.TensorSpec([None, *inputs]), rng)
    case.check_rows(rng.normal(size=(5, *inputs)).astype(np.float32), rng.uniform(0.1, 1.0, 5).astype(np.float32))
