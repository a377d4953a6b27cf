"""The folder of a run: its config, its backup, its history; so that an interrupted run can go on."""

from __future__ import annotations

import csv
import json
import os
import pathlib

import ml_collections
import tensorflow as tf

from adaclip_tf._internal import files

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
        latest = tf.train.latest_checkpoint(str(backup / "chief"))
        if latest is None and (folder / HISTORY).exists() and read_history(folder):
            raise ValueError("epochs were completed, and there is no checkpoint")
        if latest is not None:
            reader = tf.train.load_checkpoint(latest)
            for name in reader.get_variable_to_shape_map():
                reader.get_tensor(name)
    except Exception as error:  # TensorFlow's reader raises whatever Python type is nearest to its status
        raise ValueError(
            f"The backup in {backup} is damaged: {error}. Put a copy in its place, or train anew in another --workdir; "
            "if anything of this run was published, both runs together cost the sum of their epsilons."
        ) from error


def read_history(folder: pathlib.Path) -> dict[str, list[float]]:
    """What CSVLogger wrote, over all resumptions; an epoch that was run twice counts the second time."""
    with open(folder / HISTORY, newline="") as file:
        rows = {int(row["epoch"]): row for row in csv.DictReader(file)}
    names = [name for name in next(iter(rows.values()), {}) if name != "epoch"]
    return {name: [float(rows[epoch][name]) for epoch in sorted(rows)] for name in names}
