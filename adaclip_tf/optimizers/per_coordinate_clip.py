"""`DPPerCoordinateClipSGD`: each coordinate of a gradient clipped by itself."""

from __future__ import annotations

from adaclip_tf import core
from adaclip_tf._internal import keras
from adaclip_tf.optimizers.dp_optimizer import DPOptimizer


@keras.saving.register_keras_serializable(package="adaclip_tf")
class DPPerCoordinateClipSGD(DPOptimizer):
    """Each coordinate of each example's gradient clipped to [-C, C] (Shokri & Shmatikov 2015).

    Formal guarantee. A clipped gradient has norm at most C sqrt(d), so u_k = clip(g_k) / (C sqrt(d)) has norm at most
    1, and N(0, z^2 I) on their sum makes a step one Gaussian mechanism of noise multiplier z. A NaN counts as 0.

    Here norms do not say how to clip, so every example is run by itself: this is slow, and meant for small models.

    >>> optimizer = DPPerCoordinateClipSGD(value_clip=0.01, noise_multiplier=1.1, learning_rate=0.1)

    Args:
      value_clip: C.
      The rest: as for `DPFixedClipSGD`.
    """

    def __init__(
        self,
        learning_rate=0.01,
        momentum=0.0,
        nesterov=False,
        *,
        value_clip,
        name="DPPerCoordinateClipSGD",
        **arguments,
    ):
        super().__init__(core.PerCoordinateClip(value_clip), learning_rate, momentum, nesterov, name=name, **arguments)

    def get_config(self):
        return {**super().get_config(), "value_clip": self.rule.value_clip}
