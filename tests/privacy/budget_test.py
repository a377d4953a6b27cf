"""Tests of `PrivacyBudget` inside real training: Keras `fit`, the real optimizer, real files."""

import doctest
import json
import re

import numpy as np
import pytest
import tensorflow as tf

import adaclip_tf
from adaclip_tf.data import sampling
from adaclip_tf.privacy import accountants, budget, curve, events, group
from adaclip_tf.privacy.mechanism import Mechanism
from tests import generations, models

N, BATCH, DELTA, Z = 200, 10, 1e-4, 2.0
WHERE = {"num_examples": N, "batch_size": BATCH, "delta": DELTA}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, 3)).astype(np.float32), rng.normal(size=(N, 1)).astype(np.float32)


def make_model(steps_per_execution=1, **options):
    options = {"noise_multiplier": Z, "expected_batch_size": BATCH, **options}
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,))])
    model.compile(
        adaclip_tf.DPAdaClipSGD(0.01, **options),
        tf.keras.losses.MeanSquaredError(reduction="none"),
        steps_per_execution=steps_per_execution,
    )
    return model


@pytest.fixture(scope="module")
def traced_model():
    return make_model()


@pytest.fixture
def fresh(traced_model):
    return models.forget_steps(traced_model)


def batches(data, steps=8, parts=1):
    return sampling.poisson_batches(data, expected_batch_size=BATCH, steps=steps, seed=0, accumulation_steps=parts)


def fit(model, dataset, *callbacks, epochs=3, **options):
    return model.fit(dataset, epochs=epochs, callbacks=list(callbacks), **{"verbose": 0, **options}).history


def taken(model):
    return int(model.optimizer.noised_steps)


def epsilon_after(steps, **options):
    return adaclip_tf.epsilon(noise_multiplier=Z, **WHERE, **options, steps=steps)


def target_between(steps, **options):
    """A target that `steps` steps stay within and one more would pass."""
    return (epsilon_after(steps, **options) + epsilon_after(steps + 1, **options)) / 2


class Batches(tf.keras.callbacks.Callback):
    """Records the logs of every batch."""

    def __init__(self):
        super().__init__()
        self.epsilons = []

    def on_train_batch_end(self, batch, logs=None):
        self.epsilons.append(logs.get("epsilon"))


# ---------------------------------------------------------------------------------------------------
# Showing.


def test_history_holds_the_epsilon_after_each_epoch(data, fresh):
    history = fit(fresh, batches(data), budget.PrivacyBudget(**WHERE))
    assert history["epsilon"] == pytest.approx([epsilon_after(steps) for steps in (8, 16, 24)], rel=1e-6)


def test_progress_bar_shows_the_epoch_s_epsilon(data, fresh, capsys):
    fit(fresh, batches(data), budget.PrivacyBudget(**WHERE), verbose=1, epochs=2)
    shown = re.findall(r"epsilon: (\d+\.\d+)", capsys.readouterr().out)
    assert set(shown) == {f"{epsilon_after(steps):.4f}" for steps in (8, 16)}


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_batches_never_show_less_than_the_truth(data, fresh, accountant):
    seen = Batches()
    fit(fresh, batches(data, steps=4), budget.PrivacyBudget(**WHERE, accountant=accountant), seen, epochs=2)
    ends = [epsilon_after(steps, accountant=accountant) for steps in (4, 8)]
    assert seen.epsilons == pytest.approx([ends[0]] * 4 + [ends[1]] * 4, rel=1e-6)


def test_data_of_unknown_length(data, fresh):
    seen = Batches()
    drawn = batches(data, steps=4)
    unknown = tf.data.Dataset.from_generator(lambda: iter(drawn), output_signature=drawn.element_spec)
    history = fit(fresh, unknown, budget.PrivacyBudget(**WHERE), seen, epochs=2)
    assert history["epsilon"] == pytest.approx([epsilon_after(4), epsilon_after(8)], rel=1e-6)
    assert seen.epsilons[:4] == [None] * 4
    assert seen.epsilons[4:] == [pytest.approx(epsilon_after(8), rel=1e-6)] * 4


# ---------------------------------------------------------------------------------------------------
# Stopping.


@pytest.mark.parametrize("last", [1, 8, 9, 20])
def test_stops_before_the_step_that_would_pass_the_target(data, fresh, last):
    target = target_between(last)
    history = fit(fresh, batches(data), budget.PrivacyBudget(**WHERE, target_epsilon=target))
    assert taken(fresh) == last
    assert history["epsilon"][-1] <= target


def test_stops_in_time_by_pld(data, fresh):
    target = target_between(11, accountant="pld")
    fit(fresh, batches(data), budget.PrivacyBudget(**WHERE, target_epsilon=target, accountant="pld"))
    assert taken(fresh) == 11


