"""From a per-example loss to the clipped sum of its gradients: which path each variable takes.

Two paths give the same numbers. The ghost path (`adaclip_tf.ghost`) reads norms and weighted sums off
the backward pass of the whole batch; the isolated path (`adaclip_tf.isolated`) runs every microbatch by
itself. With `gradient_path="auto"` each variable takes the first if a rule recognises it with certainty,
and the second otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
from absl import logging

from adaclip_tf import core, ghost, isolated, mixing

PATHS = ("auto", "ghost", "jacobian")

# The ghost norm is a sum of terms of either sign. Their float32 rounding, relative to the terms' absolute sum, stays
# below this; clipping by the upper end keeps |u_k| <= 1 where the terms cancel.
_ROUNDING = 2e-6


class ClippedSum(NamedTuple):
    """What one batch gives. Nothing in here may leave the step before noise is added."""

    total: list[tf.Tensor]  # sum_k u_k, per variable
    num_records: tf.Tensor  # how many microbatches there were, int32
    weights: tf.Tensor  # c_k, shape [num_records]
    squared_norms: tf.Tensor  # |w_k|^2, shape [num_records]


def clipped_sum(
    loss: tf.Tensor,
    variables: Sequence[tf.Variable],
    tape: tf.GradientTape,
    transform: core.Transform,
    *,
    path: str,
    num_microbatches: int | None,
) -> ClippedSum:
    """Sums the transformed and clipped gradients of all microbatches of a batch. Graph mode only.

    Args:
      loss: shape [batch], one entry per example.
      variables: what to differentiate by.
      tape: what recorded the loss.
      transform: (a, b) of this step.
      path: one of `PATHS`.
      num_microbatches: None for one per example.
    """
    mixing.check(loss)
    batch_size = tf.shape(loss)[0]
    num_records = batch_size if num_microbatches is None else tf.constant(num_microbatches)
    handles, others = {}, dict.fromkeys(range(len(variables)), "")
    if path != "jacobian":
        plan = _ghost_plan(loss, variables, tape, num_records, num_microbatches)
        handles, others = plan.recognised, plan.unrecognised
        _report(others, path)

    known = tf.zeros([num_records])
    for index, handle in handles.items():
        norms = handle.squared_norms(transform.center[index], transform.scale[index])
        known += norms.value + _ROUNDING * norms.magnitude
    totals: dict[int, tf.Tensor] = {}
    if others:
        totals, weights, squared_norms = _isolated_sums(loss, variables, transform, others, known, num_records)
    else:
        weights, squared_norms = core.clip_weights(known), known
    for index, handle in handles.items():
        # sum_k u_k = (sum_k c_k g_k - a sum_k c_k) / b
        weighted = handle.weighted_sum(weights) - transform.center[index] * tf.reduce_sum(weights)
        totals[index] = weighted / transform.scale[index]
    return ClippedSum([totals[i] for i in range(len(variables))], num_records, weights, squared_norms)


def _ghost_plan(loss, variables, tape, num_records, num_microbatches):
    size = 1 if num_microbatches is None else tf.math.floordiv(tf.shape(loss)[0], num_records)
    seed = tf.identity(tf.fill(tf.shape(loss), 1.0 / tf.cast(size, loss.dtype)))
    gradients = tape.gradient(loss, list(variables), output_gradients=seed)
    return ghost.analyse(gradients, variables, seed, num_microbatches=num_records)


def _isolated_sums(loss, variables, transform, others, known, num_records):
    """sum_k u_k of the variables in `others`, and c_k, given what the rest adds to |w_k|^2."""
    indices = sorted(others)
    chosen = [variables[i] for i in indices]
    part = core.Transform([transform.center[i] for i in indices], [transform.scale[i] for i in indices])

    def consume(k, gradients, state):
        totals, squared_norms = state
        transformed = core.transform_records([gradient[tf.newaxis] for gradient in gradients], part)
        squared_norm = tf.gather(known, [k]) + core.squared_norms(transformed)
        clipped = core.weigh_records(transformed, core.clip_weights(squared_norm))
        totals = [total + tf.squeeze(u, 0) for total, u in zip(totals, clipped)]
        return totals, squared_norms.write(k, squared_norm[0])

    nothing = [tf.zeros(variable.shape) for variable in chosen]
    norms = tf.TensorArray(tf.float32, size=num_records, element_shape=[])
    try:
        totals, norms = isolated.for_each_microbatch(loss, chosen, num_records, consume, (nothing, norms))
    except isolated.NotInGraphError:
        raise ValueError(_eager_message(chosen, others)) from None
    squared_norms = norms.stack()
    return dict(zip(indices, totals)), core.clip_weights(squared_norms), squared_norms


def _eager_message(chosen, others) -> str:
    reasons = [reason for reason in others.values() if reason] or ['`gradient_path="jacobian"` asks for it.']
    return (
        "The gradients of "
        + ", ".join(repr(variable.name) for variable in chosen)
        + " need every example to be run by itself, which takes a graph, and this loss was computed eagerly. "
        "Leave out `run_eagerly=True`, put the training step into a `tf.function`, or pass the loss as a "
        "callable: `minimize(lambda: loss, variables)`. Why: " + " ".join(reasons)
    )


def _report(others, path) -> None:
    if others and path == "ghost":
        raise ValueError(
            'No ghost rule for some variables, and `gradient_path="ghost"` allows nothing else: '
            + " ".join(others.values())
            + ' Use `gradient_path="auto"` to compute these exactly, if slower.'
        )
    if others:
        logging.warning(
            "DP gradients of %d variables take the slow path (one example at a time): %s",
            len(others),
            " ".join(others.values()),
        )
