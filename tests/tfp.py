"""tensorflow-privacy's modules one by one, as the tests compare with them. Skips what this environment can't import.

On TensorFlow 2.16 and later the package itself can't be imported, its modules can. Python 3.12 can't install it.
"""

import pytest

from adaclip_tf._internal import dp_query  # noqa: F401  (chooses the way of importing)


def module(name):
    """`tensorflow_privacy.privacy.` + name."""
    return pytest.importorskip(f"tensorflow_privacy.privacy.{name}", exc_type=ImportError)
