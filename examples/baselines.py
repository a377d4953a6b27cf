"""Optimizers to compare AdaCliP with, beyond DP-SGD: whitening, clipping by layer, by coordinate, at a quantile.

All are `DPOptimizer`s, so that `PrivacyBudget`, `PrivacyTensorBoard` and checkpoints treat them alike. The last two
clip by other rules than a transform and one norm, so they run every example by itself: much slower than AdaCliP, and
meant for small models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_privacy

from adaclip_tf import core, gradients
from adaclip_tf._internal import validate
from adaclip_tf.gradients import backward, isolated, proof
from adaclip_tf.optimizers.base_optimizer import DPOptimizer

_DEFAULTS: dict[str, Any] = {
    "num_microbatches": None,
    "expected_batch_size": None,
    "accumulation_steps": 1,
    "gradient_path": "auto",
    "nonprivate_metrics": False,
    "seed": None,
}


@tf.keras.saving.register_keras_serializable(package="adaclip_tf.examples")
class DPWhiteningSGD(DPOptimizer):
    """a = m, b_i = sqrt(d / gamma) s_i: the paper's other adaptive choice, with the same estimator of m and s.

    The arguments are those of `DPAdaClipSGD`.
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
        self._whitening = core.Whitening(moments, gamma)
        super().__init__(self._whitening, learning_rate, momentum, nesterov, name=name, **{**_DEFAULTS, **arguments})

    def get_config(self):
        moments = self._whitening.moments
        fields = {field: getattr(moments, field) for field in moments.__dataclass_fields__}
        return {**super().get_config(), **fields, "gamma": self._whitening.gamma}


class _WithoutState:
    """The half of a choice of (a, b) that learns nothing from the steps."""

    def initial_state(self, specs):
        del specs
        return ()

    def next_state(self, state, transform, mean, noise_multiplier, divisor):
        del transform, mean, noise_multiplier, divisor
        return state


class _PerLayerScale(_WithoutState):
    """a = 0, b_i = C sqrt(L): the sensitivity of L layers that are clipped to norm C each."""

    def __init__(self, l2_norm_clip: float):
        self.l2_norm_clip = l2_norm_clip

    def transform(self, state, specs):
        del state
        scale = self.l2_norm_clip * math.sqrt(len(layers(specs)))
        return core.Transform([tf.constant(0.0)] * len(specs), [tf.constant(scale, tf.float32)] * len(specs))


def layers(named: Sequence[Any]) -> list[list[int]]:
    """Which of the variables (or specs) belong to one layer: those with one name before the last slash."""
    groups: dict[str, list[int]] = {}
    for index, item in enumerate(named):
        groups.setdefault(item.name.rpartition("/")[0], []).append(index)
    return list(groups.values())


@tf.keras.saving.register_keras_serializable(package="adaclip_tf.examples")
class DPPerLayerClipSGD(DPOptimizer):
    """Each layer's gradient clipped to norm C, as Abadi et al. 2016 do: the baseline of the paper's MLP.

    Formal guarantee. L layers of norm at most C have norm at most C sqrt(L) together, so the sum of all of them divided
    by that has sensitivity 1. An example with NaN or infinity in a layer counts as 0 there.

    Args:
      l2_norm_clip: C.
      The rest: as for `DPFixedClipSGD`, without microbatches and accumulation.
    """

    def __init__(
        self,
        learning_rate=0.01,
        momentum=0.0,
        nesterov=False,
        *,
        l2_norm_clip,
        name="DPPerLayerClipSGD",
        **arguments,
    ):
        self.l2_norm_clip = validate.positive_float32("l2_norm_clip", l2_norm_clip)
        _check_plain(arguments)
        choice = _PerLayerScale(self.l2_norm_clip)
        super().__init__(choice, learning_rate, momentum, nesterov, name=name, **{**_DEFAULTS, **arguments})

    def _private_gradients(self, loss, var_list, tape):
        del tape
        groups = layers(self._specs)
        clip = core.FixedClip(self.l2_norm_clip)
        total: dict[int, tf.Tensor] = {}
        for group in groups:
            variables = [var_list[index] for index in group]
            batch = gradients.clipped_sum(
                loss,
                variables,
                _GraphTape(),
                clip.transform((), variables),
                path=self.gradient_path,
                num_microbatches=None,
            )
            for index, part in zip(group, batch.total):
                total[index] = part / math.sqrt(len(groups))
        transform = self._choice.transform((), self._specs)
        ordered = [total[index] for index in range(len(var_list))]
        mean = self._publish((), transform, ordered, tf.shape(loss)[0])
        return _like(mean, var_list), tf.constant(True)

    def get_config(self):
        return {**super().get_config(), "l2_norm_clip": self.l2_norm_clip}


