"""Clipping rules: how (a, b) is chosen, how a record is clipped, what is learnt from a step.

| rule                | a, b                                                | clips                                |
|---------------------|-----------------------------------------------------|--------------------------------------|
| `FixedClip`         | 0, C                                                | the norm (Abadi et al. 2016)          |
| `norm_bound`        | 0, the largest norm a gradient can have             | nothing                              |
| `Whitening`         | m, sqrt(d / gamma) s_i                              | the norm                             |
| `AdaClip`           | m, sqrt(s_i / gamma) sqrt(sum_j s_j)                | the norm (the paper's Theorem 1)      |
| `PerLayerClip`      | 0, C sqrt(L)                                        | the norm of each of L layers          |
| `PerCoordinateClip` | 0, C sqrt(d)                                        | each coordinate (Shokri, Shmatikov 2015) |
| `QuantileClip`      | 0, C that follows a quantile of the norms     | the norm (Andrew et al. 2021), see `quantile` |
| `scales.ScaledClip` | 0, mu C h_i, learnt before training                 | the norm; steps by W / (C h)          |

The query, the optimizers and the private step take any `ClippingRule` as it is, and none asks which one it is.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from adaclip_tf._internal import validate
from adaclip_tf._internal.prior import Prior
from adaclip_tf.core.clipping import NORM, Clip, CoordinateClip, NormClip
from adaclip_tf.core.framework import Published, Transform
from adaclip_tf.core.moments import MomentEstimator, Moments


class ClippingRule:
    """A rule: one small class. `transform` is all that must be written; the rest has defaults.

    The state is any structure that `tf.nest` knows: tuples, named tuples and dicts as you like. A LIST in it runs over
    the variables, and has one entry for each. `transform` may look at the state only, `next_state` at what was
    published only; then clipping, noise and accounting hold for a rule as they are.

    Attributes:
      positive_state: names of the parts of the state that are above 0. A saved state where they are not is refused.
      prior: what the data was asked before training to make the rule, for those who count epsilon. None for nothing.
      treats_coordinates_alike: `transform` and `next_state` do the same with every coordinate, whichever variable it is
        of, and (a, b) have an entry for each. Then they may be handed several variables as one long one. Counts for
        the very class that says it, not for those below it.
    """

    positive_state: tuple[str, ...] = ()
    treats_coordinates_alike = False

    @property
    def prior(self) -> Prior | None:
        return None

    def initial_state(self, specs: Sequence[Any]) -> Any:
        """The state before the first step, for variables with the shapes and names of `specs`."""
        del specs
        return ()

    def transform(self, state: Any, specs: Sequence[Any]) -> Transform:
        """(a, b) of the coming step."""
        raise NotImplementedError(f"{type(self).__name__} has no `transform`.")

    def clip(self, specs: Sequence[Any]) -> Clip:
        """How w_k = (g_k - a) / b becomes u_k of norm at most 1."""
        del specs
        return NORM

    def observe(self, squared_norms: tf.Tensor) -> tf.Tensor | None:
        """What the rule asks of every record, from |w_k|^2 alone: rows of norm at most 1, or None for nothing.

        Row k may depend on entry k only. The sum of the rows is noised with the gradients, for one price.
        """
        del squared_norms
        return None

    @property
    def num_statistics(self) -> int:
        """The length of a row of `observe`."""
        return 0

    def next_state(self, state: Any, published: Published) -> Any:
        """The state after a step."""
        del published
        return state

    def direction(self, state: Any, mean: list[tf.Tensor]) -> list[tf.Tensor]:
        """What the update is handed in the place of the private mean gradient: g~ itself, by default.

        A function of g~ and of the state after the step alone, so post-processing.
        """
        del state
        return mean

    def metrics(self, state: Any) -> dict[str, tf.Tensor]:
        """Scalars of the state, for those who watch."""
        del state
        return {}

    def details(self, state: Any) -> dict[str, list[tf.Tensor]]:
        """What else the state knows of every variable, in its shape, by name."""
        del state
        return {}


def uniform(specs: Sequence[Any], scale: Any) -> Transform:
    """a = 0 and one b for all coordinates."""
    return Transform([tf.constant(0.0)] * len(specs), [tf.cast(scale, tf.float32)] * len(specs))


@dataclasses.dataclass(frozen=True)
class FixedClip(ClippingRule):
    """a = 0, b_i = C: DP-SGD, Abadi et al. 2016, clipping the global norm at C."""

    l2_norm_clip: float

    def __post_init__(self):
        validate.fields(self, l2_norm_clip=validate.positive_float32)

    def transform(self, state, specs):
        del state
        return uniform(specs, self.l2_norm_clip)


def norm_bound(largest_gradient_norm: float) -> FixedClip:
    """a = 0, b_i = the largest norm a gradient can have: nothing is clipped, only noise is added.

    28 bounds softmax regression on MNIST: |x| <= 28 for 784 pixels in [0, 1] and an error vector of
    norm at most sqrt(2) that the paper leaves out. The guarantee never rests on the bound: a gradient
    beyond it is clipped to it.
    """
    return FixedClip(validate.positive_float32("largest_gradient_norm", largest_gradient_norm))


_DEFAULT_MOMENTS = MomentEstimator()


@dataclasses.dataclass(frozen=True)
class _FromMoments(ClippingRule):
    """What the rules that learn m and s^2 share."""

    moments: MomentEstimator = _DEFAULT_MOMENTS
    gamma: float = 1.0
    positive_state = ("variance",)

    def __post_init__(self):
        """b^2 lies between s^2 / gamma and d^2 s^2 / gamma: float32 must hold it, for d up to 1e10."""
        validate.fields(self, gamma=validate.positive)
        low, high = self.moments.variance_range
        if not (low / self.gamma >= validate.FLOAT32_TINY and high / self.gamma <= validate.FLOAT32_MAX / 1e20):
            raise ValueError(
                f"`gamma` must leave the scale sqrt(s^2 / gamma) in float32's range, for s^2 between {low:.3g} and "
                f"{high:.3g} (`h1`, `h2`, `initial_std`); got {self.gamma!r}. Values between 0.1 and 1 are usual."
            )

    def initial_state(self, specs) -> Moments:
        return self.moments.initial_state(specs)

    def next_state(self, state, published):
        return self.moments.next_state(state, published)

    def metrics(self, state):
        return self.moments.metrics(state)

    def details(self, state):
        return {"std": [tf.sqrt(variance) for variance in state.variance]}


@dataclasses.dataclass(frozen=True)
class AdaClip(_FromMoments):
    """a = m, b_i = sqrt(s_i / gamma) sqrt(sum_j s_j): the paper's Theorem 1.

    Among all b with E|w|^2 = sum_i s_i^2 / b_i^2 <= gamma, this one has the least |b|^2, hence adds
    the least noise.
    """

    treats_coordinates_alike = True

    def transform(self, state, specs):
        del specs
        std = [tf.sqrt(variance) for variance in state.variance]
        total = tf.add_n([tf.reduce_sum(s) for s in std])
        return Transform(state.mean, [tf.sqrt(s) * tf.sqrt(total / self.gamma) for s in std])


@dataclasses.dataclass(frozen=True)
class Whitening(_FromMoments):
    """a = m, b_i = sqrt(d / gamma) s_i: every coordinate of w has the same variance."""

    treats_coordinates_alike = True

    def transform(self, state, specs):
        factor = math.sqrt(_dimension(specs) / self.gamma)
        return Transform(state.mean, [factor * tf.sqrt(variance) for variance in state.variance])


@dataclasses.dataclass(frozen=True)
class PerLayerClip(ClippingRule):
    """Each layer's gradient clipped to norm C, as Abadi et al. 2016 do: a = 0, b_i = C sqrt(L).

    L layers of norm at most C have norm at most C sqrt(L) together, which is what b divides by.
    """

    l2_norm_clip: float

    def __post_init__(self):
        validate.fields(self, l2_norm_clip=validate.positive_float32)

    def transform(self, state, specs):
        del state
        return uniform(specs, self.l2_norm_clip * math.sqrt(len(layers(specs))))

    def clip(self, specs):
        return NormClip(groups=layers(specs))


def layers(named: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    """Which of the variables (or specs) belong to one layer: those with one name before the last slash."""
    groups: dict[str, list[int]] = {}
    for index, item in enumerate(named):
        groups.setdefault((item.name or "").rpartition("/")[0], []).append(index)
    return tuple(tuple(group) for group in groups.values())


@dataclasses.dataclass(frozen=True)
class PerCoordinateClip(ClippingRule):
    """Each coordinate clipped to [-C, C] (Shokri & Shmatikov 2015): a = 0, b_i = C sqrt(d). A NaN counts as 0."""

    value_clip: float

    def __post_init__(self):
        validate.fields(self, value_clip=validate.positive_float32)

    def transform(self, state, specs):
        del state
        return uniform(specs, self.value_clip * math.sqrt(_dimension(specs)))

    def clip(self, specs):
        return CoordinateClip(_dimension(specs))


def _dimension(specs: Sequence[Any]) -> int:
    return sum(math.prod(spec.shape) for spec in specs)
