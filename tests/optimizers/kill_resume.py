"""Kills training with SIGKILL at random points, resumes it, and checks that no step is lost, repeated or miscounted.

    python -m tests.optimizers.kill_resume --cycles=200

A process that has imported TensorFlow, but has run nothing yet, forks one worker after another: importing takes
seconds, forking does not. Workers alternate between two runs, each with a folder of checkpoints of its own:

| run       | what it shows                                                                                       |
|-----------|-----------------------------------------------------------------------------------------------------|
| "adaclip" | with full noise, whatever a worker finds in a checkpoint is, bit for bit, what an earlier worker had |
|           | after that many noised steps: weights, momentum, m, s^2                                              |
| "counter" | so large a batch that a weight counts: each step moves it by 1, up to noise of 0.001, and the weight |
|           | says how many steps have had their effect on it: `noised_steps`, exactly                             |

A worker reports every step, with a digest of all its variables, BEFORE that step can get into a checkpoint. It is
killed at a random moment after a random step; with a checkpoint per step, that is often while one is being written.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import pathlib
import signal
import tempfile
import time
import traceback

import numpy as np
import tensorflow as tf

from adaclip_tf import DPAdaClipSGD, DPFixedClipSGD, PrivacyBudget, epsilon, poisson_batches
from tests import models

BATCH = {"adaclip": 4, "counter": 1000}
SAMPLING = {"adaclip": "poisson", "counter": "shuffled"}
STEPS_PER_EPOCH, NOISE, DELTA = 8, 1.0, 1e-5
# The counter's batch is all of its data: killed in the middle of Keras's epoch, it breaks no shuffled one off.
EXAMPLES = {"adaclip": BATCH["adaclip"] * STEPS_PER_EPOCH, "counter": BATCH["counter"]}
LONGEST_LIFE = 12  # steps
LONGEST_WAIT = 0.03  # seconds between the last report that counts and the kill


# ---------------------------------------------------------------------------------------------------
# The worker: an ordinary training program, except that it reports.


def _model_and_batches(run):
    if run == "adaclip":
        model = models.mlp()
        optimizer = DPAdaClipSGD(0.1, 0.9, noise_multiplier=NOISE, expected_batch_size=BATCH[run])
        model.compile(optimizer, models.per_example_loss())
        return model, poisson_batches(models.data(BATCH[run] * STEPS_PER_EPOCH), expected_batch_size=BATCH[run])
    # The loss is |w x - y| with x = 1 and y far below: the gradient is 1, and a step subtracts 1 from w.
    layer = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", input_shape=(1,))
    model = tf.keras.Sequential([layer])
    optimizer = DPFixedClipSGD(1.0, l2_norm_clip=1.0, noise_multiplier=NOISE, expected_batch_size=BATCH[run])
    model.compile(optimizer, tf.keras.losses.MeanAbsoluteError(reduction="none"))
    batch = np.ones([BATCH[run], 1], np.float32), np.full([BATCH[run], 1], -1e6, np.float32)
    return model, tf.data.Dataset.from_tensors(batch).repeat(STEPS_PER_EPOCH)


def _describe(model, **more):
    optimizer = model.optimizer
    digest = hashlib.sha256()
    for variable in [*model.variables, *optimizer.variables]:
        digest.update(variable.numpy().tobytes())
    counter = float(model.get_weights()[0][0, 0])
    return {"step": int(optimizer.noised_steps), "digest": digest.hexdigest(), "counter": counter, **more}


class _Report(tf.keras.callbacks.Callback):
    def __init__(self, pipe):
        super().__init__()
        self._pipe = pipe

    def say(self, **line):
        os.write(self._pipe, (json.dumps(line) + "\n").encode())  # at once: no buffer to lose

    def on_train_batch_end(self, batch, logs=None):
        self.say(**_describe(self.model))


class _Restored(tf.keras.callbacks.Callback):
    """Reports what the backup held; comes after `BackupAndRestore` and the budget in the list."""

    def __init__(self, report, budget):
        super().__init__()
        self._report, self._budget = report, budget

    def on_train_begin(self, logs=None):
        self._report.say(**_describe(self.model, restored=True, epsilon=self._budget.epsilon))


def _work(run, folder, epochs, pipe):
    """Trains for `epochs`, less what the last backup holds."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    model, batches = _model_and_batches(run)
    budget = PrivacyBudget(
        num_examples=EXAMPLES[run],
        batch_size=BATCH[run],
        delta=DELTA,
        sampling=SAMPLING[run],
        statement_path=folder / "privacy",
    )
    report = _Report(pipe)
    backup = tf.keras.callbacks.BackupAndRestore(folder / "backup", save_freq=1, delete_checkpoint=False)
    model.fit(batches, epochs=epochs, verbose=0, callbacks=[report, backup, budget, _Restored(report, budget)])


