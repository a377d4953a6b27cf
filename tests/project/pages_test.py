"""The code blocks of README and documentation: all run from top to bottom; what they call takes what they give."""

import inspect
import os
import subprocess
import sys

import pytest

import adaclip_tf
from adaclip_tf.privacy import accountants
from tests.project import pages

DISTRIBUTION = "docs/distribution.md"
# Those whose programs other tests run in every suite: see readme_test, tutorial_test.
ELSEWHERE = {"README.md", "docs/tutorial.md"}


def test_the_pages_are_found():
    assert {"README.md", "docs/tutorial.md", "docs/guides/tables.md", "docs/privacy.md"} <= set(pages.pages())
    assert set(pages.GIVEN) <= set(pages.pages())


@pytest.mark.parametrize("page", pages.pages())
def test_calls_of_a_page_fit_the_library(page):
    """In every suite: a renamed argument is noticed without training anything."""
    for name, positional, named in pages.calls(page):
        if name not in adaclip_tf.__all__:
            continue
        parameters = inspect.signature(getattr(adaclip_tf, name)).parameters.values()
        by_name = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
        places = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
        assert set(named) <= by_name or open_ended, (name, set(named) - by_name)
        assert positional <= places or any(p.kind is p.VAR_POSITIONAL for p in parameters), name


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(set(pages.pages()) - ELSEWHERE - {DISTRIBUTION}))
def test_the_programs_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(accountants, "REGISTERED", dict(accountants.REGISTERED))
    pages.run(page)


@pytest.mark.slow
@pytest.mark.parametrize("block", [1, 2, 3])
def test_the_programs_on_several_devices_run(block, tmp_path):
    """Each in a process of its own: a strategy for several workers must be the first thing that TensorFlow does."""
    assert len(pages.programs(pages.ROOT / DISTRIBUTION)) == 3
    done = subprocess.run(
        [sys.executable, "-m", "tests.project.pages", DISTRIBUTION, str(block)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(pages.ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
