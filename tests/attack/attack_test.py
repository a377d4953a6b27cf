"""Every case of this folder: refused in words, or one example moves the clipped sum by 1 at most. See README.md."""

import pytest

from tests.attack import catalog, harness
from tests.attack.modes import MODES

CASES = catalog.load()
FAST = [(name, mode) for name, case in CASES.items() for mode in case.fast]
EVERYWHERE = [(name, mode) for name in CASES for mode in MODES]


def _check(name, mode, **options):
    case = CASES[name]
    outcome = harness.attack(case, mode, **options)
    wrong = harness.verdict(case, mode, outcome)
    assert not wrong, f"{name} ({case.expect}) in mode {mode}: {wrong}\n{outcome}"


@pytest.mark.parametrize(("name", "mode"), FAST)
def test_some_cases(name, mode):
    _check(name, mode, sizes=(8,), removals=3)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mode"), EVERYWHERE)
def test_every_case_in_every_mode(name, mode):
    _check(name, mode, sizes=(8, 32))


def test_there_are_enough_cases():
    """The folder is worth its name: at least 120 cases, a third of them right."""
    right = [case for case in CASES.values() if case.expect == "accepted"]
    assert len(CASES) >= 120 and len(right) >= 40
