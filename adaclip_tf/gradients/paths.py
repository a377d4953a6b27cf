"""From a per-example loss to the clipped sum of its gradients: which path each variable takes.

First `gradients.proof` looks at the graph of the loss. Where examples are known to meet, it raises. Where they are
proven to stay apart, and a rule recognises a variable, the ghost path (`gradients.ghost`) reads norms and weighted
sums off the backward pass of the whole batch. Everything else takes the isolated path (`gradients.isolated`), which
runs every microbatch by itself. Both give the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
from absl import logging

from adaclip_tf import core
from adaclip_tf.gradients import backward, ghost, isolated, proof

PATHS = ("auto", "ghost", "jacobian")
MUST_DIVIDE = "`num_microbatches` must divide the batch size; got num_microbatches={}"

# The ghost norm is a sum of terms of either sign. Their float32 rounding, relative to the sum of the terms' absolute
# values, stays below this; clipping by the upper end keeps |u_k| <= 1 even where the terms cancel.
_ROUNDING = 2e-6


class ClippedSum(NamedTuple):
    """What one batch gives. Nothing in here may leave the step before noise is added."""

    total: list[tf.Tensor]  # sum_k u_k, per variable
    num_records: tf.Tensor  # how many microbatches there were, int32
    weights: tf.Tensor  # c_k, shape [num_records]
    squared_norms: tf.Tensor  # |w_k|^2, shape [num_records]
    raw_squared_norms: tf.Tensor | None = None  # |g_k|^2, if it was asked for


@tf.autograph.experimental.do_not_convert
def clipped_sum(
    loss: tf.Tensor,
    variables: Sequence[tf.Variable],
    tape: tf.GradientTape,
    transform: core.Transform,
    *,
    path: str,
    num_microbatches: int | None,
    raw_norms: bool = False,
) -> ClippedSum:
    """Sums the transformed and clipped gradients of all microbatches of a batch. Graph mode only.

    Args:
      loss: shape [batch], one entry per example.
      variables: what to differentiate by.
      tape: what recorded the loss.
      transform: (a, b) of this step.
      path: one of `PATHS`.
      num_microbatches: None for one per example.
      raw_norms: also computes |g_k|^2, which nothing but debugging needs.
    """
    proven = proof.prove(loss)
    num_records = tf.shape(loss)[0] if num_microbatches is None else _whole_microbatches(loss, num_microbatches)
    size = 1 if num_microbatches is None else tf.math.floordiv(tf.shape(loss)[0], num_records)
    passed = backward.run(loss, variables, tape, size)
    proven.look_back(passed.seed, passed.gradients)
    handles, others = {}, dict.fromkeys(range(len(variables)), "")
    if path != "jacobian":
        handles, others = _ghost_handles(passed, num_records, proven)
        if others:
            _report(others, path)

    known, raw = tf.fill([num_records], proven.poison()), tf.zeros([num_records])
    for index, handle in handles.items():
        norms = handle.squared_norms(transform.center[index], transform.scale[index])
        known += norms.value + _ROUNDING * norms.magnitude
        if raw_norms:
            raw += handle.squared_norms(tf.constant(0.0), tf.constant(1.0)).value
    totals: dict[int, tf.Tensor] = {}
    squared_norms = known
    if others:
        totals, squared_norms, more = _isolated(passed, proven, transform, sorted(others), known, num_records)
        raw += more
    weights = core.clip_weights(squared_norms)
    for index, handle in handles.items():
        # sum_k u_k = (sum_k c_k g_k - a sum_k c_k) / b
        centred = handle.weighted_sum(weights) - transform.center[index] * tf.reduce_sum(weights)
        totals[index] = centred / transform.scale[index]
    ordered = [totals[i] for i in range(len(variables))]
    return ClippedSum(ordered, num_records, weights, squared_norms, raw if raw_norms else None)


def _whole_microbatches(loss, num_microbatches):
    """The number of microbatches, which nothing gets to see before it is known to divide the batch."""
    checks = [] if loss.shape[0] is not None else [_check_divides(loss, num_microbatches)]
    with tf.control_dependencies([check for check in checks if check is not None]):
        return tf.identity(tf.constant(num_microbatches))


def _check_divides(loss, num_microbatches):
    """The check at run time, for batches whose size is not known before."""
    message = f"{MUST_DIVIDE.format(num_microbatches)}. Use `drop_remainder=True` or None."
    return tf.debugging.assert_equal(tf.shape(loss)[0] % num_microbatches, 0, message=message)


def _ghost_handles(passed, num_records, proven):
    """The handles of the variables that have a rule, and the reasons why the others have none."""
    gradients, variables = passed.gradients, passed.variables
    if proven.unproven is not None:
        return {}, dict.fromkeys(range(len(variables)), f"{proven.unproven}.")
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


def _isolated(passed, proven, transform, indices, known, num_records):
    """Of the variables in `indices`: sum_k u_k, |w_k|^2 with what the others add to it (`known`), and |g_k|^2."""
    part = core.Transform([transform.center[i] for i in indices], [transform.scale[i] for i in indices])
    chosen = passed._replace(
        gradients=[passed.gradients[i] for i in indices], variables=[passed.variables[i] for i in indices]
    )

    def consume(k, gradients, state):
        return _add_record(k, gradients, part, tf.gather(known, [k]), state)

    start = _no_records(chosen.variables, num_records)
    totals, norms, raw = isolated.for_each_microbatch(
        chosen, proven.pieces, num_records, consume, start, apart=proven.keeps_apart(chosen.gradients)
    )
    return dict(zip(indices, totals)), norms.stack(), raw.stack()


def _no_records(like, num_records):
    norms, raw = (tf.TensorArray(tf.float32, size=num_records, element_shape=[]) for _ in range(2))
    return [tf.zeros(tensor.shape) for tensor in like], norms, raw


def _add_record(k, gradients, transform, known, state):
    """Adds u_k to the totals and notes |w_k|^2 and |g_k|^2."""
    totals, norms, raw = state
    record = [gradient[tf.newaxis] for gradient in gradients]
    transformed = core.transform_records(record, transform)
    squared_norm = known + core.squared_norms(transformed)
    clipped = core.weigh_records(transformed, core.clip_weights(squared_norm))
    totals = [total + tf.squeeze(u, 0) for total, u in zip(totals, clipped)]
    return totals, norms.write(k, squared_norm[0]), raw.write(k, core.squared_norms(record)[0])


def _report(others, path) -> None:
    reasons = " ".join(dict.fromkeys(others.values()))
    if path == "ghost":
        raise ValueError(
            'No ghost rule for some variables, and `gradient_path="ghost"` allows nothing else: '
            f'{reasons} Use `gradient_path="auto"` to compute these exactly, if slower.'
        )
    logging.warning("DP gradients of %d variables take the slow path, one example at a time: %s", len(others), reasons)
