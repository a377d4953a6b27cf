"""What a model's configuration holds besides architecture: vocabularies, statistics, arrays, code, batch sizes.

A configuration is what Keras writes as `config.json`. Architecture is names, sizes, options and single numbers such as
a dropout rate, all chosen by whoever wrote the model. What could have been computed from data is named: the writer of
releases asks its user about it, the checker reports it. Known to be architecture, else named.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

# Layers whose purpose is to hold what `adapt` saw. They need not have variables: a vocabulary is a table.
LEARNT = {
    "Normalization": "means and variances of the data that `adapt` saw, or that it was given",
    "Discretization": "quantiles of the data that `adapt` saw, or that it was given",
    "StringLookup": "a vocabulary: words of the data that `adapt` saw, or that it was given",
    "IntegerLookup": "a vocabulary: values of the data that `adapt` saw, or that it was given",
    "TextVectorization": "a vocabulary: words of the data that `adapt` saw, or that it was given",
}
# Layers with state that is not trained by gradients.
MOVING = {
    "BatchNormalization": "moving means and variances",
    "SyncBatchNormalization": "moving means and variances",
    "SpectralNormalization": "an iterated vector",
}
# More than this is no option of a layer: a range has two real numbers; shapes and axes have few whole ones.
_MAX_REALS, _MAX_NUMBERS, _MAX_WORDS, _MAX_TEXT = 2, 16, 16, 512
# Where shapes with a batch size are; Keras 3 has those of layers with several inputs in a "shapes_dict".
_BATCH_SHAPES = ("batch_input_shape", "batch_shape", "build_input_shape", "input_shape", "shapes_dict")
_GRAPH = ("input_layers", "output_layers")  # lists of layer names and positions


@dataclasses.dataclass(frozen=True)
class Held:
    """Something in a layer that is not architecture. `names` leads to the layer, from the model in."""

    names: tuple[str, ...]
    layer_class: str
    what: str

    @property
    def place(self) -> str:
        """Where it is, for reading."""
        return "/".join(self.names[1:]) or "".join(self.names)


def held_in(config: Any) -> list[Held]:
    """All that a serialized model or layer holds besides architecture."""
    return list(_walk(config, (), "", ""))


def _walk(value: Any, names: tuple[str, ...], layer_class: str, key: str) -> Iterator[Held]:
    if isinstance(value, dict):
        kind, inner = value.get("class_name"), value.get("config")
        if kind in ("__tensor__", "__numpy__"):
            yield from _numbers((inner or {}).get("value"), names, layer_class, key)
            return
        if kind == "__lambda__":
            yield Held(names, layer_class, f"Python code in `{key}`, which may hold values of its own")
            return
        if isinstance(kind, str) and isinstance(inner, dict) and "name" in inner:
            names, layer_class = (*names, str(inner["name"])), kind
            if kind.split(">")[-1] in LEARNT:
                yield Held(names, kind, LEARNT[kind.split(">")[-1]])
                return
        for child_key, child in value.items():
            if child_key not in _GRAPH:
                yield from _walk(child, names, layer_class, child_key)
    elif isinstance(value, (list, tuple, np.ndarray)):
        if any(isinstance(leaf, dict) for leaf in _leaves(value)):
            for child in value:
                yield from _walk(child, names, layer_class, key)
        else:
            yield from _numbers(value, names, layer_class, key)
    elif isinstance(value, (str, bytes)) and len(value) > _MAX_TEXT:
        yield Held(names, layer_class, f"{len(value)} characters of text or code in `{key}`")


def _numbers(value: Any, names: tuple[str, ...], layer_class: str, key: str) -> Iterator[Held]:
    leaves = list(_leaves(value))
    if key in _BATCH_SHAPES and all(isinstance(leaf, (int, type(None))) for leaf in leaves):
        return  # shapes of many inputs
    numbers = [leaf for leaf in leaves if isinstance(leaf, (int, float, complex, np.number))]
    reals = [number for number in numbers if isinstance(number, (float, complex, np.inexact))]
    words = [leaf for leaf in leaves if isinstance(leaf, (str, bytes))]
    if len(reals) > _MAX_REALS or len(numbers) > _MAX_NUMBERS:
        yield Held(names, layer_class, f"{len(numbers)} numbers in `{key}`")
    if len(words) > _MAX_WORDS or any(len(word) > _MAX_TEXT for word in words):
        yield Held(names, layer_class, f"{len(words)} words in `{key}`")


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        for child in value:
            yield from _leaves(child)
    else:
        yield value


def batch_sizes(config: Any, key: str = "") -> list[int]:
    """Static batch sizes in a configuration. Keras takes them from the first batch that an eager call saw."""
    if isinstance(config, dict):
        if config.get("class_name") == "TensorShape":  # as Keras serializes one
            return _first_size(config.get("config"), key)
        return [size for child_key, child in config.items() for size in batch_sizes(child, _inside(key, child_key))]
    if isinstance(config, (list, tuple)):
        found = _first_size(config, key)
        return found or [size for child in config for size in batch_sizes(child, key)]
    return []


def _inside(key: str, child_key: str) -> str:
    """What is in a dict of shapes is a shape, by whatever name."""
    return key if key in _BATCH_SHAPES else child_key


def _first_size(shape: Any, key: str) -> list[int]:
    if key not in _BATCH_SHAPES or not isinstance(shape, (list, tuple)) or not shape:
        return []
    return [shape[0]] if isinstance(shape[0], int) and all(isinstance(d, (int, type(None))) for d in shape) else []


def without_batch_sizes(config: Any) -> Any:
    """The configuration for batches of any size."""
    return _open_batch(copy.deepcopy(config), "")


def without_training(config: Any) -> Any:
    """The configuration without what `compile` was given, of the model and of models in it."""
    if isinstance(config, dict):
        return {key: without_training(child) for key, child in config.items() if not _is_training(config, key)}
    if isinstance(config, (list, tuple)):
        return type(config)(without_training(child) for child in config)
    return config


def has_training(config: Any) -> bool:
    """Whether what `compile` was given is in the configuration of a model, or of a model in it."""
    if isinstance(config, dict):
        found = any(_is_training(config, key) and child for key, child in config.items())  # Keras 3 writes empty ones
        return found or any(has_training(child) for child in config.values())
    return isinstance(config, (list, tuple)) and any(has_training(child) for child in config)


def _is_training(config: dict[str, Any], key: str) -> bool:
    return key == "compile_config" and "class_name" in config


def _open_batch(config: Any, key: str) -> Any:
    if isinstance(config, dict):
        return {child_key: _open_batch(child, _inside(key, child_key)) for child_key, child in config.items()}
    if hasattr(config, "as_list") and key in _BATCH_SHAPES and config.rank:  # a tf.TensorShape
        return (None, *config.as_list()[1:])
    if isinstance(config, (list, tuple)):
        if _first_size(config, key):
            return type(config)([None, *config[1:]])
        return type(config)(_open_batch(child, key) for child in config)
    return config


def layers_in(config: Any) -> Iterator[tuple[str, str, str, bool]]:
    """(name, class, module, trainable) of every layer of a serialized model, the model itself included."""
    if isinstance(config, dict):
        kind, inner = config.get("class_name"), config.get("config")
        if isinstance(kind, str) and isinstance(inner, dict) and "name" in inner:
            module = config.get("module", "keras.layers")  # files of the older kind have no module
            yield str(inner["name"]), kind, str(module), inner.get("trainable", True) is not False
        for child in config.values():
            yield from layers_in(child)
    elif isinstance(config, (list, tuple)):
        for child in config:
            yield from layers_in(child)
