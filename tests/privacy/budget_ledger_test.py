"""`PrivacyBudget(..., ledger=path)` in real training: nothing that was spent is forgotten."""

import json
import os
import signal
import subprocess
import sys
import types

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf

import adaclip_tf
from adaclip_tf import DPFixedClipSGD, Ledger, PrivacyBudget, PrivacyBudgetSpentError, poisson_batches
from adaclip_tf.privacy import accountants, events, run_checks
from adaclip_tf.privacy import ledger as ledger_lib
from adaclip_tf.privacy.mechanism import Mechanism
from tests import generations, models
from tests.optimizers import pool

N, BATCH, DELTA, Z, PER_EPOCH = 32, 4, 1e-3, 2.0, 6
STEP = Mechanism(Z, N, BATCH)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.json"


def optimizer(z=Z):
    return DPFixedClipSGD(0.1, l2_norm_clip=1.0, noise_multiplier=z, expected_batch_size=BATCH)


def made(model=None, z=Z, **options):
    model = model or models.softmax_regression()
    model.compile(optimizer(z), models.per_example_loss(), **options)
    return model


_POOL = pool.Pool(made)
compiled = _POOL.take


@pytest.fixture(autouse=True)
def _begin():
    _POOL.begin()


def batches(steps=PER_EPOCH):
    return poisson_batches(models.data(N), expected_batch_size=BATCH, steps=steps)


def fit(model, path, *more, epochs=1, steps=PER_EPOCH, first=(), **options):
    budget = PrivacyBudget.of(batches(), delta=DELTA, ledger=path, **options)
    history = model.fit(batches(steps), epochs=epochs, verbose=0, callbacks=[*first, budget, *more]).history
    return history["epsilon"], budget


def epsilon(*parts):
    """Of (mechanism, steps) pairs and events together."""
    paid = [part if isinstance(part, dp_accounting.DpEvent) else part[0].event(steps=part[1]) for part in parts]
    return pytest.approx(adaclip_tf.epsilon_of(dp_accounting.ComposedDpEvent(paid), delta=DELTA), rel=1e-9)


def spent(path):
    return Ledger(path).epsilon(delta=DELTA)


class StopAt(tf.keras.callbacks.Callback):
    """Raises, after so many batches of the second epoch."""

    def __init__(self, batch, error=KeyboardInterrupt):
        super().__init__()
        self._batch, self._error, self._epoch = batch, error, 0

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if self._epoch == 1 and batch + 1 == self._batch:
            raise self._error


# ---------------------------------------------------------------------------------------------------
# Phases.


def test_stopping_and_resuming_is_one_run(path, tmp_path):
    model = compiled()
    assert fit(model, path, epochs=2)[0] == [epsilon((STEP, 6)), epsilon((STEP, 12))]
    model.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    shown, budget = fit(loaded, path)
    assert shown == [epsilon((STEP, 18))]
    assert spent(path) == budget.epsilon == epsilon((STEP, 18))
    (phase,) = Ledger(path).read()[0]
    assert (phase.steps, phase.open, phase.optimizer) == (18, False, "DPFixedClipSGD")


def test_freezing_layers_and_a_new_optimizer_forget_nothing(path):
    model = made(models.mlp())
    fit(model, path)
    model.layers[0].trainable = False
    made(model, z=5.0)
    assert fit(model, path)[0] == [epsilon((STEP, 6), (Mechanism(5.0, N, BATCH), 6))]
    assert len(Ledger(path).read()[0]) == 2


def test_weights_loaded_alone_forget_nothing(path):
    model = compiled()
    fit(model, path)
    other = compiled()
    other.set_weights(model.get_weights())
    assert fit(other, path)[0] == [epsilon((STEP, 12))]


@generations.keras2_only  # Keras 3 has no such format
@pytest.mark.slow
def test_a_saved_model_format_that_drops_the_state_forgets_nothing(path, tmp_path):
    model = compiled()
    fit(model, path)
    model.save(tmp_path / "saved_model")
    loaded = tf.keras.models.load_model(tmp_path / "saved_model")
    assert fit(loaded, path)[0] == [epsilon((STEP, 12))]


def test_other_events_are_written_down_with_it(path):
    pca = events.gaussian_event(6.0)
    model = compiled()
    for steps in (6, 12):
        assert fit(model, path, other_event=pca)[0] == [epsilon(pca, (STEP, steps))]
    assert fit(compiled(), path)[0] == [epsilon(pca, (STEP, 18))]
    assert spent(path) == epsilon(pca, (STEP, 18))


