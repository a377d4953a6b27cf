"""Names the layers of a model that private training will refuse, before training.

A layer that computes statistics over the batch (BatchNormalization) lets one example change the gradients of all
others, and stores un-noised statistics of the data in the model besides. This is a convenience, by Keras's own layer
types, and proves nothing: what counts is `adaclip_tf.gradients.proof`, which looks at the graph of every training step.
"""

from __future__ import annotations

import tensorflow as tf


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
