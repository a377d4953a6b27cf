"""What an optimizer's state says of its past steps: how many, how noised, how large, and of which phase.

An accountant that asks the constructor's arguments what the past was like can be told anything: arguments of a resumed
run are those of the resumed run. So each step writes down what it was, in variables that are saved with the count
of steps, and whoever counts epsilon asks these.

| variable             | holds                                                                                         |
|----------------------|-----------------------------------------------------------------------------------------------|
| `past_noise`         | the least noise multiplier of all steps                                                       |
| `largest_batch`      | the largest batch size B: `expected_batch_size`, or where there is none (batches of a fixed   |
|                      | and public size) the largest logical batch that was seen                                      |
| `largest_microbatch` | the most examples in one microbatch: the sensitivity is 1 where that is 1, otherwise 2        |
| `phase`              | 124 random bits, drawn with the optimizer: a restored optimizer continues its phase, a new    |
|                      | one is a new phase (see `privacy.ledger`)                                                     |

Least and largest are taken inside the step, as arithmetic. Nothing that restores variables (`.keras`, H5, lazily by
`tf.train.Checkpoint`, `BackupAndRestore`, `set_weights`), and no compiler that drops assertions, gets around them: if
steps differ, all are counted as the worst of them, never too small. `check` (of `privacy.past_steps`) refuses such a
mixture earlier, wherever there is an occasion: when a file is loaded, and when a `PrivacyBudget` begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf.gradients import proof
from adaclip_tf.privacy.past_steps import PastSteps, phase_name

_NOTES = "_adaclip_pasts"  # an attribute of weights


class Past:
    """The variables. Made by `add(initial value, name)`, which has them saved with the optimizer of `weights`."""

    def __init__(
        self, add: Callable[..., tf.Variable], noised_steps: tf.Variable, phase: np.ndarray, weights: Sequence[Any]
    ):
        self._steps = noised_steps
        self._noise = add(np.float64(0.0), "past_noise")
        self._batch = add(np.int64(0), "largest_batch")
        # Microbatches of several examples are for batches of one size, which is public (`privacy.events`).
        self._microbatch = proof.exempt(add(np.int64(0), "largest_microbatch"))
        self._phase = add(phase, "phase")
        # Those before it whose optimizers were made for some of the weights; and itself, for whoever comes after.
        pasts = [past for weight in weights for past in getattr(weight, _NOTES, ())]
        self._others = list(dict.fromkeys(pasts))
        for weight in weights:
            setattr(weight, _NOTES, (*getattr(weight, _NOTES, ()), self))

    def see_microbatch(self, examples: tf.Tensor) -> None:
        """Notes how many examples a microbatch holds, in the step."""
        self._microbatch.assign(tf.maximum(self._microbatch, tf.cast(examples, tf.int64)), read_value=False)

    def see_noise(self, noise_multiplier: float) -> None:
        """Notes that a step had no more noise than this, in the step and after `see_step`."""
        noise = tf.constant(noise_multiplier, tf.float64)
        self._noise.assign(tf.minimum(self._noise, noise), read_value=False)

    def see_step(self, noise_multiplier: float, batch_size: Any) -> None:
        """Notes one noised step, in the step and before it is counted."""
        first = tf.equal(self._steps, 0)
        noise = tf.constant(noise_multiplier, tf.float64)
        batch = tf.cast(batch_size, tf.int64)
        self._noise.assign(tf.where(first, noise, tf.minimum(self._noise, noise)), read_value=False)
        self._batch.assign(tf.where(first, batch, tf.maximum(self._batch, batch)), read_value=False)

    def examples(self, records: Any) -> tf.Tensor:
        """How many examples so many records are, at most."""
        return tf.cast(records, tf.int64) * tf.maximum(self._microbatch, 1)

    def read(self) -> PastSteps:
        """What the variables hold now. Not inside a graph."""
        return _past([_numpy(v) for v in (self._steps, self._noise, self._batch, self._microbatch, self._phase)])

    def pick(self, variables: Sequence[tf.Variable], values: Sequence[Any]) -> PastSteps:
        """The same of saved `values` of all an optimizer's `variables`."""
        own = (self._steps, self._noise, self._batch, self._microbatch, self._phase)
        return _past([next(value for v, value in zip(variables, values) if v is mine) for mine in own])

    def others(self) -> list[PastSteps]:
        """The same of those before it where there were steps, each phase once."""
        if not self._others:  # asked after every batch: five reads of variables that need not be
            return []
        own, found = self.read().phase, {seen.phase: seen for seen in (past.read() for past in self._others)}
        return [seen for seen in found.values() if seen.steps and seen.phase != own]

    def start_phase(self, phase: np.ndarray) -> None:
        """Makes what follows a phase of its own."""
        self._phase.assign(phase)


def _past(values: Sequence[Any]) -> PastSteps:
    steps, noise, batch, microbatch, phase = values
    sensitivity = 1.0 if int(microbatch) <= 1 else 2.0
    return PastSteps(int(steps), float(noise), sensitivity, int(batch), phase_name(phase))


def _numpy(variable: Any) -> np.ndarray:
    """The value of a variable, under a distribution strategy and while a graph is being traced too."""
    with tf.init_scope():
        return tf.convert_to_tensor(variable).numpy()
