"""`DPAdaClip`: AdaCliP around any optimizer of Keras."""

from __future__ import annotations

from adaclip_tf import core
from adaclip_tf._internal import keras
from adaclip_tf.optimizers import scaled
from adaclip_tf.optimizers.wrapping import WrappingOptimizer


@keras.saving.register_keras_serializable(package="adaclip_tf")
class DPAdaClip(WrappingOptimizer):
    """Any Keras optimizer (Adam, AdamW, Lion, ...) on the private gradients of AdaCliP.

    The private mean gradient g~ is that of `DPAdaClipSGD`, and so are the arguments. The inner optimizer gets g~ as if
    it were the gradient of the batch. What it does with it costs no privacy: its moments, learning-rate schedule,
    weight decay, weight averages and `clipnorm` (which clips g~, not examples) do not change the guarantee.

    >>> import tensorflow as tf
    >>> model = tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=(2,))])
    >>> model.compile(optimizer=DPAdaClip(tf.keras.optimizers.Adam(0.01), noise_multiplier=1.1),
    ...               loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none"))
    >>> history = model.fit(tf.random.normal([8, 2]), tf.zeros([8]), batch_size=4, verbose=0)
    >>> int(model.optimizer.noised_steps)
    2

    Args:
      inner_optimizer: an optimizer of Keras that has not trained yet, or its name ("adam"). Not a private one, not a
        `LossScaleOptimizer` (gradients need no scaling), and none with `gradient_accumulation_steps`: use
        `accumulation_steps` here, which adds noise once.
      scales, precondition: as for `DPAdaClipSGD`; with `precondition` the inner optimizer gets g~ / s, damped.
      The rest: as for `DPAdaClipSGD`, without those of the inner optimizer (`learning_rate`, `weight_decay`, ...).
        `optimizer.learning_rate` is the inner optimizer's, and callbacks may set it.
    """

    def __init__(
        self,
        inner_optimizer,
        *,
        noise_multiplier,
        num_microbatches=None,
        expected_batch_size=None,
        accumulation_steps=1,
        noise_terms=1,
        beta_1=0.99,
        beta_2=0.9,
        h1=1e-12,
        h2=1e-3,
        gamma=1.0,
        initial_std=None,
        variance_scaling="per_example",
        clamp="before_average",
        scales=None,
        precondition=False,
        gradient_path="auto",
        nonprivate_metrics=False,
        seed=None,
        name="DPAdaClip",
        **more,
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
        super().__init__(
            scaled.adaclip_rule(
                moments,
                gamma,
                scales=scales,
                precondition=precondition,
                noise_multiplier=noise_multiplier,
                expected_batch_size=expected_batch_size,
            ),
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
        return {**super().get_config(), **scaled.config_of(self.rule)}