class _GraphTape:
    """What `clipped_sum` needs of a tape, any number of times: a `tf.GradientTape` gives gradients once."""

    def gradient(self, loss, variables, output_gradients):
        return tf.gradients(loss, variables, output_gradients)


class _PerCoordinateScale(_WithoutState):
    """a = 0, b_i = C sqrt(d): the sensitivity of a sum of gradients that are clipped to [-C, C] everywhere."""

    def __init__(self, value_clip: float):
        self.value_clip = value_clip

    def transform(self, state, specs):
        del state
        dimension = sum(math.prod(spec.shape) for spec in specs)
        zero, scale = tf.constant(0.0), tf.constant(self.value_clip * math.sqrt(dimension), tf.float32)
        return core.Transform([zero] * len(specs), [scale] * len(specs))


@tf.keras.saving.register_keras_serializable(package="adaclip_tf.examples")
class DPPerCoordinateClipSGD(DPOptimizer):
    """Each coordinate of each example's gradient clipped to [-C, C] (Shokri & Shmatikov 2015).

    Formal guarantee. A clipped gradient has norm at most C sqrt(d), so u_k = clip(g_k) / (C sqrt(d)) has norm at most
    1, and N(0, z^2 I) on their sum makes a step one Gaussian mechanism of noise multiplier z. A NaN counts as 0.

    Args:
      value_clip: C.
      The rest: as for `DPFixedClipSGD`, without microbatches and accumulation.
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
        self.value_clip = validate.positive_float32("value_clip", value_clip)
        _check_plain(arguments)
        choice = _PerCoordinateScale(self.value_clip)
        super().__init__(choice, learning_rate, momentum, nesterov, name=name, **{**_DEFAULTS, **arguments})

    def _private_gradients(self, loss, var_list, tape):
        transform = self._choice.transform((), self._specs)

        def add(k, gradients, totals):
            del k
            numbers = [tf.where(tf.math.is_nan(gradient), 0.0, gradient) for gradient in gradients]
            clipped = [tf.clip_by_value(number, -self.value_clip, self.value_clip) for number in numbers]
            return [total + clip for total, clip in zip(totals, clipped)]

        total = _fold(backward.run(loss, var_list, tape), add, [tf.zeros(spec.shape) for spec in self._specs])
        total = [tensor / scale for tensor, scale in zip(total, transform.scale)]
        mean = self._publish((), transform, total, tf.shape(loss)[0])
        return _like(mean, var_list), tf.constant(True)

    def get_config(self):
        return {**super().get_config(), "value_clip": self.value_clip}


class _CurrentClip(_WithoutState):
    """a = 0, b_i = the query's current clip: what `private_metrics` describes. Set once the optimizer has state."""

    clip: tf.Variable

    def transform(self, state, specs):
        del state
        return core.Transform([tf.constant(0.0)] * len(specs), [self.clip.value()] * len(specs))


