"""Per-microbatch gradients, each from a run of the model on that microbatch alone.

This is the reference path ("jacobian"): safe for every function of one example that a graph can express, whatever its
layers, and the fallback for what `adaclip_tf.proof` or the ghost rules do not know.

Why not `tape.jacobian`. There the gradient of example k is taken through the whole batch, with zeros
for the upstream gradient of all other examples. One example with an infinite input then spoils every
other one (0 * inf = NaN), all of them would have to be dropped, and adding that single example would
move the sum by up to B instead of 1. Here the part of the graph between the data and the loss is
copied into a loop and run on one microbatch at a time, so that record k is a function of microbatch k
alone, and nothing that any other example holds can reach it.

That all data is cut into examples is what `proof.Proof.pieces` promises: dense, ragged and sparse inputs are, anything else
that may hold data is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.util import object_identity

from adaclip_tf import proof


def for_each_microbatch(
    loss: tf.Tensor,
    pieces: Sequence[proof.Piece],
    variables: Sequence[tf.Variable],
    num_microbatches: tf.Tensor,
    consume: Callable[[tf.Tensor, list[tf.Tensor], Any], Any],
    state: Any,
) -> Any:
    """Folds `consume(k, gradients of microbatch k, state) -> state` over all microbatches.

    Args:
      loss: shape [batch], a tensor of the current graph, one entry per example.
      pieces: the data that the loss depends on, `proof.prove(loss).pieces`.
      variables: what to differentiate by. A variable the loss does not depend on has gradient 0.
      num_microbatches: how many microbatches of consecutive examples there are.
      consume: gets dense float32 gradients of the microbatch's mean loss.
      state: a structure of tensors, what `consume` gets first.

    Returns:
      The last state.
    """
    batch_size = tf.shape(loss)[0]
    microbatch_size = tf.math.floordiv(batch_size, tf.maximum(num_microbatches, 1))
    # Shapes that were fixed when the graph was made may be baked into it as constants; such a graph runs on
    # whole batches only, so it gets the microbatch repeated until the batch is full.
    whole_batches = any(piece.static_count() is not None for piece in pieces)

    def body(k, state):
        rows = k * microbatch_size + tf.range(microbatch_size)
        if whole_batches:
            rows = tf.tile(rows, [num_microbatches])
        copied_loss = _copy(loss, pieces, rows)
        mean_loss = tf.reduce_mean(tf.cast(copied_loss, tf.float32)[:microbatch_size])
        handles = [tf.compat.v1.get_default_graph().capture(variable.handle) for variable in variables]
        gradients = [
            tf.zeros(variable.shape) if gradient is None else tf.cast(tf.convert_to_tensor(gradient), tf.float32)
            for gradient, variable in zip(tf.gradients(mean_loss, handles), variables)
        ]
        poison = _poison(copied_loss, tf.size(rows))
        return k + 1, consume(k, [gradient + poison for gradient in gradients], state)

    _, state = tf.while_loop(lambda k, _: k < num_microbatches, body, (0, state), parallel_iterations=8)
    return state


def _poison(copied_loss: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """0 if the loss has an entry for each of the `count` examples that it was given, else NaN: then they are no examples."""
    holds = tf.equal(tf.size(copied_loss), count)
    message = (
        "The loss of one example by itself does not have one entry, so its entries are not examples. Average it over "
        "all axes but the first, and use no op that joins, drops or repeats examples."
    )
    with tf.control_dependencies([tf.raw_ops.Assert(condition=holds, data=[tf.constant(message)])]):
        return tf.where(holds, 0.0, float("nan"))


def _copy(loss: tf.Tensor, pieces: Sequence[proof.Piece], rows: tf.Tensor) -> tf.Tensor:
    """Copies the ops that lead from `pieces` to `loss` into the current graph, fed with the examples `rows` instead."""
    graph = tf.compat.v1.get_default_graph()
    copies = object_identity.ObjectIdentityDictionary()
    for external, internal in getattr(loss.graph, "captures", []):
        copies[internal] = external  # variables above all: captured anew, under the handle they are known by
    for piece in pieces:
        for tensor, taken in zip(piece.tensors, piece.take(rows)):
            copies[tensor] = taken
    needed = _ancestors(loss.op, stop={tensor.op for piece in pieces for tensor in piece.tensors})
    # A graph lists its ops in the order they were made, inputs first.
    for operation in [op for op in loss.graph.get_operations() if op in needed]:
        if operation.type == "Placeholder":
            continue
        waits = [copies[op] for op in operation.control_inputs if op in copies]
        with tf.control_dependencies(waits), tf.device(operation.device):
            copy = graph.create_op(
                operation.type,
                [copies.get(tensor, tensor) for tensor in operation.inputs],
                [tensor.dtype for tensor in operation.outputs],
                attrs={key: value for key, value in operation.node_def.attr.items() if key != "_class"},
                name=operation.name,
            )
        # Calls of functions (Keras's LSTM is one) carry their gradient with them.
        copy._gradient_function = operation._gradient_function
        copies[operation] = copy
        for tensor, copied in zip(operation.outputs, copy.outputs):
            copies[tensor] = copied
    return copies[loss]


def _ancestors(operation: tf.Operation, stop: set[tf.Operation]) -> set[tf.Operation]:
    """`operation` and all that it needs, short of the ops in `stop`."""
    found, pending = set(), [operation]
    while pending:
        op = pending.pop()
        if op in found or op in stop:
            continue
        found.add(op)
        pending.extend(tensor.op for tensor in op.inputs)
        pending.extend(op.control_inputs)
    return found