def test_several_steps_per_execution_never_overshoot(data):
    model = make_model(steps_per_execution=3)
    model.optimizer.build(model.trainable_variables)
    for last, expected in ((12, 12), (13, 12), (14, 12), (15, 15)):
        for count in (model.optimizer.noised_steps, model.optimizer.iterations):
            count.assign(0)
        fit(model, batches(data, steps=9), budget.PrivacyBudget(**WHERE, target_epsilon=target_between(last)))
        assert taken(model) == expected
    # An epoch of 4 in executions of 3 and 1: after the lone step, 3 more would pass a target of 6.
    for count in (model.optimizer.noised_steps, model.optimizer.iterations):
        count.assign(0)
    fit(model, batches(data, steps=4), budget.PrivacyBudget(**WHERE, target_epsilon=target_between(6)))
    assert taken(model) == 4


def test_a_logical_batch_is_one_step(data):
    model = make_model(steps_per_execution=2, accumulation_steps=2)
    history = fit(
        model,
        batches(data, steps=4, parts=2),
        budget.PrivacyBudget(**WHERE, target_epsilon=target_between(7)),
    )
    assert taken(model) == 7
    assert history["epsilon"] == pytest.approx([epsilon_after(4), epsilon_after(7)], rel=1e-6)


def test_a_spent_budget_takes_no_step(data, fresh):
    model = fresh
    callback = budget.PrivacyBudget(**WHERE, target_epsilon=target_between(5))
    fit(model, batches(data), callback)
    before = model.get_weights()
    for again in (callback, budget.PrivacyBudget(**WHERE, target_epsilon=target_between(5))):
        with pytest.raises(budget.PrivacyBudgetSpentError, match="5 noised steps have cost epsilon"):
            fit(model, batches(data), again)
        assert taken(model) == 5
        np.testing.assert_array_equal(before[0], model.get_weights()[0])


@pytest.mark.parametrize("options", [{"noise_multiplier": 0.0}, {"noise_multiplier": 0.3}])
@pytest.mark.filterwarnings("ignore:.*noise_multiplier")
def test_a_target_that_allows_nothing_takes_no_step(data, options):
    model = make_model(**options)
    with pytest.raises(budget.PrivacyBudgetSpentError, match="allows 0 in all"):
        fit(model, batches(data), budget.PrivacyBudget(**WHERE, target_epsilon=0.5))
    assert taken(model) == 0


def test_more_steps_per_execution_than_the_budget_allows(data):
    model = make_model(steps_per_execution=8)
    with pytest.raises(budget.PrivacyBudgetSpentError, match="steps_per_execution"):
        fit(model, batches(data), budget.PrivacyBudget(**WHERE, target_epsilon=target_between(5)))
    assert taken(model) == 0


def test_what_else_was_spent_counts(data, fresh):
    other = events.gaussian_event(4.0)
    step = Mechanism(Z, N, BATCH)
    together = curve.EpsilonCurve(step, delta=DELTA, other_event=other)
    target = (together(13) + together(14)) / 2
    callback = budget.PrivacyBudget(**WHERE, target_epsilon=target, other_event=other)
    fit(fresh, batches(data), callback)
    assert taken(fresh) == 13
    assert curve.EpsilonCurve(step, delta=DELTA).largest_steps(target) > 13
    assert callback.remaining_steps == 0
    assert callback.epsilon == together(13)


# ---------------------------------------------------------------------------------------------------
# Resuming.


def test_resumes_from_a_checkpoint(data, fresh, tmp_path):
    first = fresh
    fit(first, batches(data), epochs=2)
    path = tf.train.Checkpoint(model=first, optimizer=first.optimizer).save(str(tmp_path / "checkpoint"))
    for last in (16, 19):
        model = make_model()
        tf.train.Checkpoint(model=model, optimizer=model.optimizer).restore(path)
        callback = budget.PrivacyBudget(**WHERE, target_epsilon=target_between(last))
        if last == 16:
            with pytest.raises(budget.PrivacyBudgetSpentError):
                fit(model, batches(data), callback)
        else:
            fit(model, batches(data), callback)
        assert taken(model) == last


def test_resumes_from_a_saved_model(data, fresh, tmp_path):
    first = fresh
    fit(first, batches(data), epochs=1)
    first.save(tmp_path / "model.keras")
    model = tf.keras.models.load_model(tmp_path / "model.keras")
    fit(model, batches(data), budget.PrivacyBudget(**WHERE, target_epsilon=target_between(13)))
    assert taken(model) == 13


