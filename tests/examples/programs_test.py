"""Every program in examples/ is short, says how to run it, and runs as a module and by its path, from the root."""

import ast
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PROGRAMS = {  # name -> the file that is run
    **{path.stem: path for path in EXAMPLES.glob("*.py") if '\nif __name__ == "__main__":' in path.read_text()},
    **{path.parent.name: path for path in EXAMPLES.glob("*/__main__.py")},
}
CHECKOUT = pathlib.Path(sys.prefix).resolve() == ROOT / ".venv"


def run(*arguments, cwd=ROOT):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_programs_are_found():
    assert {"demo", "federated", "regression", "train"} <= set(PROGRAMS)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_a_program_can_be_read_in_a_minute_and_says_how_to_run_it(name):
    text = PROGRAMS[name].read_text()
    assert len(text.splitlines()) <= 150
    said = ast.get_docstring(ast.parse(text))
    assert f"python -m examples.{name}" in said or f"make {name}" in said
    assert f"`examples.{name}`" in (EXAMPLES / "__init__.py").read_text()


@pytest.mark.parametrize("folder", sorted(path.parent.name for path in EXAMPLES.glob("*/__init__.py")))
def test_a_folder_says_what_lives_there(folder):
    said = ast.get_docstring(ast.parse((EXAMPLES / folder / "__init__.py").read_text())) or ""
    parts = {path.stem for path in (EXAMPLES / folder).glob("*.py")} - {"__init__", "__main__"}
    assert not [part for part in sorted(parts) if f"`{part}`" not in said]


@pytest.mark.skipif(not CHECKOUT, reason="only the environment that requirements/install.sh makes has the checkout")
def test_the_environment_knows_the_checkout(tmp_path):
    """What lets a file in examples/ import its neighbours; nothing of them is run."""
    program = "import importlib.util as u; print(*[u.find_spec(n).origin for n in ('examples.train', 'configs.base')])"
    done = run("-c", program, cwd=tmp_path)
    assert done.stdout.split() == [str(ROOT / "examples/train.py"), str(ROOT / "configs/base.py")], done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_a_program_runs_both_ways(name):
    path = PROGRAMS[name] if PROGRAMS[name].stem == name else PROGRAMS[name].parent  # a folder is run by its name
    ways = [["-m", f"examples.{name}"]] + ([[str(path.relative_to(ROOT))]] if CHECKOUT else [])
    for way in ways:
        done = run(*way, "--help")
        assert "flags:" in done.stdout, (way, done.stderr)
