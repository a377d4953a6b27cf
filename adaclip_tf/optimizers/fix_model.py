"""`fix_model`: a copy of a model with what private training refuses replaced, saying what was changed.

| what                                        | becomes                                                             |
|---------------------------------------------|---------------------------------------------------------------------|
| BatchNormalization that is trained          | GroupNormalization of up to 32 groups; LayerNormalization on vectors |
| `kernel_regularizer` and the like           | none; an L2 of strength l is the optimizer's `weight_decay=2 * l`   |
| `activity_regularizer`                      | none: it is a sum over the batch                                    |
| `stateful=True` of a recurrent layer        | False: it would carry examples into the next batch                  |

All other layers, names and weights stay. A frozen BatchNormalization stays too: it is a constant map, as public as the
statistics in it. Like `check_model` this goes by Keras's layer types, and proves nothing: the proof looks at the step.
"""

from __future__ import annotations

import copy
from typing import Any, Callable

import tensorflow as tf
from absl import logging

from adaclip_tf._internal import keras
from adaclip_tf.optimizers import check_model as check_model_lib

_MOST_GROUPS = 32


def fix_model(model: tf.keras.Model, report: Callable[[str], Any] | None = None) -> tf.keras.Model:
    """A copy of `model` that can be trained with differential privacy; says what it changed.

    >>> layers = [tf.keras.layers.Dense(8, input_shape=(4,)), tf.keras.layers.BatchNormalization(name="norm")]
    >>> fixed = fix_model(tf.keras.Sequential(layers), report=print)
    This model was changed for private training:
    - norm: BatchNormalization is now LayerNormalization
    >>> type(fixed.layers[1]).__name__
    'LayerNormalization'

    Args:
      model: a built functional or sequential model; models nested in it are fixed too. It stays as it is.
      report: is called with what was changed, in words; None logs it.

    Returns:
      The copy, with the weights of all layers that did not change; to be compiled.

    Raises:
      ValueError: the model can't be copied (a subclass of `Model` with a `call` of its own), or the copy still holds
        what private training refuses.
    """
    if not isinstance(model, tf.keras.Model):
        raise ValueError(f"`model` must be a Keras model; got a {type(model).__name__}.")
    if not keras.is_functional(model):
        raise ValueError(
            f"`model` is a {type(model).__name__}, whose layers are called by its own code: replace them there. "
            "`check_model` names those that private training refuses."
        )
    if not model.built:
        raise ValueError("`model` has no variables yet: give it an input shape, or call it on some data.")
    changes: list[str] = []
    fixed = _copied(model, changes)
    check_model_lib.check_model(fixed)
    text = "This model was changed for private training:\n- " + "\n- ".join(changes)
    (report or logging.warning)(text if changes else "This model needs no changes for private training.")
    return fixed


def _copied(model: Any, changes: list[str]) -> Any:
    fixed = keras.clone(model, lambda layer: _fixed_layer(layer, changes))
    for theirs, ours in zip(model.layers, fixed.layers):
        _copy_weights(theirs, ours)
        ours.trainable = theirs.trainable
    return fixed


def _copy_weights(theirs: Any, ours: Any) -> None:
    """The weights of a layer that did not change; of a normalisation, scale and offset."""
    if keras.is_functional(theirs):
        return  # it was copied with its weights
    by_name = {keras.path_of(weight).split("/")[-1]: weight for weight in theirs.weights}
    same = [tuple(weight.shape) for weight in theirs.weights] == [tuple(weight.shape) for weight in ours.weights]
    if same:
        ours.set_weights(theirs.get_weights())
        return
    for weight in ours.weights:
        other = by_name.get(keras.path_of(weight).split("/")[-1])
        if other is not None and tuple(other.shape) == tuple(weight.shape):
            weight.assign(other)


def _fixed_layer(layer: Any, changes: list[str]) -> Any:
    if keras.is_functional(layer):
        return _copied(layer, changes)
    inside = {part.name: part for part in [layer, *keras.layers_of(layer)]}
    description = {"class_name": type(layer).__name__, "config": copy.deepcopy(layer.get_config())}
    fixed = _fixed_config(description, inside, changes)
    kind = type(layer) if fixed["class_name"] == description["class_name"] else _NORMS[fixed["class_name"]]
    return kind.from_config(fixed["config"])


_NORMS = {
    "GroupNormalization": tf.keras.layers.GroupNormalization,
    "LayerNormalization": tf.keras.layers.LayerNormalization,
}


def _fixed_config(described: Any, inside: dict[str, Any], changes: list[str]) -> Any:
    """A layer's configuration, and that of the layers in it, with replacements."""
    if isinstance(described, list):
        return [_fixed_config(part, inside, changes) for part in described]
    if not isinstance(described, dict):
        return described
    config = described.get("config")
    if "class_name" not in described or not isinstance(config, dict):
        return {key: _fixed_config(value, inside, changes) for key, value in described.items()}
    layer = inside.get(config.get("name", ""))
    if layer is not None and isinstance(layer, keras.BatchNormalization) and layer.trainable:
        return _normalisation(layer, config, changes)
    name = config.get("name", described["class_name"])
    if config.get("stateful") is True and layer is not None:
        config = {**config, "stateful": False}
        changes.append(f"{name}: it no longer carries its state into the next batch")
    for key in [key for key, value in config.items() if key.endswith("_regularizer") and value is not None]:
        changes.append(f"{name}: {_without(key, config[key])}")
        config = {**config, key: None}
    return {**described, "config": {key: _fixed_config(value, inside, changes) for key, value in config.items()}}


def _normalisation(layer: Any, config: dict[str, Any], changes: list[str]) -> dict[str, Any]:
    """The configuration of what takes the place of a BatchNormalization."""
    kept: dict[str, Any] = {
        key: config[key] for key in ("name", "epsilon", "center", "scale", "trainable", "dtype") if key in config
    }
    axis = layer.axis[0] if isinstance(layer.axis, (list, tuple)) else layer.axis
    channels, rank = int(layer.moving_mean.shape[0]), layer.input_spec.ndim
    groups = max(g for g in range(1, min(_MOST_GROUPS, max(channels // 2, 1)) + 1) if channels % g == 0)
    if rank == 2:
        kind, kept["axis"], words = "LayerNormalization", axis, ""
    else:
        kind, kept["axis"], kept["groups"], words = "GroupNormalization", axis, groups, f" of {groups} groups"
    changes.append(f"{layer.name}: {type(layer).__name__} is now {kind}{words}")
    for key in ("beta_regularizer", "gamma_regularizer"):
        if config.get(key) is not None:
            changes.append(f"{layer.name}: {_without(key, config[key])}")
    return {"module": "keras.layers", "class_name": kind, "config": kept, "registered_name": None}


def _without(key: str, regularizer: Any) -> str:
    """Words for a regularizer that is gone."""
    if key == "activity_regularizer":
        return f"no {key} any more, which is a sum over the batch"
    strength = regularizer.get("config", {}).get("l2") if isinstance(regularizer, dict) else None
    if strength is None:
        return f"no {key} any more"
    return f"no {key} any more; give the optimizer weight_decay={2 * float(strength):.6g} in its place"
