"""What a file holds that is not privatised: `check_release`, and on the command line

    python -m adaclip_tf.releasing FILE

which prints it and exits with 1 if the file may not be published.

The rule is "known to be private, else named". What is known: arrays that a release says were trained with noise, state
of this library's optimizers (m, s^2, momentum, counts: functions of noised sums), public settings. A file from
elsewhere that only pretends to be a release is not found out: this finds accidents, not forgeries.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import sys
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

import h5py
import numpy as np

from adaclip_tf._internal import validate
from adaclip_tf.releasing import checkpoints, layer_state, release_files, release_statement, twins
from adaclip_tf.releasing import findings as finding_lib
from adaclip_tf.releasing.findings import UN_NOISED, Finding


@dataclasses.dataclass(frozen=True)
class Inspection:
    """What `check_release` found; `str` of it is for reading."""

    path: str
    format: str
    findings: tuple[Finding, ...]

    @property
    def may_be_published(self) -> bool:
        """True if nothing was found that is not known to be private."""
        return not self.findings

    def __str__(self) -> str:
        if self.may_be_published:
            return f"{self.path}: {self.format}. It may be published: nothing in it is un-noised or unknown."
        lines = [f"{self.path}: {self.format}. It may NOT be published. It holds:"]
        alike: dict[tuple[str, str, str], list[str]] = {}
        for found in self.findings:
            alike.setdefault((found.kind, found.what, found.why), []).append(found.entry)
        for (kind, what, why), entries in alike.items():
            more = f" and {len(entries) - 4} more" if len(entries) > 4 else ""
            lines.append(f"  {kind:9s}  {', '.join(entries[:4])}{more}: {what}; {why}.")
        return "\n".join(lines)


def check_release(path: str | os.PathLike[str]) -> Inspection:
    """Says what a file holds that is not privatised, and whether it may be published.

    >>> model = tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=(2,))])
    >>> model.compile("sgd", "mse")
    >>> history = model.fit(tf.ones([8, 2]), tf.zeros([8, 3]), verbose=0)
    >>> model.save(f"{folder}/plain.keras")
    >>> found = check_release(f"{folder}/plain.keras")
    >>> found.may_be_published
    False
    >>> [each.why for each in found.findings if each.entry == "optimizer/vars/1"]
    ['its gradients had no noise']

    Args:
      path: a release, a .keras file, .weights.h5, .h5, a SavedModel's folder, a TensorFlow checkpoint (its prefix, its
        .index file, or the folder of a `tf.train.CheckpointManager`). Any other file is "unknown".

    Raises:
      ValueError: there is no such file, or it can't be read.
    """
    path = validate.path("path", path)
    is_checkpoint = os.path.exists(f"{path}.index") or path.endswith(".index")
    if not os.path.exists(path) and not is_checkpoint:
        raise ValueError(f"`path`={path!r} does not exist.")
    try:
        if os.path.isdir(path) or is_checkpoint:
            name, findings = checkpoints.inspect(path)
        elif zipfile.is_zipfile(path):
            name, findings = _inspect_zip(path)
        elif h5py.is_hdf5(path):
            with h5py.File(path, "r") as file:
                name, findings = _inspect_hdf5(file)
        else:
            name, findings = (
                "a file of an unknown kind",
                [Finding(finding_lib.WHOLE, "unknown", "nothing is known of what it holds")],
            )
    except (OSError, KeyError, TypeError, AttributeError, zipfile.BadZipFile, json.JSONDecodeError) as error:
        raise ValueError(f"`path`={path!r} can't be read: {error}. Is the file damaged?") from error
    return Inspection(path, name, tuple(findings))


# ----------------------------------------------------------------------------------------------------------------
# .keras files.


def _inspect_zip(path: str) -> tuple[str, list[Finding]]:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
        comment, folders = archive.comment, [name for name in archive.namelist() if name.endswith("/")]
        more = release_files.has_more_than_members(archive, os.path.getsize(path))
    if "config.json" not in members or "model.weights.h5" not in members:
        return "a zip archive, but no .keras file", [
            Finding(finding_lib.WHOLE, "unknown", "nothing is known of what it holds")
        ]
    contents = _contents(members.pop(release_statement.JSON, b""))
    config = json.loads(members.pop("config.json"))
    with h5py.File(io.BytesIO(members.pop("model.weights.h5")), "r") as file:
        arrays = {**release_files.arrays_in(file), **_attributes(file, named=not contents)}
    findings = [Finding("(zip comment)", "unknown", "nothing is known of it")] if comment else []
    compiled = config.pop("compile_config", None)
    if contents:
        members.pop(release_statement.TEXT, None)
        findings += _of_release(contents, arrays)
        if more:
            findings.append(
                Finding("(zip archive)", "unknown", "it holds bytes that are in none of its files, or a file twice")
            )
        findings += [Finding(folder, "a folder", "a release has none") for folder in folders]
        if compiled or layer_state.has_training(config):
            findings.append(Finding("config.json: compile_config", "training settings", "a release has none"))
    else:
        optimizer = (compiled or {}).get("optimizer")
        findings += [
            *finding_lib.of_arrays(arrays, optimizer),
            *finding_lib.of_settings(optimizer),
            *finding_lib.of_layers(config, optimizer),
        ]
        findings += finding_lib.of_values("config.json: compile_config", compiled, ())
        findings.append(Finding(finding_lib.WHOLE, *finding_lib.NO_STATEMENT))
    public, allowed = ((contents or {}).get(key, []) for key in ("public", "not_covered"))
    findings += finding_lib.of_values("config.json", config, [*public, *allowed])  # what was allowed is named by now
    members.pop("metadata.json", None)
    for member in members:
        if not (contents and member in contents.get("files", ()) and _declared(public, config)):
            findings.append(
                Finding(member, "a file of a layer", "vocabularies and the like hold what the layer has seen")
            )
    return ("a release of adaclip_tf" if contents else "a Keras model"), findings


def _declared(named: Sequence[str], config: Any) -> bool:
    """Whether all layers that hold more than architecture were declared public."""
    return all(set(held.names) & set(named) for held in layer_state.held_in(config))


def _contents(data: Any) -> dict[str, Any] | None:
    """What a release says of itself, if it is one."""
    contents = json.loads(data) if data else {}
    return contents if isinstance(contents, dict) and contents.get("format") == release_statement.FORMAT else None


def _of_release(contents: dict[str, Any], arrays: dict[str, Any]) -> Iterator[Finding]:
    """Arrays that the release does not say are private."""
    for name, array in arrays.items():
        kind = contents["weights"].get(name)
        if kind == twins.ALLOWED:
            yield Finding(name, "what a layer holds", "the release's own statement does not cover it", UN_NOISED, array)
        elif kind == twins.INITIAL and np.any(array):
            yield Finding(name, "unknown", "should be zero", value=array)
        elif kind not in twins.KINDS:
            yield Finding(name, "unknown", "the release's own list does not have it", value=array)
    for layer in contents["not_covered"]:
        yield Finding(f"layer {layer}", "what it holds", "the release's own statement does not cover it", UN_NOISED)


# ----------------------------------------------------------------------------------------------------------------
# HDF5: .weights.h5, and the older kind.


def _inspect_hdf5(file: Any) -> tuple[str, list[Finding]]:
    group = file.get(release_statement.GROUP)
    contents = _contents(group["json"][()]) if group is not None and "json" in group else None
    arrays = release_files.arrays_in(file)
    if contents:
        own = {f"{release_statement.GROUP}/{part}" for part in ("text", "json")}
        kept = {name: array for name, array in arrays.items() if name not in own}
        known = ("layer_names", "backend", "keras_version", "weight_names")
        return "weights released by adaclip_tf", list(_of_release(contents, {**kept, **_attributes(file, known)}))
    if "model_config" in file.attrs:
        training = json.loads(file.attrs.get("training_config", "{}"))
        config, optimizer = json.loads(file.attrs["model_config"]), training.get("optimizer_config")
        findings = [
            *finding_lib.of_arrays(arrays, optimizer),
            *finding_lib.of_settings(optimizer),
            *finding_lib.of_layers(config, optimizer),
        ]
        findings += [
            *finding_lib.of_values("model_config", config, ()),
            *finding_lib.of_values("training_config", training, ()),
        ]
        name = "a Keras model in HDF5"
    else:
        findings = [*finding_lib.of_arrays(arrays, None), Finding("weights", *finding_lib.WEIGHTS)]
        name = "Keras weights" if "layer_names" in file.attrs or "layers" in file else "an HDF5 file"
    return name, [*findings, Finding(finding_lib.WHOLE, *finding_lib.NO_STATEMENT)]


def _attributes(file: Any, known: Sequence[str] = (), named: bool = False) -> dict[str, Any]:
    """Attributes of a file and of its groups, by "name@attribute".

    Without those in `known`, the types of arrays, and, if `named`, the names of layers that Keras 3 writes.
    """
    found = {f"@{key}": value for key, value in file.attrs.items()}
    file.visititems(lambda name, item: found.update({f"{name}@{key}": value for key, value in item.attrs.items()}))

    def is_known(place: str, value: Any) -> bool:
        item, _, key = place.rpartition("@")
        if key == release_files.TYPE:
            return isinstance(value, str) and value == release_files.BFLOAT16
        return key in known or (named and key == "name" and item.split("/")[-1] == "vars" and isinstance(value, str))

    return {place: value for place, value in found.items() if not is_known(place, value)}


def main(argv: Sequence[str]) -> int:
    """Runs the program. Exit codes: 0 may be published, 1 may not, 2 could not be read."""
    if len(argv) != 2 or argv[1].startswith("-"):
        print("usage: python -m adaclip_tf.releasing FILE", file=sys.stderr)
        return 2
    try:
        inspection = check_release(argv[1])
    except ValueError as error:
        print(f"adaclip_tf.releasing: {error}", file=sys.stderr)
        return 2
    print(inspection)
    return 0 if inspection.may_be_published else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
