"""The bytes of a release. Every array in them is accounted for before they are written."""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import tempfile
import zipfile
from collections import Counter
from typing import Any

import h5py
import numpy as np
import tensorflow as tf

from adaclip_tf._internal import keras
from adaclip_tf.releasing import release_statement, twins

_STAMP = (1980, 1, 1, 0, 0, 0)  # zip's earliest: when a release was made is nobody's business
_KERAS = importlib.metadata.version("keras")


def arrays_in(file: Any) -> dict[str, np.ndarray]:
    """All arrays of an open HDF5 file by name."""
    found = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            found[name] = item[()]

    file.visititems(visit)
    return found


# ----------------------------------------------------------------------------------------------------------------
# The whole model: a .keras file, that is a zip archive.


def model_file(model: Any, twin: Any, optimizer: Any, text: str, contents: dict[str, Any]) -> bytes:
    """The .keras file of a filled twin. Adds "weights" to `contents`."""
    members = _saved(twin)
    contents["weights"] = _verified(members["model.weights.h5"], model, twin, optimizer, contents["public"])
    members[release_statement.TEXT] = release_statement.complete(text, contents).encode()
    members[release_statement.JSON] = json.dumps(contents, indent=2, allow_nan=False).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name, _STAMP), data)
    return buffer.getvalue()


def _saved(twin: Any) -> dict[str, bytes]:
    """The members of the file that Keras makes of the twin."""
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "twin.keras")
        twin.save(name)
        with zipfile.ZipFile(name) as archive:
            members = {member: archive.read(member) for member in archive.namelist()}
    members["config.json"] = json.dumps(_renumbered(json.loads(members["config.json"]), {})).encode()
    members["metadata.json"] = json.dumps({"keras_version": _KERAS}).encode()  # without the time
    return members


def _renumbered(config: Any, numbers: dict[int, int]) -> Any:
    """Keras marks shared objects by their addresses in memory; small numbers do."""
    if isinstance(config, dict):
        return {
            key: numbers.setdefault(value, len(numbers) + 1)
            if key == "shared_object_id" and isinstance(value, int)
            else _renumbered(value, numbers)
            for key, value in config.items()
        }
    return [_renumbered(value, numbers) for value in config] if isinstance(config, list) else config


def _verified(weights: bytes, model: Any, twin: Any, optimizer: Any, public: list[str]) -> dict[str, str]:
    """What each array of the file is, by its content. Raises if one is not known, or missing."""
    kinds: dict[bytes, str] = {}
    missing: Counter[bytes] = Counter()
    for (names, layer), (_, other) in zip(twins.tree(model), twins.tree(twin)):
        values, variables = twins.saved_values(other), twins.variables_of(layer)
        if len(values) != len(variables):
            variables = [None] * len(values)  # of a preprocessing layer
        for variable, value in zip(variables, values):
            kind, content = twins.status(variable, names, optimizer, public), _content(value)
            # Two arrays may hold the same numbers; the file then says of both what is weaker.
            kinds[content] = max(kinds.get(content, kind), kind, key=twins.KINDS.index)
            missing[content] += 1
    result = {}
    with h5py.File(io.BytesIO(weights), "r") as file:
        for name, array in arrays_in(file).items():
            content = _content(array)
            missing[content] -= 1
            if content in kinds:
                result[name] = kinds[content]
            elif not np.any(array):
                result[name] = twins.INITIAL  # a metric inside a layer, which Keras wants to find
            else:
                raise ValueError(f"Keras would save {name!r}, which is none of the weights of `model`.")
    if any(count > 0 for count in missing.values()):
        raise ValueError("Keras saves some variables of `model` in no .keras file: make them weights of a layer.")
    return result


def _content(array: Any) -> bytes:
    array = np.asarray(array)
    return f"{array.dtype}{array.shape}".encode() + array.tobytes()


# ----------------------------------------------------------------------------------------------------------------
# Weights alone: HDF5 in the layout of `save_weights("name.h5")`, for models that can't be rebuilt.


def weights_file(model: Any, optimizer: Any, text: str, contents: dict[str, Any]) -> bytes:
    """The .h5 file of a model's weights. Adds "weights" to `contents`."""
    if not model.built:
        raise ValueError("`model` has no weights yet; train it first.")
    kinds = {
        id(variable): twins.status(variable, names, optimizer, contents["public"])
        for names, layer in twins.tree(model)
        for variable in twins.variables_of(layer)
    }
    contents["weights"] = {}
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file.attrs["layer_names"] = [layer.name.encode() for layer in model.layers]
        file.attrs["backend"], file.attrs["keras_version"] = b"tensorflow", _KERAS.encode()
        groups = [(layer.name, layer.trainable_weights + layer.non_trainable_weights) for layer in model.layers]
        groups.append(("top_level_model_weights", keras.own_weights(model)))
        for group_name, variables in groups:
            group = file.create_group(group_name)
            group.attrs["weight_names"] = [_checked(variable, group_name).name.encode() for variable in variables]
            for variable in variables:
                dataset = group.create_dataset(variable.name, data=variable.numpy())
                contents["weights"][dataset.name.lstrip("/")] = kinds[id(variable)]
        words = file.create_group(release_statement.GROUP)
        words["text"] = release_statement.complete(text, contents)
        words["json"] = json.dumps(contents, indent=2, allow_nan=False)
    return buffer.getvalue()


def _checked(variable: Any, layer: str) -> Any:
    if not isinstance(variable, tf.Variable):
        raise ValueError(
            f"The table of layer {layer!r} can't be in a weights file. Release to a name that ends in .keras."
        )
    return variable
