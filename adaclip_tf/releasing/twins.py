"""A model's twin: built again from its configuration, given the values that may be published, and nothing else.

The twin has never seen data. Whatever a layer of the model has picked up besides, in tables, generators, metrics,
caches or attributes, is not there to be saved.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf._internal import keras
from adaclip_tf.releasing import layer_state

# What an array of a release is; the later, the weaker.
TRAINED, INITIAL, PUBLIC, ALLOWED = KINDS = ("trained with noise", "initial value", "declared public", "NOT covered")


def tree(model: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(names, layer) of the model and of every layer in it, each once. Keras counts no metrics among them."""
    return _tree(model, (model.name,), set())


def _tree(layer: Any, names: tuple[str, ...], seen: set[int]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if id(layer) in seen:
        return
    seen.add(id(layer))
    yield names, layer
    if isinstance(layer, tf.keras.layers.Layer):
        for child in keras.modules_in(layer):
            yield from _tree(child, (*names, keras.module_name(child)), seen)


def variables_of(layer: Any) -> list[Any]:
    """The variables that the layer itself has, without those of layers in it."""
    if not isinstance(layer, tf.keras.layers.Layer):
        return list(layer.variables)  # a plain tf.Module
    return [v for v in keras.own_weights(layer) if isinstance(keras.native(v), tf.Variable)]


def value_of(variable: Any) -> np.ndarray:
    """The array in a variable. What a layer saves may be an array already."""
    return np.asarray(getattr(keras.native(variable), "numpy", lambda: variable)())


def saved_values(layer: Any) -> list[np.ndarray]:
    """The arrays that Keras saves of the layer itself: its variables, or what the layer makes of them."""
    if not isinstance(layer, tf.keras.layers.Layer):
        return [value_of(variable) for variable in variables_of(layer)]
    store: dict[str, Any] = {}
    layer.save_own_variables(store)
    return [value_of(value) for value in store.values()]


def is_trained(variable: Any, optimizer: Any) -> bool:
    """Whether the optimizer, and so nothing but noised gradients, moves the variable."""
    return keras.index_of(optimizer, variable) is not None


def held_by(model: Any, optimizer: Any) -> list[layer_state.Held]:
    """What the layers hold that the optimizer did not train: known to be trained, else named."""
    found: list[layer_state.Held] = []
    inside: set[tuple[str, ...]] = set()
    for names, layer in tree(model):
        if any(names[: len(outer)] == outer for outer in inside):
            continue
        kind = type(layer).__name__
        if isinstance(layer, keras.Preprocessing):
            inside.add(names)  # its inner tables are its own
            what = layer_state.LEARNT.get(kind, "what `adapt` learnt from data")
            found.append(layer_state.Held(names, kind, what))
            continue
        rest = [keras.path_of(v).split("/")[-1] for v in variables_of(layer) if not is_trained(v, optimizer)]
        if rest:
            what = f"{', '.join(rest)}: not trained by the optimizer"
            found.append(layer_state.Held(names, kind, what))
        elif kind not in layer_state.LEARNT and _has_assets(layer):
            found.append(layer_state.Held(names, kind, "files of its own (`save_assets`)"))
    return found


def _has_assets(layer: Any) -> bool:
    return callable(getattr(layer, "save_assets", None))


def status(variable: Any, names: Collection[str], optimizer: Any, public: Collection[str]) -> str:
    """What the statement says of a variable that may be copied; `variable` is None for what is none."""
    if variable is not None and is_trained(variable, optimizer):
        return TRAINED
    return PUBLIC if set(names) & set(public) else ALLOWED


def build(model: Any) -> Any:
    """A model of the same architecture with initial values, for batches of any size, not compiled."""
    for _, layer in tree(model):
        if isinstance(layer, tf.keras.layers.Lambda) and getattr(layer.function, "__name__", "") == "<lambda>":
            raise ValueError(
                f"layer {layer.name!r} is a Python lambda, which Keras refuses to load; write a layer class"
            )
    classes = {type(layer).__name__: type(layer) for _, layer in tree(model)}
    with keras.saving.custom_object_scope(classes):
        twin = type(model).from_config(_architecture(model.get_config()))
        if not twin.built:
            twin.build_from_config(_architecture(model.get_build_config()))
    ours, theirs = list(tree(model)), list(tree(twin))
    # Names of inner layers may differ: Keras numbers those that were not given one.
    if [(len(names), type(layer)) for names, layer in ours] != [(len(names), type(layer)) for names, layer in theirs]:
        raise ValueError("its configuration makes other layers than it has")
    for (names, layer), (_, other) in zip(ours, theirs):
        shapes, others = ([v.shape for v in variables_of(each)] for each in (layer, other))
        if shapes != others and not isinstance(layer, keras.Preprocessing):
            raise ValueError(f"its configuration makes other variables in {'/'.join(names)} than it has")
    return twin


def _architecture(config: Any) -> Any:
    return layer_state.without_training(layer_state.without_batch_sizes(config))


def fill(twin: Any, model: Any, optimizer: Any, public: Collection[str], allow: Collection[str]) -> None:
    """Copies trained variables, and all that layers hold which are named. The rest keeps its initial value."""
    for (names, layer), (_, other) in zip(tree(model), tree(twin)):
        named = bool(set(names) & {*public, *allow})
        if named and (isinstance(layer, keras.Preprocessing) or _has_assets(layer)):
            _copy_whole(layer, other)
            continue
        for variable, target in zip(variables_of(layer), variables_of(other)):
            if named or is_trained(variable, optimizer):
                target.assign(value_of(variable))


def _copy_whole(layer: Any, other: Any) -> None:
    """As Keras saves a layer and loads it again."""
    store: dict[str, Any] = {}
    layer.save_own_variables(store)
    other.load_own_variables(store)
    if _has_assets(layer):
        with tempfile.TemporaryDirectory() as folder:
            layer.save_assets(folder)
            other.load_assets(folder)
