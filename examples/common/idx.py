"""The files of MNIST and Fashion-MNIST: IDX, gzip or not, and npz; read, checked and written.

Every way of getting the arrays ends in one check: the arrays, written as IDX, must have the checksums of the
original files. So a truncated, corrupted or wrong file is found whatever its format.
"""

from __future__ import annotations

import gzip
import hashlib
import pathlib
import struct
import zipfile
import zlib

import numpy as np

from adaclip_tf._internal import files

# In this order everywhere: training images and labels, test images and labels.
FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
NPZ_KEYS = ("x_train", "y_train", "x_test", "y_test")  # as in Keras's mnist.npz

# MD5 of the uncompressed IDX files. They find accidents, not forgeries.
CHECKSUMS = {
    "mnist": (
        "6bbc9ace898e44ae57da46a324031adb",
        "a25bea736e30d166cdddb491f175f624",
        "2646ac647ad5339dbf082846283269ea",
        "27ae3e4e09519cfbb04c329615203637",
    ),
    "fashion_mnist": (
        "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "9018921c3c673c538a1fc5bad174d6f9",
        "8181f5470baa50b63fa0f6fddb340f0a",
        "15d484375f8d13e6eb1aabb0c3f46965",
    ),
}

_UNSIGNED_BYTE = 0x08
LARGEST = 100_000_000  # bytes: nothing larger is unpacked, however small it is when compressed
_READ_ERRORS = (OSError, EOFError, ValueError, KeyError, struct.error, zlib.error, zipfile.BadZipFile)


class BadFileError(Exception):
    """Files that are there but cannot be what they are named after."""

    def __init__(self, message: str, paths: list[pathlib.Path]):
        super().__init__(message)
        self.paths = paths


def encode(array: np.ndarray) -> bytes:
    """The array as an IDX file."""
    array = np.ascontiguousarray(array, np.uint8)
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, _UNSIGNED_BYTE, array.ndim, *array.shape)
    return header + array.tobytes()


def decode(data: bytes) -> np.ndarray:
    """The array in an IDX file of unsigned bytes; ValueError where the file is truncated or something else."""
    zeros, kind, dimensions = struct.unpack_from(">HBB", data)
    if zeros != 0 or kind != _UNSIGNED_BYTE or dimensions == 0:
        raise ValueError("it does not begin like an IDX file of unsigned bytes")
    shape = struct.unpack_from(f">{dimensions}I", data, 4)
    start = 4 + 4 * dimensions
    if len(data) - start != int(np.prod(shape, dtype=np.int64)):
        raise ValueError(f"it holds {len(data) - start:,} bytes of the {'x'.join(map(str, shape))} that it announces")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def read_folder(folder: pathlib.Path, name: str) -> list[np.ndarray] | None:
    """The four arrays of data set `name` from `folder`: IDX files, gzip or not, or `name`.npz.

    Returns:
      None where the folder does not hold them all.

    Raises:
      BadFileError: where one of them is truncated, corrupted or of something else. `paths` lists such files.
    """
    candidates = [_first_existing(folder / file, folder / f"{file}.gz") for file in FILES]
    paths = [path for path in candidates if path is not None]
    if len(paths) < len(FILES):
        archive = folder / f"{name}.npz"
        return _read_npz(archive, name) if archive.exists() else None
    arrays: list[np.ndarray] = []
    bad: dict[pathlib.Path, Exception] = {}
    for path, checksum in zip(paths, CHECKSUMS[name]):
        try:
            arrays.append(_read_idx(path, checksum))
        except _READ_ERRORS as error:
            bad[path] = error
    if bad:
        told = "; ".join(f"{path}: {error}" for path, error in bad.items())
        raise BadFileError(f"not the files of {name}: {told}", list(bad))
    return arrays


def _first_existing(*paths: pathlib.Path) -> pathlib.Path | None:
    return next((path for path in paths if path.exists()), None)


def _read_idx(path: pathlib.Path, checksum: str) -> np.ndarray:
    with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as stream:
        data = stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"it is larger than {LARGEST:,} bytes")
    array = decode(data)
    if _md5(data) != checksum:
        raise ValueError(f"its checksum is not {checksum}")
    return array


def _read_npz(path: pathlib.Path, name: str) -> list[np.ndarray]:
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > LARGEST:
                raise ValueError(f"it is larger than {LARGEST:,} bytes, unpacked")
        with np.load(path, allow_pickle=False) as stored:
            arrays = [stored[key] for key in NPZ_KEYS]
        for key, array, checksum in zip(NPZ_KEYS, arrays, CHECKSUMS[name]):
            if array.dtype.kind not in "iu" or _md5(encode(array)) != checksum:
                raise ValueError(f"its array {key} is not that of {name}")
    except _READ_ERRORS as error:
        raise BadFileError(f"not the arrays of {name}: {path}: {error}", [path]) from error
    return arrays


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def check(data: bytes, name: str, file: str) -> bytes:
    """Returns `data` if it is the named file of the data set."""
    expected = CHECKSUMS[name][FILES.index(file)]
    if _md5(data) != expected:
        raise BadFileError(f"{file} has checksum {_md5(data)}, not {expected}", [])
    return data


def write(folder: pathlib.Path, file: str, data: bytes) -> None:
    """Writes a file in one rename, so that no reader and no crash ever sees half of it."""
    with files.replacing(folder / file) as stream:
        stream.write(data)
