"""One backward pass over the whole batch, with a seed that says how much each example's loss counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf


class Backward(NamedTuple):
    """A loss, its seed, and the gradients of sum_k seed_k loss_k. Both paths read it, so that nothing is done twice."""

    loss: tf.Tensor  # [batch]
    seed: tf.Tensor  # [batch]; nothing but the gradients is computed from it
    gradients: list[Any]  # by variable: a tensor, `tf.IndexedSlices`, or None where the loss does not depend on it
    variables: list[tf.Variable]


def run(loss: tf.Tensor, variables: Sequence[tf.Variable], tape: Any, microbatch_size: Any = 1) -> Backward:
    """Differentiates `loss`, which `tape` recorded, each example counting 1 / `microbatch_size`."""
    seed = tf.identity(tf.fill(tf.shape(loss), 1.0 / tf.cast(microbatch_size, loss.dtype)))
    gradients = tape.gradient(loss, list(variables), output_gradients=seed)
    return Backward(loss, seed, list(gradients), list(variables))
