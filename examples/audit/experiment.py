"""Attacks on real training runs: `model.compile`, `poisson_batches`, `fit`, and an attacker who sees every release.

The attacker is the one whom the guarantee is about: he chose all the data, knows the settings, and sees weights and
AdaCliP's state (m, s and so a, b) before and after every step. What he does not know is whether one example, the
canary, is in the data.

The canary. The model is linear in two kernels and the loss is the prediction itself, so an example's gradient is its
input: canary i has a gradient along coordinate i of both kernels, far longer than any clip. Clipped, it moves the sum
by exactly 1, the whole sensitivity, in a direction that spans both variables: no gradient is easier to find. In the
coordinates of the transform,

    W = (g~ - a) B / b,     <W, direction i> = [canary i was in the batch] + N(0, z^2),

and what the attacker computes from T steps is the logarithm of the likelihood ratio, the best possible score.

Many trials from few runs. Canaries with coordinates of their own do not meet: whether canary i is in the data changes
nothing in the others' coordinates (a and b are known). So a run with n canaries, each in the data by a fair coin, is
n trials; and a `fit` of R T steps, with new coins after every T of them, is R runs.

With microbatches, each of two examples, the canary's partner is in the data for certain and pulls the other way: the
canary turns the microbatch's clipped gradient from -1 into +1, so it moves the sum by 2.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import adaclip_tf
from adaclip_tf import DPAdaClip, DPAdaClipSGD, DPFixedClip, DPFixedClipSGD, poisson_batches
from adaclip_tf.privacy import auditing

DELTA = 1e-5
LENGTH = 1e4  # of a canary's gradient, against scales b of about 1
OPTIMIZERS = ("adaclip", "fixed")
INNER = ("adaclip, Adam", "fixed, momentum")  # the update is an inner optimizer's
MOMENTUM = 0.9
PATHS = ("ghost", "jacobian")


class Setting(NamedTuple):
    """One cell of the grid."""

    optimizer: str  # one of `OPTIMIZERS` or `INNER`; in `whole_runs` what was trained
    path: str  # one of `PATHS`
    noise_multiplier: float  # z
    sampling_probability: float  # q; 1 is the full batch
    steps: int  # T
    microbatches: bool = False  # two examples in each


class Trials(NamedTuple):
    """What an attack has to go on. Arrays of shape [runs, canaries]."""

    present: np.ndarray  # the coins
    scores: dict[str, np.ndarray]  # by what was looked at: "weights", and "state" where there is one
    microbatch_sensitivity: float  # what the optimizer says of itself
    claimed: float | None = None  # by whoever counted; None for the accountant's figure for the setting


def run(setting: Setting, *, canaries: int, runs: int, seed: int | None = None) -> Trials:
    """Trains `runs` times `setting.steps` steps, and scores every canary in every run.

    Args:
      seed: None takes noise, batches and coins from the operating system, as in real use. For tests, an integer.
    """
    present = np.random.default_rng(seed).random((runs, canaries)) < 0.5
    batch_size = round(setting.sampling_probability * canaries)
    optimizer = make_optimizer(setting, canaries, batch_size, seed)
    model = make_model(canaries)
    model.compile(optimizer, loss=Prediction(reduction="none"))
    recorder = Recorder(canaries, optimizer)
    model.fit(batches(setting, present, batch_size, seed), verbose=0, callbacks=[recorder])
    sums = {view: np.reshape(steps, (runs, setting.steps, canaries)) for view, steps in recorder.sums().items()}
    scores = {view: score(setting, value) for view, value in sums.items()}
    return Trials(present, scores, optimizer.microbatch_sensitivity)


def make_optimizer(setting: Setting, canaries: int, batch_size: int, seed: int | None):
    """The library's optimizer, as a user would make it."""
    shared: dict[str, Any] = {
        "noise_multiplier": setting.noise_multiplier,
        "gradient_path": setting.path,
        "seed": seed,
    }
    if setting.microbatches:
        shared["num_microbatches"] = canaries
    else:
        shared["expected_batch_size"] = batch_size
    if setting.optimizer == "adaclip, Adam":
        return DPAdaClip(tf.keras.optimizers.Adam(1e-3, beta_1=MOMENTUM), initial_std=0.03, **shared)
    if setting.optimizer == "fixed, momentum":
        return DPFixedClip(tf.keras.optimizers.SGD(1.0, momentum=MOMENTUM), l2_norm_clip=1.0, **shared)
    if setting.optimizer == "fixed":
        return DPFixedClipSGD(1.0, l2_norm_clip=1.0, **shared)
    return DPAdaClipSGD(1.0, initial_std=0.03, **shared)


