"""All cases, by name: importing a module of cases registers them."""

import importlib
import pathlib

from tests.attack.case import CASES


def load() -> dict:
    """Imports every `cases_*.py` of this folder."""
    for path in sorted(pathlib.Path(__file__).parent.glob("cases_*.py")):
        importlib.import_module(f"tests.attack.{path.stem}")
    return CASES
