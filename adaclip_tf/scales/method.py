"""The constants of the method, all of them, and the formulas that they stand in.

Symbols: n examples, B the expected batch size, q = B / n, T steps, d coordinates, z0 the noise multiplier that plain
DP-SGD would need for the target.

    z_w     = z0 / (q sqrt T) sqrt(R / f)              noise on the sums of row norms, each of R rounds
    sigma_c = sqrt(2 c) / 2 z0 / (f_c q sqrt T)         noise on each of 2 c counts, whose sensitivity is 1/2
    kappa   = z0 sqrt(d) / B                            noise in a step's mean, over a clipped gradient
    k       = sqrt(2 - 2 / K)                           K classes, at least 2
    mu      = clip(m / (k kappa), m_min, m_max)         how much of a typical gradient is kept
    rate    = min(r max(K, 2), r_z k B / (z0 sqrt T))   at most r_d for deep models
    rate_t  = rate (1 - t / T)^e                        at step t

T steps cost about (q / z0)^2 T in squared noise-to-signal terms, so that R rounds at z_w cost the fraction f of it, and
all counts f_c^2.

Why e = 1/2. Where noise rules, how far training moves goes with the sum of rate_t, and noise in the weights with the
sum of its squares: for one and the same sum the squares are least where the rate does not fall, 3 / 4 of a straight
line's. At the end a rate that falls lets directions of strong curvature settle. A root does both: 27 / 32.

Why k. At the start dy = softmax - one-hot has the length sqrt(1 - 1/K): k is that, over that of two classes. C is as
much longer, and the noise of a step, in outputs, as much smaller; so the rate may be longer, and a smaller part of C is
kept, to have both as with two classes.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import dp_accounting

from adaclip_tf._internal import validate
from adaclip_tf.privacy import events


class QueryNoise(NamedTuple):
    """Noise of the warm-up's two kinds of queries."""

    rows: float  # z_w, on sums of sensitivity 1
    counts: float  # sigma_c, on counts of sensitivity 1/2


@dataclasses.dataclass(frozen=True)
class Method:
    """What was chosen once, on several problems, and is not tuned.

    Attributes:
      rounds: R, how often the row norms are asked for.
      share: f, the part of the squared budget that the rounds take.
      counts: c, how many counts one search for the median takes; there are two searches.
      count_share: f_c, the square root of the part that all counts take.
      power: r in h = (max(m, median m) / w^(1/2))^r.
      first_span, last_span: factor by which the two searches begin to move.
      least_span: the smallest such factor.
      multiplier, least_multiplier, largest_multiplier: m, m_min and m_max.
      rate_per_class: r.
      rate_by_noise: r_z.
      rate_fall: e.
      deep, deep_rate: from so many kernels on the learning rate is at most r_d. (Models of one or two kernels take
        steps that kill the units of a deeper one.)
      damping, damping_decay: D, and the decay of the moving average that is damped by (`core.scales`).
    """

    rounds: int = 3
    share: float = 0.03
    counts: int = 12
    count_share: float = 0.15
    power: float = 0.4
    first_span: float = 32.0
    last_span: float = 2.0
    least_span: float = 1.05
    multiplier: float = 0.2
    least_multiplier: float = 0.1
    largest_multiplier: float = 2.0
    rate_per_class: float = 3.75
    rate_by_noise: float = 1.125
    rate_fall: float = 0.5
    deep: int = 3
    deep_rate: float = 4.5
    damping: float = 4.0
    damping_decay: float = 0.9

    def __post_init__(self):
        for name in ("rounds", "counts", "deep"):
            validate.positive_integer(name, getattr(self, name))
        for field in dataclasses.fields(self):
            validate.positive(field.name, getattr(self, field.name))
        for name in ("first_span", "last_span", "least_span"):
            if getattr(self, name) <= 1.0:
                raise ValueError(f"`{name}` must be above 1: it is a factor; got {getattr(self, name)!r}.")

    def noise(self, noise_multiplier: float, probability: float, steps: int) -> QueryNoise:
        """z_w and sigma_c, from z0, q and T."""
        of_training = noise_multiplier / (probability * math.sqrt(steps))
        return QueryNoise(
            of_training * math.sqrt(self.rounds / self.share),
            0.5 * math.sqrt(2 * self.counts) * of_training / self.count_share,
        )

    def event(self, noise: QueryNoise, fits: int = 1) -> dp_accounting.DpEvent:
        """What the queries of so many warm-ups cost: R x Gaussian(z_w) and 2 c x Gaussian(2 sigma_c), each time."""
        return dp_accounting.ComposedDpEvent(
            [
                events.gaussian_event(noise.rows, self.rounds * fits),
                # Noise over sensitivity: a count moves by 1/2.
                events.gaussian_event(2.0 * noise.counts, 2 * self.counts * fits),
            ]
        )

    def multiplier_for(self, noise_multiplier: float, coordinates: int, batch_size: float, classes: int = 2) -> float:
        """mu, from z, d, B and K."""
        kappa = noise_multiplier * math.sqrt(coordinates) / batch_size
        wanted = self.multiplier / (_longer(classes) * kappa) if kappa else math.inf
        return min(max(wanted, self.least_multiplier), self.largest_multiplier)

    def learning_rate(
        self, noise_multiplier: float, batch_size: float, steps: int, classes: int, kernels: int = 1
    ) -> float:
        """The learning rate that training begins with, from z0, B, T, K and how many kernels the model has."""
        most = min(self.rate_per_class * max(classes, 2), self.deep_rate if kernels >= self.deep else math.inf)
        if noise_multiplier == 0.0:
            return most
        by_noise = self.rate_by_noise * _longer(classes)
        return min(most, by_noise * batch_size / (noise_multiplier * math.sqrt(steps)))


def _longer(classes: int) -> float:
    """k."""
    return math.sqrt(2.0 - 2.0 / max(classes, 2))


DEFAULT = Method()
