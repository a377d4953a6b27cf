"""What checkpoints and SavedModels hold that is not privatised: a part of `adaclip_tf.releasing`.

A checkpoint has names and arrays, no settings: nothing in it says with what noise its weights were trained. A
SavedModel is a checkpoint, a program, and files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf.releasing import findings
from adaclip_tf.releasing.findings import UN_NOISED, Finding

_PUBLIC = ("_CHECKPOINTABLE_OBJECT_GRAPH", "save_counter/", "ckpt_saved_epoch/", "ckpt_saved_batch/")
# Where an optimizer of this library keeps its state; `_inner`: that of another, which has seen noised sums alone.
_OWN_STATE = ("_variables", "_momentums", "_iterations", "_learning_rate", "_inner")
_OWN_STATE_STARTS = "_private_"
_COUNTS = ("_iterations", "_learning_rate")
# Where an optimizer of Keras 3 has the model's weights.
_WEIGHTS = "_trainable_variables"
_STATISTICS = ("total", "count", "mean", "variance", "moving_mean", "moving_variance")
# A constant of a program with more numbers than this is no shape, axis or option.
_MAX_NUMBERS = 16


def inspect(path: str) -> tuple[str, list[Finding]]:
    """The kind of thing at `path` and the findings."""
    whole = Finding(findings.WHOLE, *findings.NO_STATEMENT)
    if os.path.isfile(os.path.join(path, "saved_model.pb")):
        return "a SavedModel", [
            *_of_checkpoint(os.path.join(path, "variables", "variables")),
            *_of_program(os.path.join(path, "saved_model.pb")),
            *_of_files(path),
            whole,
        ]
    prefix = path[: -len(".index")] if path.endswith(".index") else path
    if os.path.isdir(path):
        prefix = tf.train.latest_checkpoint(path)
        if prefix is None:
            return "a folder", [
                Finding(findings.WHOLE, "unknown", "neither a SavedModel nor a checkpoint; check its files")
            ]
    return "a TensorFlow checkpoint", [*_of_checkpoint(prefix), whole]


def _of_checkpoint(prefix: str) -> Iterator[Finding]:
    try:
        reader = tf.train.load_checkpoint(prefix)
        names = sorted(reader.get_variable_to_shape_map())
    except (tf.errors.OpError, ValueError) as error:
        raise OSError(str(error)) from error
    ours = [name.split("_private_noised_steps/")[0] for name in names if "_private_noised_steps/" in name]
    others = [name.split("_iterations/")[0] for name in names if "_iterations/" in name]
    full_names = _full_names(reader)
    weights = []
    for name in names:
        place = name.split("/.ATTRIBUTES")[0].split("/")
        attribute, full_name = place[-1], full_names.get(name, "")
        own = [name[len(start) :].split("/")[0] for start in ours if name.startswith(start)]
        value = reader.get_tensor(name)
        if _WEIGHTS in place:
            weights.append(name)
        elif any(part in _OWN_STATE or part.startswith(_OWN_STATE_STARTS) for part in own):
            unless = ", unless the optimizer had one"  # its settings are not in the file
            # Keras 2 calls it "divisor", Keras 3 puts the optimizer's name before.
            variable = next((part for part in full_name.split("/") if part in findings.BATCH_SIZES), "?")
            yield from findings.of_batch_size(variable, name, value, unless)
        elif name.startswith(_PUBLIC) or attribute in _COUNTS:
            pass
        elif "metrics/" in name:
            yield Finding(name, *findings.METRIC, UN_NOISED, value)
        elif any(name.startswith(f"{start}_") for start in others if start not in ours):
            yield Finding(name, "state of an optimizer", "its gradients had no noise", UN_NOISED, value)
        elif findings.is_generator(name) or findings.is_generator(full_name):
            yield Finding(name, *findings.GENERATOR, value=value)
        elif ".ATTRIBUTES/table" in name:
            yield Finding(name, "a table", "vocabularies and counts hold what a layer has seen", value=value)
        elif attribute in _STATISTICS or full_name.split("/")[-1] in _STATISTICS:  # an exported model has numbers
            yield Finding(name, "a statistic or metric", "no weight has this name; it may be of the data", value=value)
        else:
            weights.append(name)
    if weights:
        more = f" and {len(weights) - 1} more" if len(weights) > 1 else ""
        yield Finding(weights[0] + more, *findings.WEIGHTS)


def _full_names(reader: Any) -> dict[str, str]:
    """What the variables were called in the program, by their keys in the checkpoint."""
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    if reader.has_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"):
        graph.ParseFromString(reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"))
    return {each.checkpoint_key: each.full_name for node in graph.nodes for each in node.attributes}


def _of_program(path: str) -> Iterator[Finding]:
    """Constants of the traced functions: what a layer or a function has closed over."""
    from tensorflow.core.protobuf import saved_model_pb2

    program = saved_model_pb2.SavedModel()
    with open(path, "rb") as file:
        program.ParseFromString(file.read())
    for graph in (meta.graph_def for meta in program.meta_graphs):
        functions = [("", graph.node), *((f.signature.name + "/", f.node_def) for f in graph.library.function)]
        for function, nodes in functions:
            if "_traced_save_" in function or "_traced_restore_" in function:
                continue  # the names of the variables, which are listed above
            for node in nodes:
                value = tf.make_ndarray(node.attr["value"].tensor) if node.op == "Const" else np.zeros(0)
                if value.size > _MAX_NUMBERS or (value.size > 2 and value.dtype.kind in "fO"):  # O: words
                    what = f"a constant of {value.size} numbers or words"
                    yield Finding(
                        f"saved_model.pb: {function}{node.name}", what, "the program may hold data", value=value
                    )


def _of_files(folder: str) -> Iterator[Finding]:
    known = ("saved_model.pb", "keras_metadata.pb", "fingerprint.pb")
    for parent, _, files in os.walk(folder):
        place = os.path.relpath(parent, folder)
        for file in sorted(files):
            if place.startswith("variables") or (place == "." and file in known):
                continue
            name = os.path.normpath(os.path.join(place, file))
            yield Finding(name, "a file of a layer", "vocabularies and the like hold what the layer has seen")
