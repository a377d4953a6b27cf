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

from adaclip_tf import core
from adaclip_tf._internal import dp_query, validate
from adaclip_tf.core import noise


class ClippedSumQuery(dp_query.SumAggregationDPQuery):
    """Estimates the sum of records, clipped by any rule.

    The result is b W + B a: the noised sum, as if the batch held B records. Divide it by B (which
    `tensorflow_privacy.NormalizedQuery` and that library's optimizers do) for the private mean g~.

    Formal guarantee. Each round is one Gaussian mechanism of noise multiplier z under the addition or
    removal of one record: what is accumulated has L2 sensitivity 1, and results, states and metrics are
    functions of its noised value. This covers the mathematics; the noise is float32, so attacks on
    floating-point rounding are out of scope, as they are for tensorflow-privacy.

    The noise comes from a key that the operating system gives (see `adaclip_tf.core.noise`): `tf.random.set_seed` does
    not touch it, and the query draws new noise at every call, whatever state it is given.

    >>> query = ClippedSumQuery(core.FixedClip(l2_norm_clip=1.0), tf.TensorSpec([2]), 1.0, expected_num_records=4.0)

    Args:
      rule: a `core.ClippingRule`.
      record_specs: a nested structure (dict, list, tuple, namedtuple or one leaf) of `tf.TensorSpec`, or of
        anything with a full static shape and a floating dtype, such as variables. Records must have this
        structure and these shapes. The result has these dtypes; the arithmetic is float32.
      noise_multiplier: z, the standard deviation of the noise divided by the sensitivity of the sum. 0 turns noise,
        and with it privacy, off.
      expected_num_records: B, a public constant. Never the true size of a batch, which is private.
      seed: None for use. An integer makes the noise reproducible, for tests only: it voids the guarantee.
      noise_terms: as in `DPAdaClipSGD`.

    Raises:
      ValueError: if an argument is out of range; the message names it.
    """

    GlobalState = collections.namedtuple("GlobalState", ["rule_state"])

    def __init__(
        self,
        rule: core.ClippingRule,
        record_specs: Any,
        noise_multiplier: float,
        expected_num_records: float,
        seed: int | None = None,
        noise_terms: int = 1,
    ):
        if not isinstance(rule, core.ClippingRule):
            raise ValueError(f"`rule` must be a `core.ClippingRule`, such as `core.FixedClip(1.0)`; got {rule!r}.")
        self._rule = rule
        self._record_specs = tf.nest.map_structure(_as_spec, record_specs)
        self._flat_specs = tf.nest.flatten(self._record_specs)
        if not self._flat_specs:
            raise ValueError(
                f"`record_specs` must hold at least one tf.TensorSpec; got {record_specs!r}, which has none."
            )
        self._clip = rule.clip(self._flat_specs)
        self._noise_multiplier = validate.noise_multiplier("noise_multiplier", noise_multiplier)
        self._divisor = validate.positive_float32("expected_num_records", expected_num_records)
        self._noise = noise.NoiseSource(
            validate.seed("seed", seed), terms=validate.positive_integer("noise_terms", noise_terms)
        )

    def initial_global_state(self):
        """The state before the first round. Holds published values only."""
        return self.GlobalState(self._rule.initial_state(self._flat_specs))

    def derive_sample_params(self, global_state):
        """(a, b) of the coming round."""
        return self._rule.transform(global_state.rule_state, self._flat_specs)

    def initial_sample_state(self, template=None):
        """Zeros in float32, in the structure of `record_specs`; `template`, if given, must match it."""
        if template is not None:
            self._check_structure(template)
        zeros = [tf.zeros(shape, tf.float32) for shape in self._sum_shapes]
        return self._packed(zeros)

    def preprocess_record(self, params, record):
        """u_k, w_k = (g_k - a) / b clipped, with the rule's statistics: of norm at most 1 whatever the record."""
        self._check_structure(record)
        batch_of_one = [
            tf.expand_dims(_as_tensor(value, spec), axis=0)
            for value, spec in zip(tf.nest.flatten(record), self._flat_specs)
        ]
        transformed = core.Transform(*params).apply(batch_of_one)
        clipped = [tf.squeeze(u, 0) for u in self._clip.records(transformed)]
        return self._packed([*clipped, *core.statistics_sum(self._rule, self._clip, core.squared_norms(transformed))])

    def get_noised_result(self, sample_state, global_state):
        """Returns (b W + B a, next global state, the privacy event)."""
        total = self._unpacked(sample_state)
        state = global_state.rule_state
        self._check_state(state)
        transform = self._rule.transform(state, self._flat_specs)
        normals = self._noise.fresh_normals(self._sum_shapes)
        mean, next_state = core.private_step(
            self._rule,
            state,
            transform,
            total,
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
        state = global_state.rule_state
        return collections.OrderedDict(
            core.published_metrics(self._rule, state, self._flat_specs, self._noise_multiplier, self._divisor)
        )

    def _check_structure(self, record, what="a record"):
        try:
            tf.nest.assert_same_structure(self._record_specs, record)
        except (TypeError, ValueError) as error:
            kinds = tf.nest.map_structure(lambda leaf: type(leaf).__name__, record)
            raise ValueError(
                f"{what} must have the structure of `record_specs`, {self._record_specs!r}; got {kinds!r}."
            ) from error

    def _packed(self, total):
        """Sums in the structure of `record_specs`, with the rule's statistics beside it if it has any."""
        record = tf.nest.pack_sequence_as(self._record_specs, total[: len(self._flat_specs)])
        return (record, total[-1]) if self._rule.num_statistics else record

    def _unpacked(self, sample_state):
        record, statistics = sample_state, []
        if self._rule.num_statistics:
            if not isinstance(sample_state, tuple) or len(sample_state) != 2:
                raise ValueError(f"`sample_state` must be what `initial_sample_state` returned; got {sample_state!r}.")
            record, statistics = sample_state[0], [sample_state[1]]
        self._check_structure(record, "`sample_state`")
        return [*tf.nest.flatten(record), *statistics]

    @property
    def _sum_shapes(self):
        statistics = self._rule.num_statistics
        return [*[spec.shape for spec in self._flat_specs], *([[statistics]] if statistics else [])]

    def _check_state(self, state):
        expected = self._rule.initial_state(self._flat_specs)
        shapes = [[list(leaf.shape) for leaf in tf.nest.flatten(each)] for each in (state, expected)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"`global_state` is that of another query: it has the shapes {shapes[0]}, and `record_specs` are "
                f"{self._record_specs!r}. Start from `initial_global_state()`."
            )


class AdaClipSumQuery(ClippedSumQuery):
    """Estimates the sum of records with adaptive clipping (AdaCliP, arXiv 1908.07643).

    `ClippedSumQuery` with the paper's rule: see there for the guarantee.

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
      record_specs, noise_multiplier, expected_num_records, seed, noise_terms: as in `ClippedSumQuery`.
      beta_1: decay of the running mean m.
      beta_2: decay of the running variance s^2.
      h1, h2: the floor and the ceiling of the variance.
      gamma: bound on E|w|^2; below 1, fewer records are clipped and more noise is added.
      initial_std: s before the first round; sqrt(h1 h2) if None.
      variance_scaling: "per_example" or "paper"; see `core.MomentEstimator`.
      clamp: "before_average" or "after_average"; see `core.MomentEstimator`.

    Raises:
      ValueError: if an argument is out of range; the message names it.
    """

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
        rule = core.AdaClip(moments, gamma)
        super().__init__(rule, record_specs, noise_multiplier, expected_num_records, seed, noise_terms)


def _as_spec(leaf: Any) -> tf.TensorSpec:
    """The shape and dtype of a leaf of `record_specs`, checked."""
    try:
        spec = tf.TensorSpec(leaf.shape, leaf.dtype, _name(leaf))
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


def _name(leaf: Any) -> str | None:
    """The leaf's own name: it says which layer a variable belongs to."""
    name = getattr(leaf, "name", None)
    return name.split(":")[0] if isinstance(name, str) else None
