"""Every program in examples/ runs as a module and as a file, from the root, without PYTHONPATH."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = sorted(
    path.stem for path in (ROOT / "examples").glob("*.py") if '\nif __name__ == "__main__":' in path.read_text()
)
CHECKOUT = pathlib.Path(sys.prefix).resolve() == ROOT / ".venv"


def run(*arguments, cwd=ROOT):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_programs_are_found():
    assert {"demo", "federated", "regression", "train"} <= set(PROGRAMS)


@pytest.mark.skipif(not CHECKOUT, reason="only the environment that requirements/install.sh makes has the checkout")
def test_the_environment_knows_the_checkout(tmp_path):
    """What lets a file in examples/ import its neighbours; nothing of them is run."""
    program = "import importlib.util as u; print(*[u.find_spec(n).origin for n in ('examples.train', 'configs.base')])"
    done = run("-c", program, cwd=tmp_path)
    assert done.stdout.split() == [str(ROOT / "examples/train.py"), str(ROOT / "configs/base.py")], done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_both_ways(name):
    ways = [["-m", f"examples.{name}"]] + ([[f"examples/{name}.py"]] if CHECKOUT else [])
    for way in ways:
        done = run(*way, "--help")
        assert "flags:" in done.stdout, (way, done.stderr)
