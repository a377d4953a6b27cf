"""State survives saving, loading, checkpoints, and being killed."""

import copy
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import DPAdaClipSGD, DPFixedClip, DPFixedClipSGD
from adaclip_tf._internal import keras
from adaclip_tf.optimizers import checks
from tests import generations, models

ROOT = pathlib.Path(__file__).parents[2]


def _optimizer(**arguments):
    settings = {"noise_multiplier": 0.0, "learning_rate": 0.5, "momentum": 0.9, "initial_std": 0.1, "h2": 0.1}
    return DPAdaClipSGD(**{**settings, **arguments})


def _state(optimizer):
    return [variable.numpy() for variable in optimizer.variables]


@generations.keras3_only
def test_an_h5_file_of_keras_3_is_refused_since_it_loses_the_count_of_steps(tmp_path):
    inputs, labels = models.data(8)
    models.fit(models.mlp(), _optimizer(), inputs, labels, 4).save(str(tmp_path / "model.h5"))
    with pytest.raises(ValueError, match=r"save as `\.keras`"):
        tf.keras.models.load_model(str(tmp_path / "model.h5"))
    tf.keras.models.load_model(str(tmp_path / "model.h5"), compile=False)


@pytest.mark.parametrize("name", ["model.keras", pytest.param("model.h5", marks=generations.keras2_only)])
def test_a_loaded_model_goes_on_where_the_saved_one_stopped(name, tmp_path):
    inputs, labels = models.data(8)
    model = models.fit(models.mlp(), _optimizer(), inputs, labels, 4, 2)
    model.save(str(tmp_path / name))
    loaded = tf.keras.models.load_model(str(tmp_path / name))
    assert type(loaded.optimizer) is DPAdaClipSGD
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    for ours, theirs in zip(_state(model.optimizer), _state(loaded.optimizer)):
        np.testing.assert_array_equal(ours, theirs)
    assert int(loaded.optimizer.noised_steps) == 4
    for m in (model, loaded):
        m.fit(inputs, labels, batch_size=4, shuffle=False, verbose=0)
    for ours, theirs in zip(model.get_weights(), loaded.get_weights()):
        np.testing.assert_array_equal(ours, theirs)


_COPIES = (copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value)))  # noqa: S301


@pytest.mark.parametrize("make", [_optimizer, lambda: DPFixedClip("adam", l2_norm_clip=1.0, noise_multiplier=0.0)])
def test_a_model_and_its_optimizer_are_copied_before_the_first_step(make):
    model = models.mlp()
    model.compile(make(), models.per_example_loss())
    copied = copy.deepcopy(model)
    copied.fit(*models.data(8), batch_size=4, verbose=0)
    assert int(copied.optimizer.noised_steps) == 2
    for copies in _COPIES:
        assert copies(model.optimizer).get_config() == model.optimizer.get_config()
        with pytest.raises(ValueError, match="copy or save the model"):
            copies(copied.optimizer)
    again = copy.deepcopy(copied)
    assert int(again.optimizer.noised_steps) == 2


def test_an_optimizer_that_has_trained_is_not_taken_for_a_new_one():
    """What plain SGD saves is as short as what a private optimizer saves that was never built; its count tells."""
    assert checks.is_of_new_optimizer([np.int64(0), np.float32(0.1)])
    assert checks.is_of_new_optimizer([np.int64(0)])
    for values in ([], [np.int64(3), np.float32(0.1)], [np.int64(0), np.zeros([2])], [np.int64(0)] * 3):
        assert not checks.is_of_new_optimizer(values)


@generations.keras2_only
def test_keras_saved_model_format_drops_optimizer_state_and_says_so(tmp_path):
    """Keras 2.15 restores no optimizer's variables from a SavedModel. The count of steps must not read as 0 then."""
    inputs, labels = models.data(8)
    model = models.fit(models.mlp(), _optimizer(), inputs, labels, 4, 2)
    model.save(str(tmp_path / "saved_model"))
    loaded = tf.keras.models.load_model(str(tmp_path / "saved_model"))
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    with pytest.raises(ValueError, match="no state"):
        _ = loaded.optimizer.noised_steps