def make_model(canaries):
    inputs = tf.keras.Input([canaries])
    kernels = [tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros") for _ in range(2)]
    return tf.keras.Model(inputs, tf.keras.layers.Add()([kernel(inputs) for kernel in kernels]))


class Prediction(tf.keras.losses.Loss):
    """The prediction itself, so that the gradient of an example is its input."""

    def call(self, y_true, y_pred):
        del y_true
        return y_pred[:, 0]


def batches(setting, present, batch_size, seed):
    """One batch per step. Who is sampled comes from `poisson_batches`; who is not in the data drops out of it."""
    runs, canaries = present.shape
    coins = tf.constant(present)

    def full_of_microbatches(step, indices):
        del indices
        there = tf.cast(coins[step // setting.steps], tf.float32)
        rows = tf.stack([-tf.ones([canaries]), 3.0 * there], axis=1)  # the partner, then the canary or a blank
        inputs = rows[:, :, tf.newaxis] * tf.eye(canaries)[:, tf.newaxis, :]
        return LENGTH * tf.reshape(inputs, [2 * canaries, canaries]), tf.zeros([2 * canaries])

    def sampled(step, indices):
        there = tf.boolean_mask(indices, tf.gather(coins[step // setting.steps], indices))
        return LENGTH * tf.one_hot(there, canaries), tf.zeros([tf.shape(there)[0]])

    drawn = poisson_batches(np.arange(canaries), expected_batch_size=batch_size, steps=runs * setting.steps, seed=seed)
    return drawn.enumerate().map(full_of_microbatches if setting.microbatches else sampled).prefetch(2)


class Recorder(tf.keras.callbacks.Callback):
    """Sees what is released, and turns it back into W."""

    def __init__(self, canaries, optimizer):
        super().__init__()
        self._canaries, self._optimizer = canaries, optimizer
        self._sums: dict[str, list[np.ndarray]] = {}
        self._inner = optimizer.inner_optimizer if isinstance(optimizer, (DPAdaClip, DPFixedClip)) else None
        self._momentum = getattr(self._inner, "momentum", 0.0)

    def on_train_begin(self, logs=None):
        self._optimizer.build(self.model.trainable_variables)
        self._before = self._look()

    def on_train_batch_end(self, batch, logs=None):
        before, now = self._before, self._look()
        center, scale, divisor = before["center"], before["scale"], float(self._optimizer.private_step.divisor)
        releases = {}
        if "moment" in now:  # Adam's own average of what it was handed
            releases["moment"] = (now["moment"] - MOMENTUM * before["moment"]) / (1.0 - MOMENTUM)
        else:  # the learning rate is 1
            releases["weights"] = before["weights"] - now["weights"] - before["velocity"]
        now["velocity"] = self._momentum * (before["weights"] - now["weights"])
        if isinstance(self._optimizer, (DPAdaClip, DPAdaClipSGD)):
            beta_1 = self._optimizer.get_config()["beta_1"]
            releases["state"] = (now["center"] - beta_1 * center) / (1.0 - beta_1)
        for view, mean in releases.items():
            noised_sum = (mean - center) * divisor / scale
            along = np.sum(np.reshape(noised_sum, [2, self._canaries]), axis=0) / np.sqrt(2.0)
            self._sums.setdefault(view, []).append(along)
        self._before = now

    def _look(self):
        state = list(self._optimizer.private_state().values())
        found = {
            "weights": _flat(self.model.get_weights()),
            "center": _flat([part["center"] for part in state]),
            "scale": _flat([part["scale"] for part in state]),
            "velocity": 0.0,
        }
        if isinstance(self._inner, tf.keras.optimizers.Adam):
            found["moment"] = _flat([moment.numpy() for moment in self._inner._momentums])
        return found

    def sums(self):
        return {view: np.stack(steps) for view, steps in self._sums.items()}


def _flat(parts):
    return np.concatenate([np.ravel(part) for part in parts]).astype(np.float64)


def score(setting, sums):
    """The logarithm of the likelihood ratio of "present" to "absent", from [runs, steps, canaries]."""
    noise = setting.noise_multiplier
    if setting.microbatches:  # from -1 to 1, in units in which it is from 0 to 1
        sums, noise = (sums + 1.0) / 2.0, noise / 2.0
    q = setting.sampling_probability
    exponent = (2.0 * sums - 1.0) / (2.0 * noise**2)
    if q < 1.0:
        exponent = np.logaddexp(np.log1p(-q), np.log(q) + exponent)
    return exponent.sum(axis=1)


# ---------------------------------------------------------------------------------------------------
# What it proves.


class Finding(NamedTuple):
    """A claim and the lower bounds found against it, all at `DELTA`."""

    setting: Setting
    view: str
    claimed: float  # by the library's accountant
    attack: float  # `auditing.attack_epsilon`
    gaussian: float  # `auditing.sampled_gaussian_epsilon`
    one_run: float  # `auditing.one_run_epsilon`, from the first run alone

    @property
    def measured(self) -> float:
        """The largest of the lower bounds."""
        return max(self.attack, self.gaussian, self.one_run)


def claimed_epsilon(setting: Setting, canaries: int, microbatch_sensitivity: float) -> float:
    """The library's own figure for exactly these steps and this sampling."""
    return adaclip_tf.epsilon(
        noise_multiplier=setting.noise_multiplier,
        delta=DELTA,
        num_examples=canaries,
        batch_size=round(setting.sampling_probability * canaries),
        steps=setting.steps,
        accountant="pld",
        microbatch_sensitivity=microbatch_sensitivity,
    )


def evaluate(setting: Setting, trials: Trials, confidence: float) -> list[Finding]:
    """The bounds of each view, each with `confidence`. A quarter of the runs serves to choose thresholds only."""
    canaries = trials.present.shape[1]
    claimed = trials.claimed
    if claimed is None:
        claimed = claimed_epsilon(setting, canaries, trials.microbatch_sensitivity)
    quarter = -(-len(trials.present) // 4)
    guesses = auditing.choose_guesses(canaries, DELTA, confidence, lambda *coins: _simulate(setting, *coins))
    mechanism: dict[str, Any] = {"sampling_probability": setting.sampling_probability, "steps": setting.steps}
    noise = setting.noise_multiplier / trials.microbatch_sensitivity
    findings = []
    for view, scores in trials.scores.items():
        chosen_on = scores[:quarter], trials.present[:quarter]
        rest = scores[quarter:], trials.present[quarter:]
        errors_by = {
            bound: auditing.count_errors(*rest, auditing.choose_threshold(*chosen_on, worth))
            for bound, worth in {
                "attack": lambda errors: auditing.attack_epsilon(errors, DELTA, confidence, clip=False),
                "gaussian": lambda errors: auditing.share_of_advantage(
                    errors, confidence, noise_multiplier=noise, **mechanism
                ),
            }.items()
        }
        right = auditing.right_guesses(scores[0], trials.present[0], guesses)
        findings.append(
            Finding(
                setting=setting,
                view=view,
                claimed=claimed,
                attack=auditing.attack_epsilon(errors_by["attack"], DELTA, confidence),
                gaussian=auditing.sampled_gaussian_epsilon(errors_by["gaussian"], DELTA, confidence, **mechanism),
                one_run=auditing.one_run_epsilon(canaries, guesses, right, DELTA, confidence),
            )
        )
    return findings


def most_provable(trials: int, confidence: float) -> float:
    """`attack_epsilon` of an attack without errors on so many trials of either kind."""
    return auditing.attack_epsilon(auditing.Errors(0, trials, 0, trials), DELTA, confidence)


def _simulate(setting, coins, generator):
    """Scores as the claimed mechanism gives them."""
    shape = (1, setting.steps, len(coins))
    joined = coins & (generator.random(shape) < setting.sampling_probability)
    moved = 2.0 * joined - 1.0 if setting.microbatches else joined
    return score(setting, moved + generator.normal(scale=setting.noise_multiplier, size=shape))[0]
