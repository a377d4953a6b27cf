"""`DPFixedClipSGD`: DP-SGD (Abadi et al. 2016) on the code of `DPAdaClipSGD`, so that only the clipping differs."""

from __future__ import annotations

from adaclip_tf import core
from adaclip_tf._internal import keras
from adaclip_tf.optimizers.dp_optimizer import DPOptimizer


@keras.saving.register_keras_serializable(package="adaclip_tf")
class DPFixedClipSGD(DPOptimizer):
    """DP-SGD (Abadi et al. 2016): gradients clipped to `l2_norm_clip` over all variables.

    The baseline of `DPAdaClipSGD`, on the same code with a = 0 and b_i = `l2_norm_clip`. All other arguments are
    those of `DPAdaClipSGD`.

    >>> optimizer = DPFixedClipSGD(l2_norm_clip=1.0, noise_multiplier=1.1, learning_rate=0.1)
    """

    def __init__(
        self,
        learning_rate=0.01,
        momentum=0.0,
        nesterov=False,
        *,
        l2_norm_clip,
        noise_multiplier,
        num_microbatches=None,
        expected_batch_size=None,
        accumulation_steps=1,
        noise_terms=1,
        gradient_path="auto",
        nonprivate_metrics=False,
        seed=None,
        name="DPFixedClipSGD",
        **keras_optimizer_arguments,
    ):
        super().__init__(
            core.FixedClip(l2_norm_clip),
            learning_rate,
            momentum,
            nesterov,
            noise_multiplier=noise_multiplier,
            num_microbatches=num_microbatches,
            expected_batch_size=expected_batch_size,
            accumulation_steps=accumulation_steps,
            noise_terms=noise_terms,
            gradient_path=gradient_path,
            nonprivate_metrics=nonprivate_metrics,
            seed=seed,
            name=name,
            **keras_optimizer_arguments,
        )

    def get_config(self):
        return {**super().get_config(), "l2_norm_clip": self.l2_norm_clip}

    @property
    def l2_norm_clip(self) -> float:
        """C."""
        return self.rule.l2_norm_clip