def test_checkpoint_restores_into_a_model_that_has_not_trained(tmp_path):
    inputs, labels = models.data(8)
    model = models.fit(models.mlp(), _optimizer(), inputs, labels, 4, 2)
    path = tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    fresh = models.mlp(seed=99)
    fresh.compile(_optimizer(), models.per_example_loss())  # not built: the restored state waits for the variables
    tf.train.Checkpoint(model=fresh).restore(path)
    for m in (model, fresh):
        m.fit(inputs, labels, batch_size=4, shuffle=False, verbose=0)
    assert int(fresh.optimizer.noised_steps) == 6
    for ours, theirs in zip(model.get_weights(), fresh.get_weights()):
        np.testing.assert_array_equal(ours, theirs)


def test_the_noise_key_is_in_no_checkpoint(tmp_path):
    inputs, labels = models.data(4)
    model = models.fit(models.mlp(), _optimizer(noise_multiplier=1.0), inputs, labels, 4)
    tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(str(tmp_path / "checkpoint"))
    secrets = [number.tobytes() for number in model.optimizer.private_step.noise_sources.here()._state.numpy()[1:]]
    written = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert model.get_weights()[0].tobytes() in written  # what is there is found this way
    assert not any(secret in written for secret in secrets)


def test_un_noised_sums_are_in_no_checkpoint_and_no_saved_model(tmp_path):
    """In the middle of a logical batch, what has been summed up is not private yet."""
    inputs, labels = models.data(4)
    optimizer = _optimizer(noise_multiplier=1.0, accumulation_steps=2, nonprivate_metrics=True)
    model = models.fit(models.mlp(), optimizer, inputs, labels, 4)
    sums = [variable.numpy() for variable in optimizer.private_step.accumulator._totals]
    assert all(np.abs(total).max() > 0 for total in sums)
    saved = [variable.numpy() for variable in optimizer.variables]
    path = tf.train.Checkpoint(model=model, optimizer=optimizer).write(str(tmp_path / "checkpoint"))
    saved += [tf.train.load_variable(path, name) for name, _ in tf.train.list_variables(path)]
    for total in sums:
        assert not any(np.shape(value) == total.shape and np.allclose(value, total) for value in saved)
    names = " ".join(name for name, _ in tf.train.list_variables(path))
    assert "accumul" not in names and "nonprivate" not in names
    optimizer.drop_unfinished()  # as a new `fit` with a budget does
    assert all(np.abs(total.numpy()).max() == 0 for total in optimizer.private_step.accumulator._totals)
    # A restored run starts the logical batch anew.
    model.save(str(tmp_path / "model.keras"))
    loaded = tf.keras.models.load_model(str(tmp_path / "model.keras"))
    loaded.fit(inputs, labels, batch_size=4, verbose=0)
    assert int(loaded.optimizer.noised_steps) == 0
    loaded.fit(inputs, labels, batch_size=4, verbose=0)
    assert int(loaded.optimizer.noised_steps) == 1


def test_a_file_of_another_optimizer_is_refused_and_loses_nothing(tmp_path):
    inputs, labels = models.data(4)
    model = models.fit(models.mlp(), _optimizer(momentum=0.0), inputs, labels, 4)
    store = {str(i): v for i, v in enumerate(_state(model.optimizer))}
    other = _optimizer(momentum=0.9)
    other.build(model.trainable_variables)
    before = _state(other)
    with pytest.raises(ValueError, match="accumulation_steps"):
        other.load_own_variables(store)
    for ours, theirs in zip(before, _state(other)):
        np.testing.assert_array_equal(ours, theirs)


