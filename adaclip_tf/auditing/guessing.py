"""From scores to guesses of the coins, and from right guesses to lower bounds on epsilon."""

from __future__ import annotations

import numpy as np

from adaclip_tf.auditing import scores as scoring
from adaclip_tf.auditing.recording import VIEWS
from adaclip_tf.auditing.result import Proven
from adaclip_tf.privacy import auditing, dependent_trials
from adaclip_tf.privacy.mechanism import Mechanism


class Guesser:
    """Guesses as many coins as is best by what is claimed, so before any score is seen.

    Args:
      mechanism: that is claimed.
      steps: of a run.
      canaries: of all runs together. No canary is in two of them, so that all runs are one mechanism to each.
      delta: of the bounds.
      confidence: with which the bounds of all views hold together.
    """

    def __init__(self, mechanism: Mechanism, steps: int, canaries: int, delta: float, confidence: float):
        self._canaries, self._delta, self._steps = canaries, delta, steps
        self._probability = mechanism.batch_size / mechanism.num_examples
        self._confidence = 1.0 - (1.0 - confidence) / len(VIEWS)

        def draw(coins: np.ndarray, generator: np.random.Generator) -> np.ndarray:
            return scoring.simulate(coins, generator, mechanism.noise_multiplier, self._probability, steps)

        self._guesses, self._share = dependent_trials.choose_guesses(canaries, delta, self._confidence, draw)

    def proven(self, scores: np.ndarray, coins: np.ndarray) -> Proven:
        """By the scores of one view."""
        right = auditing.right_guesses(np.nan_to_num(scores), coins, self._guesses, self._share)
        return self._bounds(right)

    @property
    def most_provable(self) -> float:
        """By an attack without a wrong guess."""
        return self._bounds(self._guesses).best

    def _bounds(self, correct: int) -> Proven:
        counts = self._canaries, self._guesses, correct, self._delta, self._confidence
        gaussian = dependent_trials.gaussian_epsilon_of_guesses(
            *counts, sampling_probability=self._probability, steps=self._steps
        )
        return Proven(self._guesses, correct, auditing.one_run_epsilon(*counts), gaussian)
