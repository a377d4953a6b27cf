"""Tests of `examples.training` and `examples.train`: every model and optimizer, budgets, resuming, the command line."""

import importlib
import math
import os
import pathlib
import subprocess
import sys

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf

import adaclip_tf
from adaclip_tf.privacy import accountants, events
from configs import base, digits
from examples.common import data, models, noise_plan, training

ROOT = pathlib.Path(__file__).parents[2]


def small(**changes):
    """A config whose run takes a second: softmax regression on digits, 2 epochs of 4 steps, reproducible."""
    config = base.get_config()
    config.update(expected_batch_size=360, epochs=2, target_epsilon=3.0, delta=1e-4, reproducible=True)
    config.update(changes)
    return config


@pytest.fixture(scope="module")
def loaded():
    return data.load("digits")


_EVERY = [
    name if name in ("adaclip", "quantile") else pytest.param(name, marks=pytest.mark.slow)
    for name in training.OPTIMIZERS
]


@pytest.mark.parametrize("optimizer", _EVERY)
def test_every_optimizer_trains_within_its_budget(optimizer, loaded):
    config = small(optimizer=optimizer)
    result = training.run(config, loaded=loaded)
    assert 0.0 <= result.metric <= 1.0 and result.metric_name == "accuracy"
    if optimizer == "sgd":
        assert result.epsilon == math.inf
        assert training.describe(result) == "Plain SGD: NOT private.\n"
        return
    # The epsilon of the run, from scratch: ceil(1438 / 360) = 4 steps per epoch.
    arguments = {"num_examples": 1438, "batch_size": 360, "steps": 8}
    spent = [adaclip_tf.training_event(noise_multiplier=result.noise_multiplier, **arguments)]
    other = result.accounted["other_event"]  # of the scales
    assert (other is None) == (optimizer != "scales") == (result.scales_noise is None)
    spent += [other] if other else []
    assert result.epsilon == pytest.approx(adaclip_tf.epsilon_of(dp_accounting.ComposedDpEvent(spent), delta=1e-4))
    assert 2.99 < result.epsilon <= 3.0
    assert (result.accounted["steps"], result.accounted["num_examples"]) == (8, 1438)
    assert len(result.history["epsilon"]) == 2 and result.history["epsilon"][-1] == pytest.approx(result.epsilon)


@pytest.mark.parametrize(
    ("dataset", "model", "parameters"),
    [
        ("digits", "softmax", 64 * 10 + 10),
        ("digits", "mlp", 64 * 20 + 20 + 20 * 10 + 10),
        ("breast_cancer", "logistic", 30 + 1),
        ("diabetes", "linear", 10 + 1),
    ],
)
def test_every_model_has_its_size(dataset, model, parameters):
    loaded = data.load(dataset)
    built = models.make_model(small(model=model, hidden=20), loaded.x_train.shape[1:], loaded.num_classes)
    assert built.count_params() == parameters


def test_the_cnn_is_the_tutorials():
    """8*8*16+16, 4*4*16*32+32, (4*4*32)*32+32 and 32*10+10, as in tensorflow-privacy's tutorial."""
    model = models.make_model(small(model="cnn"), (28, 28, 1), 10)
    assert model.count_params() == 1040 + 8224 + 16416 + 330


def test_models_and_data_that_do_not_fit_are_refused():
    for model, classes in (("linear", 10), ("logistic", 10), ("softmax", None)):
        with pytest.raises(ValueError, match=f"config.model='{model}' does not fit"):
            models.make_model(small(model=model), (4,), classes)
    with pytest.raises(ValueError, match=r"config\.model must be one of softmax, .* got 'resnet'"):
        models.make_model(small(model="resnet"), (4,), 10)
    with pytest.raises(ValueError, match=r"config\.optimizer must be one of adaclip, .* got 'adam'"):
        training.make_optimizer(small(optimizer="adam"), 1.0, 8)


@pytest.mark.slow
def test_plain_sgd_learns_the_tables(tmp_path):
    """Without noise each tabular model does well, so that its loss, metric and scaling are right."""
    cancer = training.run(
        small(
            dataset="breast_cancer",
            model="logistic",
            optimizer="sgd",
            epochs=20,
            expected_batch_size=64,
            learning_rate=1.0,
        )
    )
    assert cancer.metric > 0.9
    diabetes = training.run(
        small(
            dataset="diabetes",
            model="linear",
            optimizer="sgd",
            epochs=20,
            expected_batch_size=64,
            learning_rate=0.1,
        )
    )
    assert diabetes.metric_name == "squared_error" and diabetes.metric < 0.4  # the target's variance is 0.6


