"""Finds what makes one example's loss depend on another example, where no per-example bound exists.

A layer that computes statistics over the batch (BatchNormalization) lets one example change the gradients
of all others, and stores un-noised statistics of the data in the model besides. Such models are refused:
`check_model` lists the layers before training, `check` looks at the graph of the loss during tracing.
"""

from __future__ import annotations

import tensorflow as tf

from adaclip_tf import isolated

_FIX = (
    "Differential privacy needs the examples of a batch to stay apart. Replace BatchNormalization by "
    "LayerNormalization or GroupNormalization, or freeze it (`layer.trainable = False`)."
)
_WRITES = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
_REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "All", "Any", "EuclideanNorm")


def check_model(model: tf.keras.Model) -> None:
    """Raises ValueError with a line for every layer that private training can't take.

    Call it before training; it needs a built model and sees layers nested in layers.

    >>> check_model(tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,))]))
    """
    found = []
    for layer in model._flatten_layers(include_self=False):
        reason = _objection(layer)
        if reason:
            found.append(f"layer {layer.name!r} ({type(layer).__name__}) {reason}")
    if found:
        raise ValueError("This model can't be trained with differential privacy:\n- " + "\n- ".join(found))


def _objection(layer) -> str | None:
    batch_norm = tf.keras.layers.BatchNormalization.__mro__[1]  # also SyncBatchNormalization
    if isinstance(layer, batch_norm) and layer.trainable:
        return "mixes the examples of a batch and keeps their statistics; use LayerNormalization or freeze it."
    if getattr(layer, "stateful", False) and isinstance(layer, tf.keras.layers.RNN):
        return "carries its state from one batch into the next; use stateful=False."
    return _regularizer(layer)


def _regularizer(layer) -> str | None:
    if getattr(layer, "activity_regularizer", None) is not None:
        return "has an activity regularizer, which averages over the batch; remove it."
    for kind in ("kernel", "bias", "embeddings", "gamma", "beta", "recurrent", "depthwise", "pointwise"):
        if getattr(layer, f"{kind}_regularizer", None) is not None:
            return (
                f"has a {kind} regularizer, which Keras can't add to a per-example loss; "
                "use the optimizer's `weight_decay` instead (it costs no privacy)."
            )
    return None


def check_losses(model: tf.keras.Model) -> None:
    """Raises ValueError if Keras's own training step would fail on a regularizer, which it does in other words."""
    if type(model).train_step is not tf.keras.Model.train_step:
        return
    for layer in model._flatten_layers(include_self=False):
        reason = _regularizer(layer)
        if reason:
            raise ValueError(f"Layer {layer.name!r} ({type(layer).__name__}) {reason}")


def check(loss: tf.Tensor) -> None:
    """Raises ValueError if an op on the way to `loss` works across the batch axis. Sees nothing of an eager loss."""
    if not hasattr(loss, "graph"):
        return
    seen, pending = set(), [loss.op]
    while pending:
        operation = pending.pop()
        if operation in seen:
            continue
        seen.add(operation)
        pending.extend(tensor.op for tensor in operation.inputs)
        if operation.type.startswith("FusedBatchNorm") and operation.get_attr("is_training"):
            # LayerNormalization uses the same op on a tensor of shape [1, batch * ..., ..., 1].
            if operation.inputs[0].shape[0] != 1:
                _refuse(operation, "normalises over the batch")
        elif operation.type in _REDUCTIONS and _reduces_batch(operation, loss):
            _refuse(operation, "reduces over the batch axis")
    _check_memory(loss, seen)


def _check_memory(loss, on_the_way) -> None:
    """Refuses a loss that depends on a variable into which the same step writes what it saw: a stateful layer.

    What an example leaves there reaches the gradients of all batches to come, which no clipping bounds.
    """
    read = {op.inputs[0].ref() for op in on_the_way if op.type == "ReadVariableOp"}
    for operation in loss.graph.get_operations():
        if operation.type in _WRITES and operation.inputs[0].ref() in read and _from_data(operation.inputs[1].op):
            raise ValueError(
                f"The op {operation.name!r} ({operation.type}) keeps what it saw of a batch in a variable on which the "
                "loss depends, so that an example changes the gradients of later batches. Use stateful=False in "
                "recurrent layers, and no layer that remembers examples."
            )


def _reduces_batch(operation, loss) -> bool:
    tensor, axes = operation.inputs[0], tf.get_static_value(operation.inputs[1])
    if axes is None or tensor.shape.rank in (None, 0) or not tensor.dtype.is_floating:
        return False
    if 0 not in {int(axis) % tensor.shape.rank for axis in axes.reshape(-1)}:
        return False
    # Only where the first axis can be the batch, and holds data.
    length, batch = tensor.shape[0], loss.shape[0]
    return (length is None or length == batch) and _from_data(tensor.op)


def _from_data(operation) -> bool:
    seen, pending = set(), [operation]
    while pending:
        op = pending.pop()
        if op in seen:
            continue
        seen.add(op)
        if isolated.hands_out_examples(op):
            return True
        if op.type == "Placeholder" and op.outputs[0].dtype != tf.resource and op.outputs[0].shape.rank != 0:
            return True
        if op.type in ("Shape", "Size", "Rank"):
            continue  # how many examples there are, not what they hold
        pending.extend(tensor.op for tensor in op.inputs)
    return False


def _refuse(operation, what) -> None:
    raise ValueError(f"The op {operation.name!r} ({operation.type}) {what}, so that one example changes others. {_FIX}")
