"""Regularizers of Keras layers, which a per-example loss cannot have."""

from __future__ import annotations

from typing import Any

from adaclip_tf._internal import keras


def objection(layer: Any) -> str | None:
    """What is wrong with the layer's regularizers, and what to do; None if nothing."""
    if getattr(layer, "activity_regularizer", None) is not None:
        return "has an activity regularizer, which averages over the batch; remove it."
    for kind in ("kernel", "bias", "embeddings", "gamma", "beta", "recurrent", "depthwise", "pointwise"):
        if getattr(layer, f"{kind}_regularizer", None) is not None:
            return (
                f"has a {kind} regularizer, which Keras can't add to a per-example loss; "
                "use the optimizer's `weight_decay` instead (it costs no privacy)."
            )
    return None


def check(model: Any) -> None:
    """Raises ValueError if Keras's own training step would fail on a regularizer, which it does in other words."""
    if not keras.has_keras_train_step(model):
        return
    for layer in keras.layers_of(model):
        reason = objection(layer)
        if reason:
            raise ValueError(f"Layer {layer.name!r} ({type(layer).__name__}) {reason}")
