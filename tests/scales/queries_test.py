"""What is asked of the data: sensitivities, slices of any size, and everything that must be refused."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.scales.queries import Queries
from tests import models

layers = tf.keras.layers


def loss():
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def ask(model, data, loss_or_none=None, slice_size=1000, path="auto"):
    return Queries(model, loss() if loss_or_none is None else loss_or_none, data, None, slice_size, path)


@pytest.fixture(scope="module")
def asked():
    return ask(models.mlp(), models.data(7), slice_size=4)


def show(asked, inputs, labels):
    """The same queries of other data, without tracing them again."""
    asked._load, asked.num_examples = (lambda rows: (inputs[rows], labels[rows])), len(inputs)
    return asked


def test_one_example_moves_a_count_by_a_half_and_the_rows_by_one_at_most(asked, rng):
    inputs, labels = models.data(7)
    shapes = [rng.uniform(0.5, 2.0, shape) for shape in asked.row_shapes]
    for value in (None, 0.0, 1e-30, 1e30, np.inf, np.nan):
        neighbour = inputs.copy()
        if value is not None:
            neighbour[6] = value
        for clip in (1e-3, 0.3, 100.0):
            answers = []
            for size in (6, 7):
                show(asked, neighbour[:size], labels[:size])
                asked.look_at_norms(shapes)
                rows = np.concatenate([part.ravel() for part in asked.rows(clip, shapes)])
                answers.append((asked.count(clip), rows))
            (count, rows), (more, others) = answers
            assert abs(more - count) == 0.5
            assert np.isfinite(others).all()
            assert np.linalg.norm(others - rows) <= 1.0 + 1e-4
            if value is not None and not np.isfinite(value):
                assert more - count == -0.5  # counts as beyond the clip
                np.testing.assert_allclose(others, rows, rtol=1e-5, atol=1e-5)


def test_a_count_is_of_those_within_the_clip(asked):
    """Softly: all of seven within a huge clip, none within a tiny one."""
    show(asked, *models.data(7))
    asked.look_at_norms([np.ones(shape) for shape in asked.row_shapes])
    assert asked.count(1e6) == 3.5
    assert asked.count(1e-9) == -3.5


def test_slices_do_not_matter(asked, rng):
    inputs, labels = models.data(11)
    shapes = [rng.uniform(0.5, 2.0, shape) for shape in asked.row_shapes]
    found = []
    for size in (1, 4, 11, 1000):
        asked._slice_size = size
        show(asked, inputs, labels).look_at_norms(shapes)
        found.append((asked._norms, *asked.rows(0.3, shapes)))
    asked._slice_size = 4
    for other in found[1:]:
        for one, two in zip(found[0], other):
            np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)


def test_sample_weights_are_seen_and_metrics_are_not_kept(rng):
    """As in training: a weight of 3 multiplies the gradient, one up to 1 what clipping leaves of it."""
    inputs, labels = models.data(6)
    model = models.softmax_regression()
    model.compile(loss=loss(), weighted_metrics=[])
    weights = np.float32([1, 3, 0.25, 3, 0, 1])
    plain, weighted = (
        Queries(model, None, data, None, 4, "auto") for data in ((inputs, labels), (inputs, labels, weights))
    )
    for asked in (plain, weighted):
        asked.look_at_norms([np.ones(shape) for shape in asked.row_shapes])
    np.testing.assert_allclose(weighted._norms, np.maximum(weights, 1.0) * plain._norms, rtol=1e-4, atol=1e-9)


def test_several_outputs_by_the_compiled_losses(rng):
    inputs = tf.keras.Input([4])
    model = tf.keras.Model(inputs, [layers.Dense(1)(inputs), layers.Dense(2)(inputs)])
    data = (rng.normal(size=(5, 4)).astype("float32"), tuple(rng.normal(size=(5, k)).astype("float32") for k in (1, 2)))
    with pytest.raises(ValueError, match="compile it with all of them"):
        ask(model, data, tf.keras.losses.MeanSquaredError()).look_at_norms([np.ones(s) for s in ([4, 1], [1])] * 2)
    model.compile(loss=["mse", "mse"])
    asked = Queries(model, None, data, None, 4, "auto")
    asked.look_at_norms([np.ones(shape) for shape in asked.row_shapes])
    assert len(asked._norms) == 5
    assert np.all(asked._norms > 0.0)


def test_what_training_refuses_is_refused():
    data = models.data(5)
    mixing = tf.keras.Sequential([tf.keras.Input([4]), layers.Dense(3), layers.BatchNormalization()])
    with pytest.raises(ValueError, match="so that one example changes others"):
        ask(mixing, data).look_at_norms([np.ones(s) for s in ([4, 1], [1], [1], [1])])
    decayed = tf.keras.Sequential([tf.keras.Input([4]), layers.Dense(3, kernel_regularizer="l2")])
    with pytest.raises(ValueError, match="kernel regularizer"):
        ask(decayed, data)
    frozen = models.softmax_regression()
    frozen.trainable = False
    with pytest.raises(ValueError, match="no trainable variables"):
        ask(frozen, data)


def test_what_cannot_be_asked_is_told():
    model, data = models.softmax_regression(), models.data(5)
    with pytest.raises(ValueError, match="`loss` is None and the model is not compiled"):
        Queries(model, None, data, None, 4, "auto")
    with pytest.raises(ValueError, match=r"`loss` must be a `tf.keras.losses.Loss`.*got 'mse'"):
        ask(model, data, "mse")

    class Own(tf.keras.Model):
        def train_step(self, data):
            return {}

    inputs = tf.keras.Input([4])
    with pytest.raises(ValueError, match="has a `train_step` of its own"):
        ask(Own(inputs, layers.Dense(3)(inputs)), data)
    with pytest.raises(ValueError, match="same number of examples"):
        ask(model, (data[0], data[1][:3]))


def test_a_loader_that_gives_an_example_twice_is_refused():
    inputs, labels = models.data(5)
    asked = Queries(models.softmax_regression(), loss(), lambda rows: (inputs[rows], labels[rows]), 5, 3, "auto")
    asked._load = lambda rows: (inputs[[*rows, rows[0]]], labels[[*rows, rows[0]]])
    with pytest.raises(ValueError, match="asked for 3 rows and returned 4"):
        asked.look_at_norms([np.ones(shape) for shape in asked.row_shapes])


def test_a_model_that_is_not_built_is_built():
    model = tf.keras.Sequential([layers.Dense(3)])
    assert ask(model, models.data(5)).row_shapes == [[4, 1], [1]]
