"""From a per-example loss to the clipped sum of its gradients: which path each variable takes.

First `gradients.proof` looks at the graph of the loss. Where examples are known to meet, it raises. Where they are
proven to stay apart, and a rule recognises a variable, the ghost path (`gradients.ghost`) reads norms and weighted
sums off the backward pass of the whole batch. Everything else takes the isolated path (`gradients.isolated`), which
runs every microbatch by itself. Both give the same numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from adaclip_tf import core
from adaclip_tf._internal import made
from adaclip_tf.gradients import backward, ghost, isolated, proof, spelled_out, weighted

PATHS = ("auto", "ghost", "jacobian")
MUST_DIVIDE = "`num_microbatches` must divide the batch size; got num_microbatches={}"

# The ghost norm is a sum of terms of either sign. Their float32 rounding, relative to the sum of the terms' absolute
# values, stays below this; clipping by the upper end keeps |u_k| <= 1 even where the terms cancel.
ROUNDING = 2e-6


class ClippedSum(NamedTuple):
    """What one batch gives. Nothing in here may leave the step before noise is added."""

    total: list[tf.Tensor]  # sum_k u_k, per variable; sum_k c_k g_k where there is a `weight`
    num_records: tf.Tensor  # how many microbatches there were, int32
    weights: tf.Tensor  # the least c_k of all groups of variables, shape [num_records]
    squared_norms: tf.Tensor  # |w_k|^2, shape [num_records]
    raw_squared_norms: tf.Tensor | None = None  # |g_k|^2, if it was asked for
    data: tuple[tf.Tensor, ...] = ()  # the batch, as the graph gets it
    computed: tuple[Any, ...] = ()  # the loss and the gradients of all examples together, as TensorFlow computes them
    poison: tf.Tensor | float = 0.0  # NaN where the run shows that the batch must be refused, see `proof.Proof.poison`
    weight: tf.Tensor | None = None  # sum_k c_k, where `Transform.apply_to_sum` is left to the caller


@tf.autograph.experimental.do_not_convert
def clipped_sum(
    loss: tf.Tensor,
    variables: Sequence[tf.Variable],
    tape: tf.GradientTape | None,
    transform: core.Transform,
    *,
    path: str,
    num_microbatches: int | None,
    clip: Any = core.NORM,
    raw_norms: bool = False,
    may_leave_transform: bool = False,
) -> ClippedSum:
    """Sums the transformed and clipped gradients of all microbatches of a batch. Graph mode only.

    Args:
      loss: shape [batch], one entry per example.
      variables: what to differentiate by.
      tape: what recorded the loss, or None to differentiate the graph.
      transform: (a, b) of this step.
      path: one of `PATHS`.
      num_microbatches: None for one per example.
      clip: how w_k becomes u_k, a `core.Clip`.
      raw_norms: also computes |g_k|^2, which nothing but debugging needs.
      may_leave_transform: whether the caller applies (a, b) to the sums where there is a `weight`, in one pass with
        what it does to them anyway.
    """
    counts = None
    if num_microbatches is None:  # a microbatch has no weight of its own
        loss, counts = weighted.split(loss, tape)
    proven = proof.prove(loss)
    num_records = num_examples(loss) if num_microbatches is None else _whole_microbatches(loss, num_microbatches)
    size = 1 if num_microbatches is None else tf.math.floordiv(tf.shape(loss)[0], num_records)
    passed = backward.run(loss, variables, tape, size, mark=proven.mark_seed)
    proven.look_back(passed.seed, passed.gradients)
    if clip.needs_gradients:
        if path == "ghost":
            raise ValueError('This clip looks at every coordinate of a gradient: use `gradient_path="auto"`.')
        return _by_example(passed, proven, transform, clip, num_records, raw_norms, counts)
    handles, others = {}, dict.fromkeys(range(len(variables)), "")
    if path != "jacobian":
        handles, others = ghost_handles(passed, num_records, proven)
        if others:
            report(others, path, variables)

    groups = clip.groups_of(len(variables))
    poison = proven.poison()
    start, known = tf.fill([num_records], poison), []
    for group in groups:
        norms = [
            handles[index].squared_norms(transform.center[index], transform.scale[index])
            for index in group
            if index in handles
        ]
        known.append(tf.add_n([start, upper_end(norms)]) if norms else start)
    raw = tf.zeros([num_records])
    if raw_norms:
        for handle in handles.values():
            raw += handle.squared_norms(tf.constant(0.0), tf.constant(1.0)).value
    totals: dict[int, tf.Tensor] = {}
    squared_norms = known
    if others:
        totals, squared_norms, more = _isolated(
            passed, proven, transform, clip, groups, others, known, num_records, counts
        )
        raw += more
    weights = [clip.weights(squares) for squares in squared_norms]
    left = None
    for number, group in enumerate(groups):
        shares = weights[number] if counts is None else weights[number] * counts  # c_k omega_k
        summed = [index for index in group if index in handles]
        weight = tf.reduce_sum(shares)
        if may_leave_transform and len(summed) == len(variables) and not all(map(transform.is_factor, summed)):
            left = weight
        for index in summed:
            if left is not None:
                totals[index] = handles[index].weighted_sum(shares)
            elif transform.is_factor(index):
                totals[index] = handles[index].weighted_sum(_over(shares, transform.scale[index]))
            else:
                totals[index] = transform.apply_to_sum(handles[index].weighted_sum(shares), weight, index)
    ordered = [totals[i] for i in range(len(variables))]
    least = functools.reduce(tf.minimum, weights)
    norms = tf.add_n(squared_norms)
    return ClippedSum(
        ordered, num_records, least, norms, raw if raw_norms else None, proven.data, passed.computed, poison, left
    )


def _over(shares: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
    """c_k / b, for the sum of c_k g_k / b without a pass over the parameters; once for the same."""
    return made.once(("over", shares.ref(), scale.ref()), lambda: shares / scale)


def upper_end(norms: Sequence[ghost.SquaredNorms]) -> tf.Tensor:
    """The most that the squared norms of some variables can add up to, but for the rounding of this sum."""
    total = tf.add_n([part.value for part in norms])
    return total + ROUNDING * tf.add_n([part.magnitude for part in norms])


def num_examples(loss: tf.Tensor) -> tf.Tensor:
    """How many entries a loss [batch] has, as a constant where that is known before the run."""
    return tf.convert_to_tensor(made.extent(loss, 0))


def _whole_microbatches(loss, num_microbatches):
    """The number of microbatches, which nothing gets to see before it is known to divide the batch."""
    checks = [] if loss.shape[0] is not None else [_check_divides(loss, num_microbatches)]
    with tf.control_dependencies([check for check in checks if check is not None]):
        return tf.identity(tf.constant(num_microbatches))


def _check_divides(loss, num_microbatches):
    """The check at run time, for batches whose size is not known before."""
    message = f"{MUST_DIVIDE.format(num_microbatches)}. Use `drop_remainder=True` or None."
    return tf.debugging.assert_equal(tf.shape(loss)[0] % num_microbatches, 0, message=message)


def ghost_handles(passed, num_records, proven):
    """The handles of the variables that have a rule, and the reasons why the others have none."""
    variables = passed.variables
    if proven.unproven is not None:
        return {}, dict.fromkeys(range(len(variables)), f"{proven.unproven}.")
    gradients = spelled_out.spelled_out(passed, proven.walk).gradients
    plan = ghost.analyse(gradients, variables, passed.seed, num_microbatches=num_records)
    handles, others = {}, dict(plan.unrecognised)
    for index, gradient in enumerate(gradients):
        if gradient is None:
            handles[index] = _NoGradient(variables[index].shape, num_records)
        elif index in plan.recognised:
            # The rule shows that its rows are those of the examples' losses; this, that nobody else's data is in them.
            reason = proven.summed(gradient)
            if reason is None:
                handles[index] = plan.recognised[index]
            else:
                others[index] = f"{variables[index].name}: {reason}."
    return handles, others


class _NoGradient:
    """Handle of a variable that the loss does not depend on: g_k = 0. Noise is added to it like to any other, for
    whether an eager model uses a variable may depend on the data."""

    def __init__(self, shape, num_records):
        self._shape, self._num_records = shape, num_records

    def squared_norms(self, center, scale):
        norm = tf.reduce_sum(tf.square(tf.broadcast_to(center / scale, self._shape)))
        return ghost.SquaredNorms(tf.fill([self._num_records], norm), tf.fill([self._num_records], norm))

    def weighted_sum(self, weights):
        del weights
        return tf.zeros(self._shape)

    def row_norms(self, weights):
        del weights
        return tf.zeros([*self._shape[:-1], 1] if self._shape.rank else [])


def _isolated(passed, proven, transform, clip, groups, others, known, num_records, counts):
    """Of the variables in `others`: sum_k u_k, the |w_k|^2 of every group with what the others add to it (`known`),
    and |g_k|^2."""
    indices = sorted(others)
    part = core.Transform([transform.center[i] for i in indices], [transform.scale[i] for i in indices])
    places = [[indices.index(i) for i in group if i in others] for group in groups]

    def consume(k, gradients, state):
        totals, norms, raw = state
        totals = list(totals)
        record = [gradient[tf.newaxis] for gradient in gradients]
        transformed = part.apply(record)
        squares = []
        for members, others_norms in zip(places, known):
            square = tf.gather(others_norms, [k])
            if members:
                square += core.squared_norms([transformed[i] for i in members])
            weight = clip.weights(square)
            if counts is not None:
                weight *= tf.gather(counts, [k])
            for i in members:
                totals[i] += tf.squeeze(core.weigh_records([transformed[i]], weight)[0], 0)
            squares.append(square[0])
        return totals, norms.write(k, tf.stack(squares)), raw.write(k, core.squared_norms(record)[0])

    totals, norms, raw = _each(passed, proven, indices, num_records, len(groups), consume)
    return dict(zip(indices, totals)), tf.unstack(norms, axis=1), raw


def _by_example(passed, proven, transform, clip, num_records, raw_norms, counts):
    """The clipped sum where norms do not say how to clip."""

    def consume(k, gradients, state):
        totals, norms, raw = state
        record = [gradient[tf.newaxis] for gradient in gradients]
        transformed = transform.apply([gradient + poison for gradient in record])
        share = 1.0 if counts is None else counts[k]
        totals = [total + share * tf.squeeze(u, 0) for total, u in zip(totals, clip.records(transformed))]
        return totals, norms.write(k, core.squared_norms(transformed)), raw.write(k, core.squared_norms(record)[0])

    poison = proven.poison()
    totals, norms, raw = _each(passed, proven, range(len(passed.variables)), num_records, 1, consume)
    norms = norms[:, 0]
    weights = core.clip_weights(norms)
    return ClippedSum(
        totals, num_records, weights, norms, raw if raw_norms else None, proven.data, passed.computed, poison
    )


def _each(passed, proven, indices, num_records, num_groups, consume):
    """Folds `consume` over the microbatches, each run by itself: the totals, |w_k|^2 by group, |g_k|^2."""
    chosen = passed._replace(
        gradients=[passed.gradients[i] for i in indices], variables=[passed.variables[i] for i in indices]
    )
    start = (
        [tf.zeros(variable.shape) for variable in chosen.variables],
        tf.TensorArray(tf.float32, size=num_records, element_shape=[num_groups]),
        tf.TensorArray(tf.float32, size=num_records, element_shape=[]),
    )
    totals, norms, raw = isolated.for_each_microbatch(chosen, proven, num_records, consume, start)
    return totals, norms.stack(), raw.stack()


def report(others, path, variables) -> None:
    """Says, or raises if `path` wants it so, that some variables are not on the ghost path; by their layers' names."""
    reasons = " ".join(dict.fromkeys(others.values()))
    layers = ", ".join(dict.fromkeys(_layer_of(variables[index]) for index in others))
    if path == "ghost":
        raise ValueError(
            f'No ghost rule for some variables ({layers}), and `gradient_path="ghost"` allows nothing else: '
            f'{reasons} Use `gradient_path="auto"` to compute these exactly, if slower.'
        )
    logging.warning(
        "DP gradients of %d variables (%s) take the slow path, one example at a time: %s", len(others), layers, reasons
    )


def _layer_of(variable) -> str:
    """The name of the layer that has the variable; the variable's own where it has none."""
    parts = variable.name.split(":")[0].split("/")
    return parts[-2] if len(parts) > 1 else parts[0]
