"""`AuditResult`: what attacks proved, beside what is claimed."""

from __future__ import annotations

import dataclasses
import textwrap
from typing import NamedTuple


class Proven(NamedTuple):
    """Lower bounds on epsilon from one view of the runs."""

    guesses: int  # of coins
    correct: int  # of these
    any_mechanism: float  # `privacy.auditing.one_run_epsilon`
    gaussian: float  # `privacy.dependent_trials.gaussian_epsilon_of_guesses`

    @property
    def best(self) -> float:
        """The larger one. Both are functions of the one count, so that they hold or fail together."""
        return max(self.any_mechanism, self.gaussian)


@dataclasses.dataclass(frozen=True)
class AuditResult:
    """The bound beside the claim. `print` it.

    Attributes:
      lower_bound: the largest epsilon that was proven, over all views.
      claimed: what the accountant says of exactly these runs.
      confidence: with which `lower_bound` is at most the true epsilon.
      delta: of both.
      accountant: of the claim.
      noise_multiplier, num_examples, batch_size, steps: z, n, B, T of every run.
      runs, canaries: how many runs there were, and how many canaries in each.
      most_provable: what `lower_bound` would be if no guess had been wrong.
      views: `Proven` for each view: "gradient", the noised mean that the optimizer publishes, and "weights".
    """

    lower_bound: float
    claimed: float
    confidence: float
    delta: float
    accountant: str
    noise_multiplier: float
    num_examples: int
    batch_size: int
    steps: int
    runs: int
    canaries: int
    most_provable: float
    views: dict[str, Proven]

    @property
    def refuted(self) -> bool:
        """Whether the claim is false, with `confidence`."""
        return self.lower_bound > self.claimed

    def __str__(self) -> str:
        q = self.batch_size / self.num_examples
        lines = [
            f"Audit: {self.runs:,} runs of {self.steps:,} steps, {self.canaries:,} canaries in each, by coins",
            f"  noise multiplier {self.noise_multiplier:g}, n = {self.num_examples:,}, B = {self.batch_size:,} "
            f"(Poisson, q = {q:.3g}), delta = {self.delta:g}",
            "",
            f"  {'the attacker sees':20s}{'guessed right':>16s}{'any mechanism':>16s}{'Gaussian noise':>16s}",
        ]
        for view, proven in self.views.items():
            right = f"{proven.correct:,} of {proven.guesses:,}"
            lines.append(f"  {view:20s}{right:>16s}{proven.any_mechanism:>16.2f}{proven.gaussian:>16.2f}")
        lines += ["", *textwrap.wrap(self._verdict(), 96)]
        return "\n".join(lines) + "\n"

    def _verdict(self) -> str:
        bound, claim = f"epsilon {self.lower_bound:.2f}", f"{self.claimed:.2f} ({self.accountant.upper()})"
        sure = f"with confidence {self.confidence:.4g}"
        if self.refuted:
            return (
                f"!!! THE CLAIM IS FALSE, {sure}: these runs have at least {bound}, and {claim} is claimed. Do not "
                "publish models that were trained like this. Something adds too little noise, clips too little, or "
                "uses more of the data than the noised sum."
            )
        return (
            f"No attack proved more than {bound} ({sure}); claimed: {claim}. The most that so many guesses could prove "
            f"is {self.most_provable:.2f}. An audit can show that something is wrong, never that all is well."
        )
