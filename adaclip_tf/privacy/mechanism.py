"""`Mechanism`: what one noised step is to an example, and how many steps are how many releases.

Budget, curve, statement, calibration and ledger all count by this one class, so that they cannot disagree.
`adaclip_tf.privacy.events` has the table of what is proven for which way of sampling.
"""

from __future__ import annotations

import dataclasses
import fractions
import math

import dp_accounting

from adaclip_tf._internal import validate

SAMPLINGS = ("poisson", "shuffled")  # of the batches of a `fit`
WITHOUT_REPLACEMENT = "without_replacement"  # a fixed number of clients in every round of federated training
MAX_STEPS = 10**12  # of one event: dp_accounting counts in float64


@dataclasses.dataclass(frozen=True)
class Mechanism:
    """One noised step on a data set.

    Example:
      >>> step = Mechanism(noise_multiplier=1.1, num_examples=1500, batch_size=1000)
      >>> step.steps_in(20), step.event(steps=40).count
      (40, 40)

    Args:
      noise_multiplier: z, standard deviation of the noise divided by the sensitivity of the sum. 0 is not private.
      num_examples: n, the size of the training set.
      batch_size: B, the expected size of a logical batch (all accumulation steps together).
      sampling: "poisson", "shuffled" or "without_replacement": B of the n, drawn again in every step.
      microbatch_sensitivity: 1, or 2 where microbatches hold several examples.
    """

    noise_multiplier: float
    num_examples: int
    batch_size: int
    sampling: str = "poisson"
    microbatch_sensitivity: float = 1.0

    def __post_init__(self):
        # As Python's numbers: what is counted below would wrap around in NumPy's.
        validate.fields(
            self,
            noise_multiplier=validate.noise_multiplier,
            num_examples=validate.positive_integer,
            batch_size=validate.positive_integer,
            sampling=lambda name, value: validate.one_of(name, value, (*SAMPLINGS, WITHOUT_REPLACEMENT)),
            microbatch_sensitivity=validate.real,
        )
        if self.batch_size > self.num_examples:
            raise ValueError(
                f"`batch_size` must be at most `num_examples`; got batch_size={self.batch_size} and "
                f"num_examples={self.num_examples}."
            )
        if self.microbatch_sensitivity < 1.0:
            raise ValueError(
                "`microbatch_sensitivity` must be 1 (one example per microbatch) or 2 (several); "
                f"got {self.microbatch_sensitivity!r}."
            )

    def with_noise(self, noise_multiplier: float) -> Mechanism:
        """The same step with other noise."""
        return dataclasses.replace(self, noise_multiplier=noise_multiplier)

    @property
    def relation(self) -> str:
        """The neighbouring relation for which the event holds."""
        if self.sampling == "poisson":
            return "add or remove one"
        if self.sampling == WITHOUT_REPLACEMENT:
            return "replace one by any other"
        return "replace one by an example that contributes nothing"

    @property
    def release(self) -> dp_accounting.DpEvent:
        """The privacy event of one release, as one example sees it."""
        event = dp_accounting.GaussianDpEvent(self.noise_multiplier / self.microbatch_sensitivity)
        if self.sampling == "shuffled":
            return event
        if self.sampling == WITHOUT_REPLACEMENT and self.noise_multiplier:
            # One record leaves the sum and another joins it: together they move it by twice what one does.
            event = dp_accounting.GaussianDpEvent(event.noise_multiplier / 2.0)
            return dp_accounting.SampledWithoutReplacementDpEvent(self.num_examples, self.batch_size, event)
        return dp_accounting.PoissonSampledDpEvent(self.batch_size / self.num_examples, event)

    def releases(self, steps: int) -> int:
        """How often `release` happens in `steps` steps.

        "poisson", "without_replacement": every step. "shuffled": once per epoch begun. An epoch is taken to last
        floor(n / B) steps, the fewest it can (the remainder dropped), so that the count is never too small.
        """
        if self.sampling != "shuffled":
            return steps
        return -(-steps // self.shortest_epoch)

    @property
    def shortest_epoch(self) -> int:
        """Steps of an epoch that drops the remainder: the fewest in which every example can be used once."""
        return self.num_examples // self.batch_size

    @property
    def epoch(self) -> int:
        """Steps of an epoch: ceil(n / B), as `poisson_batches` and `fit` on arrays count."""
        return -(-self.num_examples // self.batch_size)

    def steps_in(self, epochs: float) -> int:
        """Steps of so many epochs, ceil(epochs * ceil(n / B)), from the number as it is written (0.1 is one tenth)."""
        validate.positive("epochs", epochs)
        return math.ceil(fractions.Fraction(str(validate.plain(epochs))) * self.epoch)

    def event(self, *, epochs: float | None = None, steps: int | None = None) -> dp_accounting.DpEvent:
        """A whole training run as one dp_accounting event; of `epochs` or of `steps`."""
        count = self.releases(self.count(epochs=epochs, steps=steps))
        if self.sampling == "shuffled" and epochs is not None:
            count = math.ceil(validate.plain(epochs))  # whatever the length of an epoch
        return dp_accounting.SelfComposedDpEvent(self.release, count)

    def count(self, *, epochs: float | None = None, steps: int | None = None) -> int:
        """`steps`, or the steps of `epochs`."""
        if (epochs is None) == (steps is None):
            raise ValueError(f"Give either `epochs` or `steps`; got epochs={epochs!r} and steps={steps!r}.")
        count = self.steps_in(epochs) if epochs is not None else validate.positive_integer("steps", steps)
        if count > MAX_STEPS:
            raise ValueError(f"`steps` must be at most {MAX_STEPS:g}; got steps={steps!r} and epochs={epochs!r}.")
        return count
