"""`make_private`: within the target whatever is done with it, kind errors, going on, ledgers."""

import re

import numpy as np
import pytest
import tensorflow as tf

import adaclip_tf
from adaclip_tf.privacy import accountants
from adaclip_tf.privacy.ledger import Ledger
from adaclip_tf.training import make_private as module
from adaclip_tf.training.make_private import make_private
from tests import models

layers = tf.keras.layers
PLAN = {"target_epsilon": 3.0, "delta": 1e-3, "batch_size": 40, "epochs": 3, "seed": 1, "verbose": False}


def loss():
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def data(num_examples=400):
    """Labels that a linear model can tell, from features whose sizes differ by a thousand."""
    inputs, _ = models.data(num_examples)
    labels = np.argmax(inputs[:, :3], axis=1)
    return inputs * np.float32([1.0, 0.1, 0.001, 1.0]), labels


def make(model=None, **options):
    return make_private(
        models.softmax_regression() if model is None else model, data(), loss=loss(), **{**PLAN, **options}
    )


@pytest.fixture(autouse=True)
def _quickly(monkeypatch):
    """Statements by one accountant: the other takes seconds."""
    monkeypatch.setattr(accountants, "REGISTERED", {"rdp": accountants.RDP})


@pytest.fixture(scope="module")
def trained():
    made = make(metrics=["accuracy"])
    history = made.fit(epochs=2, verbose=0)
    return made, history


def test_it_trains_and_stops_at_the_target(trained):
    """Two epochs, then the one that is left, and then no more. One label in three is chance."""
    made, history = trained
    assert history.epoch == [0, 1]
    assert (made.steps_taken, made.epochs_left) == (20, 1)
    with pytest.raises(ValueError, match="`epochs` must be at most 1, which is what is left of the plan's 3; got 2"):
        made.fit(epochs=2)
    again = made.fit(verbose=0)
    assert again.epoch == [2]
    assert (made.steps_taken, made.plan.steps, made.epochs_left) == (30, 30, 0)
    assert 0.99 * 3.0 < made.epsilon <= 3.0
    with pytest.raises(adaclip_tf.PrivacyBudgetSpentError, match="All 30 steps of the plan were taken"):
        made.fit()
    assert made.steps_taken == 30
    assert history.history["accuracy"][-1] > 0.5


def test_the_rate_falls_to_zero_over_the_plan(trained):
    made, _ = trained
    schedule = made.optimizer.get_config()["learning_rate"]["config"]
    assert (schedule["initial_learning_rate"], schedule["decay_steps"]) == (made.plan.learning_rate, 30)
    assert (schedule["end_learning_rate"], schedule["power"]) == (0.0, 0.5)


def test_statement_and_summary_say_what_was_done(trained):
    made, _ = trained
    assert "noised steps" in made.statement()
    assert "Scales of the gradients, learnt once" in made.statement()
    summary = made.summary()
    for words in ("400 examples", "3 epochs, 30 steps", "epsilon 3, delta 0.001", "falling to 0", "by 3 classes"):
        assert words in summary


def test_before_the_first_step_the_statement_is_of_the_plan(capsys):
    made = make(verbose=True, learning_rate=0.25)
    assert "what was chosen and why" in capsys.readouterr().out
    statement = made.statement()
    assert "No step was taken yet" in statement
    assert "include what else used the same data" in statement  # the scales
    assert float(re.search(r"Poisson-sampled batches +([0-9.]+)", statement)[1]) == pytest.approx(3.0, rel=0.01)
    assert made.optimizer.rule.precondition
    assert made.optimizer.noise_multiplier == made.plan.noise_multiplier
    assert made.scales.noise_multiplier == made.plan.rows_noise
    assert made.plan.learning_rate == 0.25
    for name, value in (("class_weight", {0: 1.0}), ("batch_size", 3), ("x", 1), ("validation_split", 0.1)):
        with pytest.raises(ValueError, match=f"`{name}` is not for this `fit`"):
            made.fit(**{name: value})
    assert made.steps_taken == 0


