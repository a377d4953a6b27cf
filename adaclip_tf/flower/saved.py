"""The file from which a killed server goes on: the model, the rule's state, the wrapped strategy's arrays, the round.

Everything in it was published, or is a function of what was. It is written after the ledger and before the round's
model goes to anyone, in one rename: so the ledger never knows of fewer rounds than the file, and the file is whole.
"""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

import numpy as np

from adaclip_tf._internal import files

FORMAT, VERSION = "adaclip_tf.flower", 1


class Saved(NamedTuple):
    """What is known after a round."""

    done: int  # rounds
    phase: str  # of the ledger
    model: dict[str, np.ndarray]
    rule: dict[str, np.ndarray]  # leaves of its state, by their number
    strategy: dict[str, np.ndarray]


def write(path: str, saved: Saved) -> None:
    """In the place of the file that is there."""
    groups = {"model": saved.model, "rule": saved.rule, "strategy": saved.strategy}
    header = {
        "format": FORMAT,
        "version": VERSION,
        "done": saved.done,
        "phase": saved.phase,
        **{group: list(arrays) for group, arrays in groups.items()},
    }
    stored = {
        f"{group}{index}": array for group, arrays in groups.items() for index, array in enumerate(arrays.values())
    }
    with files.replacing(path) as file:
        np.savez(file, header=np.array(json.dumps(header)), **stored)  # type: ignore[arg-type]


def read(path: str) -> Saved | None:
    """What was written; None where there is no file.

    Raises:
      ValueError: where the file is damaged, or another program's.
    """
    if not os.path.exists(path):
        return None
    try:
        with np.load(path, allow_pickle=False) as stored:
            header = json.loads(str(stored["header"]))
            if (header["format"], header["version"]) != (FORMAT, VERSION):
                raise ValueError(f"its format is {header['format']!r}, version {header['version']!r}")
            return Saved(
                _count(header["done"]),
                str(header["phase"]),
                *(
                    {name: stored[f"{group}{index}"] for index, name in enumerate(header[group])}
                    for group in ("model", "rule", "strategy")
                ),
            )
    except files.DAMAGED as error:
        raise ValueError(
            f"`state`={path!r} is damaged, or no file of PrivateStrategy's: {error}. Put back a copy; without it "
            "training starts again from the beginning, and its cost is added to what was spent."
        ) from error


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} rounds")
    return value