def test_what_was_trained_without_the_ledger_is_added(path):
    model = compiled()
    model.fit(batches(), verbose=0)
    assert fit(model, path)[0] == [epsilon((STEP, 12))]
    model.fit(batches(), verbose=0)
    assert fit(model, path)[0] == [epsilon((STEP, 24))]


def test_epsilon_can_be_asked_for_outside_of_training(path):
    pca = events.gaussian_event(6.0)
    model = compiled()
    fit(model, path, other_event=pca)
    fit(compiled(), path)
    for other_event in (None, pca):
        budget = PrivacyBudget.of(batches(), delta=DELTA, ledger=path, other_event=other_event)
        budget.set_model(model)
        assert budget.epsilon == epsilon(pca, (STEP, 12))
        budget.set_model(compiled())
    assert budget.epsilon == epsilon(pca, pca, (STEP, 12))  # another optimizer would pay for its own
    model.fit(batches(), verbose=0)
    budget.set_model(model)
    assert budget.epsilon == epsilon(pca, (STEP, 18))


def test_the_target_is_for_all_together(path):
    fit(compiled(), path)
    target = adaclip_tf.epsilon(noise_multiplier=Z, num_examples=N, batch_size=BATCH, delta=DELTA, steps=20) * 1.0001
    second = compiled()
    fit(second, path, epochs=9, target_epsilon=target)
    assert int(second.optimizer.noised_steps) == 14
    third = compiled()
    with pytest.raises(PrivacyBudgetSpentError, match=r"0 noised steps have cost.*allows 0 in all"):
        fit(third, path, target_epsilon=target)
    assert int(third.optimizer.noised_steps) == 0
    assert spent(path) <= target
    fit(third, path)  # and the lock is free


def test_the_statement_is_of_all_together(path, tmp_path, monkeypatch):
    monkeypatch.delitem(accountants.REGISTERED, "pld")  # which takes seconds
    fit(compiled(), path)
    fit(compiled(), path, statement_path=tmp_path / "privacy")
    report = json.loads((tmp_path / "privacy.json").read_text())
    assert report["guarantee"] == {"rdp": epsilon((STEP, 12))}
    assert report["steps"] == 6
    assert "count=6" in report["includes_other_event"]


# ---------------------------------------------------------------------------------------------------
# Killed, interrupted, restored.


