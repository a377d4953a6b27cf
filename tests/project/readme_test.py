"""The README's programs run as they are printed, on random images in the place of MNIST's; so do the docs' sums."""

import doctest
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

README = pathlib.Path(__file__).parents[2] / "README.md"


def test_the_programs_of_the_readme_run(monkeypatch, rng):
    images, labels = rng.integers(0, 256, (1200, 28, 28)), rng.integers(0, 10, 1200)
    monkeypatch.setattr(tf.keras.datasets.mnist, "load_data", lambda: ((images, labels), None))
    programs = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len(programs[0].splitlines()) == 12
    names = {}
    for program in programs:
        exec(compile(program, str(README), "exec"), names)
    assert int(names["model"].optimizer.noised_steps) == 2 * 20
    assert np.isfinite(names["z"])
    assert names["query"].initial_global_state()


def test_the_links_of_the_readme_lead_somewhere():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target


PAGES = sorted([README, README.with_name("CONTRIBUTING.md"), *(README.parent / "docs").glob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_the_paths_and_imports_of_a_page_are_there(page):
    text = page.read_text()
    folders = "adaclip_tf|tests|examples|benchmarks|configs|requirements|tools|docs"
    for path in re.findall(rf"(?<![\w/.-])((?:{folders})/[\w/]+\.(?:py|sh|md|json|lock|in))", text):
        assert (README.parent / path).exists(), path
    for program in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        for line in re.findall(r"^(?:from adaclip_tf|import adaclip_tf).*$", program, flags=re.MULTILINE):
            if "(" not in line:
                exec(line, {})


def test_the_functions_in_the_map_exist():
    """Every `core.name` of the README is in the core."""
    from adaclip_tf import core

    named = set(re.findall(r"`core\.(\w+)", README.read_text()))
    assert {"AdaClip", "FixedClip", "Whitening", "MomentEstimator", "norm_bound", "private_step"} <= named
    for name in named - {"py"}:
        assert hasattr(core, name), name


@pytest.mark.parametrize("name, least", [("tuning.md", 4), ("no_tuning.md", 3)])
def test_the_arithmetic_of_the_tuning_pages(name, least):
    page = README.parent / "docs" / name
    result = doctest.testfile(str(page), module_relative=False)
    assert result.attempted >= least and result.failed == 0
