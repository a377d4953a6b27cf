"""What a private step is told once, and never changes: checked when the optimizer is made."""

from __future__ import annotations

import dataclasses

from adaclip_tf import gradients
from adaclip_tf._internal import validate


@dataclasses.dataclass(frozen=True)
class Settings:
    """Arguments that all private optimizers share; what they mean: see `DPAdaClipSGD`."""

    noise_multiplier: float
    num_microbatches: int | None = None
    expected_batch_size: int | None = None
    accumulation_steps: int = 1
    noise_terms: int = 1
    gradient_path: str = "auto"
    nonprivate_metrics: bool = False
    seed: int | None = None

    def __post_init__(self):
        validate.fields(  # NumPy's numbers become Python's, which JSON can write
            self,
            noise_multiplier=validate.noise_multiplier,
            num_microbatches=validate.optional(validate.positive_integer),
            expected_batch_size=validate.optional(validate.positive_integer),
            accumulation_steps=validate.positive_integer,
            noise_terms=validate.positive_integer,
            gradient_path=lambda name, value: validate.one_of(name, value, gradients.PATHS),
            nonprivate_metrics=validate.boolean,
            seed=validate.seed,
        )
        if self.num_microbatches and self.expected_batch_size:
            logical = self.num_microbatches * self.accumulation_steps
            if self.expected_batch_size % logical:
                raise ValueError(
                    f"`expected_batch_size` must be a multiple of num_microbatches * accumulation_steps = {logical}; "
                    f"got {self.expected_batch_size!r}."
                )

    @property
    def one_example_each(self) -> bool:
        """Whether every microbatch is one example, by these arguments alone."""
        if self.num_microbatches is None:
            return True
        return self.expected_batch_size == self.num_microbatches * self.accumulation_steps

    def num_microbatches_of(self, replicas: int) -> int | None:
        """Microbatches of one replica's part of a batch, of so many; None where each is one example."""
        if self.one_example_each or self.num_microbatches is None:
            return None
        return self.num_microbatches // replicas

    @property
    def expected_records(self) -> int | None:
        """B as far as it is known before the batch: microbatches of the logical batch."""
        if self.num_microbatches is not None:
            return self.num_microbatches * self.accumulation_steps
        return self.expected_batch_size
