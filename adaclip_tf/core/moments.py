"""m and s^2: the running statistics of the gradient, learnt from noised means only."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from adaclip_tf._internal import validate
from adaclip_tf.core.framework import Published


class Moments(NamedTuple):
    """Running statistics of the gradient, per coordinate, learnt from noised means only."""

    mean: list[tf.Tensor]  # m
    variance: list[tf.Tensor]  # s^2


@dataclasses.dataclass(frozen=True)
class MomentEstimator:
    """Estimates m and s^2 from noised means (the paper's moving averages).

    With z^2 b^2 / B^2 the known variance of the noise in g~,

        r   = (g~ - m)^2 - z^2 b^2 / B^2
        v   = min(max(B r, h1), h2)
        s^2 = beta_2 s^2 + (1 - beta_2) v
        m   = beta_1 m + (1 - beta_1) g~

    Attributes:
      beta_1: decay of m.
      beta_2: decay of s^2.
      h1, h2: the floor and the ceiling of s^2.
      initial_std: s before the first step; sqrt(h1 h2) if None, as in the paper.
      variance_scaling: "per_example" as above; "paper" leaves out the factor B. (g~ - m)^2 estimates
        the variance of the batch MEAN, which is s^2 / B: without the factor s comes out too small by
        sqrt(B) and every example is clipped.
      clamp: "before_average" as above, which biases s^2 upwards where noise dominates (the floor cuts
        the negative half of r); "after_average" averages B r first and clamps the average.
    """

    beta_1: float = 0.99
    beta_2: float = 0.9
    h1: float = 1e-12
    h2: float = 1e-3
    initial_std: float | None = None
    variance_scaling: str = "per_example"
    clamp: str = "before_average"

    def __post_init__(self):
        validate.fields(
            self,
            beta_1=validate.fraction,
            beta_2=validate.fraction,
            h1=validate.positive_float32,
            h2=validate.positive_float32,
            initial_std=validate.optional(validate.positive_float32),
        )
        if self.h1 > self.h2:
            raise ValueError(
                f"`h1` must be at most `h2` (they are the floor and the ceiling of the variance); "
                f"got h1={self.h1!r} and h2={self.h2!r}."
            )
        try:
            validate.positive_float32("initial_std ** 2", self._initial_variance())
        except ValueError as error:
            if self.initial_std is not None:
                raise
            raise ValueError(
                f"`h1` * `h2`, the variance before the first step, is out of float32's range; got h1={self.h1!r} and "
                f"h2={self.h2!r}. Give `initial_std`."
            ) from error
        validate.one_of("variance_scaling", self.variance_scaling, ("per_example", "paper"))
        validate.one_of("clamp", self.clamp, ("before_average", "after_average"))

    def _initial_variance(self) -> float:
        return self.h1 * self.h2 if self.initial_std is None else self.initial_std**2

    @property
    def variance_range(self) -> tuple[float, float]:
        """What s^2 never leaves: [h1, h2], widened by where it starts.

        The paper's start, s^2 = h1 h2, lies below h1 wherever h2 < 1. From there the moving average of values within
        [h1, h2] comes ever closer to the interval, and stays in it once it is there.
        """
        start = self._initial_variance()
        return min(self.h1, start), max(self.h2, start)

    def initial_state(self, specs) -> Moments:
        variance = tf.constant(self._initial_variance(), tf.float32)
        return Moments(
            mean=[tf.zeros(spec.shape, tf.float32) for spec in specs],
            variance=[tf.fill(spec.shape, variance) for spec in specs],
        )

    def next_state(self, state: Moments, published: Published) -> Moments:
        """m and s^2 after a step. Post-processing: it sees what was published, and nothing else."""
        divisor = tf.cast(published.divisor, tf.float32)
        examples_per_mean = divisor if self.variance_scaling == "per_example" else 1.0
        means, variances = [], []
        for m, variance, b, g in zip(*state, published.transform.scale, published.mean):
            # (g~ - m)^2 - z^2 b^2 / B^2 as a product: squares that overflow would leave infinity - infinity.
            deviation, noise = tf.abs(g - m), published.noise_multiplier * b / divisor
            residual = (deviation - noise) * (deviation + noise)
            observed = examples_per_mean * residual
            if self.clamp == "before_average":
                observed = tf.clip_by_value(observed, self.h1, self.h2)
            average = self.beta_2 * variance + (1.0 - self.beta_2) * observed
            if self.clamp == "after_average":
                average = tf.clip_by_value(average, self.h1, self.h2)
            variances.append(average)
            means.append(self.beta_1 * m + (1.0 - self.beta_1) * g)
        return Moments(means, variances)

    def metrics(self, state: Moments) -> dict[str, tf.Tensor]:
        """`std_mean`, `std_min`, `std_max` over the coordinates of s, and `mean_norm`, |m|."""
        std = tf.concat([tf.reshape(tf.sqrt(variance), [-1]) for variance in state.variance], axis=0)
        return {
            "std_mean": tf.reduce_mean(std),
            "std_min": tf.reduce_min(std),
            "std_max": tf.reduce_max(std),
            "mean_norm": tf.linalg.global_norm(state.mean),
        }
