"""Losses that a training step hands over before it differentiates them.

Keras 3's `train_step` has a tape of its own: it calls `scale_loss(loss)` inside it, then `tape.gradient`, then
`apply_gradients`. Only there are the variables known. So the loss is kept from the first call to the last, and what
the tape sees in between has no gradient at all: nothing is differentiated twice, and nothing un-noised gets out.
"""

from __future__ import annotations

import weakref
from typing import Any

import tensorflow as tf

from adaclip_tf.optimizers import replicas


class Losses:
    """One for each graph and replica, until it is asked for."""

    def __init__(self) -> None:
        self._by_graph: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()

    def take(self, loss: Any, who: str) -> Any:
        """Keeps the loss, and returns it without its gradient."""
        if not hasattr(loss, "graph"):
            raise ValueError(
                f"{who} got a loss that was computed eagerly. Without a graph nothing shows that an example changes "
                "its own gradient only, so it is refused. With `fit`, leave out `run_eagerly=True`; in a loop of your "
                "own, put the step into a `tf.function` that gets the batch as arguments."
            )
        kept = self._by_graph.setdefault(loss.graph, {})
        if replicas.number() in kept:
            raise ValueError(
                f"{who} got two losses for one step. Add them up, one entry per example, and hand over the sum; or "
                "call `apply_gradients` after each."
            )
        kept[replicas.number()] = loss
        return _without_gradient(loss)

    def give(self, who: str) -> tf.Tensor:
        """The loss that was kept in this graph, for this replica."""
        kept = self._by_graph.get(tf.compat.v1.get_default_graph(), {})
        if replicas.number() not in kept:
            raise ValueError(
                f"{who} got no gradients, and no loss that it could take them of. In a `train_step` of your own call "
                "`loss = self.optimizer.scale_loss(loss)` inside the tape, or `self.optimizer.minimize(loss, "
                "variables, tape)` instead of `tape.gradient` and `apply_gradients`."
            )
        return kept.pop(replicas.number())


@tf.custom_gradient
def _without_gradient(loss):
    def gradient(upstream):
        value = tf.get_static_value(upstream)
        if upstream.op.type not in ("Fill", "OnesLike", "Const") or (value is not None and (value != 1).any()):
            raise ValueError(
                "The loss was changed after `scale_loss`. Change it before: what `scale_loss` gets is what is trained."
            )

    return tf.identity(loss), gradient
