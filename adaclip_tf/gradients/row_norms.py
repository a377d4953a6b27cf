"""From a per-example loss to the norms of the rows of its clipped gradients, summed over examples.

With b public and c_k = 1 / max(1, |g_k / b|), u_k = c_k g_k / b is what a step would sum. Here the norms of its rows
are summed,

    M_i = sum_k |u_k,row i|_2,

where row i of a variable is all that shares every index but the last one, and one entry of b. How the examples are
kept apart, and what is refused, is as in `gradients.paths`, and so is what a weight of an example does: one up to 1
multiplies u_k after clipping, and is no part of g_k (`gradients.weighted`).

Formal guarantee. All rows of all variables together move by at most 1 in L2 norm when one example is added or removed:
example k adds the vector (|u_k,row i|)_i, whose norm is (sum_i |u_k,row i|^2)^(1/2) = |u_k| <= 1, since every
coordinate is in one row. A weight omega_k in [0, 1] shortens it. An example whose norm is not finite adds exactly 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from adaclip_tf import core
from adaclip_tf.gradients import backward, isolated, paths, proof, weighted


class ClippedRowNorms(NamedTuple):
    """What one batch gives. Nothing in here may leave before noise is added."""

    total: list[tf.Tensor]  # M, per variable, in its shape with 1 along the last axis; empty if not asked for
    squared_norms: tf.Tensor  # |g_k / b|^2, without omega_k, shape [batch]; not finite where the gradient is not


@tf.autograph.experimental.do_not_convert
def clipped_row_norms(
    loss: tf.Tensor,
    variables: Sequence[tf.Variable],
    tape: tf.GradientTape | None,
    scale: Sequence[tf.Tensor],
    *,
    path: str = "auto",
    sums: bool = True,
) -> ClippedRowNorms:
    """Sums of the norms of rows of a batch's clipped gradients, and the whole norms before clipping. Graph mode only.

    Args:
      loss: shape [batch], one entry per example.
      variables: what to differentiate by.
      tape: what recorded the loss, or None to differentiate the graph.
      scale: b > 0 of each variable: its shape, with 1 along the last axis.
      path: one of `gradients.PATHS`.
      sums: whether M is wanted, or the norms alone.
    """
    loss, counts = weighted.split(loss, tape)
    proven = proof.prove(loss)
    count = paths.num_examples(loss)
    passed = backward.run(loss, variables, tape, mark=proven.mark_seed)
    proven.look_back(passed.seed, passed.gradients)
    handles, others = {}, dict.fromkeys(range(len(variables)), "")
    if path != "jacobian":
        handles, others = paths.ghost_handles(passed, count, proven)
        if others:
            paths.report(others, path, variables)
    norms = tf.fill([count], proven.poison())
    if handles:
        squares = [handle.squared_norms(tf.constant(0.0), scale[index]) for index, handle in handles.items()]
        norms += paths.upper_end(squares)
    totals: dict[int, tf.Tensor] = {}
    if others:
        totals, norms = _isolated(passed, proven, scale, sorted(others), norms, count, counts)
    if not sums:
        return ClippedRowNorms([], norms)
    weights = core.clip_weights(norms)
    if counts is not None:
        weights *= counts  # c_k omega_k
    for index, handle in handles.items():
        totals[index] = handle.row_norms(weights) / scale[index]  # all of a row has one b
    return ClippedRowNorms([totals[index] for index in range(len(variables))], norms)


def _isolated(passed, proven, scale, indices, known, count, counts):
    """M of the variables in `indices`, and all |g_k / b|^2, of which `known` is what the other variables add."""
    chosen = passed._replace(
        gradients=[passed.gradients[i] for i in indices], variables=[passed.variables[i] for i in indices]
    )
    scales = [scale[i] for i in indices]

    def consume(k, gradients, state):
        totals, norms = state
        records = [gradient[tf.newaxis] / b for gradient, b in zip(gradients, scales)]
        square = tf.gather(known, [k]) + core.squared_norms(records)
        weight = core.clip_weights(square)
        if counts is not None:
            weight *= tf.gather(counts, [k])
        clipped = core.weigh_records(records, weight)
        return [total + _row_norms(u[0]) for total, u in zip(totals, clipped)], norms.write(k, square[0])

    start = (
        [tf.zeros(b.shape) for b in scales],
        tf.TensorArray(tf.float32, size=count, element_shape=[]),
    )
    totals, norms = isolated.for_each_microbatch(chosen, proven, count, consume, start)
    return dict(zip(indices, totals)), norms.stack()


def _row_norms(record: tf.Tensor) -> tf.Tensor:
    """Norms over the last axis, which is 1 in the result; of a single number, its absolute value."""
    return tf.norm(record, axis=-1, keepdims=True) if record.shape.rank else tf.abs(record)
