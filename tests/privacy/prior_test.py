"""What a clipping rule was made by is counted, whether the user says it or not: `scales=` cost as much as they did."""

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf

import adaclip_tf
from adaclip_tf import core
from adaclip_tf.privacy import events
from adaclip_tf.privacy.ledger import Ledger
from tests import models

N, BATCH, DELTA = 40, 10, 1e-3
STEP = {"num_examples": N, "batch_size": BATCH, "delta": DELTA}
ASKED = dp_accounting.ComposedDpEvent([events.gaussian_event(6.0, 3), events.gaussian_event(8.0, 4)])
PCA = events.gaussian_event(3.0)


def scaled(noise_multiplier=1.0):
    """A model whose scales cost `ASKED`."""
    model = models.softmax_regression()
    shapes = [np.ones([variable.shape[0]] + [1] * (len(variable.shape) - 1)) for variable in model.trainable_variables]
    scales = core.Scales(1.0, shapes, noise_multiplier=events.noise_of_gaussians(ASKED))
    optimizer = adaclip_tf.DPAdaClipSGD(
        0.1, noise_multiplier=noise_multiplier, expected_batch_size=BATCH, scales=scales
    )
    optimizer = type(optimizer).from_config(optimizer.get_config())  # a saved model counts it, too
    model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def fit(model, **options):
    batches = adaclip_tf.poisson_batches(models.data(N), expected_batch_size=BATCH, seed=1)
    budget = adaclip_tf.PrivacyBudget.of(batches, delta=DELTA, **options)
    model.fit(batches, verbose=0, callbacks=[budget])
    return budget.epsilon


def epsilon(*others):
    training = adaclip_tf.training_event(noise_multiplier=1.0, num_examples=N, batch_size=BATCH, steps=4)
    return pytest.approx(adaclip_tf.epsilon_of(dp_accounting.ComposedDpEvent([*others, training]), delta=DELTA))


@pytest.mark.parametrize(
    ("said", "counted"),
    [
        (None, [ASKED]),
        (ASKED, [ASKED]),
        (PCA, [PCA, ASKED]),
        (dp_accounting.ComposedDpEvent([PCA, ASKED]), [PCA, ASKED]),
    ],
    ids=["nothing", "the scales", "something else", "both"],
)
def test_scales_count_once(said, counted):
    assert fit(scaled(), other_event=said) == epsilon(*counted)


def test_a_ledger_has_them_once(tmp_path):
    path = tmp_path / "ledger.json"
    model = scaled()
    assert fit(model, ledger=path) == epsilon(ASKED)
    assert len(Ledger(path).read()[1]) == 1
    fit(model, ledger=path)
    assert len(Ledger(path).read()[1]) == 1
    written = tmp_path / "written.json"  # as `make_private` does, before it asks
    Ledger(written).add("scales", ASKED)
    assert fit(scaled(), ledger=written) == epsilon(ASKED)


def test_a_new_optimizer_under_the_same_budget_forgets_nothing():
    """The earlier one's steps count, once each; those of an optimizer that goes on count as they are."""
    batches = adaclip_tf.poisson_batches(models.data(N), expected_batch_size=BATCH, seed=1)
    budget = adaclip_tf.PrivacyBudget.of(batches, delta=DELTA)

    def run(model):
        model.fit(batches, verbose=0, callbacks=[budget])
        return budget.epsilon

    def of(steps):
        return pytest.approx(adaclip_tf.epsilon(noise_multiplier=1.0, steps=steps, **STEP), rel=1e-6)

    model = models.softmax_regression()
    for expected in (4, 8):
        model.compile(
            adaclip_tf.DPFixedClipSGD(l2_norm_clip=1.0, noise_multiplier=1.0, expected_batch_size=BATCH),
            models.per_example_loss(),
        )
        assert run(model) == of(expected)
    assert run(model) == of(12)


def test_one_gaussian_for_all():
    assert events.noise_of_gaussians(ASKED) == pytest.approx((3 / 36 + 4 / 64) ** -0.5, rel=1e-12)
    sampled = dp_accounting.PoissonSampledDpEvent(0.1, events.gaussian_event(6.0))
    assert events.noise_of_gaussians(dp_accounting.ComposedDpEvent([ASKED, sampled])) is None
    assert adaclip_tf.DPFixedClipSGD(l2_norm_clip=1.0, noise_multiplier=1.0).prior is None
