"""`DPWhiteningSGD`: the paper's other adaptive choice of (a, b)."""

from __future__ import annotations

import dataclasses

from adaclip_tf import core
from adaclip_tf._internal import keras
from adaclip_tf.optimizers.dp_optimizer import DPOptimizer


@keras.saving.register_keras_serializable(package="adaclip_tf")
class DPWhiteningSGD(DPOptimizer):
    """a = m, b_i = sqrt(d / gamma) s_i: every coordinate gets noise in proportion to its deviation.

    m and s are learnt as in `DPAdaClipSGD`, and the arguments are the same. By the paper's Theorem 1 it adds at least
    as much noise as AdaCliP.

    >>> optimizer = DPWhiteningSGD(noise_multiplier=1.1, learning_rate=0.1, h2=0.01)
    """

    def __init__(
        self,
        learning_rate=0.01,
        momentum=0.0,
        nesterov=False,
        *,
        beta_1=0.99,
        beta_2=0.9,
        h1=1e-12,
        h2=1e-3,
        gamma=1.0,
        initial_std=None,
        variance_scaling="per_example",
        clamp="before_average",
        name="DPWhiteningSGD",
        **arguments,
    ):
        moments = core.MomentEstimator(
            beta_1=beta_1,
            beta_2=beta_2,
            h1=h1,
            h2=h2,
            initial_std=initial_std,
            variance_scaling=variance_scaling,
            clamp=clamp,
        )
        super().__init__(core.Whitening(moments, gamma), learning_rate, momentum, nesterov, name=name, **arguments)

    def get_config(self):
        return {**super().get_config(), **dataclasses.asdict(self.rule.moments), "gamma": self.rule.gamma}
