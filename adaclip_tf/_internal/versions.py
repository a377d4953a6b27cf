"""Says in one sentence which versions work, before an import further down fails in fifty lines."""

from __future__ import annotations

import importlib.metadata
import sys

SUPPORTED = (
    "adaclip_tf works with Python 3.9 to 3.11 and TensorFlow 2.15 (tensorflow-privacy 0.9.0 cannot be "
    "imported on TensorFlow 2.16 or later)"
)


def check(python: tuple[int, int] | None = None, tensorflow: str | None = None) -> None:
    """Raises ImportError if Python or TensorFlow is not one that works. Imports neither."""
    python = python or sys.version_info[:2]
    if not (3, 9) <= python <= (3, 11):
        raise ImportError(f"{SUPPORTED}; this is Python {python[0]}.{python[1]}.")
    if tensorflow is None:
        tensorflow = _installed_tensorflow()
    if tensorflow is None:
        raise ImportError(f"{SUPPORTED}; TensorFlow is not installed: pip install 'tensorflow==2.15.*'.")
    if not tensorflow.startswith("2.15."):
        raise ImportError(f"{SUPPORTED}; this is TensorFlow {tensorflow}: pip install 'tensorflow==2.15.*'.")


def _installed_tensorflow() -> str | None:
    for name in ("tensorflow", "tensorflow-cpu", "tensorflow-macos", "tensorflow-intel"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None
