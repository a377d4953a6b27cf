"""`DPQuantileClipSGD`: a clip that follows a quantile of the gradients' norms."""

from __future__ import annotations

import math

from adaclip_tf import core
from adaclip_tf._internal import keras, validate
from adaclip_tf.optimizers.dp_optimizer import DPOptimizer

_LEAST_SHARE = 1e-6  # where there is next to no noise


@keras.saving.register_keras_serializable(package="adaclip_tf")
class DPQuantileClipSGD(DPOptimizer):
    """DP-SGD whose clip follows a quantile of the gradients' norms (Andrew et al. 2021).

    Each step releases a sum of gradients with noise multiplier z_sum and the fraction of unclipped examples, with noise
    of standard deviation sigma on a count that one example moves by 1/2. Both together are one Gaussian mechanism of
    noise multiplier z,

        z^-2 = z_sum^-2 + (2 sigma)^-2      (Andrew et al. 2021, Theorem 1),

    and `noise_multiplier` is that z: what accounting needs. z_sum is calculated from it and from sigma = B / 20, which
    the paper recommends. An example whose gradient holds NaN or infinity is left out of both.

    >>> optimizer = DPQuantileClipSGD(noise_multiplier=1.1, expected_batch_size=250, learning_rate=0.1)

    Args:
      l2_norm_clip: where the clip starts.
      target_quantile: the fraction of gradients that should stay unclipped.
      clip_learning_rate: how fast the clip moves.
      expected_batch_size: required, since the fraction is of it.
      The rest: as for `DPFixedClipSGD`.
    """

    def __init__(
        self,
        learning_rate=0.01,
        momentum=0.0,
        nesterov=False,
        *,
        noise_multiplier,
        expected_batch_size,
        num_microbatches=None,
        accumulation_steps=1,
        l2_norm_clip=1.0,
        target_quantile=0.5,
        clip_learning_rate=0.2,
        name="DPQuantileClipSGD",
        **arguments,
    ):
        z = validate.noise_multiplier("noise_multiplier", noise_multiplier)
        records = validate.positive_integer("expected_batch_size", expected_batch_size)
        if num_microbatches is not None:
            records = validate.positive_integer("num_microbatches", num_microbatches) * accumulation_steps
        if z >= records / 10.0:
            raise ValueError(
                f"`noise_multiplier` must be below expected_batch_size / 10 = {records / 10.0:g}, the noise on the "
                f"count of unclipped examples; got {noise_multiplier!r}. Use a larger batch."
            )
        share = max((10.0 * z / records) ** 2, _LEAST_SHARE)  # (z / (2 sigma))^2
        rule = core.QuantileClip(l2_norm_clip, target_quantile, clip_learning_rate, share)
        super().__init__(
            rule,
            learning_rate,
            momentum,
            nesterov,
            noise_multiplier=noise_multiplier,
            expected_batch_size=expected_batch_size,
            num_microbatches=num_microbatches,
            accumulation_steps=accumulation_steps,
            name=name,
            **arguments,
        )

    @property
    def sum_noise_multiplier(self) -> float:
        """z_sum, the noise on the sum of gradients over the clip."""
        return self.noise_multiplier / math.sqrt(1.0 - self.rule.share)

    def get_config(self):
        return {
            **super().get_config(),
            "l2_norm_clip": self.rule.initial_clip,
            "target_quantile": self.rule.target_quantile,
            "clip_learning_rate": self.rule.learning_rate,
        }
