"""`DPPerLayerClipSGD`: each layer's gradient clipped by itself."""

from __future__ import annotations

from adaclip_tf import core
from adaclip_tf._internal import keras
from adaclip_tf.optimizers.dp_optimizer import DPOptimizer


@keras.saving.register_keras_serializable(package="adaclip_tf")
class DPPerLayerClipSGD(DPOptimizer):
    """Each layer's gradient clipped to norm C, as Abadi et al. 2016 do: the baseline of the paper's MLP.

    Formal guarantee. L layers of norm at most C have norm at most C sqrt(L) together, so the sum of all of them divided
    by that has sensitivity 1. An example with NaN or infinity in a layer counts as 0 there.

    >>> optimizer = DPPerLayerClipSGD(l2_norm_clip=4.0, noise_multiplier=1.1, learning_rate=0.1)

    Args:
      l2_norm_clip: C.
      The rest: as for `DPFixedClipSGD`.
    """

    def __init__(
        self, learning_rate=0.01, momentum=0.0, nesterov=False, *, l2_norm_clip, name="DPPerLayerClipSGD", **arguments
    ):
        super().__init__(core.PerLayerClip(l2_norm_clip), learning_rate, momentum, nesterov, name=name, **arguments)

    def get_config(self):
        return {**super().get_config(), "l2_norm_clip": self.rule.l2_norm_clip}
