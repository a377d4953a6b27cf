"""Long runs: twenty thousand steps of `fit`, and two hundred kills. A few minutes each, on an idle machine."""

import os
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import DPAdaClipSGD, PrivacyBudget, epsilon, poisson_batches
from adaclip_tf._internal import keras
from tests import generations, models

ROOT = pathlib.Path(__file__).parents[2]
STEPS, PER_EPOCH = 20_000, 1000
EXAMPLES, BATCH, NOISE, DELTA = 2048, 64, 1.0, 1e-5


def _resident_bytes():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class _Watch(tf.keras.callbacks.Callback):
    """Memory at the end of every epoch, the time of every step, and a checkpoint of every epoch."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.bytes, self.seconds, self.paths = folder, [], [], []
        self._began = 0.0

    def on_train_batch_begin(self, batch, logs=None):
        self._began = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.seconds.append(time.perf_counter() - self._began)

    def on_epoch_end(self, epoch, logs=None):
        self.bytes.append(_resident_bytes())
        checkpoint = tf.train.Checkpoint(model=self.model)
        self.paths.append(checkpoint.write(str(self.folder / f"epoch-{epoch}")))


def _model():
    model = models.mlp()
    optimizer = DPAdaClipSGD(0.05, 0.9, noise_multiplier=NOISE, expected_batch_size=BATCH)
    model.compile(optimizer, models.per_example_loss())
    return model


@pytest.mark.slow
def test_twenty_thousand_steps(tmp_path):
    model, watch = _model(), _Watch(tmp_path)
    run = {"num_examples": EXAMPLES, "batch_size": BATCH, "delta": DELTA}
    budget = PrivacyBudget(**run)
    batches = poisson_batches(models.data(EXAMPLES), expected_batch_size=BATCH, steps=PER_EPOCH)
    history = model.fit(batches, epochs=STEPS // PER_EPOCH, verbose=0, callbacks=[budget, watch]).history

    assert int(model.optimizer.noised_steps) == int(model.optimizer.iterations) == STEPS
    assert budget.epsilon == pytest.approx(epsilon(noise_multiplier=NOISE, steps=STEPS, **run), rel=1e-9)
    for variable in [*model.variables, *model.optimizer.variables]:
        assert np.isfinite(variable.numpy()).all(), variable.name
    assert np.isfinite(history["loss"]).all()

    # Memory: a leak of 1 kB per step would be 14 MB over the last two thirds.
    late = watch.bytes[len(watch.bytes) // 3 :]
    slope = np.polyfit(np.arange(len(late)), late, 1)[0] / PER_EPOCH
    print(f"\n{slope:.1f} bytes per step; {late[0] / 2**20:.0f} to {late[-1] / 2**20:.0f} MiB")
    # TensorFlow 2.15 itself keeps 80 bytes of each variable that Python reads, and a budget reads several in each step.
    assert slope < (512.0 if keras.GENERATION == 3 else 1536.0)

    # Time: the medians of the first and the last third, so that a busy machine does not matter much.
    third = STEPS // 3
    early, late = np.median(watch.seconds[100:third]), np.median(watch.seconds[-third:])
    print(f"{1e3 * early:.2f} ms per step early on, {1e3 * late:.2f} ms at the end")
    assert late < 3.0 * early

    for epoch, path in enumerate(watch.paths):
        restored = _model()
        restored.optimizer.build(restored.trainable_variables)
        tf.train.Checkpoint(model=restored).restore(path).expect_partial()
        assert int(restored.optimizer.noised_steps) == (epoch + 1) * PER_EPOCH
    for ours, theirs in zip(model.get_weights(), restored.get_weights()):
        np.testing.assert_array_equal(ours, theirs)


def _kill(cycles, seed):
    """`tests.optimizers.kill_resume` in a process of its own, which must not have run TensorFlow before it forks."""
    command = [sys.executable, "-m", "tests.optimizers.kill_resume", f"--cycles={cycles}", f"--seed={seed}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    print(done.stdout)
    return done.stdout


@generations.keras2_only  # Keras 3 writes over its backup in place: each kill may leave half of one
@pytest.mark.slow
def test_killed_two_hundred_times():
    assert _kill(200, seed=0).startswith("200 kills")