@tf.keras.saving.register_keras_serializable(package="adaclip_tf.examples")
class DPQuantileClipSGD(DPOptimizer):
    """tensorflow-privacy's `QuantileAdaptiveClipSumQuery` (Andrew et al. 2021) as an optimizer.

    The query's state lives in variables, so that the clip does adapt under `fit`. Each step releases a sum of
    gradients with noise multiplier z_sum and the fraction of unclipped examples with noise of standard deviation
    sigma on a count that one example moves by 1/2. Both together are one Gaussian mechanism of noise multiplier z,

        z^-2 = z_sum^-2 + (2 sigma)^-2      (Andrew et al. 2021, Theorem 1),

    and `noise_multiplier` is that z: what accounting needs. z_sum is worked out from it and from sigma = B / 20, which
    the paper recommends. A gradient with NaN or infinity counts as 0.

    The query draws its noise by `tf.random`: never call `tf.random.set_seed` where it has to be private.

    Args:
      l2_norm_clip: where the clip starts.
      target_quantile: the fraction of gradients that should stay unclipped.
      clip_learning_rate: how fast the clip moves.
      expected_batch_size: B; required.
      The rest: as for `DPFixedClipSGD`, without microbatches and accumulation.
    """

    def __init__(
        self,
        learning_rate=0.01,
        momentum=0.0,
        nesterov=False,
        *,
        noise_multiplier,
        expected_batch_size,
        l2_norm_clip=1.0,
        target_quantile=0.5,
        clip_learning_rate=0.2,
        name="DPQuantileClipSGD",
        **arguments,
    ):
        self.l2_norm_clip = validate.positive_float32("l2_norm_clip", l2_norm_clip)
        self.target_quantile = validate.fraction("target_quantile", target_quantile)
        self.clip_learning_rate = validate.positive("clip_learning_rate", clip_learning_rate)
        _check_plain(arguments)
        sigma = validate.positive_integer("expected_batch_size", expected_batch_size) / 20.0
        if noise_multiplier >= 2.0 * sigma:
            raise ValueError(
                f"`noise_multiplier` must be below expected_batch_size / 10 = {2.0 * sigma:g}, the noise on the count "
                f"of unclipped examples; got {noise_multiplier!r}. Use a larger batch."
            )
        precision = (1.0 / noise_multiplier**2 if noise_multiplier else math.inf) - 1.0 / (2.0 * sigma) ** 2
        self.sum_noise_multiplier = precision**-0.5
        self._query = tensorflow_privacy.QuantileAdaptiveClipSumQuery(
            initial_l2_norm_clip=self.l2_norm_clip,
            noise_multiplier=self.sum_noise_multiplier,
            target_unclipped_quantile=self.target_quantile,
            learning_rate=self.clip_learning_rate,
            clipped_count_stddev=sigma,
            expected_num_records=expected_batch_size,
        )
        self._current_clip = _CurrentClip()
        super().__init__(
            self._current_clip,
            learning_rate,
            momentum,
            nesterov,
            name=name,
            **{
                **_DEFAULTS,
                **arguments,
                "noise_multiplier": noise_multiplier,
                "expected_batch_size": expected_batch_size,
            },
        )

    def build(self, var_list):
        if not getattr(self, "_built", False):
            self._query_template = self._query.initial_global_state()
            self._query_variables = [
                tf.Variable(value, trainable=False, name=f"query_state_{i}")
                for i, value in enumerate(tf.nest.flatten(self._query_template))
            ]
            names = [path[-1] for path, _ in _with_paths(self._query_template)]
            self._current_clip.clip = self._query_variables[names.index("l2_norm_clip")]
        first = not getattr(self, "_built", False)
        super().build(var_list)
        if first:
            self._variables.extend(self._query_variables)

    def _check_strategy(self):
        super()._check_strategy()
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise NotImplementedError(
                f"{type(self).__name__} runs on one device: its query adds all of its noise there."
            )

    def _private_gradients(self, loss, var_list, tape):
        values = [variable.value() for variable in self._query_variables]
        state = tf.nest.pack_sequence_as(self._query_template, values)
        params = self._query.derive_sample_params(state)

        def add(k, gradients, sample):
            del k
            finite = tf.math.is_finite(tf.linalg.global_norm(gradients))
            record = [tf.where(finite, gradient, 0.0) for gradient in gradients]
            return self._query.accumulate_record(params, sample, record)

        start = self._query.initial_sample_state([tf.zeros(spec.shape) for spec in self._specs])
        sample = _fold(backward.run(loss, var_list, tape), add, start)
        noised, state, _ = self._query.get_noised_result(sample, state)
        proof.privatised([noised, state])
        mean = [total / self.expected_batch_size for total in noised]
        for variable, value in zip(self._query_variables, tf.nest.flatten(state)):
            variable.assign(value, read_value=False)
        with tf.control_dependencies(mean):
            self._divisor.assign(float(self.expected_batch_size), read_value=False)
            self._count_step(None)
        return _like(mean, var_list), tf.constant(True)

    def private_metrics(self):
        metrics = super().private_metrics()
        metrics["noise_norm"] *= self.sum_noise_multiplier / max(self.noise_multiplier, 1e-30)
        metrics["l2_norm_clip"] = self._current_clip.clip.value()
        return metrics

    def get_config(self):
        own = ("l2_norm_clip", "target_quantile", "clip_learning_rate")
        return {**super().get_config(), **{name: getattr(self, name) for name in own}}


def _fold(passed, add, start):
    """Folds `add` over the examples' gradients, each from a run of the model on that example alone."""
    proven = proof.prove(passed.loss)
    proven.look_back(passed.seed, passed.gradients)
    poison = proven.poison()

    def add_checked(k, gradients, state):
        return add(k, [gradient + poison for gradient in gradients], state)

    return isolated.for_each_microbatch(passed, proven.pieces, tf.shape(passed.loss)[0], add_checked, start)


def _like(mean, var_list):
    return [tf.cast(gradient, variable.dtype) for gradient, variable in zip(mean, var_list)]


def _check_plain(arguments: dict[str, Any]) -> None:
    """Refuses what only the transform-and-clip optimizers can do."""
    for name in ("num_microbatches", "accumulation_steps"):
        if arguments.get(name) not in (None, 1) or (name == "num_microbatches" and arguments.get(name)):
            raise ValueError(f"This optimizer has no `{name}`; got {arguments[name]!r}. Leave it out.")


def _with_paths(structure):
    """(path of field names, leaf) for nested named tuples, in the order of `tf.nest.flatten`."""
    found = []
    for name, value in structure._asdict().items():
        if hasattr(value, "_asdict"):
            found += [((name, *path), leaf) for path, leaf in _with_paths(value)]
        else:
            found.append(((name,), value))
    return found
