"""The README: one screen, whose program runs as it is printed; the paths that pages name are there."""

import doctest
import importlib.util
import re

import pytest

from tests.project import pages

README = pages.ROOT / "README.md"
FLOWER = importlib.util.find_spec("flwr") is not None  # an extra


def test_the_program_of_the_readme_runs():
    (program,) = pages.programs(README)
    assert len(program.replace("\n\n", "\n").splitlines()) == 10
    names = pages.run("README.md")
    assert int(names["private"].optimizer.noised_steps) == 5 * 20
    assert names["private"].budget.epsilon == pytest.approx(1.0, abs=1e-3)
    found = names["model"].predict(names["x"], verbose=0)[:, 0] > 0.5
    assert (found == names["y"]).mean() > 0.8


def test_the_readme_is_one_screen():
    text = README.read_text()
    assert len(text.splitlines()) <= 66 and text.count("<img ") == 1
    assert "make demo" in text and "make test" in text
    for symbol in ("d be the number", "B the expected number", "z the noise multiplier"):
        assert symbol in text.replace("\n", " ")[: text.index("| your case")], symbol


PAGES = sorted([README, README.with_name("CONTRIBUTING.md"), *pages.DOCS.rglob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(pages.ROOT).as_posix() for page in PAGES])
def test_the_paths_and_imports_of_a_page_are_there(page):
    text = page.read_text()
    folders = "adaclip_tf|tests|examples|benchmarks|configs|requirements|tools|docs"
    for path in re.findall(rf"(?<![\w/.-])((?:{folders})/[\w/]+\.(?:py|sh|md|json|lock|in))", text):
        assert (pages.ROOT / path).exists(), path
    for program in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        for line in re.findall(r"^(?:from adaclip_tf|import adaclip_tf).*$", program, flags=re.MULTILINE):
            if "(" not in line and not ("adaclip_tf.flower" in line and not FLOWER):
                exec(line, {})


def test_the_functions_in_the_map_exist():
    """Every `core.name` of the page on equations is in the core."""
    from adaclip_tf import core

    named = set(re.findall(r"`core\.(\w+)", (pages.DOCS / "equations.md").read_text()))
    assert {"AdaClip", "FixedClip", "Whitening", "MomentEstimator", "norm_bound", "private_step"} <= named
    for name in named:
        assert hasattr(core, name), name


@pytest.mark.parametrize("name, least", [("tuning.md", 4), ("no_tuning.md", 3)])
def test_the_arithmetic_of_the_tuning_pages(name, least):
    result = doctest.testfile(str(pages.DOCS / name), module_relative=False)
    assert result.attempted >= least and result.failed == 0
