"""AdaCliP as a tensorflow-privacy query: the shell of `adaclip_tf.core` for that library's machinery.

The five steps of a `DPQuery`, and what they are here (symbols as in `adaclip_tf.core`):

| method                  | does                                                                       |
|-------------------------|----------------------------------------------------------------------------|
| `derive_sample_params`  | (a, b) from the state                                                       |
| `preprocess_record`     | u_k: transforms and clips one record                                        |
| accumulate, merge       | plain sums, so that two workers' states merge into just what one would have |
| `get_noised_result`     | W = sum u_k + N(0, z^2 I), then b W + B a and the next state                |
| `derive_metrics`        | scalars of the state, which is public                                       |
"""

from __future__ import annotations

import collections
from typing import Any

import dp_accounting
import tensorflow as tf
import tensorflow_privacy

from adaclip_tf import core
from adaclip_tf._internal import validate
from adaclip_tf.core import noise


class AdaClipSumQuery(tensorflow_privacy.SumAggregationDPQuery):
    """Estimates the sum of records with adaptive clipping (AdaCliP, arXiv 1908.07643).

    The result is b W + B a: the noised sum, as if the batch held B records. Divide it by B (which
    `tensorflow_privacy.NormalizedQuery` and that library's optimizers do) for the private mean g~.

    Formal guarantee. Each round is one Gaussian mechanism of noise multiplier z under the addition or
    removal of one record: what is accumulated has L2 sensitivity 1, and results, states and metrics are
    functions of its noised value. This covers the mathematics; the noise is float32, so attacks on
    floating-point rounding are out of scope, as they are for tensorflow-privacy.

    The noise comes from a key of the operating system's (see `adaclip_tf.core.noise`): `tf.random.set_seed` does
    not touch it, and the query draws anew at every call, whatever state it is given.

    >>> query = AdaClipSumQuery(tf.TensorSpec([2]), noise_multiplier=1.0, expected_num_records=4.0)
    >>> state = query.initial_global_state()
    >>> records = tf.constant([[1.0, 0.0], [0.9, 0.1], [1.1, 0.0], [1.0, 0.1]])
    >>> for _ in range(3):
    ...     params = query.derive_sample_params(state)
    ...     sample = query.initial_sample_state()
    ...     for record in records:
    ...         sample = query.accumulate_record(params, sample, record)
    ...     noised_sum, state, event = query.get_noised_result(sample, state)
    >>> noised_sum.shape
    TensorShape([2])
    >>> event
    GaussianDpEvent(noise_multiplier=1.0)

    Args:
      record_specs: a nested structure (dict, list, tuple, namedtuple or one leaf) of `tf.TensorSpec`, or of
        anything with a full static shape and a floating dtype, such as variables. Records must have this
        structure and these shapes. The result has these dtypes; the arithmetic is float32.
      noise_multiplier: z, the standard deviation of the noise over the sensitivity of the sum. 0 turns noise,
        and with it privacy, off.
      expected_num_records: B, a public constant. Never the true size of a batch, which is private.
      beta_1: decay of the running mean m.
      beta_2: decay of the running variance s^2.
      h1, h2: the floor and the ceiling of the variance.
      gamma: bound on E|w|^2; below 1, fewer records are clipped and more noise is added.
      initial_std: s before the first round; sqrt(h1 h2) if None.
      variance_scaling: "per_example" or "paper"; see `core.MomentEstimator`.
      clamp: "before_average" or "after_average"; see `core.MomentEstimator`.
      seed: None for use. An integer makes the noise reproducible, for tests only: it voids the guarantee.
      noise_terms: as in `DPAdaClipSGD`.

    Raises:
      ValueError: if an argument is out of range; the message names it.
    """

    GlobalState = collections.namedtuple("GlobalState", ["choice_state"])

    def __init__(
        self,
        record_specs: Any,
        noise_multiplier: float,
        expected_num_records: float,
        beta_1: float = 0.99,
        beta_2: float = 0.9,
        h1: float = 1e-12,
        h2: float = 1e-3,
        gamma: float = 1.0,
        initial_std: float | None = None,
        variance_scaling: str = "per_example",
        clamp: str = "before_average",
        seed: int | None = None,
        noise_terms: int = 1,
    ):
        moments = core.MomentEstimator(beta_1, beta_2, h1, h2, initial_std, variance_scaling, clamp)
        self._choice: core.Choice = core.AdaClip(moments, gamma)
        self._record_specs = tf.nest.map_structure(_as_spec, record_specs)
        self._flat_specs = tf.nest.flatten(self._record_specs)
        if not self._flat_specs:
            raise ValueError(
                f"`record_specs` must hold at least one tf.TensorSpec; got {record_specs!r}, which has none."
            )
        self._noise_multiplier = validate.noise_multiplier("noise_multiplier", noise_multiplier)
        self._divisor = validate.positive_float32("expected_num_records", expected_num_records)
        self._noise = noise.NoiseSource(
            validate.seed("seed", seed), terms=validate.positive_integer("noise_terms", noise_terms)
        )

    @classmethod
    def from_choice(
        cls,
        choice: core.Choice,
        record_specs: Any,
        noise_multiplier: float,
        expected_num_records: float,
        seed: int | None = None,
        noise_terms: int = 1,
    ) -> AdaClipSumQuery:
        """The same query with another rule for (a, b): any `core.Choice`.

        >>> query = AdaClipSumQuery.from_choice(
        ...     core.FixedClip(l2_norm_clip=1.0), tf.TensorSpec([2]), 1.0, expected_num_records=4.0)
        """
        methods = ("initial_state", "transform", "next_state")
        if isinstance(choice, type) or not all(hasattr(choice, method) for method in methods):
            raise ValueError(f"`choice` must be a `core.Choice`, such as `core.FixedClip(1.0)`; got {choice!r}.")
        query = cls(record_specs, noise_multiplier, expected_num_records, seed=seed, noise_terms=noise_terms)
        query._choice = choice
        return query

    def initial_global_state(self):
        """The state before the first round. Holds published values only."""
        return self.GlobalState(self._choice.initial_state(self._flat_specs))

    def derive_sample_params(self, global_state):
        """(a, b) of the coming round."""
        return self._choice.transform(global_state.choice_state, self._flat_specs)

    def initial_sample_state(self, template=None):
        """Zeros in float32, in the structure of `record_specs`; `template`, if given, must match it."""
        if template is not None:
            self._check_structure(template)
        zeros = [tf.zeros(spec.shape, tf.float32) for spec in self._flat_specs]
        return tf.nest.pack_sequence_as(self._record_specs, zeros)

    def preprocess_record(self, params, record):
        """u_k = w_k / max(1, |w_k|), w_k = (g_k - a) / b: of norm at most 1 whatever the record."""
        self._check_structure(record)
        batch_of_one = [
            tf.expand_dims(_as_tensor(value, spec), axis=0)
            for value, spec in zip(tf.nest.flatten(record), self._flat_specs)
        ]
        clipped = core.clipped_sum(batch_of_one, params)
        return tf.nest.pack_sequence_as(self._record_specs, clipped)

    def get_noised_result(self, sample_state, global_state):
        """Returns (b W + B a, next global state, the privacy event)."""
        self._check_structure(sample_state, "`sample_state`")
        state = global_state.choice_state
        self._check_state(state)
        transform = self._choice.transform(state, self._flat_specs)
        normals = self._noise.fresh_normals([spec.shape for spec in self._flat_specs])
        mean, next_state = core.private_step(
            self._choice,
            state,
            transform,
            tf.nest.flatten(sample_state),
            normals,
            self._noise_multiplier,
            self._divisor,
        )
        result = [tf.cast(self._divisor * g, spec.dtype) for g, spec in zip(mean, self._flat_specs)]
        return (
            tf.nest.pack_sequence_as(self._record_specs, result),
            self.GlobalState(next_state),
            dp_accounting.GaussianDpEvent(self._noise_multiplier),
        )

    def derive_metrics(self, global_state):
        """`core.published_metrics` of the coming round; `noise_norm` is that of the mean."""
        state = global_state.choice_state
        transform = self._choice.transform(state, self._flat_specs)
        return collections.OrderedDict(
            core.published_metrics(state, transform, self._flat_specs, self._noise_multiplier, self._divisor)
        )

    def _check_structure(self, record, what="a record"):
        try:
            tf.nest.assert_same_structure(self._record_specs, record)
        except (TypeError, ValueError) as error:
            kinds = tf.nest.map_structure(lambda leaf: type(leaf).__name__, record)
            raise ValueError(
                f"{what} must have the structure of `record_specs`, {self._record_specs!r}; got {kinds!r}."
            ) from error

    def _check_state(self, state):
        for part in state if isinstance(state, core.Moments) else ():
            shapes = [list(tensor.shape) for tensor in part]
            if shapes != [list(spec.shape) for spec in self._flat_specs]:
                raise ValueError(
                    f"`global_state` is that of another query: it has the shapes {shapes}, and `record_specs` are "
                    f"{self._record_specs!r}. Start from `initial_global_state()`."
                )


