"""Says in one sentence which versions work, before an import further down fails in fifty lines."""

from __future__ import annotations

import importlib.metadata
import os
import sys

SUPPORTED = (
    "adaclip_tf works with Python 3.9 to 3.13 and TensorFlow 2.15 or later, on Keras 3 or (TensorFlow 2.15, or "
    "tf-keras and TF_USE_LEGACY_KERAS=1) Keras 2"
)


def check(
    python: tuple[int, int] | None = None,
    tensorflow: str | None = None,
    backend: str | None = None,
    numpy: str | None = None,
) -> None:
    """Raises ImportError if Python, TensorFlow, NumPy or the backend is not one that works. Imports none of them."""
    python = python or sys.version_info[:2]
    if not (3, 9) <= python <= (3, 13):
        raise ImportError(f"{SUPPORTED}; this is Python {python[0]}.{python[1]}.")
    if tensorflow is None:
        tensorflow = _installed_tensorflow()
    if tensorflow is None:
        raise ImportError(f"{SUPPORTED}; TensorFlow is not installed: pip install tensorflow.")
    if not _at_least_2_15(tensorflow):
        raise ImportError(f"{SUPPORTED}; this is TensorFlow {tensorflow}: pip install -U tensorflow.")
    numpy = _installed("numpy") if numpy is None else numpy
    if tensorflow.startswith("2.15.") and numpy is not None and int(numpy.split(".")[0]) >= 2:
        raise ImportError(
            f"TensorFlow {tensorflow} was built for NumPy 1 and fails beside NumPy {numpy}: pip install 'numpy<2'."
        )
    backend = backend or os.environ.get("KERAS_BACKEND") or "tensorflow"
    if backend != "tensorflow":
        raise ImportError(other_backend(backend))


def other_backend(name: str) -> str:
    return (
        f"adaclip_tf reads TensorFlow's graphs, and Keras's backend is {name!r}: set KERAS_BACKEND=tensorflow before "
        "Keras is imported."
    )


def _at_least_2_15(version: str) -> bool:
    major, minor = (int(part) for part in version.split(".")[:2])
    return (major, minor) >= (2, 15) and major == 2


def _installed_tensorflow() -> str | None:
    names = ("tensorflow", "tensorflow-cpu", "tensorflow-macos", "tensorflow-intel")
    return next((version for version in map(_installed, names) if version), None)


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
