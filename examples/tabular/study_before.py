"""The search for the median as the default had it until the study's second round."""

from __future__ import annotations

import dataclasses
import math

LEAST_SPAN = 1.05


@dataclasses.dataclass
class SpanSearch:
    """Moves C towards the median of |g_k / h|: by `span`, and by its root once it has turned."""

    clip: float
    span: float
    went_up: bool | None = None

    def move(self, fraction_within: float) -> None:
        """One answer: about this fraction of the examples is within C."""
        up = fraction_within < 0.5
        if self.went_up is not None and up != self.went_up:
            self.span = max(math.sqrt(self.span), LEAST_SPAN)
        self.went_up = up
        self.clip *= self.span if up else 1.0 / self.span
