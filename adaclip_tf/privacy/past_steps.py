"""What an optimizer's saved state says of its past steps, as one frozen value; and what may not follow on them.

An optimizer keeps these numbers in variables that are saved with it (`optimizers.past`). Whoever counts epsilon asks
for them by `optimizer.past_steps()`, and never asks the constructor's arguments what the past was like.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np


class PastSteps(NamedTuple):
    """Numbers to account by."""

    steps: int
    noise_multiplier: float  # the least
    microbatch_sensitivity: float  # the largest
    batch_size: int  # the largest; 0 where there were no steps
    phase: str


def new_phase() -> np.ndarray:
    """A random phase. Not negative: a negative saved count is refused as damage."""
    return np.frombuffer(os.urandom(16), np.int64) & (2**62 - 1)


def phase_name(phase: Any) -> str:
    """A phase as 32 hexadecimal digits."""
    return "".join(f"{int(part):016x}" for part in np.asarray(phase))


def check(past: PastSteps, noise_multiplier: float, expected_batch_size: int | None, who: str) -> None:
    """Refuses to go on with other noise, or another batch size, than the past steps had."""
    fix = (
        "Use the same value; or, to train on with another one, give the model a new optimizer and one "
        "`PrivacyBudget(..., ledger=path)` for all phases, which adds them up."
    )
    if not past.steps:
        return
    if past.noise_multiplier != noise_multiplier:
        raise ValueError(
            f"{who} has `noise_multiplier`={noise_multiplier:g}, and the {past.steps} noised steps of the state that "
            f"it was given were taken with {past.noise_multiplier:g}: one epsilon for both would be wrong. {fix}"
        )
    if expected_batch_size not in (None, past.batch_size):
        raise ValueError(
            f"{who} has `expected_batch_size`={expected_batch_size}, and the {past.steps} noised steps of the state "
            f"that it was given were taken with {past.batch_size}: one epsilon for both would be wrong. {fix}"
        )