def test_pca_and_training_share_the_budget(loaded):
    config = small(model="mlp", hidden=20, pca_components=10, pca_fraction=0.5)
    plan = noise_plan.make_plan(config, len(loaded.x_train))
    alone = adaclip_tf.epsilon_of(events.gaussian_event(plan.pca_noise_multiplier), delta=1e-4)
    assert alone == pytest.approx(1.5, rel=1e-3)
    result = training.run(config, loaded=loaded)
    assert 2.99 < result.epsilon <= 3.0
    assert result.accounted["other_event"] is not None
    with pytest.raises(ValueError, match="must be 0 for a cnn"):
        training.run(small(model="cnn", pca_components=10), loaded=loaded)


def test_seeds_choose_the_weights_and_not_the_noise(loaded):
    shape = loaded.x_train.shape[1:]
    first, again, other = (models.make_model(small(seed=seed), shape, 10).get_weights()[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.01
    assert training.make_optimizer(small(reproducible=False, seed=1), 1.0, 8).seed is None


@pytest.mark.slow
def test_reproducible_runs_repeat_and_others_do_not(loaded):
    first, again = (training.run(small(), loaded=loaded).history["loss"] for _ in range(2))
    assert first == again
    assert training.run(small(reproducible=False), loaded=loaded).history["loss"] != first


@pytest.mark.slow
def test_mean_and_standard_deviation_over_seeds(loaded):
    results = training.run_seeds(small(optimizer="fixed_clip"), 2, loaded=loaded)
    values = [result.metric for result in results]
    assert len(set(values)) > 1
    said = training.summary(results)
    assert f"test accuracy {np.mean(values):.4f} (sd {np.std(values, ddof=1):.4f} over 2 seeds)" in said


class Killed(Exception):
    """As if the process had died."""


class KillAfter(tf.keras.callbacks.Callback):
    def __init__(self, epochs):
        super().__init__()
        self.epochs = epochs

    def on_train_batch_end(self, batch, logs=None):
        if self.epoch == self.epochs and batch == 1:
            raise Killed

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch


@pytest.mark.slow
def test_an_interrupted_run_goes_on_to_the_same_epsilon(tmp_path, loaded, monkeypatch):
    monkeypatch.setattr(accountants, "REGISTERED", {"rdp": accountants.RDP})  # PLD takes seconds
    config = small(epochs=4, pca_components=10)
    with pytest.raises(Killed):
        training.run(config, tmp_path, loaded=loaded, callbacks=[KillAfter(2)])
    components = adaclip_tf.PrivatePCA.load(tmp_path / "pca.npz").components_

    epochs_seen = []
    watch = tf.keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: epochs_seen.append(epoch))
    resumed = training.run(config, tmp_path, loaded=loaded, callbacks=[watch])
    assert epochs_seen == [2, 3]
    np.testing.assert_array_equal(adaclip_tf.PrivatePCA.load(tmp_path / "pca.npz").components_, components)
    uninterrupted = training.run(config, loaded=loaded)
    assert resumed.epsilon == uninterrupted.epsilon
    assert len(resumed.history["epsilon"]) == 4
    np.testing.assert_allclose(resumed.history["epsilon"], uninterrupted.history["epsilon"], rtol=1e-6)
    assert "16 noised steps" in (tmp_path / "privacy.txt").read_text()

    complete = training.run(config, tmp_path, loaded=loaded, callbacks=[watch])
    assert epochs_seen == [2, 3]  # nothing was trained
    assert (complete.metric, complete.epsilon) == (resumed.metric, resumed.epsilon)


CONFIGS = sorted(path.stem for path in (ROOT / "configs").glob("*.py"))


@pytest.mark.parametrize("name", CONFIGS)
def test_every_config_names_what_there_is(name):
    config = importlib.import_module(f"configs.{name}").get_config()
    assert set(config) == set(base.get_config())
    assert config.dataset in data.NAMES and not config.reproducible
    training.make_optimizer(config, 1.0, 8)


@pytest.mark.slow
def test_the_command_line(tmp_path):
    command = [sys.executable, "-m", "examples.train", f"--config={ROOT / 'configs/digits.py'}"]
    command += ["--config.epochs=1", "--config.h2=1e-4", "--verbose=0", f"--workdir={tmp_path}"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Differentially private training" in done.stdout
    assert "digits from scikit-learn's wheel, softmax, adaclip:\ntest accuracy 0." in done.stdout
    assert f"tensorboard --logdir {tmp_path}" in done.stdout
    assert '"h2": 0.0001' in (tmp_path / "seed_0" / "config.json").read_text()


def test_the_programs_own_check():
    config = digits.get_config()
    good = training.Result("accuracy", 0.9, 2.9, 1.0, None, None, 0.1, {}, {}, "")
    training.check(config, [good])
    with pytest.raises(RuntimeError, match=r"epsilon 3\.1 is above the target 3\.0"):
        training.check(config, [good._replace(epsilon=3.1)])
    with pytest.raises(RuntimeError, match="diverged"):
        training.check(config, [good._replace(metric=math.nan)])
