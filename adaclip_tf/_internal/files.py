"""Files that are whole whenever someone looks, and probes that tell early where a file can't be written."""

from __future__ import annotations

import contextlib
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

# What reading an `.npz` file, and making something of it, raises where it is not as it was written.
DAMAGED = (ValueError, TypeError, KeyError, EOFError, OSError, zlib.error, zipfile.BadZipFile)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` in one rename once all is written.

    A reader finds the old file or the new one, never half of one, whenever the writer is killed or the disk is full.
    """
    directory = os.path.dirname(os.path.abspath(path))
    os.makedirs(directory, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=".part-", dir=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp's 0600 would hide a file that is meant to be published
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


@contextlib.contextmanager
def saved_arrays(path: str | os.PathLike[str], who: str) -> Iterator[Any]:
    """The arrays of an `.npz` file that `who`.save wrote, without pickle.

    What fails while they are read, or made something of, is a ValueError that names the file; OSError where there is
    none.
    """
    with open(path, "rb") as file:
        try:
            with np.load(file, allow_pickle=False) as stored:
                yield stored
        except DAMAGED as error:
            raise ValueError(
                f"`path`={os.fspath(path)!r} is damaged, or not a file that {who}.save wrote: {error}. If there is no "
                "other copy, `fit` again, which costs privacy again."
            ) from error


def check_writable(name: str, path: str | os.PathLike[str]) -> None:
    """Raises ValueError unless a file `path` can be written, or overwritten; leaves what is there alone."""
    directory = os.path.dirname(os.path.abspath(path))
    try:
        if os.path.isdir(path):
            raise IsADirectoryError(f"{os.fspath(path)!r} is a folder")
        os.makedirs(directory, exist_ok=True)
        with tempfile.NamedTemporaryFile(prefix=".probe-", dir=directory) as probe:
            probe.write(bytes(4096))
            probe.flush()
    except OSError as error:
        raise ValueError(
            f"`{name}`={os.fspath(path)!r} cannot be written: {error}. Give a folder that exists or can be made, with "
            "space left."
        ) from error