def test_a_step_is_written_down_before_it_is_taken(path):
    seen = []

    class Watch(tf.keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            (phase,) = Ledger(path).read()[0]
            seen.append((int(self.model.optimizer.noised_steps), phase.steps, phase.open))

    fit(compiled(), path, Watch(), epochs=2)
    assert all(open and written > taken for taken, written, open in seen)
    assert [written for _, written, _ in seen] == [6] * 6 + [12] * 6


@pytest.mark.parametrize("per_call,written", [(1, 3), (4, 4)])
def test_long_epochs_are_written_down_in_blocks(path, monkeypatch, per_call, written):
    monkeypatch.setattr("adaclip_tf.privacy.session.BLOCK", 3)
    seen = []

    class Watch(tf.keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            seen.append(Ledger(path).read()[0][0].steps)

    fit(made(steps_per_execution=per_call), path, Watch(), steps=12)
    assert seen[0] == written
    assert seen[-1] == 12


def test_an_epoch_of_unknown_length_is_written_down_too(path, monkeypatch):
    model = compiled()
    budget = PrivacyBudget(num_examples=N, batch_size=BATCH, delta=DELTA, ledger=path)
    seen = []

    class Watch(tf.keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            seen.append(Ledger(path).read()[0][0].steps)

    drawn = batches()
    unknown = tf.data.Dataset.from_generator(lambda: iter(drawn), output_signature=drawn.element_spec)
    model.fit(unknown, verbose=0, callbacks=[budget, Watch()])
    assert seen == [ledger_lib.BLOCK] * 7  # Keras asks for a seventh batch before it finds the end
    assert spent(path) == epsilon((STEP, 6))


def test_an_interrupted_run_goes_on_in_the_same_program(path):
    model = compiled()
    budget = PrivacyBudget.of(batches(), delta=DELTA, ledger=path)
    with pytest.raises(KeyboardInterrupt):
        model.fit(batches(), epochs=9, verbose=0, callbacks=[budget, StopAt(2)])
    assert spent(path) == epsilon((STEP, 12))  # reserved
    assert int(model.optimizer.noised_steps) == 8
    history = model.fit(batches(), verbose=0, callbacks=[budget]).history
    # One more than was taken: an interrupt can hit a call that is not seen to have ended.
    assert history["epsilon"] == [epsilon((STEP, 15))]


def test_an_old_state_that_was_restored_after_an_interrupt_is_paid_for_again(path, tmp_path):
    model = compiled()
    fit(model, path)
    backup = tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    budget = PrivacyBudget.of(batches(), delta=DELTA, ledger=path)
    with pytest.raises(KeyboardInterrupt):
        model.fit(batches(), epochs=9, verbose=0, callbacks=[budget, StopAt(2)])
    tf.train.Checkpoint(model=model).restore(backup)
    history = model.fit(batches(), verbose=0, callbacks=[budget]).history
    assert history["epsilon"] == [epsilon((STEP, 6 + 8 + 1 + 6))]


PROGRAM = """
import os, signal, sys
import tensorflow as tf
from tests.privacy import budget_ledger_test as test

class Kill(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.noised_steps) == int(sys.argv[3]):
            os.kill(os.getpid(), 9)

backup = tf.keras.callbacks.BackupAndRestore(sys.argv[2], delete_checkpoint=False)
shown, budget = test.fit(test.made(), sys.argv[1], backup, Kill(), epochs=4)
print(budget.epsilon)
"""


@pytest.mark.slow
def test_killed_and_resumed_counts_all_that_may_have_been_taken(path, tmp_path):
    def program(kill_at):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, "-c", PROGRAM, str(path), str(tmp_path / "backup"), str(kill_at)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert program(9).returncode == -signal.SIGKILL
    assert Ledger(path).read()[0][0].steps == 12  # nine taken, an epoch reserved
    assert program(14).returncode == -signal.SIGKILL  # resumed at 6: eight more
    assert Ledger(path).read()[0][0].steps == 12 + 12
    finished = program(-1)
    assert finished.returncode == 0, finished.stderr
    assert float(finished.stdout.split()[-1]) == epsilon((STEP, 12 + 12 + 12))
    assert spent(path) == epsilon((STEP, 36))


@pytest.mark.slow
def test_a_backup_continues_its_phase_wherever_it_is_in_the_list(path, tmp_path):
    def backup():
        return tf.keras.callbacks.BackupAndRestore(tmp_path / "backup", delete_checkpoint=False)

    with pytest.raises(KeyboardInterrupt):
        fit(made(), path, backup(), StopAt(1), epochs=9)
    # The epoch that was reserved, and the one that was taken in its place.
    assert fit(made(), path, first=[backup()], epochs=2)[0] == [epsilon((STEP, 6 + 6 + 6))]
    assert fit(made(), path, backup(), epochs=3)[0] == [epsilon((STEP, 24))]
    assert len(Ledger(path).read()[0]) == 1


def test_a_state_that_is_older_than_the_ledger_is_refused(path, tmp_path):
    model = compiled()
    fit(model, path)
    backup = tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    fit(model, path)
    tf.train.Checkpoint(model=model).restore(backup)
    for target in (model, compiled()):
        tf.train.Checkpoint(model=target).restore(backup)
        with pytest.raises(ValueError, match=r"counts 6 noised steps, and `ledger`=.* has 12 of this phase"):
            fit(target, path)
        assert int(target.optimizer.noised_steps) == 6
    assert fit(model, path, new_phase=True)[0] == [epsilon((STEP, 18))]
    assert len(Ledger(path).read()[0]) == 2
    assert fit(model, path)[0] == [epsilon((STEP, 24))]  # which it goes on with
    assert len(Ledger(path).read()[0]) == 2


def test_a_state_restored_in_the_middle_of_training_is_paid_for_again(path, tmp_path):
    model = compiled()
    fit(model, path)
    backup = tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))

    class Rewind(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 0:
                tf.train.Checkpoint(model=model).restore(backup)

    shown, _ = fit(model, path, Rewind(), epochs=2)
    assert int(model.optimizer.noised_steps) == 12
    assert shown[-1] == epsilon((STEP, 18))
    assert spent(path) == epsilon((STEP, 18))


def test_a_phase_that_is_restored_lazily_in_the_first_step_is_found(path, tmp_path):
    class Net(tf.keras.Model):
        """Has no variables before it has seen data."""

        def __init__(self):
            super().__init__()
            self.dense = tf.keras.layers.Dense(models.CLASSES)

        def call(self, inputs):
            return self.dense(inputs)

    first = made(Net())
    fit(first, path)
    backup = tf.train.Checkpoint(model=first).write(str(tmp_path / "checkpoint"))
    second = made(Net())
    tf.train.Checkpoint(model=second).restore(backup)
    assert fit(second, path)[0] == [epsilon((STEP, 12))]
    assert {phase.steps for phase in Ledger(path).read()[0]} == {0, 12}
    assert spent(path) == epsilon((STEP, 12))


# ---------------------------------------------------------------------------------------------------
# Refused.


def test_other_numbers_for_the_same_phase_are_refused(path):
    model = compiled()
    fit(model, path)
    budget = PrivacyBudget(num_examples=N + 1, batch_size=BATCH, delta=DELTA, ledger=path)
    with pytest.raises(ValueError, match="has this phase with num_examples=32, and now it is 33"):
        data = models.out_of_sight(tf.data.Dataset.from_tensor_slices(models.data(N)).batch(BATCH))
        model.fit(data, verbose=0, callbacks=[budget])
    assert spent(path) == epsilon((STEP, 6))


def test_steps_that_were_worse_than_said_are_worse_in_the_ledger(path):
    model = models.mlp()
    model.compile(
        DPFixedClipSGD(0.1, l2_norm_clip=1.0, noise_multiplier=Z, num_microbatches=BATCH), models.per_example_loss()
    )
    budget = PrivacyBudget(num_examples=N, batch_size=BATCH, delta=DELTA, sampling="shuffled", ledger=path)
    dataset = tf.data.Dataset.from_tensor_slices(models.data(N)).repeat(2).batch(2 * BATCH)
    dataset = models.out_of_sight(dataset)
    with pytest.raises(ValueError, match="a microbatch has held several"):
        model.fit(dataset, verbose=0, callbacks=[budget])
    worse = Mechanism(Z, N, 2 * BATCH, "shuffled", 2.0)
    assert Ledger(path).read()[0][0].mechanism == worse
    assert spent(path) == epsilon((worse, 1))
    budget = PrivacyBudget(num_examples=N, batch_size=2 * BATCH, delta=DELTA, sampling="shuffled", ledger=path)
    with pytest.raises(ValueError, match="the last one was broken off"):
        model.fit(dataset, verbose=0, callbacks=[budget])
    assert spent(path) == epsilon((worse, 1))


def test_a_ledger_that_cannot_be_used_is_told_before_training(tmp_path):
    (tmp_path / "damaged.json").write_text("{}")
    with pytest.raises(ValueError, match="damaged"):
        PrivacyBudget.of(batches(), delta=DELTA, ledger=tmp_path / "damaged.json")
    (tmp_path / "file").write_text("")
    model = compiled()
    with pytest.raises(ValueError, match=r"`ledger`=.* can"):
        fit(model, tmp_path / "file" / "ledger.json")
    with pytest.raises(ValueError, match="new_phase"):
        PrivacyBudget.of(batches(), delta=DELTA, ledger=tmp_path / "l.json", new_phase="yes")


def test_several_workers_are_refused(path):
    extended = types.SimpleNamespace(_in_multi_worker_mode=lambda: True)
    model = types.SimpleNamespace(distribute_strategy=types.SimpleNamespace(extended=extended))
    with pytest.raises(ValueError, match=r"`ledger` is for a training in one process.*Ledger\.add"):
        run_checks.check_files(model, None, Ledger(path))


def test_a_full_disk_stops_training_before_the_step(path, monkeypatch):
    model = compiled()
    fit(model, path)
    before = [weights.copy() for weights in model.get_weights()]

    def full(_):
        raise OSError("no space left on device")

    budget = PrivacyBudget.of(batches(), delta=DELTA, ledger=path)

    class Fill(tf.keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(OSError, match="no space"):
        model.fit(batches(), verbose=0, callbacks=[budget, Fill()])
    assert int(model.optimizer.noised_steps) == 6
    for one, other in zip(before, model.get_weights()):
        np.testing.assert_array_equal(one, other)
