"""Names the layers of a model that private training will refuse, before training.

A layer that computes statistics over the batch (BatchNormalization) lets one example change the gradients of all
others, and stores un-noised statistics of the data in the model besides. This is a convenience, by Keras's own layer
types, and proves nothing: what counts is `adaclip_tf.gradients.proof`, which looks at the graph of every training step.
"""

from __future__ import annotations

import tensorflow as tf

from adaclip_tf._internal import keras, regularizers


def check_model(model: tf.keras.Model) -> None:
    """Raises ValueError with a line for every layer that private training can't take.

    Call it before training; it needs a built model and sees layers nested in layers.

    >>> check_model(tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(3,))]))
    """
    found = []
    for layer in keras.layers_of(model):
        reason = _objection(layer)
        if reason:
            found.append(f"layer {layer.name!r} ({type(layer).__name__}) {reason}")
    if found:
        raise ValueError(
            "This model can't be trained with differential privacy (`adaclip_tf.fix_model` makes a copy that can):\n- "
            + "\n- ".join(found)
        )


def _objection(layer) -> str | None:
    if isinstance(layer, keras.BatchNormalization) and layer.trainable:
        return "mixes the examples of a batch and keeps their statistics; use LayerNormalization or freeze it."
    if getattr(layer, "stateful", False) and isinstance(layer, tf.keras.layers.RNN):
        return "carries its state from one batch into the next; use stateful=False."
    return regularizers.objection(layer)
