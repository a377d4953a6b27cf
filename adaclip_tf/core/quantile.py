"""A clip that follows a quantile of the gradients' norms: a rule that asks every record a question."""

from __future__ import annotations

import dataclasses
import math

import tensorflow as tf

from adaclip_tf._internal import validate
from adaclip_tf.core.clipping import NormClip
from adaclip_tf.core.rules import ClippingRule, uniform


@dataclasses.dataclass(frozen=True)
class QuantileClip(ClippingRule):
    """A clip C that follows a quantile of the gradients' norms (Andrew et al. 2021): a = 0, b_i = C / r.

    Each record is also asked whether it is within the clip. The sum of gradients, clipped to norm r = sqrt(1 - p), and
    of the answers +-sqrt(p) has sensitivity 1 and noise z. That is their Theorem 1: a sum with noise z / r and a count
    with sigma = z / (2 sqrt(p)) cost as much as one release with z.

    Attributes:
      initial_clip: C before the first step.
      target_quantile: the fraction of gradients that should be within the clip.
      learning_rate: eta in C <- C exp(-eta (fraction - target)).
      share: p, the part of the squared budget that the count takes.
    """

    initial_clip: float = 1.0
    target_quantile: float = 0.5
    learning_rate: float = 0.2
    share: float = 0.01
    positive_state = ("l2_norm_clip",)

    def __post_init__(self):
        validate.fields(
            self,
            initial_clip=lambda _, value: validate.positive_float32("l2_norm_clip", value),
            target_quantile=validate.fraction,
            learning_rate=lambda _, value: validate.positive("clip_learning_rate", value),
            share=validate.real,
        )
        if not 0.0 < self.share < 1.0:
            raise ValueError(f"`share` must be above 0 and below 1; got {self.share!r}.")

    def initial_state(self, specs):
        del specs
        return {"l2_norm_clip": tf.constant(self.initial_clip, tf.float32)}

    def transform(self, state, specs):
        return uniform(specs, state["l2_norm_clip"] / self._radius)

    def clip(self, specs):
        del specs
        return NormClip(radius=self._radius)

    @property
    def _radius(self) -> float:
        return math.sqrt(1.0 - self.share)

    def observe(self, squared_norms):
        within = tf.cast(squared_norms <= self._radius**2, tf.float32)
        return (2.0 * within - 1.0)[:, tf.newaxis]

    @property
    def num_statistics(self):
        return 1

    def next_state(self, state, published):
        answers = published.statistics[0] / math.sqrt(self.share)  # the number within minus the number beyond
        fraction = tf.clip_by_value(0.5 * (1.0 + answers / published.divisor), 0.0, 1.0)
        change = tf.exp(-self.learning_rate * (fraction - self.target_quantile))
        clip = tf.clip_by_value(state["l2_norm_clip"] * change, _LEAST_CLIP, _LARGEST_CLIP)
        return {"l2_norm_clip": clip}

    def metrics(self, state):
        return {"l2_norm_clip": state["l2_norm_clip"]}


_LEAST_CLIP, _LARGEST_CLIP = 1e-15, 1e15  # squares of both are within float32