def test_a_ledger_holds_scales_and_steps(tmp_path):
    path = tmp_path / "ledger.json"
    made = make(ledger=path)
    (release,) = Ledger(path).read()[1]
    assert (release.name, release.event) == (made.scales.name, made.scales.event)
    made.fit(verbose=0)
    assert made.steps_taken == 30
    assert Ledger(path).epsilon(delta=1e-3) == pytest.approx(made.epsilon)
    assert made.epsilon <= 3.0
    with pytest.raises(ValueError, match="the ledger holds 3 already"):
        make(ledger=path)
    assert len(Ledger(path).read()[1]) == 1  # nothing more was asked


def test_what_a_killed_program_asked_is_not_asked_again(tmp_path, monkeypatch):
    paths = {"ledger": tmp_path / "ledger.json", "remember": tmp_path / "plan.npz"}
    first = make(**paths)
    monkeypatch.setattr(module.PrivateScales, "fit", lambda *_, **__: pytest.fail("asked again"))
    again = make(**paths)
    assert again.plan == first.plan
    assert again.scales.clip_ == first.scales.clip_
    assert len(Ledger(paths["ledger"]).read()[1]) == 1
    # In another ledger the scales are not there yet.
    make(remember=paths["remember"], ledger=tmp_path / "other.json")
    assert len(Ledger(tmp_path / "other.json").read()[1]) == 1
    with pytest.raises(ValueError, match="does not fit: it is of a training with epochs=3, and not 4"):
        make(**{**paths, "epochs": 4})


def test_scales_are_written_down_before_they_are_asked(tmp_path, monkeypatch):
    path = tmp_path / "ledger.json"
    monkeypatch.setattr(module.PrivateScales, "fit", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        make(ledger=path)
    assert len(Ledger(path).read()[1]) == 1


@pytest.mark.parametrize(
    "given, width, expected",
    [
        ("sparse_categorical_crossentropy", 7, 7),
        (tf.keras.losses.CategoricalCrossentropy(), 4, 4),
        ("binary_crossentropy", 1, 2),
        (["mse", "sparse_categorical_crossentropy"], 5, 5),
        (tf.keras.losses.MeanSquaredError(), 3, 2),
        (lambda y, p: p, 3, 2),
    ],
)
def test_the_number_of_classes(given, width, expected):
    model = tf.keras.Sequential([tf.keras.Input([2]), layers.Dense(width)])
    assert module.classes_of(model, given, (tf.zeros([1, 2]), tf.zeros([1]))) == expected


def test_bad_arguments_are_named():
    model, both = models.softmax_regression(), data()
    for name, value in (
        ("batch_size", 401),
        ("batch_size", 0),
        ("epochs", 2.5),
        ("target_epsilon", 0.0),
        ("delta", -1.0),
        ("classes", 0),
        ("learning_rate", 0.0),
        ("accountant", "guess"),
        ("settings", 3),
        ("loss", None),
    ):
        expected = "expected_batch_size" if value == 401 else name
        with pytest.raises(ValueError, match=f"`{expected}`"):
            make_private(model, both, **{"loss": loss(), **PLAN, name: value})
    for bad in (both[0], (both[0],), (both[0][:0], both[1][:0]), (both[0], both[1][:5])):
        with pytest.raises(ValueError, match=r"`data`|`arrays`"):
            make_private(model, bad, loss=loss(), **PLAN)
    with pytest.raises(ValueError, match="`model` must be a Keras model"):
        make_private("model", both, loss=loss(), **PLAN)
    mixing = tf.keras.Sequential([tf.keras.Input([4]), layers.BatchNormalization(), layers.Dense(3)])
    with pytest.raises(ValueError, match="mixes the examples of a batch"):
        make_private(mixing, both, loss=loss(), **PLAN)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"compile_arguments": 3}, "`compile_arguments` must be a dict"),
        ({"compile_arguments": {"optimizer": "sgd"}}, "may not hold 'optimizer'"),
        ({"compile_arguments": {"loss": "mse"}}, "may not hold 'loss'"),
        ({"compile_arguments": {"run_eagerly": True}}, "run_eagerly=True"),
        ({"verbose": "no"}, "`verbose` must be True or False"),
        pytest.param(
            {"remember": "/dev/null/scales.npz"}, "`remember`='/dev/null/scales.npz' cannot be written", id="remember"
        ),
        ({"ledger": "/dev/null/ledger.json"}, "`ledger`='/dev/null/ledger.json' c"),
        ({"statement_path": "/dev/null/privacy"}, "`statement_path`='/dev/null/privacy.json' cannot be written"),
    ],
)
def test_what_is_wrong_is_told_before_the_data_is_asked(monkeypatch, options, words):
    """What was asked is paid for, and lost with the error."""
    monkeypatch.setattr(module.PrivateScales, "fit", lambda *_, **__: pytest.fail("the data was asked"))
    with pytest.raises(ValueError, match=re.escape(words)):
        make(**options)


