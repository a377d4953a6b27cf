"""The paper's general framework (section 4.1) as pure functions: transform, clip, sum, noise, un-transform, learn.

Symbols and the formal guarantee: see `adaclip_tf.core`. Lists run over variables; `records` have one more leading axis,
which runs over the microbatches. All arithmetic is float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from adaclip_tf.core import clipping
from adaclip_tf.core.clipping import Clip, Tensors


class Transform(NamedTuple):
    """The public vectors (a, b) of one step, with the transform and its inverse. Entries broadcast."""

    center: list[tf.Tensor]  # a
    scale: list[tf.Tensor]  # b

    def apply(self, records: Tensors) -> list[tf.Tensor]:
        """w_k = (g_k - a) / b."""
        return [(tf.cast(record, tf.float32) - center) / scale for record, center, scale in zip(records, *self)]

    def apply_to_sum(self, weighted: tf.Tensor, weight: tf.Tensor, index: int) -> tf.Tensor:
        """sum_k c_k w_k of variable `index`, from sum_k c_k g_k and sum_k c_k: the transform is affine."""
        if self._is_centered(index):
            return weighted / self.scale[index]
        return (weighted - self.center[index] * weight) / self.scale[index]

    def apply_to_sums(self, weighted: Tensors, weight: tf.Tensor) -> list[tf.Tensor]:
        """The same of all variables; what is left of `weighted` behind them stays as it is."""
        size = len(self.scale)
        return [*(self.apply_to_sum(total, weight, i) for i, total in enumerate(weighted[:size])), *weighted[size:]]

    def is_factor(self, index: int) -> bool:
        """Whether the transform of variable `index` is a factor for all of it, a = 0 and one b."""
        return self._is_centered(index) and self.scale[index].shape.rank == 0

    def without_zeros(self) -> Transform:
        """The same with None for each a that is known to be 0: a function would not know it of its argument."""
        return self._replace(center=[None if self._is_centered(i) else a for i, a in enumerate(self.center)])

    def with_zeros(self) -> Transform:
        """What `without_zeros` was made of."""
        return self._replace(center=[tf.constant(0.0) if a is None else a for a in self.center])

    def _is_centered(self, index: int) -> bool:
        center = self.center[index]
        return center.shape.rank == 0 and tf.get_static_value(center) == 0.0

    def invert(self, noised_sum: Tensors, divisor: Any) -> list[tf.Tensor]:
        """g~ = b W / B + a. Post-processing."""
        return [scale * total / divisor + center for total, center, scale in zip(noised_sum, *self)]


class Published(NamedTuple):
    """All that a step makes known. What a rule learns, it learns from this."""

    transform: Transform  # (a, b) of the step
    mean: list[tf.Tensor]  # g~
    noise_multiplier: Any  # z
    divisor: Any  # B
    statistics: tf.Tensor | None = None  # the noised sum of what the rule asked of every record, if it did


def clipped_sum(records: Tensors, transform: Transform, clip: Clip = clipping.NORM) -> list[tf.Tensor]:
    """sum_k u_k: the only function of the data that the mechanism uses. L2 sensitivity 1, `clip.sensitivity`."""
    return [tf.reduce_sum(clipped, axis=0) for clipped in clip_records(records, transform, clip)]


def clip_records(records: Tensors, transform: Transform, clip: Clip = clipping.NORM) -> list[tf.Tensor]:
    """u_k: transforms, then clips; by default to u_k = w_k / max(1, |w_k|)."""
    return clip.records(transform.apply(records))


def statistics_sum(rule: Any, clip: Clip, squared_norms: tf.Tensor) -> list[tf.Tensor]:
    """The sum over the records of what the rule asks of them, a list of one vector; empty if it asks nothing.

    A record's answer is clipped to norm sqrt(1 - r^2), with r the norm that the clip leaves to its gradient: both
    together have norm 1 at most.

    Args:
      rule: `rule.observe` may look at each record's entry by itself only.
      clip: of the rule.
      squared_norms: |w_k|^2, shape [n].
    """
    finite = tf.math.is_finite(squared_norms)
    observed = rule.observe(tf.where(finite, squared_norms, 0.0))
    if observed is None:
        return []
    weights = clipping.clip_weights(tf.reduce_sum(tf.square(observed), axis=1))
    weights = tf.where(finite, weights, 0.0) * clip.left_for_statistics
    return [tf.reduce_sum(clipping.weigh_records([observed], weights)[0], axis=0)]


def add_noise(total: Tensors, standard_normals: Tensors, stddev: Any) -> list[tf.Tensor]:
    """sum + N(0, stddev^2 I): the one place where noise meets data."""
    return [u + stddev * n for u, n in zip(total, standard_normals)]


def published_step(
    rule: Any, state: Any, transform: Transform, noised_sum: Tensors, noise_multiplier: Any, divisor: Any
) -> tuple[list[tf.Tensor], Any]:
    """(g~, next state) from W, which holds the rule's statistics last, if it has any. Post-processing."""
    divisor = tf.cast(divisor, tf.float32)
    size = len(transform.scale)
    mean = transform.invert(noised_sum[:size], divisor)
    statistics = noised_sum[size] if len(noised_sum) > size else None
    return mean, rule.next_state(state, Published(transform, mean, noise_multiplier, divisor, statistics))


def private_step(
    rule: Any,
    state: Any,
    transform: Transform,
    total: Tensors,
    standard_normals: Tensors,
    noise_multiplier: Any,
    divisor: Any,
) -> tuple[list[tf.Tensor], Any]:
    """Publishes one step: adds the noise, un-transforms, and learns from the result.

    Args:
      rule: the rule that made `transform`.
      state: its state.
      transform: (a, b) = `rule.transform(state, specs)`.
      total: `clipped_sum(records, transform, rule.clip(specs))` and `statistics_sum`, or what several workers' such
        sums add up to.
      standard_normals: independent N(0, 1) draws in the shapes of `total`, fresh every step.
      noise_multiplier: z.
      divisor: B.

    Returns:
      (g~, next state). Both are functions of the noised sum W and public values only.
    """
    noised_sum = add_noise(total, standard_normals, noise_multiplier)
    return published_step(rule, state, transform, noised_sum, noise_multiplier, divisor)


def published_metrics(
    rule: Any, state: Any, specs: Sequence[Any], noise_multiplier: Any, divisor: Any
) -> dict[str, tf.Tensor]:
    """Scalars that describe the coming step. Functions of published values only, so free to log.

    `scale_norm` is |b|, `noise_norm` is z |b| / B (the root mean square norm of the noise in g~); the rule adds more.
    """
    transform = rule.transform(state, specs)
    squares = [tf.broadcast_to(tf.square(b), spec.shape) for b, spec in zip(transform.scale, specs)]
    scale_norm = tf.sqrt(tf.add_n([tf.reduce_sum(square) for square in squares]))
    return {
        "scale_norm": scale_norm,
        "noise_norm": noise_multiplier * scale_norm / tf.cast(divisor, tf.float32),
        **rule.metrics(state),
    }


def published_details(rule: Any, state: Any, specs: Sequence[Any]) -> dict[str, dict[str, tf.Tensor]]:
    """{variable's name: {"center": a, "scale": b, ...}}, each in its shape. As free to log; the rule adds more."""
    transform, more = rule.transform(state, specs), rule.details(state)
    return {
        spec.name: {
            "center": tf.broadcast_to(transform.center[index], spec.shape),
            "scale": tf.broadcast_to(transform.scale[index], spec.shape),
            **{name: values[index] for name, values in more.items()},
        }
        for index, spec in enumerate(specs)
    }