def test_resumes_with_backup_and_restore_that_comes_after_it(data, tmp_path):
    class Killed(tf.keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    def backup():
        return tf.keras.callbacks.BackupAndRestore(tmp_path / "backup")

    with pytest.raises(KeyboardInterrupt):
        fit(make_model(), batches(data), backup(), Killed(), epochs=9)
    model = make_model()
    callback = budget.PrivacyBudget(**WHERE, target_epsilon=target_between(21))
    fit(model, batches(data), callback, backup(), epochs=9)
    assert taken(model) == 21


# ---------------------------------------------------------------------------------------------------
# Cost.


def test_epochs_cost_one_conversion_each(data, fresh, monkeypatch):
    analysed, converted = [], []
    prepare, convert = accountants.Rdp.prepare, group.group_epsilon
    monkeypatch.setattr(accountants.Rdp, "prepare", lambda *args: analysed.append(args) or prepare(*args))
    monkeypatch.setattr(group, "group_epsilon", lambda *args: converted.append(args) or convert(*args))
    epochs = 12
    callback = budget.PrivacyBudget(**WHERE)
    fit(fresh, batches(data, steps=5), callback, epochs=epochs)
    assert len(analysed) == 1
    assert len(converted) == epochs  # the one shown in its batches is the one at its end


# ---------------------------------------------------------------------------------------------------
# The statement.


def test_writes_the_statement_beside_the_model(data, fresh, tmp_path):
    class Watch(tf.keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.steps = []

        def on_epoch_end(self, epoch, logs=None):
            report = json.loads((tmp_path / "model.privacy.json").read_text())
            self.steps.append((report["steps"], list(report["guarantee"])))

    callback = budget.PrivacyBudget(
        **WHERE, target_epsilon=target_between(12), statement_path=tmp_path / "model.privacy"
    )
    watch = Watch()
    fit(fresh, batches(data), callback, watch)
    assert watch.steps == [(8, ["rdp"]), (12, ["rdp"])]
    report = json.loads((tmp_path / "model.privacy.json").read_text())
    assert report["guarantee"] == {
        name: pytest.approx(epsilon_after(12, accountant=name), rel=1e-9) for name in ("rdp", "pld")
    }
    assert "12 noised steps" in (tmp_path / "model.privacy.txt").read_text()


# ---------------------------------------------------------------------------------------------------
# Refusals and warnings.


def test_batch_sizes_that_differ_are_refused(data):
    with pytest.raises(ValueError, match="`expected_batch_size` is 20 and PrivacyBudget's `batch_size` is 10"):
        fit(make_model(expected_batch_size=20), batches(data), budget.PrivacyBudget(**WHERE))


def test_a_logical_batch_across_epochs_is_refused(data):
    with pytest.raises(ValueError, match="not a multiple of the optimizer's `accumulation_steps`=2"):
        odd = tf.data.Dataset.from_tensor_slices(data).batch(WHERE["batch_size"]).take(1).repeat(7)
        odd = models.out_of_sight(odd)
        fit(make_model(accumulation_steps=2), odd, budget.PrivacyBudget(**WHERE))


def test_another_optimizer_is_refused(data):
    model = make_model()
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="an `optimizer` that counts its noised steps, such as DPAdaClipSGD; got SGD"):
        fit(model, batches(data), budget.PrivacyBudget(**WHERE))


@generations.keras2_only
def test_automatic_steps_per_execution_is_refused(data):
    model = make_model()
    model.autotune_steps_per_execution = True
    with pytest.raises(ValueError, match="steps_per_execution='auto'"):
        fit(model, batches(data), budget.PrivacyBudget(**WHERE))


def test_shared_microbatches_and_shuffled_batches_are_paid_for(data):
    model = make_model(num_microbatches=5)
    dataset = tf.data.Dataset.from_tensor_slices(data).shuffle(N).batch(BATCH)
    history = fit(model, dataset, budget.PrivacyBudget(**WHERE, sampling="shuffled"), epochs=2)
    paid = [events.gaussian_event(Z / 2.0, epochs) for epochs in (1, 2)]
    assert history["epsilon"] == pytest.approx([adaclip_tf.epsilon_of(e, delta=DELTA) for e in paid], rel=1e-6)
    for count in (model.optimizer.noised_steps, model.optimizer.iterations):
        count.assign(0)
    with pytest.warns(UserWarning, match="fixed beforehand"):
        history = fit(model, models.out_of_sight(dataset), budget.PrivacyBudget(**WHERE), epochs=1)
    assert history["epsilon"] == [pytest.approx(epsilon_after(20, microbatch_sensitivity=2.0), rel=1e-6)]


@pytest.mark.parametrize(
    "change,message",
    [
        ({"target_epsilon": 0.0}, "target_epsilon"),
        ({"delta": 2.0}, "delta"),
        ({"batch_size": N + 1}, "batch_size"),
        ({"accountant": "gdp"}, "accountant"),
        ({"sampling": "uniform"}, "sampling"),
        ({"examples_per_user": 0}, "examples_per_user"),
    ],
)
def test_bad_arguments_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        budget.PrivacyBudget(**{**WHERE, **change})


def test_examples_in_the_docstrings():
    names = {"poisson_batches": sampling.poisson_batches, "x": np.zeros((20, 2)), "y": np.zeros(20)}
    assert doctest.testmod(budget, extraglobs=names).failed == 0