def test_fixed_clip_saves_too(tmp_path):
    inputs, labels = models.data(4)
    optimizer = DPFixedClipSGD(0.1, l2_norm_clip=0.3, noise_multiplier=1.0)
    models.fit(models.mlp(), optimizer, inputs, labels, 4).save(str(tmp_path / "m.keras"))
    loaded = tf.keras.models.load_model(str(tmp_path / "m.keras"))
    assert loaded.optimizer.get_config()["l2_norm_clip"] == 0.3
    assert int(loaded.optimizer.noised_steps) == 1


# Killed with SIGKILL.

_PROGRAM = """
import sys
import numpy as np
import tensorflow as tf
from adaclip_tf._internal import keras
from tests import generations, models
from tests.optimizers import optimizer_saving_test
backup, done, epochs = sys.argv[1], sys.argv[2], int(sys.argv[3])
# Keras 2 resumes in the middle of an epoch at the right step but with the epoch's first batch: all batches are alike.
# Keras 3 begins the epoch again, and writes over its one file: a backup for each epoch, and the one before it.
how = {"save_freq": 3} if keras.GENERATION == 2 else {"double_checkpoint": True}
inputs, labels = (np.concatenate([array] * 8) for array in models.data(4))
model = models.mlp()
model.compile(optimizer_saving_test._optimizer(), models.per_example_loss())
class Say(tf.keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        model.optimizer.build(model.trainable_variables)
        print("start", int(model.optimizer.noised_steps), flush=True)
    def on_train_batch_end(self, batch, logs=None):
        print("step", int(model.optimizer.noised_steps), int(model.optimizer.iterations), flush=True)
callbacks = [tf.keras.callbacks.BackupAndRestore(backup, delete_checkpoint=False, **how), Say()]
model.fit(inputs, labels, batch_size=4, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks)
# Each run is a phase of its own.
state = [variable.numpy() for variable in model.optimizer.variables if "phase" not in variable.name]
np.savez(done, *model.get_weights(), *state)
"""


def _run(arguments, kill_after=None):
    """Runs the program; kills it once it has said `kill_after` steps. Returns the lines it printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", _PROGRAM, *map(str, arguments)]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT) as process:
        for line in process.stdout:
            lines.append(line.split())
            if kill_after is not None and len(lines) > kill_after:
                time.sleep(np.random.default_rng(kill_after).uniform(0, 0.01))
                process.send_signal(signal.SIGKILL)
                break
    return lines


def _check_killed_runs(tmp_path, kills, epochs):
    uninterrupted = _run([tmp_path / "a", tmp_path / "whole.npz", epochs])
    assert int(uninterrupted[-1][1]) == 8 * epochs
    for kill_after in kills:
        _run([tmp_path / "b", tmp_path / "killed.npz", epochs], kill_after)
    resumed = _run([tmp_path / "b", tmp_path / "killed.npz", epochs])
    start = int(resumed[0][1])
    between = 3 if keras.GENERATION == 2 else 8
    assert start % between == 0 and 0 < start < 8 * epochs  # the last backup
    steps = [int(line[1]) for line in resumed[1:]]
    assert steps == list(range(start + 1, 8 * epochs + 1))  # none twice, none skipped
    assert all(line[1] == line[2] for line in resumed[1:])
    whole, killed = np.load(tmp_path / "whole.npz"), np.load(tmp_path / "killed.npz")
    assert whole.files == killed.files
    for name in whole.files:
        np.testing.assert_array_equal(whole[name], killed[name])  # bit for bit


@pytest.mark.slow
def test_killed_and_resumed_is_the_uninterrupted_run(tmp_path):
    _check_killed_runs(tmp_path, kills=[11], epochs=3)


@pytest.mark.slow
def test_killed_many_times_is_the_uninterrupted_run(tmp_path):
    _check_killed_runs(tmp_path, kills=np.random.default_rng(1).integers(3, 12, 8).tolist(), epochs=12)