# ---------------------------------------------------------------------------------------------------
# The killer.


def _life(run, folder, epochs, kill):
    """Forks a worker and kills it as `kill` = (reports, seconds) says, or lets it finish. Returns its reports."""
    reader, writer = os.pipe()
    worker = os.fork()
    if worker == 0:
        status = 1
        try:
            os.close(reader)
            _work(run, folder, epochs, writer)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writer)
    lines = []
    with os.fdopen(reader) as reports:
        for line in reports:
            lines.append(json.loads(line))
            if kill is not None and len(lines) == kill[0]:
                time.sleep(kill[1])
                os.kill(worker, signal.SIGKILL)  # what it had said until then is still read
    _, status = os.waitpid(worker, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    if not killed and status != 0:
        raise RuntimeError(f"The worker of {run} failed with status {status} after {lines[-1:]}.")
    return lines, killed


def _epsilon(run, steps):
    size = BATCH[run]
    run_size = {"num_examples": EXAMPLES[run], "batch_size": size, "delta": DELTA}
    return epsilon(noise_multiplier=NOISE, steps=steps, sampling=SAMPLING[run], **run_size) if steps else 0.0


class _Ledger:
    """What is known of one run over all its lives."""

    def __init__(self, run, folder):
        self.run, self.folder = run, folder
        self._states = {}  # step -> digests that workers had there
        self.last = self.lost = 0

    def check(self, lines):
        """Checks one life against all earlier ones."""
        first, *rest = lines
        start = first["step"]
        if start:
            assert first["digest"] in self._states[start], f"{self.run}: no worker had the state restored at {start}"
        elif self.last:
            raise AssertionError(f"{self.run}: {self.last} steps were reported and the next worker began at 0")
        # Every step is saved before the next one starts: a kill costs the step whose saving it hit, no more.
        assert self.last - 1 <= start <= self.last, f"{self.run}: resumed at {start} after {self.last} steps"
        assert math.isclose(first["epsilon"], _epsilon(self.run, start), rel_tol=1e-9), (self.run, first)
        steps = [line["step"] for line in rest]
        assert steps == list(range(start + 1, start + 1 + len(rest))), f"{self.run}: from {start} went {steps}"
        for line in lines:
            self._states.setdefault(line["step"], set()).add(line["digest"])
            if self.run == "counter":
                assert round(-line["counter"]) == line["step"], line
        self.lost += self.last - start
        self.last = lines[-1]["step"]

    def check_statement(self):
        """The statement is whole whenever the writer was killed, and never says less than what was done."""
        path = self.folder / "privacy.json"
        if path.exists():
            assert json.loads(path.read_text())["steps"] <= self.last


def main(cycles, seed=0, folder=None):
    """Runs all cycles and a last worker of each run that is left to finish. Returns a line of figures."""
    rng = np.random.default_rng(seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        ledgers = [_Ledger(run, pathlib.Path(temporary) / run) for run in BATCH]
        kills = during_saving = 0
        while kills < cycles:
            ledger = ledgers[kills % 2]
            plan = int(rng.integers(1, LONGEST_LIFE)), rng.uniform(0.0, LONGEST_WAIT)
            lines, killed = _life(ledger.run, ledger.folder, 10**6, plan)
            assert killed, "The worker finished before it was killed."
            before = ledger.lost
            ledger.check(lines)
            ledger.check_statement()
            during_saving += ledger.lost > before
            kills += 1
        for ledger in ledgers:
            epochs = ledger.last // STEPS_PER_EPOCH + 2
            lines, killed = _life(ledger.run, ledger.folder, epochs, None)
            assert not killed
            ledger.check(lines)
            assert ledger.last == epochs * STEPS_PER_EPOCH
            ledger.check_statement()
    steps = {ledger.run: ledger.last for ledger in ledgers}
    return (
        f"{kills} kills, {during_saving} of them before the last step was saved; {steps} steps in the end, "
        f"{sum(ledger.lost for ledger in ledgers)} done again; {time.monotonic() - began:.0f} s"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print(main(arguments.cycles, arguments.seed))
