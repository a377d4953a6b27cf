"""The tutorial and its notebook hold the same programs, and these run from top to bottom."""

import json
import pathlib
import re

import pytest

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def programs_of_the_page():
    text = (DOCS / "tutorial.md").read_text()
    return [program.strip() for program in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)]


def notebook():
    return json.loads((DOCS / "tutorial.ipynb").read_text())


def programs_of_the_notebook():
    return ["".join(cell["source"]).strip() for cell in notebook()["cells"] if cell["cell_type"] == "code"]


# The notebook's are the same ones, which a test below says.
@pytest.mark.parametrize(
    "programs", [programs_of_the_page, pytest.param(programs_of_the_notebook, marks=pytest.mark.slow)]
)
def test_it_runs_from_top_to_bottom(programs, capsys):
    names = {}
    for number, program in enumerate(programs(), start=1):
        exec(compile(program, f"<program {number}>", "exec"), names)
    assert names["plain_accuracy"] > 0.93
    assert names["private_accuracy"] > 0.75
    assert 2.99 < names["budget"].epsilon <= 3.0
    assert "180 noised steps" in capsys.readouterr().out


def test_page_and_notebook_hold_the_same_programs():
    assert programs_of_the_page() == programs_of_the_notebook()


def test_it_takes_four_edits():
    headings = re.findall(r"^## (Edit \d)", (DOCS / "tutorial.md").read_text(), flags=re.MULTILINE)
    assert headings == [f"Edit {number}" for number in range(1, 5)]


def test_the_notebook_is_small_and_was_run():
    assert notebook()["nbformat"] == 4
    outputs = [cell["outputs"] for cell in notebook()["cells"] if cell["cell_type"] == "code"]
    assert any("test accuracy" in "".join(output["text"]) for cell in outputs for output in cell)
    assert (DOCS / "tutorial.ipynb").stat().st_size < 30_000
