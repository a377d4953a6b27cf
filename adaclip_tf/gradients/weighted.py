"""Weights of examples (`sample_weight`, `class_weight`) that clipping does not undo.

Keras multiplies the loss of example k by its weight omega_k. Where gradients are clipped that is undone: a gradient six
times as long is cut to the same length. So a weight that enters the step as data, and is a factor of the loss, is
taken out again, and multiplies what is left after clipping instead, as far as it is at most 1:

    u_k = omega_k clip(g_k)         0 <= omega_k <= 1
    u_k = clip(omega_k g_k)         otherwise (above 1, negative, not a number)

with g_k the gradient of the loss without the weight.

Formal guarantee. |u_k| <= 1 either way, and u_k depends on example k alone: omega_k is proven to be a number of example
k's by the labels of `gradients.proof`, and where that is not known nothing is taken out. So the sensitivity is still 1,
whatever the weights are, and no weight need be public.

What it means. With a = 0 (a fixed clip) the sum is that of weighted clipped gradients. AdaCliP, whose m follows what is
published, settles at their weighted mean. Weights above 1 are undone where gradients are clipped: dividing all
weights by the largest one, and raising the learning rate by as much, is the same to SGD without clipping, and keeps
their proportions with it. The log says so, once.
"""

from __future__ import annotations

import contextlib
from typing import Any

import tensorflow as tf
from absl import logging

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.proof.elements import hands_out_examples
from adaclip_tf.gradients.proof.labels import Rows
from adaclip_tf.gradients.proof.walk import Walk

_SAME = ("Identity", "Cast", "Squeeze", "ExpandDims", "Reshape", "StopGradient")
_NEWS = (
    "The loss is weighted, by `class_weight` or `sample_weight`. Weights up to 1 are applied after clipping, and count "
    "in full; what is above 1 multiplies the gradient before clipping, which undoes it where gradients are clipped. "
    "Divide all weights by the largest one, and raise the learning rate instead."
)


def split(loss: tf.Tensor, tape: Any = None) -> tuple[tf.Tensor, tf.Tensor | None]:
    """The loss without weights from 0 to 1, and these, 1 where there is another: both [batch]. Or (loss, None).

    Args:
      loss: shape [batch], one entry per example.
      tape: what recorded the loss, if something did; it records the new one.
    """
    found = _factors(loss)
    if found is None:
        return loss, None
    values, weights, factor = found
    weights = tf.cast(weights, loss.dtype)
    counts = (weights >= 0.0) & (weights <= 1.0)  # not where it is no number
    after = tf.where(counts, weights, tf.ones_like(weights))
    label = Walk(loss.graph).label(after)
    if not isinstance(label, Rows) or (label.axis, label.rows, label.outer) != (0, 1, 1) or label.checks:
        return loss, None
    logging.log_first_n(logging.WARNING, _NEWS, 1)
    with tape or contextlib.nullcontext():
        before = tf.where(counts, tf.ones_like(weights), weights)
        return tf.cast(values, loss.dtype) * before * tf.cast(factor, loss.dtype), tf.cast(after, tf.float32)


def _factors(loss: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, float] | None:
    """Values, weights that enter the step as data, and a constant, whose product the loss is."""
    factor = 1.0
    while True:
        op = loss.op
        if op.type == "Identity" or (op.type == "AddN" and len(op.inputs) == 1) or _between_floats(op):
            loss = op.inputs[0]
        elif op.type == "Mul":
            constant = next((i for i in (0, 1) if _scalar(op.inputs[i]) is not None), None)
            if constant is None:
                break
            factor, loss = factor * float(_scalar(op.inputs[constant])), op.inputs[1 - constant]
        else:
            return None
    for values, weights in (op.inputs, reversed(op.inputs)):
        one_each = values.shape.rank == 1 and weights.shape.rank == 1 and weights.dtype.is_floating
        if one_each and _enters(graph.behind(weights, _SAME).op):
            return values, weights, factor
    return None


def _enters(op: tf.Operation) -> bool:
    return op.type == "Placeholder" or hands_out_examples(op)


def _between_floats(op: tf.Operation) -> bool:
    return op.type == "Cast" and op.inputs[0].dtype.is_floating


def _scalar(tensor: tf.Tensor) -> Any:
    return tf.get_static_value(tensor) if tensor.shape.rank == 0 else None
