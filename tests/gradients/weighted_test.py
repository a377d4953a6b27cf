"""Weights of examples are applied after clipping, where that leaves the sensitivity at 1."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import DPFixedClipSGD, DPPerCoordinateClipSGD, core, gradients
from adaclip_tf.gradients import weighted
from tests import models

CLIP = 0.5
WEIGHTS = np.array([0.0, 0.25, 1.0, 3.0, 0.5, -2.0], np.float32)


def _norm(vectors):
    return np.linalg.norm(np.concatenate([v.reshape(len(v), -1) for v in vectors], axis=1), axis=1)


def _by_hand(weights, inputs, labels, omega):
    """sum_k u_k over C, in NumPy."""
    records = models.softmax_gradients(weights, inputs, labels)
    counts = (omega >= 0) & (omega <= 1)
    before, after = np.where(counts, 1.0, omega), np.where(counts, omega, 1.0)
    shares = after * before / np.maximum(1.0, _norm(records) * np.abs(before) / CLIP) / CLIP
    return [np.tensordot(shares, record, axes=1) for record in records]


@pytest.fixture(scope="module")
def total():
    """(path, weights of examples) -> sum_k u_k of a fixed batch, and what is expected."""
    inputs, labels = models.data(len(WEIGHTS))
    inputs *= np.array([0.1, 5, 5, 0.1, 5, 1], np.float32)[:, np.newaxis]  # some are clipped, some are not
    model, loss = models.softmax_regression(), models.per_example_loss()
    transform = core.Transform([tf.constant(0.0)] * 2, [tf.constant(CLIP)] * 2)

    def step(path):
        @tf.function(input_signature=[tf.TensorSpec([None, 4]), tf.TensorSpec([None], tf.int64), tf.TensorSpec([None])])
        def traced(x, y, omega):
            with tf.GradientTape() as tape:
                losses = loss(y, model(x, training=True), sample_weight=omega)
            variables = model.trainable_variables
            batch = gradients.clipped_sum(losses, variables, tape, transform, path=path, num_microbatches=None)
            return batch.total

        return traced

    steps = {path: step(path) for path in ("ghost", "jacobian")}

    def call(path, omega, rows=slice(None)):
        found = steps[path](tf.constant(inputs[rows]), tf.constant(labels[rows]), tf.constant(omega[rows]))
        expected = _by_hand(model.get_weights(), inputs[rows], labels[rows], omega[rows].astype(np.float64))
        return [part.numpy() for part in found], expected

    return call


@pytest.mark.parametrize("path", ["ghost", "jacobian"])
def test_weights_up_to_1_count_after_clipping_and_others_before(total, path):
    for ours, theirs in zip(*total(path, WEIGHTS)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("path", ["ghost", "jacobian"])
@pytest.mark.parametrize("weight", [0.3, 1.0, 1.5, 1e30, -1e4, np.inf, np.nan, -0.1])
def test_no_weight_makes_an_example_count_for_more_than_1(total, path, weight):
    """The sum with and without the example of that weight."""
    omega = WEIGHTS.copy()
    omega[1] = weight
    whole, _ = total(path, omega)
    rest, _ = total(path, omega, rows=[0, 2, 3, 4, 5])
    moved = np.sqrt(sum(np.sum((a - b) ** 2) for a, b in zip(whole, rest)))
    assert moved <= 1 + 1e-5
    if 0 <= weight <= 1:  # its gradient is clipped, so this is all that it has
        np.testing.assert_allclose(moved, weight, rtol=1e-4)


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("path", ["ghost", "jacobian"])
def test_the_center_counts_as_often_as_its_example(path, leaves):
    """sum_k omega_k c_k (g_k - a) / b, whoever applies (a, b) to the sums."""
    inputs, labels = models.data(len(WEIGHTS))
    model, loss = models.softmax_regression(), models.per_example_loss()
    shapes = [variable.shape.as_list() for variable in model.trainable_variables]
    centers = [np.linspace(-0.5, 0.5, int(np.prod(s)), dtype=np.float32).reshape(s) for s in shapes]
    scales = [np.linspace(0.2, 0.6, int(np.prod(s)), dtype=np.float32).reshape(s) for s in shapes]
    transform = core.Transform(*([tf.constant(v) for v in values] for values in (centers, scales)))

    @tf.function(input_signature=[tf.TensorSpec([None, 4]), tf.TensorSpec([None], tf.int64), tf.TensorSpec([None])])
    def step(x, y, omega):
        with tf.GradientTape() as tape:
            losses = loss(y, model(x, training=True), sample_weight=omega)
        options = {"path": path, "num_microbatches": None, "may_leave_transform": leaves}
        batch = gradients.clipped_sum(losses, model.trainable_variables, tape, transform, **options)
        return batch.total if batch.weight is None else transform.apply_to_sums(batch.total, batch.weight)

    found = step(tf.constant(inputs), tf.constant(labels), tf.constant(WEIGHTS))
    records = models.softmax_gradients(model.get_weights(), inputs, labels)
    counts = (WEIGHTS >= 0) & (WEIGHTS <= 1)
    before, after = np.where(counts, 1.0, WEIGHTS), np.where(counts, WEIGHTS, 1.0)
    wide = [(-1,) + (1,) * len(s) for s in shapes]
    moved = [(before.reshape(w) * g - a) / b for g, a, b, w in zip(records, centers, scales, wide)]
    shares = after / np.maximum(1.0, _norm(moved))
    for ours, part in zip(found, moved):
        np.testing.assert_allclose(ours, np.tensordot(shares, part, axes=1), rtol=1e-4, atol=1e-5)


def test_class_weights_of_fit_are_not_undone():
    """One step on an example of each class, both of them clipped: the second counts a quarter of the first."""
    inputs, labels = 50 * np.eye(2, 4, dtype=np.float32), np.array([0, 1])
    for make in (
        lambda: DPFixedClipSGD(1.0, l2_norm_clip=0.1, noise_multiplier=0.0, expected_batch_size=1),
        lambda: DPPerCoordinateClipSGD(1.0, value_clip=1e-3, noise_multiplier=0.0, expected_batch_size=1),
    ):
        model = models.softmax_regression()
        model.set_weights([np.zeros_like(w) for w in model.get_weights()])
        model.compile(make(), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(inputs, labels, batch_size=2, class_weight={0: 1.0, 1: 0.25}, verbose=0)
        moved = np.linalg.norm(model.get_weights()[0], axis=1)  # the first row is the first example's
        np.testing.assert_allclose(moved[1] / moved[0], 0.25, rtol=1e-4)


def test_the_log_says_what_became_of_the_weights(monkeypatch):
    said = []
    monkeypatch.setattr(weighted.logging, "log_first_n", lambda level, text, n: said.append((text, n)))

    @tf.function(autograph=False)
    def step(x, omega):
        weighted.split(tf.exp(x))
        assert not said
        weighted.split(tf.exp(x) * omega)

    step(tf.ones([3]), tf.ones([3]))
    assert len(said) == 1
    assert "Divide all weights by the largest one" in said[0][0] and said[0][1] == 1


def test_what_is_no_weight_of_an_example_stays_in_the_loss():
    @tf.function(autograph=False)
    def step(x, omega, scalar):
        y = tf.exp(x)
        assert weighted.split(2.0 * y * omega)[1] is not None
        assert weighted.split(y)[1] is None
        assert weighted.split(y * scalar)[1] is None
        assert weighted.split(y * (omega / tf.reduce_mean(omega)))[1] is None  # examples meet
        assert weighted.split(y * omega + y)[1] is None
        assert weighted.split(y * tf.sigmoid(x))[1] is None  # has a gradient of its own
        assert weighted.split(tf.exp(y * omega))[1] is None  # no product any more
        assert weighted.split(y * tf.constant([0.1, 0.2, 0.3]))[1] is None  # says another thing to another place
        loss, after = weighted.split(tf.constant(3.0) * tf.identity(y * omega))
        return loss, after

    found: list = []
    rows = tf.function(lambda x, w: found.append(weighted.split(tf.exp(x) * tf.reshape(w, [-1]))[1]), autograph=False)
    rows.get_concrete_function(tf.TensorSpec([None]), tf.TensorSpec([None, None]))  # perhaps several to an example
    assert found == [None]
    loss, after = step(tf.zeros([3]), tf.constant([0.5, 2.0, np.nan]), tf.constant(0.5))
    np.testing.assert_array_equal(loss, [3.0, 6.0, np.nan])
    np.testing.assert_array_equal(after, [0.5, 1.0, 1.0])
