"""`DPAdaClipSGD`: the paper's optimizer."""

from __future__ import annotations

from adaclip_tf import core
from adaclip_tf._internal import keras
from adaclip_tf.optimizers import scaled
from adaclip_tf.optimizers.dp_optimizer import DPOptimizer


@keras.saving.register_keras_serializable(package="adaclip_tf")
class DPAdaClipSGD(DPOptimizer):
    """SGD with differential privacy by AdaCliP (Pichapati et al. 2019, arXiv 1908.07643).

    Symbols, in the paper's notation: z is `noise_multiplier`, B `expected_batch_size`, gamma, beta_1, beta_2, h1, h2
    are arguments, too; sqrt(h1 h2) or `initial_std` is s before the first step. With m and s learnt from earlier steps
    and g_k the gradient of example k over all variables,

        a = m,  b_i = sqrt(s_i / gamma) sqrt(sum_j s_j)
        w_k = (g_k - a) / b,  u_k = w_k / max(1, |w_k|)
        g~ = b (sum_k u_k + N(0, z^2 I)) / B + a

    and g~ replaces the mean gradient in SGD; m and s are moving averages of g~ and of its deviation
    (`adaclip_tf.core.MomentEstimator`). See `adaclip_tf.core` for the code and for the guarantee. Under a
    `MirroredStrategy` or `MultiWorkerMirroredStrategy` all this is over all replicas (docs/distribution.md).

    >>> import tensorflow as tf
    >>> model = tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=(2,))])
    >>> model.compile(optimizer=DPAdaClipSGD(noise_multiplier=1.1, learning_rate=0.3),
    ...               loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none"))
    >>> history = model.fit(tf.random.normal([8, 2]), tf.zeros([8]), batch_size=4, verbose=0)
    >>> int(model.optimizer.noised_steps)
    2

    Args:
      learning_rate: a number or a `tf.keras.optimizers.schedules.LearningRateSchedule`.
      momentum: as in `tf.keras.optimizers.SGD`; costs no privacy.
      nesterov: as in `tf.keras.optimizers.SGD`.
      noise_multiplier: z, the standard deviation of the noise divided by the sensitivity of the sum. 0 is no privacy.
      num_microbatches: None takes one gradient per example. A number takes that many gradients per batch, each
        of the mean loss of equally many consecutive examples: faster on the isolated path, but the sensitivity is 2
        (`microbatch_sensitivity`), so the same privacy takes twice the noise. If it is the batch size, each example is
        a microbatch, and the sensitivity is 1. Must be a multiple of the replicas.
      expected_batch_size: examples of the logical batch, all accumulation steps together: the public divisor B.
        If None, each batch is divided by its own size. That is sound for batches of fixed size, where the size is
        public; with Poisson sampling the size is private and this argument is required.
      accumulation_steps: batches that are summed before noise is added once: for a batch larger than memory.
      noise_terms: how many independent Gaussian draws each value of the noise is the (normalised) sum of. One is
        the fastest, and its tails are long enough (9.49 standard deviations); four make it hopeless to work back from
        the noise's last bits: docs/floating_point.md.
      beta_1: decay of the mean m.
      beta_2: decay of the variance s^2.
      h1: floor of s^2.
      h2: ceiling of s^2, the only setting that the paper tunes: docs/tuning.md.
      gamma: E|w|^2 that b aims at; below 1 clips less and adds more noise, and lets s recover where everything
        is clipped.
      initial_std: s before the first step; None is sqrt(h1 h2), as in the paper. From sqrt(h2) s reaches its level
        sooner.
      variance_scaling: "per_example", or "paper" for the paper's literal estimator, which clips everything.
      clamp: "before_average", or "after_average", which has no upward bias where noise dominates.
      scales: a fitted `PrivateScales`: b is then fixed, at scales that were asked of the data before training, and a is
        0. Count its `event` with the training's. None is the paper's algorithm, which learns b as it goes.
      precondition: with `scales`, steps by g~ / s instead of g~ (docs/no_tuning.md); costs no privacy.
      gradient_path: "auto" is fast where it can be and exact everywhere; "ghost" raises instead of falling back;
        "jacobian" runs every example by itself.
      nonprivate_metrics: records un-noised quantities for `nonprivate_metrics()`. NOT private.
      seed: makes the noise reproducible, for tests only: NOT private. None, the default, takes it from the operating
        system; `tf.random.set_seed` has no influence.
      name: of the optimizer.
      **keras_optimizer_arguments: `weight_decay`, `use_ema`, `ema_momentum`, `ema_overwrite_frequency`, `jit_compile`.
    """

    def __init__(
        self,
        learning_rate=0.01,
        momentum=0.0,
        nesterov=False,
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
        name="DPAdaClipSGD",
        **keras_optimizer_arguments,
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
        return {**super().get_config(), **scaled.config_of(self.rule)}