def test_inputs_that_the_model_can_not_take_are_told():
    texts = np.array([["a"] * 4] * 400), data()[1]
    with pytest.raises(ValueError, match="`model` can't be called with the first example of `data`"):
        make_private(models.softmax_regression(), texts, loss=loss(), **PLAN)


def test_texts_for_labels_are_refused_before_the_data_is_asked(monkeypatch):
    monkeypatch.setattr(module.PrivateScales, "fit", lambda *_, **__: pytest.fail("the data was asked"))
    texts = data()[0], np.array(["yes", "no"] * 200)
    with pytest.raises(ValueError, match="`data` has texts for labels"):
        make_private(models.softmax_regression(), texts, loss=loss(), **PLAN)


def test_fit_takes_one_callback_and_no_data():
    """Errors may be read by others: none shows rows."""
    made = make()
    with pytest.raises(ValueError, match="`fit` takes no data") as caught:
        made.fit(*data())
    assert str(data()[0][0, 0])[:5] not in str(caught.value)
    ended = tf.keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: setattr(made.model, "stop_training", True)
    )
    assert made.fit(callbacks=ended, verbose=0).epoch == [0]


def test_a_loss_that_takes_logits_for_probabilities_is_told():
    """Keras cuts them off at 1e-7, so most gradients are 0."""
    inputs, _ = models.data(400)
    model = tf.keras.Sequential([tf.keras.Input([4]), layers.Dense(1, kernel_initializer="zeros")])
    made = make_private(model, (inputs, inputs[:, 0] > 0), loss="binary_crossentropy", **PLAN)
    assert "outputs are logits" in " ".join(made.summary().split())


def test_an_optimizer_that_is_not_private_is_told_of():
    made = make()
    made.model.compile("sgd", loss())
    with pytest.raises(ValueError, match="needs an `optimizer` that counts its noised steps"):
        made.fit()


def test_a_model_whose_scales_were_asked_is_not_prepared_again():
    """One epsilon would be told for two warm-ups."""
    made = make()
    with pytest.raises(ValueError, match="was prepared by `make_private`"):
        make(made.model)


def test_a_model_that_has_taken_private_steps_is_refused(trained):
    made, _ = trained
    with pytest.raises(ValueError, match=r"`model` has taken \d+ noised steps, which this call would not count"):
        make(made.model)


def test_regression_and_zero_outputs_are_told():
    """Squared error names what the targets should be like; a zero output hides the layer below."""
    inputs, _ = models.data(2000)
    model = tf.keras.Sequential(
        [tf.keras.Input([4]), layers.Dense(30, activation="tanh"), layers.Dense(1, kernel_initializer="zeros")]
    )
    made = make_private(model, (inputs, inputs[:, 0]), loss="mean_squared_error", **{**PLAN, "delta": 1e-4})
    words = " ".join(made.summary().split())
    assert "variance of about 1" in words
    assert len(made.scales.unseen_) >= 1
    assert "start it at small random weights" in words
    assert np.isfinite(made.scales.clip_)
