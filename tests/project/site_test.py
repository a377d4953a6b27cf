"""The documentation site without MkDocs: navigation, links, anchors and the reference. `make docs` builds it."""

import ast
import os
import pathlib
import re

import pytest

import adaclip_tf
from adaclip_tf import core
from tests.project import pages

ROOT, DOCS = pages.ROOT, pages.DOCS
SNIPPET = re.compile(r'^--8<-- "(.+)"$', flags=re.MULTILINE)
WRITTEN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
EVERY = sorted([*WRITTEN, *DOCS.rglob("*.md")])


def text_of(page: pathlib.Path) -> str:
    """A page with the files that it takes in."""
    return SNIPPET.sub(lambda found: (ROOT / found.group(1)).read_text(), page.read_text())


def without_code(text: str) -> str:
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "`code`", re.sub(r"^    .*$", "", text, flags=re.MULTILINE))


def links(page: pathlib.Path) -> list[str]:
    text = without_code(text_of(page))
    return re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'src="([^"]+)"', text)


def anchors(page: pathlib.Path) -> set[str]:
    """Of headings, as MkDocs and repository pages make them, and of what the reference shows."""
    text = re.sub(r"^```.*?^```", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    found = {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}
    for shown in re.findall(r"^::: ([\w.]+)$", text, flags=re.MULTILINE):
        found |= {shown} | ({f"{shown}.{name}" for name in core.__all__} if shown == "adaclip_tf.core" else set())
    return found


@pytest.mark.parametrize("page", EVERY, ids=[page.relative_to(ROOT).as_posix() for page in EVERY])
def test_the_links_of_a_page_lead_somewhere(page):
    for link in links(page):
        if re.match(r"https?:|mailto:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
        inside = os.path.commonpath([target, DOCS]) == str(DOCS)
        assert inside or not page.is_relative_to(DOCS), f"{link} leaves the site"


def test_the_navigation_names_every_page_once():
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = re.findall(r": ([\w/]+\.md)$", navigation, flags=re.MULTILINE)
    assert sorted(named) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


GUIDES = [
    *(DOCS / "guides").glob("*.md"),
    *(DOCS / f"{name}.md" for name in ("tutorial", "distribution", "tensorboard")),
]


@pytest.mark.parametrize("page", sorted(GUIDES), ids=lambda page: page.stem)
def test_guides_say_where_to_find_what_the_package_does_not_have(page):
    """Programs of `examples/` and `benchmarks/` are not installed with the library."""
    text = page.read_text()
    assert "clone" in text or not re.search(
        r"-m (?:examples|benchmarks|configs)\b|\bmake (?:demo|bench|tabular)\b", text
    )


def test_the_reference_has_every_public_name_once():
    shown = []
    for page in (DOCS / "reference").glob("*.md"):
        shown += re.findall(r"^::: adaclip_tf\.(\w+)$", page.read_text(), flags=re.MULTILINE)
    assert sorted(shown) == sorted([*adaclip_tf.__all__, "core"])


def test_pages_that_are_other_files_take_in_what_is_there():
    taken = {found for page in DOCS.glob("*.md") for found in SNIPPET.findall(page.read_text())}
    assert taken == {"CONTRIBUTING.md", "CHANGELOG.md"}


def test_the_site_tools_have_a_lock_of_their_own():
    """`make docs` does not touch the environments that the tests run in."""
    for lock in ("keras2", "keras3"):
        assert "mkdocs" not in (ROOT / "requirements" / f"{lock}.lock").read_text()
    docs = (ROOT / "requirements" / "docs.lock").read_text()
    assert {"mkdocs", "mkdocs-material", "mkdocstrings"} <= set(re.findall(r"^([\w-]+)==", docs, flags=re.MULTILINE))
    assert "tensorflow==" not in docs


def test_examples_in_docstrings_are_fenced():
    """tools/griffe_doctests.py, whose import needs what is in the lock of the site: its one function by itself."""
    tree = ast.parse((ROOT / "tools" / "griffe_doctests.py").read_text())
    (fence,) = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    names: dict = {}
    exec(compile(ast.Module([fence], []), "griffe_doctests", "exec"), names)
    assert names["fence"]("a\n>>> 1\n1\n\nb") == "a\n\n```pycon\n>>> 1\n1\n```\n\nb"
    assert names["fence"]("  >>> 1") == "\n  ```pycon\n  >>> 1\n  ```"
    assert names["fence"]("no example") == "no example"
