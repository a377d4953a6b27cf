"""What canaries add to the sum: u_k of every canary, at the weights and the (a, b) of the moment.

This is the attacker's own arithmetic, of examples that he made up. The training step takes other ways to the same
numbers; should it be wrong somewhere, these are still right, and the audit sees the difference.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from adaclip_tf import core
from adaclip_tf._internal import keras
from adaclip_tf.optimizers import checks


class Moves(NamedTuple):
    """u_k of all canaries, before a step."""

    clipped: list[tf.Tensor]  # u, with a leading axis that runs over canaries, for each variable
    gram: tf.Tensor  # G = U U^T
    center: list[tf.Tensor]  # a
    scale: list[tf.Tensor]  # b


class CanaryGradients:
    """u_k of a model's loss, for any number of canaries."""

    def __init__(self, model: Any, optimizer: Any):
        self._model, self._optimizer = model, optimizer
        self._variables = [keras.native(variable) for variable in model.trainable_variables]
        self._traced: Any = None

    def moves(self, canaries: Any) -> Moves:
        """u_k of all canaries, a structure of tensors with one row each, now."""
        state = list(self._optimizer.private_state().values())
        center, scale = [part["center"] for part in state], [part["scale"] for part in state]
        if self._traced is None:
            rows = tf.nest.map_structure(lambda leaf: tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype), canaries)
            like = [tf.TensorSpec(part.shape, part.dtype) for part in center]
            self._traced = tf.function(self._clipped, input_signature=[rows, like, like], autograph=False)
        clipped, gram = self._traced(canaries, center, scale)
        return Moves(clipped, gram, center, scale)

    def _clipped(self, canaries, center, scale):
        records = self._gradients(canaries)
        specs = [tf.TensorSpec(v.shape, tf.float32, keras.path_of(v)) for v in self._model.trainable_variables]
        clipped = core.clip_records(records, core.Transform(center, scale), self._optimizer.rule.clip(specs))
        flat = tf.concat([tf.reshape(part, [tf.shape(part)[0], -1]) for part in clipped], axis=1)
        return clipped, tf.matmul(flat, flat, transpose_b=True)

    def _gradients(self, canaries):
        """Per-example gradients, by a backward pass for each entry of the loss."""
        x, y, weights = tf.keras.utils.unpack_x_y_sample_weight(canaries)
        with tf.GradientTape(persistent=True) as tape:
            outputs = self._model(x, training=False)
            loss = self._model.compute_loss(x=x, y=y, y_pred=outputs, sample_weight=weights)
        losses = checks.per_example_loss(tf.convert_to_tensor(loss), None, 1, tape)

        def of_one(seed):
            found = tape.gradient(losses, self._variables, seed, unconnected_gradients=tf.UnconnectedGradients.ZERO)
            return [tf.cast(tf.convert_to_tensor(gradient), tf.float32) for gradient in found]

        return tf.vectorized_map(of_one, tf.eye(tf.shape(losses)[0], dtype=losses.dtype))


@tf.function(autograph=False)
def products(moves: Moves, mean: list[tf.Tensor], divisor: tf.Tensor) -> tf.Tensor:
    """y = U W of W = (g~ - a) B / b."""
    total = tf.zeros([tf.shape(moves.gram)[0]])
    for u, g, a, b in zip(moves.clipped, mean, moves.center, moves.scale):
        total += tf.tensordot(u, (tf.cast(g, tf.float32) - a) * divisor / b, axes=u.shape.rank - 1)
    return total
