"""AdaCliP as pure functions: state in, (result, state) out. Start reading here.

Pichapati, Suresh, Yu, Reddi, Kumar, "AdaCliP: Adaptive Clipping for Private SGD", 2019
(arXiv 1908.07643), called "the paper" below.

Symbols, and the names they have in this file:

| symbol | name                  | meaning                                                         |
|--------|-----------------------|-----------------------------------------------------------------|
| g_k    | `records`             | gradient of microbatch k, flattened over ALL variables           |
| a      | `Transform.center`    | public vector that is subtracted                                 |
| b      | `Transform.scale`     | public vector that is divided by, b > 0                          |
| w_k    | `transform_records`   | (g_k - a) / b                                                    |
| c_k    | `clip_weights`        | 1 / max(1, |w_k|)                                                |
| u_k    | `clip_records`        | c_k w_k, of norm at most 1                                       |
| z      | `noise_multiplier`    | standard deviation of the noise on the sum, whose sensitivity is 1 |
| B      | `divisor`             | expected number of records in a batch, a public constant         |
| W      | `noised_sum`          | sum_k u_k + N(0, z^2 I)                                          |
| g~     | `noised_mean`         | b W / B + a, the private mean gradient                           |
| m, s^2 | `Moments`             | running mean and variance of the gradient, learnt from g~ only   |

A record is a list with one tensor per variable. Everywhere below, lists run over variables, and
`records` have one more leading axis that runs over the microbatches. All arithmetic is float32.

Formal guarantee. Let u_k be what `clip_records` returns. |u_k|_2 <= 1 (up to float32 rounding) for
every record whatever its values, and u_k depends on record k alone. So adding or removing one
record moves sum_k u_k by at most 1 in L2 norm, and `private_step`, which sees nothing of the data but
that sum with N(0, z^2 I) on top, is one Gaussian mechanism of noise multiplier z. Its results
(g~ and the next state) are post-processing.

Edge cases.

| input                                      | result                                                |
|--------------------------------------------|-------------------------------------------------------|
| no records (empty batch)                   | the sum is 0; noise is added and the state moves       |
| a record with NaN or infinity              | contributes exactly 0                                  |
| |w_k| above float32's sqrt(max), 1.8e19    | contributes exactly 0                                  |
| a zero gradient                            | w_k = -a / b, clipped like any other                   |
| every s at its floor                       | b > 0 still, since h1 > 0                              |
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from adaclip_tf._internal import validate

Tensors = Sequence[tf.Tensor]


class Transform(NamedTuple):
    """The public vectors (a, b) of one step. Entries broadcast against their variable."""

    center: list[tf.Tensor]  # a
    scale: list[tf.Tensor]  # b


class Moments(NamedTuple):
    """Running statistics of the gradient, per coordinate, learnt from noised means only."""

    mean: list[tf.Tensor]  # m
    variance: list[tf.Tensor]  # s^2


# ---------------------------------------------------------------------------------------------------
# The general framework: transform, clip, sum, noise, un-transform (the paper's section 4.1).


def transform_records(records: Tensors, transform: Transform) -> list[tf.Tensor]:
    """w_k = (g_k - a) / b."""
    return [(tf.cast(record, tf.float32) - center) / scale for record, center, scale in zip(records, *transform)]


def squared_norms(records: Tensors) -> tf.Tensor:
    """|w_k|^2 over all variables, one number per record: shape [n]."""
    return tf.add_n(
        [
            tf.reduce_sum(tf.square(tf.cast(record, tf.float32)), axis=list(range(1, record.shape.rank)))
            for record in records
        ]
    )


def clip_weights(squared_norm: tf.Tensor) -> tf.Tensor:
    """c_k = 1 / max(1, |w_k|); 0 where the norm is not finite, so that such a record is left out."""
    weights = tf.math.rsqrt(tf.maximum(squared_norm, 1.0))
    return tf.where(tf.math.is_finite(squared_norm), weights, 0.0)


def weigh_records(records: Tensors, weights: tf.Tensor) -> list[tf.Tensor]:
    """c_k w_k, and exactly 0 where c_k is 0 (0 * NaN would be NaN)."""
    weighted = []
    for record in records:
        weight = tf.reshape(weights, [-1] + [1] * (record.shape.rank - 1))
        weighted.append(tf.where(weight > 0.0, weight * record, 0.0))
    return weighted


def clip_records(records: Tensors, transform: Transform) -> list[tf.Tensor]:
    """u_k = w_k / max(1, |w_k|): transforms, then clips the norm over all variables to 1."""
    transformed = transform_records(records, transform)
    return weigh_records(transformed, clip_weights(squared_norms(transformed)))


def clipped_sum(records: Tensors, transform: Transform) -> list[tf.Tensor]:
    """sum_k u_k: the only function of the data that the mechanism uses. L2 sensitivity 1."""
    return [tf.reduce_sum(clipped, axis=0) for clipped in clip_records(records, transform)]


def noised_mean(noised_sum: Tensors, transform: Transform, divisor: Any) -> list[tf.Tensor]:
    """g~ = b W / B + a. Post-processing."""
    return [scale * total / divisor + center for total, center, scale in zip(noised_sum, *transform)]


# ---------------------------------------------------------------------------------------------------
# The choices of (a, b): the rows of the paper's comparison, behind one small protocol.


class Choice(Protocol):
    """A rule that picks the next (a, b) from what was published so far."""

    def initial_state(self, specs: Sequence[Any]) -> Any:
        """The state before the first step, for variables with the shapes of `specs`."""

    def transform(self, state: Any, specs: Sequence[Any]) -> Transform:
        """(a, b) for the coming step."""

    def next_state(self, state: Any, transform: Transform, mean: Tensors, noise_multiplier: Any, divisor: Any) -> Any:
        """The state after a step that used `transform` and published the noised `mean`."""


@dataclasses.dataclass(frozen=True)
class FixedClip:
    """a = 0, b_i = C: DP-SGD, Abadi et al. 2016, clipping the global norm at C."""

    l2_norm_clip: float

    def __post_init__(self):
        validate.positive_float32("l2_norm_clip", self.l2_norm_clip)

    def initial_state(self, specs):
        del specs
        return ()

    def transform(self, state, specs):
        del state
        zero, clip = tf.constant(0.0), tf.constant(self.l2_norm_clip, tf.float32)
        return Transform([zero] * len(specs), [clip] * len(specs))

    def next_state(self, state, transform, mean, noise_multiplier, divisor):
        del transform, mean, noise_multiplier, divisor
        return state


def norm_bound(largest_gradient_norm: float) -> FixedClip:
    """a = 0, b_i = the largest norm a gradient can have: nothing is clipped, only noise is added.

    28 bounds softmax regression on MNIST: |x| <= 28 for 784 pixels in [0, 1] and an error vector of
    norm at most sqrt(2) that the paper leaves out. The guarantee never rests on the bound: a gradient
    beyond it is clipped to it.
    """
    return FixedClip(validate.positive_float32("largest_gradient_norm", largest_gradient_norm))


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
        validate.fraction("beta_1", self.beta_1)
        validate.fraction("beta_2", self.beta_2)
        validate.positive_float32("h1", self.h1)
        validate.positive_float32("h2", self.h2)
        if self.h1 > self.h2:
            raise ValueError(
                f"`h1` must be at most `h2` (they are the floor and the ceiling of the variance); "
                f"got h1={self.h1!r} and h2={self.h2!r}."
            )
        if self.initial_std is not None:
            validate.positive_float32("initial_std", self.initial_std)
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

    def next_state(self, state: Moments, transform: Transform, mean: Tensors, noise_multiplier, divisor):
        divisor = tf.cast(divisor, tf.float32)
        examples_per_mean = divisor if self.variance_scaling == "per_example" else 1.0
        means, variances = [], []
        for m, variance, b, g in zip(*state, transform.scale, mean):
            # (g~ - m)^2 - z^2 b^2 / B^2 as a product: squares that overflow would leave infinity - infinity.
            deviation, noise = tf.abs(g - m), noise_multiplier * b / divisor
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


def _check_gamma(gamma: float, moments: MomentEstimator) -> None:
    """b^2 lies between s^2 / gamma and d^2 s^2 / gamma: float32 must hold it, for d up to 1e10."""
    validate.positive("gamma", gamma)
    low, high = moments.variance_range
    if not (low / gamma >= validate.FLOAT32_TINY and high / gamma <= validate.FLOAT32_MAX / 1e20):
        raise ValueError(
            f"`gamma` must leave the scale sqrt(s^2 / gamma) in float32's range, for s^2 between {low:.3g} and "
            f"{high:.3g} (`h1`, `h2`, `initial_std`); got {gamma!r}. Values between 0.1 and 1 are usual."
        )


@dataclasses.dataclass(frozen=True)
class AdaClip:
    """a = m, b_i = sqrt(s_i / gamma) sqrt(sum_j s_j): the paper's Theorem 1.

    Among all b with E|w|^2 = sum_i s_i^2 / b_i^2 <= gamma, this one has the least |b|^2, hence adds
    the least noise.
    """

    moments: MomentEstimator = MomentEstimator()
    gamma: float = 1.0

    def __post_init__(self):
        _check_gamma(self.gamma, self.moments)

    def initial_state(self, specs):
        return self.moments.initial_state(specs)

    def transform(self, state, specs):
        del specs
        std = [tf.sqrt(variance) for variance in state.variance]
        total = tf.add_n([tf.reduce_sum(s) for s in std])
        return Transform(state.mean, [tf.sqrt(s) * tf.sqrt(total / self.gamma) for s in std])

    def next_state(self, state, transform, mean, noise_multiplier, divisor):
        return self.moments.next_state(state, transform, mean, noise_multiplier, divisor)


@dataclasses.dataclass(frozen=True)
class Whitening:
    """a = m, b_i = sqrt(d / gamma) s_i: every coordinate of w has the same variance."""

    moments: MomentEstimator = MomentEstimator()
    gamma: float = 1.0

    def __post_init__(self):
        _check_gamma(self.gamma, self.moments)

    def initial_state(self, specs):
        return self.moments.initial_state(specs)

    def transform(self, state, specs):
        dimension = sum(math.prod(spec.shape) for spec in specs)
        factor = math.sqrt(dimension / self.gamma)
        return Transform(state.mean, [factor * tf.sqrt(variance) for variance in state.variance])

    def next_state(self, state, transform, mean, noise_multiplier, divisor):
        return self.moments.next_state(state, transform, mean, noise_multiplier, divisor)


# ---------------------------------------------------------------------------------------------------
# One step.


def private_step(
    choice: Choice,
    state: Any,
    transform: Transform,
    total: Tensors,
    standard_normals: Tensors,
    noise_multiplier: Any,
    divisor: Any,
) -> tuple[list[tf.Tensor], Any]:
    """Publishes one step: adds the noise, un-transforms, and learns from the result.

    Args:
      choice: the rule that made `transform`.
      state: its state.
      transform: (a, b) = `choice.transform(state, specs)`.
      total: `clipped_sum(records, transform)`, or what several workers' such sums add up to.
      standard_normals: independent N(0, 1) draws in the shapes of the variables, fresh every step.
      noise_multiplier: z.
      divisor: B.

    Returns:
      (g~, next state). Both are functions of the noised sum W and public values only.
    """
    noised_sum = [u + noise_multiplier * n for u, n in zip(total, standard_normals)]
    return published_step(choice, state, transform, noised_sum, noise_multiplier, divisor)


def published_step(
    choice: Choice, state: Any, transform: Transform, noised_sum: Tensors, noise_multiplier: Any, divisor: Any
) -> tuple[list[tf.Tensor], Any]:
    """The part of `private_step` that follows the noise: (g~, next state) from W. Post-processing."""
    divisor = tf.cast(divisor, tf.float32)
    mean = noised_mean(noised_sum, transform, divisor)
    return mean, choice.next_state(state, transform, mean, noise_multiplier, divisor)


def published_metrics(
    state: Any, transform: Transform, specs: Sequence[Any], noise_multiplier: Any, divisor: Any
) -> dict[str, tf.Tensor]:
    """Scalars that describe the coming step. Functions of published values only, so free to log.

    `scale_norm` is |b|, `noise_norm` is z |b| / B (the root mean square norm of the noise in g~), and, where
    the choice keeps `Moments`, `std_mean`, `std_min`, `std_max` are over the coordinates of s and `mean_norm`
    is |m|.
    """
    squares = [tf.broadcast_to(tf.square(b), spec.shape) for b, spec in zip(transform.scale, specs)]
    scale_norm = tf.sqrt(tf.add_n([tf.reduce_sum(square) for square in squares]))
    metrics = {
        "scale_norm": scale_norm,
        "noise_norm": noise_multiplier * scale_norm / tf.cast(divisor, tf.float32),
    }
    if isinstance(state, Moments):
        std = tf.concat([tf.reshape(tf.sqrt(variance), [-1]) for variance in state.variance], axis=0)
        metrics["std_mean"] = tf.reduce_mean(std)
        metrics["std_min"] = tf.reduce_min(std)
        metrics["std_max"] = tf.reduce_max(std)
        metrics["mean_norm"] = tf.linalg.global_norm(state.mean)
    return metrics
