"""From a per-example loss to the squares of its clipped gradients, summed over examples, row by row.

With b public and c_k = 1 / max(1, |g_k / b|), u_k = c_k g_k / b is what a step would sum. Here its squares are summed,

    V_i = sum_k sum_{j in row i} u_kj^2,

where a row is a set of coordinates of one variable that share one entry of b: b has the variable's rank, with 1 along
the axes that a row runs over. How the examples are kept apart, and what is refused, is as in `gradients.paths`.

Formal guarantee. All rows of all variables together move by at most 1 in L2 norm when one example is added or removed:
example k adds the vector (sum_{j in row i} u_kj^2)_i, whose entries are not negative and add up to |u_k|^2 <= 1, and
the L2 norm of such a vector is at most the sum of its entries. (It is 1 where all of u_k is in one row.) An example
whose norm is not finite adds exactly 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from adaclip_tf import core
from adaclip_tf.gradients import backward, isolated, paths, proof


class ClippedSquares(NamedTuple):
    """What one batch gives. Nothing in here may leave before noise is added."""

    total: list[tf.Tensor]  # V, per variable, in the shape of its scale; empty if not asked for
    squared_norms: tf.Tensor  # |g_k / b|^2, shape [batch]; not finite where the gradient is not


@tf.autograph.experimental.do_not_convert
def clipped_squares(
    loss: tf.Tensor,
    variables: Sequence[tf.Variable],
    tape: tf.GradientTape | None,
    scale: Sequence[tf.Tensor],
    *,
    path: str = "auto",
    sums: bool = True,
) -> ClippedSquares:
    """Sums of squares of the clipped gradients of a batch, and the norms before clipping. Graph mode only.

    Args:
      loss: shape [batch], one entry per example.
      variables: what to differentiate by.
      tape: what recorded the loss, or None to differentiate the graph.
      scale: b of each variable: its rank, and 1 along the axes that a row runs over.
      path: one of `gradients.PATHS`.
      sums: whether V is wanted, or the norms alone.
    """
    proven = proof.prove(loss)
    count = tf.shape(loss)[0]
    passed = backward.run(loss, variables, tape)
    proven.look_back(passed.seed, passed.gradients)
    handles, others = {}, dict.fromkeys(range(len(variables)), "")
    if path != "jacobian":
        handles, others = paths.ghost_handles(passed, count, proven)
        for index in [index for index, handle in handles.items() if sums and not handle.sums_squares]:
            others[index] = f"{variables[index].name}: its squares have no rule."
            del handles[index]
        if others:
            paths.report(others, path)
    norms = tf.fill([count], proven.poison())
    for index, handle in handles.items():
        squares = handle.squared_norms(tf.constant(0.0), scale[index])
        norms += squares.value + paths.ROUNDING * squares.magnitude
    totals: dict[int, tf.Tensor] = {}
    if others:
        totals, norms = _isolated(passed, proven, scale, sorted(others), norms, count)
    if not sums:
        return ClippedSquares([], norms)
    weights = core.clip_weights(norms)
    for index, handle in handles.items():
        totals[index] = row_sums(handle.square_sums(weights, scale[index]), scale[index].shape)
    return ClippedSquares([totals[index] for index in range(len(variables))], norms)


def _isolated(passed, proven, scale, indices, known, count):
    """V of the variables in `indices`, and all |g_k / b|^2, of which `known` is what the other variables add."""
    chosen = passed._replace(
        gradients=[passed.gradients[i] for i in indices], variables=[passed.variables[i] for i in indices]
    )
    scales = [scale[i] for i in indices]

    def consume(k, gradients, state):
        totals, norms = state
        records = [gradient[tf.newaxis] / b for gradient, b in zip(gradients, scales)]
        square = tf.gather(known, [k]) + core.squared_norms(records)
        clipped = core.weigh_records(records, core.clip_weights(square))
        added = [row_sums(tf.square(u[0]), b.shape) for u, b in zip(clipped, scales)]
        return [total + more for total, more in zip(totals, added)], norms.write(k, square[0])

    start = (
        [tf.zeros(b.shape) for b in scales],
        tf.TensorArray(tf.float32, size=count, element_shape=[]),
    )
    totals, norms = isolated.for_each_microbatch(
        chosen, proven.pieces, count, consume, start, apart=proven.keeps_apart(chosen.gradients)
    )
    return dict(zip(indices, totals)), norms.stack()


def row_sums(values: tf.Tensor, shape: tf.TensorShape) -> tf.Tensor:
    """`values` added up over the axes along which `shape`, of the same rank, has 1."""
    axes = [axis for axis, size in enumerate(shape) if size == 1 and values.shape[axis] != 1]
    return tf.reduce_sum(values, axis=axes, keepdims=True) if axes else values
