"""What `PrivacyTensorBoard` costs at its default frequencies: the paper's MLP 60-1000-10, batches of 600.

Epochs with and without the callback take turns, so that whatever else the machine does hits both alike. Two
figures come out: the ratio of median epochs, and how much time was spent inside the callback's hooks, which also
holds the histograms and images of some epochs. What happens once per run (opening files, tracing) is left out.

    python -m benchmarks.tensorboard_overhead --epochs=25
"""

from __future__ import annotations

import statistics
import tempfile
import time

import numpy as np
import tensorflow as tf
from absl import app, flags

from adaclip_tf import DPAdaClipSGD
from adaclip_tf.tensorboard import PrivacyTensorBoard
from benchmarks import cases

_EPOCHS = flags.DEFINE_integer("epochs", 25, "Epochs with the callback, and as many without.", lower_bound=1)
_STEPS = flags.DEFINE_integer("steps", 100, "Steps per epoch: 100 for 60,000 examples.", lower_bound=1)

CASE = cases.CASES["mlp"]


class Arm:
    """A model that trains an epoch at a time, with the callbacks' hooks where `fit` has them."""

    def __init__(self, callbacks, steps):
        self._steps = steps
        self.seconds_in_hooks = 0.0
        self.epochs: list[float] = []
        tf.keras.utils.set_random_seed(0)
        rng = np.random.default_rng(0)
        batch = CASE.batch_size
        data = CASE.inputs(rng, batch), rng.integers(0, cases.CLASSES, batch)
        model = tf.keras.Model(*CASE.build())
        model.compile(
            DPAdaClipSGD(0.1, noise_multiplier=1.0, expected_batch_size=batch, initial_std=1e-3),
            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none"),
            metrics=["accuracy"],
        )
        self._iterator = iter(tf.data.Dataset.from_tensors(data).cache().repeat().prefetch(2))
        self._train = cases.train_function(model)
        self._hooks = tf.keras.callbacks.CallbackList(callbacks, model=model, steps=steps)
        self._train(self._iterator)
        self._hooks.on_train_begin()

    def epoch(self):
        """Trains `steps` steps and notes how long they took."""
        start = time.perf_counter()
        self._timed(self._hooks.on_epoch_begin, len(self.epochs))
        for step in range(self._steps):
            self._timed(self._hooks.on_train_batch_begin, step)
            logs = self._train(self._iterator)
            float(tf.reduce_mean(logs["loss"]))  # to the end of the step
            self._timed(self._hooks.on_train_batch_end, step, logs)
        logs = {name: float(tf.reduce_mean(value)) for name, value in logs.items()}
        self._timed(self._hooks.on_epoch_end, len(self.epochs), logs)
        self.epochs.append(time.perf_counter() - start)

    def _timed(self, hook, *arguments):
        start = time.perf_counter()
        hook(*arguments)
        self.seconds_in_hooks += time.perf_counter() - start


def measure(epochs: int, steps: int) -> dict[str, float]:
    """Milliseconds per step without and with the callback, their ratio, and the share of its hooks."""
    with tempfile.TemporaryDirectory() as folder:
        board = PrivacyTensorBoard(folder, num_examples=60000, batch_size=CASE.batch_size, delta=1e-5)
        without, with_board = Arm([], steps), Arm([board], steps)
        for index in range(epochs):
            order = (without, with_board) if index % 2 else (with_board, without)
            for arm in order:
                arm.epoch()
        spent = with_board.seconds_in_hooks - without.seconds_in_hooks
        medians = [1000 * statistics.median(arm.epochs) / steps for arm in (without, with_board)]
        return {
            "without_ms": medians[0],
            "with_ms": medians[1],
            "ratio": medians[1] / medians[0],
            "share_of_hooks": spent / (sum(with_board.epochs) - spent),
        }


def main(argv):
    del argv
    result = measure(_EPOCHS.value, _STEPS.value)
    print(f"step without {result['without_ms']:.2f} ms, with {result['with_ms']:.2f} ms")
    print(f"ratio of medians {result['ratio']:.3f}; time in hooks {100 * result['share_of_hooks']:.2f} % of training")


if __name__ == "__main__":
    app.run(main)
