"""One backward pass over the whole batch, with a seed that says how much each example's loss counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf


class Backward(NamedTuple):
    """A loss, its seed, and the gradients of sum_k seed_k loss_k. Both paths read it, so that nothing is done twice."""

    loss: tf.Tensor  # [batch]
    seed: tf.Tensor  # [batch]; nothing but the gradients is computed from it
    gradients: list[Any]  # by variable: a tensor, `tf.IndexedSlices`, or None where the loss does not depend on it
    variables: list[tf.Variable]

    @property
    def computed(self) -> tuple[Any, ...]:
        """All that a run of the pass computes."""
        return (self.loss, *self.gradients)


def run(
    loss: tf.Tensor,
    variables: Sequence[tf.Variable],
    tape: Any,
    microbatch_size: Any = 1,
    *,
    mark: Callable[[tf.Tensor], None] = lambda seed: None,
) -> Backward:
    """Differentiates `loss`, each example counting 1 / `microbatch_size`; by `tape` if it recorded the loss.

    Without a tape the graph itself is differentiated. A tape may have been told to leave something out. `mark` gets the
    seed before anything is made of it.
    """
    seed = tf.identity(tf.fill(tf.shape(loss), 1.0 / tf.cast(microbatch_size, loss.dtype)))
    mark(seed)
    if tape is None:
        gradients = tf.gradients(loss, list(variables), grad_ys=seed)
    else:
        gradients = tape.gradient(loss, list(variables), output_gradients=seed)
    return Backward(loss, seed, list(gradients), list(variables))
