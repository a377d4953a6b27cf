"""The constants of the method, all of them, and the formulas that they stand in.

Symbols: n examples, B the expected batch size, q = B / n, T steps, d coordinates, z0 the noise multiplier that plain
DP-SGD would need for the target.

    t       = n q sqrt T / z0                           a sum over all examples, over all noise of training
    z_w     = n / t sqrt(R / f)                         noise on the sums of row norms, each of R rounds, and on how
                                                        often rows are not 0, F rounds more
    sigma_c = sqrt(2 c) / 2 n / (f_c t)                 noise on each of 2 c counts, whose sensitivity is 1/2
    kappa   = z0 sqrt(d) / B                            noise in a step's mean, over a clipped gradient
    k       = sqrt(2 - 2 / K)                           K classes, at least 2
    mu      = clip(m / (k kappa), m_min, m_max)         how much of a typical gradient is kept
    rate    = min(r max(K, 2), r_z k B / (z0 sqrt T))   at most r_d for deep models; for a squared loss, the second
                                                        times clip((t / (t_s d))^(1/2), f_s, 1)
    rate_t  = rate (1 - t / T)^e                        at step t

T steps cost about (q / z0)^2 T in squared noise-to-signal terms, so that R rounds at z_w cost the fraction f of it, and
all counts f_c^2. How scales follow from the answers: `scales.estimate`.

Why t / d. As t grows, each coordinate has time to come to its place many times over, and then what noise moved it
before is forgotten. With t / d small it is not: all noise of training stays in the weights. A loss of classes gains by
outputs that are too long as much as it loses; a squared loss knows how long they should be.

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
      power: r in h = (size / w^(1/2))^r ...
      frequency_rounds: F, 1; or 0 for h = (max(m, median m) / w^(1/2))^r, as scales were before.
      least_size: a, the least size of a row, of the typical one: sizes are means, which do not see what is large in a
        few examples alone.
      frequency_power, most_power: b and e_1 in ... s^b (s / (s + s0))^(e_1 - b).
      least_time: c in s0 = c n0 / (t - c d): how much of t / d each row gets, however rare it is.
      visible: l, how many standard errors of its frequency a row is above 0 whose size is half believed.
      first_spread, last_spread: of the two searches' first guesses, in log C.
      norm_spread: of the norms themselves, as the searches take them to be, in log C.
      doubt: of that, as a standard error of each answer, a fraction.
      multiplier, least_multiplier, largest_multiplier: m, m_min and m_max.
      rate_per_class: r.
      rate_by_noise: r_z.
      rate_fall: e.
      squared_time, least_squared: t_s and f_s.
      deep, deep_rate: from so many kernels on the learning rate is at most r_d. (Models of one or two kernels take
        steps that kill the units of a deeper one.)
      damping, damping_decay: D, and the decay of the moving average that is damped by (`core.scales`).
    """

    rounds: int = 3
    share: float = 0.03
    counts: int = 12
    count_share: float = 0.15
    power: float = 0.4
    frequency_rounds: int = 1
    least_size: float = 0.1
    frequency_power: float = 0.1
    most_power: float = 0.4
    least_time: float = 5.0
    visible: float = 3.0
    first_spread: float = 1.75
    last_spread: float = 0.5
    norm_spread: float = 1.0
    doubt: float = 0.05
    multiplier: float = 0.2
    least_multiplier: float = 0.1
    largest_multiplier: float = 2.0
    rate_per_class: float = 3.75
    rate_by_noise: float = 1.125
    rate_fall: float = 0.5
    squared_time: float = 25.0
    least_squared: float = 0.5
    deep: int = 3
    deep_rate: float = 4.5
    damping: float = 4.0
    damping_decay: float = 0.9

    def __post_init__(self):
        for name in ("rounds", "counts", "deep"):
            validate.positive_integer(name, getattr(self, name))
        if self.frequency_rounds not in (0, 1):
            raise ValueError(f"`frequency_rounds` must be 0 or 1; got {self.frequency_rounds!r}.")
        for field in dataclasses.fields(self):
            if field.name != "frequency_rounds":
                validate.positive(field.name, getattr(self, field.name))

    def noise(self, noise_multiplier: float, probability: float, steps: int) -> QueryNoise:
        """z_w and sigma_c, from z0, q and T."""
        of_training = noise_multiplier / (probability * math.sqrt(steps))
        return QueryNoise(
            of_training * math.sqrt(self.rounds / self.share),
            0.5 * math.sqrt(2 * self.counts) * of_training / self.count_share,
        )

    def event(self, noise: QueryNoise, fits: int = 1) -> dp_accounting.DpEvent:
        """What the queries of so many warm-ups cost: (R + F) x Gaussian(z_w), 2 c x Gaussian(2 sigma_c), each time."""
        return dp_accounting.ComposedDpEvent(
            [
                events.gaussian_event(noise.rows, (self.rounds + self.frequency_rounds) * fits),
                # Noise over sensitivity: a count moves by 1/2.
                events.gaussian_event(2.0 * noise.counts, 2 * self.counts * fits),
            ]
        )

    def multiplier_for(self, noise_multiplier: float, coordinates: int, batch_size: float, classes: int = 2) -> float:
        """mu, from z, d, B and K."""
        kappa = noise_multiplier * math.sqrt(coordinates) / batch_size
        wanted = self.multiplier / (_longer(classes) * kappa) if kappa else math.inf
        return min(max(wanted, self.least_multiplier), self.largest_multiplier)

    def signal(self, num_examples: int, rows_noise: float) -> float:
        """t, from n and z_w."""
        return num_examples / rows_noise * math.sqrt(self.rounds / self.share) if rows_noise else math.inf

    def learning_rate(
        self,
        noise_multiplier: float,
        batch_size: float,
        steps: int,
        classes: int,
        kernels: int = 1,
        squared: bool = False,
        coordinates: int = 1,
    ) -> float:
        """The learning rate that training begins with, from z0, B, T, K and how many kernels the model has; for a
        squared loss also from d."""
        most = min(self.rate_per_class * max(classes, 2), self.deep_rate if kernels >= self.deep else math.inf)
        if noise_multiplier == 0.0:
            return most
        by_noise = self.rate_by_noise * _longer(classes)
        if squared:
            time = batch_size * math.sqrt(steps) / (noise_multiplier * coordinates)
            by_noise *= min(max(math.sqrt(time / self.squared_time), self.least_squared), 1.0)
        return min(most, by_noise * batch_size / (noise_multiplier * math.sqrt(steps)))


def _longer(classes: int) -> float:
    """k."""
    return math.sqrt(2.0 - 2.0 / max(classes, 2))


DEFAULT = Method()
