"""The folder of a run: its config, its backup, its history; so that an interrupted run can go on."""

from __future__ import annotations

import csv
import json
import os
import pathlib
import sys
from typing import Any

import h5py
import ml_collections
import tensorflow as tf

from adaclip_tf._internal import files, keras

BACKUP, HISTORY = "backup", "history.csv"


def prepare(config: ml_collections.ConfigDict, workdir: str | os.PathLike[str] | None) -> pathlib.Path | None:
    """Makes the folder, or refuses one that holds a damaged run, or another config's: its noise would be another."""
    if workdir is None:
        return None
    folder = pathlib.Path(workdir)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"
    ours = json.loads(config.to_json())
    if path.exists():
        theirs = json.loads(path.read_text())
        changed = sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))
        if set(changed) - {"data_dir"}:
            raise ValueError(
                f"{folder} holds a run with another config: {', '.join(changed)} differ. Give the same config to go "
                "on with it, or another --workdir."
            )
        _check_backup(folder)
        return folder
    with files.replacing(path) as file:
        file.write((json.dumps(ours, indent=1) + "\n").encode())
    return folder


def _check_backup(folder: pathlib.Path) -> None:
    """Reads all of the backup: damage is to be found before anything is trained, and said in words.

    A backup that has vanished is damage too: starting again from nothing would forget the epsilon that was spent.
    """
    backup = folder / BACKUP
    try:
        there = _read_checkpoint(backup) if keras.GENERATION == 2 else _read_weights(backup)
        if not there and (folder / HISTORY).exists() and read_history(folder):
            raise ValueError(f"epochs were completed, and there is no checkpoint of Keras {keras.GENERATION}")
    except Exception as error:  # TensorFlow's reader raises whatever Python type is nearest to its status
        raise ValueError(
            f"The backup in {backup} is damaged: {error}. Put a copy in its place, or train anew in another --workdir; "
            "if anything of this run was published, both runs together cost the sum of their epsilons."
        ) from error


def _read_checkpoint(backup: pathlib.Path) -> bool:
    """Reads what Keras 2 keeps, TensorFlow's checkpoint; False if there is none."""
    latest = tf.train.latest_checkpoint(str(backup / "chief"))
    if latest is None:
        return False
    reader = tf.train.load_checkpoint(latest)
    for name in reader.get_variable_to_shape_map():
        reader.get_tensor(name)
    return True


def _read_weights(backup: pathlib.Path) -> bool:
    """Reads what Keras 3 keeps, an HDF5 file and the number of the epoch; False if there is neither.

    Keras writes both in place. So it keeps the last two (`double_checkpoint`), and takes the older weights where the
    newer ones can't be read.
    """
    weights, epoch = backup / "latest.weights.h5", backup / "training_metadata.json"
    if not weights.exists() and not epoch.exists():
        return False
    try:
        _read_arrays(weights)
    except OSError:
        older = [path.with_name(f"{path.name}.bkp") for path in (weights, epoch)]
        if not all(path.exists() for path in older):
            raise
        weights, epoch = older
        _read_arrays(weights)
    int(json.loads(epoch.read_text())["epoch"])
    return True


def _read_arrays(path: pathlib.Path) -> None:
    def read(_: str, entry: h5py.Group | h5py.Dataset) -> None:
        if isinstance(entry, h5py.Dataset):
            entry[()]

    with h5py.File(path, "r") as file:
        file.visititems(read)


def backup_callback(folder: pathlib.Path, writes: bool) -> tf.keras.callbacks.Callback:
    """Keras's own, which restores the last completed epoch before the first one; `writes` on one of several workers."""
    options: dict[str, Any] = {"delete_checkpoint": False}
    if keras.GENERATION == 3:  # whose workers would all write to the same file; those of Keras 2 must all take part
        options.update(double_checkpoint=True, save_freq="epoch" if writes else sys.maxsize)
    return tf.keras.callbacks.BackupAndRestore(str(folder / BACKUP), **options)


def read_history(folder: pathlib.Path) -> dict[str, list[float]]:
    """What CSVLogger wrote, over all resumptions; an epoch that was run twice counts the second time."""
    with open(folder / HISTORY, newline="") as file:
        rows = {int(row["epoch"]): row for row in csv.DictReader(file)}
    names = [name for name in next(iter(rows.values()), {}) if name != "epoch"]
    return {name: [float(rows[epoch][name]) for epoch in sorted(rows)] for name in names}