def _as_spec(leaf: Any) -> tf.TensorSpec:
    """The shape and dtype of a leaf of `record_specs`, checked."""
    try:
        spec = tf.TensorSpec(leaf.shape, leaf.dtype)
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"`record_specs` must be a nested structure of tf.TensorSpec; got the leaf {leaf!r}."
        ) from error
    if not spec.shape.is_fully_defined():
        raise ValueError(f"`record_specs` must have fully known shapes, because the state has them; got {leaf!r}.")
    if not spec.dtype.is_floating:
        raise ValueError(f"`record_specs` must have a floating dtype such as tf.float32; got {leaf!r}.")
    return spec


def _as_tensor(value: Any, spec: tf.TensorSpec) -> tf.Tensor:
    """A record's leaf in float32, with the shape that `spec` says."""
    try:
        tensor = tf.convert_to_tensor(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"a record must be tensors as in `record_specs`; got {type(value).__name__}.") from error
    if not (tensor.dtype.is_floating or tensor.dtype.is_integer):
        raise ValueError(f"a record must hold real numbers; got dtype {tensor.dtype.name} for {spec!r}.")
    tensor = tf.cast(tensor, tf.float32)
    if not tensor.shape.is_compatible_with(spec.shape):
        raise ValueError(f"a record must have the shapes of `record_specs`; got shape {tensor.shape} for {spec!r}.")
    return tf.ensure_shape(tensor, spec.shape)
