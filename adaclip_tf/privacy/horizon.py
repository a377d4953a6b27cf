"""`Horizon`: how far a run may go, and how far its epoch goes, in noised steps. No Keras in here."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class Horizon:
    """The numbers by which a `PrivacyBudget` stops in time.

    Attributes:
      accumulation_steps: batches of a logical batch.
      steps_per_call: noised steps that one call of the train function takes at most.
      batches_per_epoch: None where that is not known yet.
      batches_seen: of this epoch.
      allowed: the optimizer's count of steps up to which the target is kept; None without a target.
    """

    accumulation_steps: int = 1
    steps_per_call: int = 1
    batches_per_epoch: int | None = None
    batches_seen: int = 0
    allowed: int | None = None

    def next_call_passes(self, steps: int) -> bool:
        """Whether the target might be passed by the call that follows on `steps`."""
        return self.allowed is not None and steps + self.steps_per_call > self.allowed

    def remaining(self, steps: int) -> int | None:
        """How many more the target allows; None without a target."""
        return None if self.allowed is None else max(0, self.allowed - steps)

    def end_of_epoch(self, steps: int) -> int | None:
        """The count at the end of the epoch, where its length is known."""
        if not self.batches_per_epoch:
            return None
        batches = max(0, self.batches_per_epoch - self.batches_seen)
        end = steps - (-batches // self.accumulation_steps)
        return end if self.allowed is None else min(end, self.allowed)

    def spent(self, steps: int, epsilon: float, target_epsilon: float | None) -> str:
        """Why no further call is made, in a sentence."""
        text = (
            f"{steps} noised steps have cost epsilon {epsilon:.6g}, and `target_epsilon`="
            f"{target_epsilon:g} allows {self.allowed} in all"
        )
        if self.steps_per_call > 1:
            text += f"; one call of the train function takes {self.steps_per_call} (`steps_per_execution`)"
        hint = "" if self.allowed else " `adaclip_tf.noise_multiplier(...)` says how much noise a target needs."
        return f"{text}.{hint}"
