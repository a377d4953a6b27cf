"""Attacks on whole programs: `make_private` with its warm-up, and two phases of training under one ledger.

What such a program releases is Gaussian noise on several things. With all of the data in each batch, all of it together
is worth one Gaussian mechanism, 1 / z^2 = sum 1 / z_i^2: that z is what the settings here have, with T = 1. The claim
is the program's own, of `make_private`'s plan or of the ledger.

The number of examples is public, so an absent canary is a row of NaN, which adds 0 to every sum.

The warm-up. Canary i has a long gradient in row i of both kernels, so that in each of R rounds it moves the noised sums
of row norms by 1, the whole sensitivity, in two known entries. NaN answers counts as a long gradient does: they are
part of the claim and not of the attack. As many examples with short gradients, in a row of their own, are there for
certain, so that the clip is found far below the canaries' length.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import Any

import dp_accounting
import numpy as np
import tensorflow as tf

from adaclip_tf import Ledger, PrivacyBudget, epsilon_of, make_private, poisson_batches
from adaclip_tf.privacy import events
from adaclip_tf.scales.private_scales import PrivateScales
from examples.audit import experiment
from examples.audit.experiment import DELTA, LENGTH, Setting, Trials

MAKE_PRIVATE = "make_private"
LEDGER = "two phases, one ledger"
TARGET, EPOCHS = 4.0, 4  # of `make_private`
PHASES = (Setting("adaclip", "ghost", 3.0, 1.0, 4), Setting("fixed", "ghost", 4.0, 1.0, 8))
SHORT = 1e-3  # length of the gradients that are not canaries'


def settings() -> list[Setting]:
    """One for each program, with the z that all its releases are worth (of `make_private` what its target allows)."""
    phases = round(sum(phase.steps / phase.noise_multiplier**2 for phase in PHASES) ** -0.5, 2)
    return [
        Setting(MAKE_PRIVATE, "auto", _noise_of_epsilon(TARGET), 1.0, 1),
        Setting(LEDGER, "ghost", phases, 1.0, 1),
    ]


def _noise_of_epsilon(epsilon):
    """z of one Gaussian mechanism, to a hundredth: what thresholds are chosen by."""
    noise = 0.3
    while epsilon_of(events.gaussian_event(noise), delta=DELTA, accountant="rdp") > epsilon:
        noise += 0.01
    return round(noise, 2)


def _canaries(present):
    """A row for each: NaN where it is absent, which adds nothing to a sum."""
    return np.where(present[:, np.newaxis], LENGTH * np.eye(len(present)), np.nan).astype(np.float32)


def run_phases(setting: Setting, *, canaries: int, runs: int, seed: int | None = None) -> Trials:
    """AdaCliP, then a fixed clip on the same weights and data, `runs` times."""
    del setting
    present = np.random.default_rng(seed).random((runs, canaries)) < 0.5
    scores, claimed = [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        for run in range(runs):
            path = os.path.join(folder, f"{run}.json")
            number = None if seed is None else seed + 1000 * run
            scores.append(_both_phases(present[run], path, number))
            claimed = max(claimed, epsilon_of(Ledger(path).event(), delta=DELTA, accountant="pld"))
    return Trials(present, {"weights": np.stack(scores)}, 1.0, claimed)


def _both_phases(present, ledger, seed):
    canaries = len(present)
    data = _canaries(present), np.zeros(canaries, np.float32)
    model, total = experiment.make_model(canaries), np.zeros(canaries)
    for index, phase in enumerate(PHASES):
        number = None if seed is None else seed + index
        optimizer = experiment.make_optimizer(phase, canaries, canaries, number)
        model.compile(optimizer, loss=experiment.Prediction(reduction="none"))
        recorder = experiment.Recorder(canaries, optimizer)
        batches = poisson_batches(data, expected_batch_size=canaries, steps=phase.steps, seed=number)
        budget = PrivacyBudget.of(batches, delta=DELTA, ledger=ledger)
        model.fit(batches, verbose=0, callbacks=[recorder, budget], shuffle=False)
        total += experiment.score(phase, recorder.sums()["weights"][np.newaxis])[0]
    return total


# ---------------------------------------------------------------------------------------------------
# make_private.


def run_make_private(setting: Setting, *, canaries: int, runs: int, seed: int | None = None) -> Trials:
    """`make_private` and its `fit`, `runs` times. The attacker sees the noised row norms and all weights."""
    del setting
    present = np.random.default_rng(seed).random((runs, canaries)) < 0.5
    scores, claimed = [], 0.0
    for run in range(runs):
        score, epsilon = _one_private(present[run], None if seed is None else seed + 1000 * run)
        scores.append(score)
        claimed = max(claimed, epsilon)
    return Trials(present, {"scales and weights": np.stack(scores)}, 1.0, claimed)


def _one_private(present, seed):
    canaries = len(present)
    number = 2 * canaries  # half of them with short gradients
    x = np.zeros([number, canaries + 1], np.float32)
    x[:canaries, :canaries] = _canaries(present)
    x[canaries:, canaries] = SHORT
    model = experiment.make_model(canaries + 1)
    with _watched() as asked:
        private = make_private(
            model, (x, np.zeros(number, np.float32)), loss=experiment.Prediction(), target_epsilon=TARGET, delta=DELTA,
            batch_size=number, epochs=EPOCHS, seed=seed, verbose=False,
        )  # fmt: skip
    noise = private.scales.noise_multiplier
    score = sum(_log_ratio(_along(shapes, noised, canaries), noise) for shapes, noised in asked)
    steps = _Steps(private)
    private.fit(callbacks=[steps], verbose=0)
    for noised in steps.sums:
        score = score + _log_ratio(_along(private.scales.shapes_, noised, canaries), private.plan.noise_multiplier)
    event = dp_accounting.ComposedDpEvent(
        [private.scales.event, private.plan.mechanism.event(steps=private.steps_taken)]
    )
    return score, epsilon_of(event, delta=DELTA, accountant="pld")


class _Steps(tf.keras.callbacks.Callback):
    """W of every step, from how the weights moved."""

    def __init__(self, private):
        super().__init__()
        self._plan, self._step = private.plan, private.optimizer.private_step
        self.sums: list[list[np.ndarray]] = []

    def on_train_begin(self, logs=None):
        self._before = self.model.get_weights()

    def on_train_batch_end(self, batch, logs=None):
        plan, now = self._plan, self.model.get_weights()
        rate = plan.learning_rate * (1.0 - len(self.sums) / plan.steps) ** plan.rate_fall
        factors = self._step.rule.direction(self._step.state(), [tf.ones(weights.shape) for weights in now])
        scales = [part["scale"].numpy() for part in self._step.details().values()]
        found = [
            (before - weights).astype(np.float64) / (rate * factor.numpy()) * plan.batch_size / scale
            for before, weights, factor, scale in zip(self._before, now, factors, scales)
        ]
        self.sums.append(found)
        self._before = now


@contextlib.contextmanager
def _watched():
    """Collects what the warm-up releases: (shapes that it was asked with, noised sums of row norms)."""
    found: list[Any] = []
    original = PrivateScales._noised_rows

    def noised_rows(self, asked, clip, shapes):
        noised = original(self, asked, clip, shapes)
        found.append((shapes, noised))
        return noised

    PrivateScales._noised_rows = noised_rows  # type: ignore[method-assign]
    try:
        yield found
    finally:
        PrivateScales._noised_rows = original  # type: ignore[method-assign]


def _along(shapes, noised, canaries):
    """<W, u_i> for each canary: |u_i| = 1, and its parts in the kernels are as 1 / h."""
    parts = [1.0 / np.ravel(shape)[:canaries].astype(np.float64) for shape in shapes]
    length = np.sqrt(sum(part**2 for part in parts))
    return sum(part / length * np.ravel(total)[:canaries] for part, total in zip(parts, noised))


def _log_ratio(value, noise):
    return (2.0 * value - 1.0) / (2.0 * noise**2)


RUNS = {MAKE_PRIVATE: run_make_private, LEDGER: run_phases}
