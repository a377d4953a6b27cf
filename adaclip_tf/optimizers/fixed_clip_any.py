"""`DPFixedClip`: clipping to a fixed norm around any optimizer of Keras: DP-Adam, DP-AdamW, ..."""

from __future__ import annotations

from adaclip_tf import core
from adaclip_tf._internal import keras
from adaclip_tf.optimizers.wrapping import WrappingOptimizer


@keras.saving.register_keras_serializable(package="adaclip_tf")
class DPFixedClip(WrappingOptimizer):
    """Any Keras optimizer on private gradients that are clipped to `l2_norm_clip`; with Adam it is DP-Adam.

    The baseline of `DPAdaClip`, whose other arguments it has: the private gradient is that of `DPFixedClipSGD`.

    >>> optimizer = DPFixedClip("adam", l2_norm_clip=1.0, noise_multiplier=1.1)
    """

    def __init__(
        self,
        inner_optimizer,
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
        name="DPFixedClip",
        **more,
    ):
        super().__init__(
            core.FixedClip(l2_norm_clip),
            inner_optimizer,
            noise_multiplier=noise_multiplier,
            num_microbatches=num_microbatches,
            expected_batch_size=expected_batch_size,
            accumulation_steps=accumulation_steps,
            noise_terms=noise_terms,
            gradient_path=gradient_path,
            nonprivate_metrics=nonprivate_metrics,
            seed=seed,
            name=name,
            **more,
        )

    def get_config(self):
        return {**super().get_config(), "l2_norm_clip": self.l2_norm_clip}

    @property
    def l2_norm_clip(self) -> float:
        """C."""
        return self.rule.l2_norm_clip
