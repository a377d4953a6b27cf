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
from adaclip_tf.releasing import layer_state, release_statement, twins

_STAMP = (1980, 1, 1, 0, 0, 0)  # zip's earliest: when a release was made is nobody's business
TYPE, BFLOAT16 = "dtype", "bfloat16"  # the attribute by which Keras 3 knows such arrays
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
    contents["files"] = sorted(name for name in members if name.startswith("assets/"))
    members[release_statement.TEXT] = release_statement.complete(text, contents).encode()
    members[release_statement.JSON] = json.dumps(contents, indent=2, allow_nan=False).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name, _STAMP), data)
    return buffer.getvalue()


def has_more_than_members(archive: zipfile.ZipFile, size: int) -> bool:
    """Whether an archive of so many bytes holds any that are of no member: before, between or behind them, or in notes.

    30 bytes go before each member and 46 into the list of them, each with its name, and 22 come last. A name that is
    there twice hides what the first one holds.
    """
    names = [info.filename for info in archive.infolist()]
    needed = 22 + sum(76 + 2 * len(info.filename.encode()) + info.compress_size for info in archive.infolist())
    return size != needed or len(set(names)) != len(names)


def _saved(twin: Any) -> dict[str, bytes]:
    """The members of the file that Keras makes of the twin."""
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "twin.keras")
        twin.save(name)
        with zipfile.ZipFile(name) as archive:
            members = {member: archive.read(member) for member in archive.namelist()}
    config = layer_state.without_training(json.loads(members["config.json"]))
    members["config.json"] = json.dumps(_renumbered(config, {})).encode()
    members["model.weights.h5"] = _arrays_alone(members["model.weights.h5"])
    members["metadata.json"] = json.dumps({"keras_version": _KERAS}).encode()  # without the time
    return members


def _arrays_alone(weights: bytes) -> bytes:
    """The HDF5 file without attributes, but for the type of numbers that HDF5 has no name for."""
    buffer = io.BytesIO()
    with h5py.File(io.BytesIO(weights), "r") as file, h5py.File(buffer, "w") as copy:

        def visit(name, item):
            if isinstance(item, h5py.Group):
                copy.require_group(name)
                return
            array = copy.create_dataset(name, data=item[()])
            if item.attrs.get(TYPE) == BFLOAT16:
                array.attrs[TYPE] = BFLOAT16

        file.visititems(visit)
    return buffer.getvalue()


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
        own: dict[bytes, list[Any]] = {}
        if not isinstance(layer, keras.Preprocessing):  # what those save is made of their variables
            for variable, filled in zip(twins.variables_of(layer), twins.variables_of(other)):
                own.setdefault(_content(twins.value_of(filled)), []).append(variable)
        for value in twins.saved_values(other):
            content = _content(value)
            for variable in own.get(content, [None]):
                kind = twins.status(variable, names, optimizer, public)
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
    kind = f"{array.dtype.kind}{array.dtype.itemsize}"  # HDF5 gives bfloat16 back without its name
    return f"{kind}{array.shape}".encode() + array.tobytes()


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
            names = [keras.path_of(_checked(variable, group_name)) for variable in variables]
            group.attrs["weight_names"] = [name.encode() for name in names]
            for name, variable in zip(names, variables):
                dataset = group.create_dataset(name, data=twins.value_of(variable))
                contents["weights"][dataset.name.lstrip("/")] = kinds[id(variable)]
        words = file.create_group(release_statement.GROUP)
        words["text"] = release_statement.complete(text, contents)
        words["json"] = json.dumps(contents, indent=2, allow_nan=False)
    return buffer.getvalue()


def _checked(variable: Any, layer: str) -> Any:
    if not isinstance(keras.native(variable), tf.Variable):
        raise ValueError(
            f"The table of layer {layer!r} can't be in a weights file. Release to a name that ends in .keras."
        )
    return variable
