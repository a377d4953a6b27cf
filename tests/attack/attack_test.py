"""Every case of this folder: refused in words, or one example moves the clipped sum by 1 at most. See README.md."""

import pathlib
import subprocess
import sys

import pytest

from tests.attack import cases_every_layer, cases_every_loss, catalog, harness
from tests.attack.modes import MAIN_MODES, MODES

CASES = catalog.load()
FAST = [(name, mode) for name, case in CASES.items() for mode in case.fast]
MAIN = [(name, mode) for mode in MAIN_MODES if not MODES[mode].jit for name in CASES]
# Each case in one more mode, in turn.
MORE_MODES = [mode for mode in MODES if mode not in MAIN_MODES]
MORE = [(name, MORE_MODES[index % len(MORE_MODES)]) for index, name in enumerate(CASES)]
# XLA keeps what it compiled: after some hundred steps a process can't map more memory, and dies.
UNDER_XLA = [list(CASES)[start : start + 100] for start in range(0, len(CASES), 100)]


def _check(name, mode, **options):
    case = CASES[name]
    outcome = harness.attack(case, mode, **options)
    wrong = harness.verdict(case, mode, outcome)
    assert not wrong, f"{name} ({case.expect}) in mode {mode}: {wrong}\n{outcome}"


@pytest.mark.parametrize(("name", "mode"), FAST)
def test_some_cases(name, mode):
    _check(name, mode, sizes=(8,), removals=2)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mode"), MAIN)
def test_every_case_in_the_main_modes(name, mode):
    fixed = CASES[name].fixed
    # Steps that are not traced take longer: these get the small batch only.
    sizes = (fixed,) if fixed else (8,) if mode == "eager" else (8, 32)
    _check(name, mode, sizes=sizes)


@pytest.mark.slow
@pytest.mark.parametrize("names", UNDER_XLA, ids=lambda names: f"from {names[0]}")
def test_every_case_under_xla(names):
    command = [sys.executable, "-m", "tests.attack", "--mode=jit", "--failing", f"--cases={','.join(names)}"]
    root = pathlib.Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mode"), MORE)
def test_every_case_in_one_more_mode(name, mode):
    _check(name, mode, sizes=(CASES[name].fixed or 8,))


def test_there_are_enough_cases():
    """The folder is worth its name: at least 120 cases, a third of them right."""
    right = [case for case in CASES.values() if case.expect == "accepted"]
    assert len(CASES) >= 120 and len(right) >= 40


def test_every_file_of_cases_is_in_the_catalog():
    files = {path.stem for path in pathlib.Path(__file__).parent.glob("cases_*.py")}
    assert files == {name for name in vars(catalog) if name.startswith("cases_")}


def test_no_layer_and_no_loss_is_left_out():
    assert not cases_every_layer.left_out() and not cases_every_loss.left_out()
