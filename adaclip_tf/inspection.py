"""What a file holds that is not privatised: `check_release`, and on the command line

    python -m adaclip_tf.inspection FILE

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

from adaclip_tf import _layer_state, _release_files, _release_statement, _validate

UN_NOISED, UNKNOWN = "un-noised", "unknown"

_METRIC = (
    "state of a Keras metric",
    "totals and counts over the training data without noise: of a loss, the true total and the number of examples drawn",
)
_WHOLE = "(whole file)"
_NO_STATEMENT = (
    "holds no privacy statement",
    "nothing says what epsilon it has, nor that all of it was trained with noise; `adaclip_tf.release` writes a file that does",
)
_WEIGHTS = ("weights", "nothing in the file says that they were trained with noise")


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing in a file that is not known to be private.

    `kind` is "un-noised" for what was computed from data without noise, "unknown" for what may have been. `value` is the
    array itself, where it is one; it is not printed.
    """

    entry: str
    what: str
    why: str
    kind: str = UNKNOWN
    value: Any = dataclasses.field(default=None, repr=False, compare=False)


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
    >>> [each.entry for each in found.findings][:2]
    ['metrics/mean/vars/0', 'metrics/mean/vars/1']

    Args:
      path: a release, a .keras file, .weights.h5, .h5, a SavedModel's folder, a TensorFlow checkpoint (its prefix, its
        .index file, or the folder of a `tf.train.CheckpointManager`). Any other file is "unknown".

    Raises:
      ValueError: there is no such file, or it can't be read.
    """
    path = _validate.path("path", path)
    is_checkpoint = os.path.exists(f"{path}.index") or path.endswith(".index")
    if not os.path.exists(path) and not is_checkpoint:
        raise ValueError(f"`path`={path!r} does not exist.")
    try:
        if os.path.isdir(path) or is_checkpoint:
            from adaclip_tf import _checkpoints  # TensorFlow takes seconds to import

            name, findings = _checkpoints.inspect(path)
        elif zipfile.is_zipfile(path):
            name, findings = _inspect_zip(path)
        elif h5py.is_hdf5(path):
            with h5py.File(path, "r") as file:
                name, findings = _inspect_hdf5(file)
        else:
            name, findings = (
                "a file of an unknown kind",
                [Finding(_WHOLE, "unknown", "nothing is known of what it holds")],
            )
    except (OSError, KeyError, TypeError, AttributeError, zipfile.BadZipFile, json.JSONDecodeError) as error:
        raise ValueError(f"`path`={path!r} can't be read: {error}. Is the file damaged?") from error
    return Inspection(path, name, tuple(findings))


# ----------------------------------------------------------------------------------------------------------------
# .keras files.


def _inspect_zip(path: str) -> tuple[str, list[Finding]]:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
        comment = archive.comment
    if "config.json" not in members or "model.weights.h5" not in members:
        return "a zip archive, but no .keras file", [Finding(_WHOLE, "unknown", "nothing is known of what it holds")]
    contents = _contents(members.pop(_release_statement.JSON, b""))
    config = json.loads(members.pop("config.json"))
    with h5py.File(io.BytesIO(members.pop("model.weights.h5")), "r") as file:
        arrays = {**_release_files.arrays_in(file), **_attributes(file)}
    findings = [Finding("(zip comment)", "unknown", "nothing is known of it")] if comment else []
    compiled = config.pop("compile_config", None)
    if contents:
        members.pop(_release_statement.TEXT, None)
        findings += _of_release(contents, arrays)
        if compiled:
            findings.append(Finding("config.json: compile_config", "training settings", "a release has none"))
    else:
        optimizer = (compiled or {}).get("optimizer")
        findings += [*_of_arrays(arrays, optimizer), *_of_optimizer(optimizer), *_of_layers(config, optimizer)]
        findings += _of_values("config.json: compile_config", compiled, ())
        findings.append(Finding(_WHOLE, *_NO_STATEMENT))
    public, allowed = ((contents or {}).get(key, []) for key in ("public", "not_covered"))
    findings += _of_values("config.json", config, [*public, *allowed])  # what was allowed is named by now
    members.pop("metadata.json", None)
    for member in members:
        if not (contents and member.startswith("assets/") and _declared(public, config)):
            findings.append(
                Finding(member, "a file of a layer", "vocabularies and the like hold what the layer has seen")
            )
    return ("a release of adaclip_tf" if contents else "a Keras model"), findings


def _declared(named: Sequence[str], config: Any) -> bool:
    """Whether all layers that hold more than architecture were declared public."""
    return all(set(held.names) & set(named) for held in _layer_state.held_in(config))


def _contents(data: Any) -> dict[str, Any] | None:
    """What a release says of itself, if it is one."""
    contents = json.loads(data) if data else {}
    return contents if isinstance(contents, dict) and contents.get("format") == _release_statement.FORMAT else None


def _of_release(contents: dict[str, Any], arrays: dict[str, Any]) -> Iterator[Finding]:
    """Arrays that the release does not say are private."""
    from adaclip_tf import _twins

    for name, array in arrays.items():
        kind = contents["weights"].get(name)
        if kind == _twins.ALLOWED:
            yield Finding(name, "what a layer holds", "the release's own statement does not cover it", UN_NOISED, array)
        elif kind == _twins.INITIAL and np.any(array):
            yield Finding(name, "unknown", "should be zero", value=array)
        elif kind not in _twins.KINDS:
            yield Finding(name, "unknown", "the release's own list does not have it", value=array)
    for layer in contents["not_covered"]:
        yield Finding(f"layer {layer}", "what it holds", "the release's own statement does not cover it", UN_NOISED)


def _of_values(entry: str, config: Any, named: Sequence[str]) -> Iterator[Finding]:
    """What a configuration holds besides architecture."""
    for held in _layer_state.held_in(config):
        if not set(held.names) & set(named):
            yield Finding(f"{entry}: {held.place}", held.what, "it may have been computed from the data")
    for size in sorted(set(_layer_state.batch_sizes(config))):
        yield Finding(
            f"{entry}: batch size {size}", "a static batch size", "it may be the true size of a Poisson batch"
        )


def _of_layers(config: Any, optimizer: Any) -> Iterator[Finding]:
    """Layers that the optimizer does not train, or not all of."""
    if not _is_ours(optimizer):
        yield Finding("layers", *_WEIGHTS)
        return
    for name, kind, module, trainable in _layer_state.layers_in(config):
        if kind in _layer_state.LEARNT:
            continue  # named already
        if not trainable:
            yield Finding(f"layer {name}", "frozen weights", "the optimizer did not train them; are they public?")
        elif kind in _layer_state.MOVING:
            yield Finding(f"layer {name}", _layer_state.MOVING[kind], "the optimizer does not train them")
        elif module.split(".")[0] != "keras":
            yield Finding(
                f"layer {name}", f"variables of a {kind}", "it may have some that the optimizer does not train"
            )


# ----------------------------------------------------------------------------------------------------------------
# HDF5: .weights.h5, and the older kind.


def _inspect_hdf5(file: Any) -> tuple[str, list[Finding]]:
    group = file.get(_release_statement.GROUP)
    contents = _contents(group["json"][()]) if group is not None and "json" in group else None
    arrays = _release_files.arrays_in(file)
    if contents:
        own = {f"{_release_statement.GROUP}/{part}" for part in ("text", "json")}
        kept = {name: array for name, array in arrays.items() if name not in own}
        known = ("layer_names", "backend", "keras_version", "weight_names")
        return "weights released by adaclip_tf", list(_of_release(contents, {**kept, **_attributes(file, known)}))
    if "model_config" in file.attrs:
        training = json.loads(file.attrs.get("training_config", "{}"))
        config, optimizer = json.loads(file.attrs["model_config"]), training.get("optimizer_config")
        findings = [*_of_arrays(arrays, optimizer), *_of_optimizer(optimizer), *_of_layers(config, optimizer)]
        findings += [*_of_values("model_config", config, ()), *_of_values("training_config", training, ())]
        name = "a Keras model in HDF5"
    else:
        findings = [*_of_arrays(arrays, None), Finding("weights", *_WEIGHTS)]
        name = "Keras weights" if "layer_names" in file.attrs or "layers" in file else "an HDF5 file"
    return name, [*findings, Finding(_WHOLE, *_NO_STATEMENT)]


def _attributes(file: Any, known: Sequence[str] = ()) -> dict[str, Any]:
    """Attributes of a file and of its groups, by "name@attribute"."""
    found = {f"@{key}": value for key, value in file.attrs.items()}
    file.visititems(lambda name, item: found.update({f"{name}@{key}": value for key, value in item.attrs.items()}))
    return {key: value for key, value in found.items() if key.rpartition("@")[2] not in known}


def _of_arrays(arrays: dict[str, Any], optimizer: Any) -> Iterator[Finding]:
    """Arrays of a file that is no release, by their place in it. `optimizer` is its configuration, if that is known."""
    for name, array in arrays.items():
        root, value = name.split("/")[0].split("@")[0], {"value": array}
        if root == "metrics":
            yield Finding(name, *_METRIC, UN_NOISED, **value)
        elif root in ("optimizer", "optimizer_weights"):
            yield from _of_optimizer_state(name, array, optimizer)
        elif is_generator(name):
            yield Finding(
                name, "state of a random generator", "its counter tells how many examples there were", **value
            )
        elif root not in ("layers", "vars", "model_weights") and optimizer is not None:
            yield Finding(name, "unknown", "an attribute of the model, which may be a metric", **value)


def is_generator(name: str) -> bool:
    """Whether an entry is the state of a random generator, by its name."""
    return any(part.endswith(("random_generator", "seed_generator", "_generator")) for part in name.split("/"))


def _of_optimizer_state(name: str, array: Any, optimizer: Any) -> Iterator[Finding]:
    """m, s^2, momentum and counts are functions of noised sums. The divisor is, only if B is given."""
    if optimizer is None:
        yield Finding(
            name, "state of an optimizer", "nothing in the file says that its gradients had noise", value=array
        )
    elif not _is_ours(optimizer):
        yield Finding(name, "state of an optimizer", "its gradients had no noise", UN_NOISED, array)
    elif not _public_divisor(optimizer) and np.ndim(array) == 0 and np.asarray(array).dtype.kind == "f":
        why = (
            "the true number of examples in the last batch, as `expected_batch_size` was not given; public only if all "
        )
        yield Finding(name, "the divisor", why + "batches have one fixed size", UN_NOISED, array)


def _is_ours(optimizer: Any) -> bool:
    if not isinstance(optimizer, dict):
        return False  # none, or the name of one of Keras's
    names = [str(optimizer.get(key) or "") for key in ("registered_name", "class_name", "module")]
    return any(name.startswith(("adaclip_tf>", "adaclip_tf.")) for name in names)


def _public_divisor(optimizer: Any) -> bool:
    return bool(optimizer["config"].get("expected_batch_size") or optimizer["config"].get("num_microbatches"))


def _of_optimizer(optimizer: Any) -> Iterator[Finding]:
    """Settings with which the noise is none."""
    if not _is_ours(optimizer):
        return
    settings = optimizer["config"]
    if not settings.get("noise_multiplier"):
        yield Finding("optimizer: noise_multiplier=0", "weights", "they were trained without noise", UN_NOISED)
    if settings.get("seed") is not None:
        why = "whoever reads it can take the noise off the weights"
        yield Finding(f"optimizer: seed={settings['seed']}", "the seed of the noise", why, UN_NOISED)


def main(argv: Sequence[str]) -> int:
    """Runs the program. Exit codes: 0 may be published, 1 may not, 2 could not be read."""
    if len(argv) != 2 or argv[1].startswith("-"):
        print("usage: python -m adaclip_tf.inspection FILE", file=sys.stderr)
        return 2
    try:
        inspection = check_release(argv[1])
    except ValueError as error:
        print(f"adaclip_tf.inspection: {error}", file=sys.stderr)
        return 2
    print(inspection)
    return 0 if inspection.may_be_published else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
