"""The library, broken on purpose: mistakes that would cost privacy, and the tests that notice (`tests/mutants`).

Here the mistakes that were written by hand are kept in order, and in the slow suite tried. `make mutants` tries them
and those that a tool makes, and writes docs/mutants.md.
"""

import ast
import json
import os
import subprocess
import sys

import pytest

from tests.mutants import explained, mistakes, modules, mutation, page, results, sandbox

_NAMES = [mistake.name for mistake in mistakes.MISTAKES]


def _tests_of(path):
    """The test functions of a file, those in classes too, without importing it."""
    tree = ast.parse((mutation.ROOT / path).read_text())
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for owner in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        found |= {f"{owner.name}::{node.name}" for node in owner.body if isinstance(node, ast.FunctionDef)}
    return found


def _missing(test):
    """What is wrong with a test's name, if anything."""
    path, _, function = test.partition("::")
    if not (mutation.ROOT / path).exists():
        return f"no such file: {path}"
    if function and function.partition("[")[0] not in _tests_of(path):
        return f"no such test: {test}"
    return None


@pytest.mark.parametrize("mistake", mistakes.MISTAKES, ids=lambda mistake: mistake.name.replace(" ", "-"))
def test_every_patch_applies_and_its_tests_exist(mistake):
    """Fast, so that whoever changes the code learns of it before `make slow-test`."""
    changed = mutation.patched(mistake)
    before, after = (ast.dump(ast.parse(text)) for text in (mutation.source(mistake.file), changed))
    assert before != after
    assert mistake.file in modules.MODULES
    assert mistake.caught_by
    assert not [wrong for wrong in map(_missing, mistake.caught_by) if wrong]


def test_names_are_unique_and_the_list_is_long():
    assert len(set(_NAMES)) == len(_NAMES) >= 60


def test_a_patch_that_no_longer_applies_is_told():
    with pytest.raises(ValueError, match="applies 0 times"):
        mutation.patched(mistakes.MISTAKES[0]._replace(old="no such text"))
    with pytest.raises(ValueError, match=r"applies [0-9]+ times"):
        mutation.patched(mistakes.MISTAKES[0]._replace(old="e"))


def test_the_table_of_modules_names_files_and_tests_that_exist():
    for file, tests in modules.MODULES.items():
        assert (mutation.ROOT / mutation.PACKAGE / file).exists(), file
        assert not [wrong for wrong in map(_missing, tests) if wrong]


def test_every_explanation_is_of_a_module_in_the_table_and_of_one_kind():
    for reasons in (explained.EQUIVALENT, explained.HARMLESS):
        assert all(name.split(":")[0] in modules.MODULES for name in reasons)
        assert all(reason.endswith(".") for reason in reasons.values())
    assert not explained.EQUIVALENT.keys() & explained.HARMLESS.keys()
    # By hand, nothing is explained away.
    assert not {f"{mistake.file}:{mistake.name}" for mistake in mistakes.MISTAKES} & {
        *explained.EQUIVALENT,
        *explained.HARMLESS,
    }


def _rows(*outcomes):
    """Rows of the page: (name, kind, outcome or None)."""
    return {
        name: (mutation.Mutant(name, kind, "", "", "", ()), outcome and {"outcome": outcome})
        for name, kind, outcome in outcomes
    }


def test_the_verdict_tells_apart_what_survives(monkeypatch):
    """Of 100: 95 killed, 2 equivalent, 3 harmless: 95 % of all, 95 of 98 of those that are not equivalent."""
    monkeypatch.setattr(page, "EQUIVALENT", {"e0": "Same.", "e1": "Same."})
    monkeypatch.setattr(page, "HARMLESS", {"h0": "Memory.", "h1": "Memory.", "h2": "Memory."})
    tool, killed, survived = mutation.BY_TOOL, sandbox.ASSERTION, results.SURVIVED
    right = [(f"k{i}", tool, killed) for i in range(95)]
    right += [(name, tool, survived) for name in ("e0", "e1", "h0", "h1", "h2")]
    words, met = page._verdict(_rows(*right))
    assert met
    assert "95 of 100, 95.0 %" in words and "95 of 98, 96.9 %" in words
    assert "Equivalent: 2; harmless: 3; gaps: 0" in words
    for wrong in (
        ("k0", tool, None),  # not tried
        ("k0", tool, survived),  # not explained
        ("h0", mutation.BY_HAND, survived),  # explained, but by hand
    ):
        assert not page._verdict(_rows(*(wrong if row[0] == wrong[0] else row for row in right)))[1]
    few = [row for row in right if row[0] not in [f"k{i}" for i in range(40)]]  # 55 of 58
    assert not page._verdict(_rows(*few))[1]


def test_results_are_kept_until_what_they_rest_on_changes(tmp_path):
    kept = results.Results(tmp_path / "results.json")
    mutant = mutation.as_mutant(mistakes.MISTAKES[0])
    assert kept.known(mutant) is None
    kept.note(mutation.ROOT, mutant, sandbox.ASSERTION, list(mutant.tests), 1.0)
    again = results.Results(tmp_path / "results.json")
    assert again.known(mutant)["outcome"] == sandbox.ASSERTION
    changed = mutant._replace(text=mutant.text + "\n# changed")
    assert again.known(changed) is None
    assert again.once_killed_by(changed) == list(mutant.tests)[:1]
    again.forget(set())
    assert again.known(mutant) is None
    assert again.once_killed_by(mutant) == []


def test_places_for_the_tool():
    """What the tool changes, and what it leaves alone, on a few lines."""
    pytest.importorskip("cosmic_ray")
    from tests.mutants import automatic, operators

    text = (
        "def f(x: int | None = None, *, axis) -> int | None:\n"
        "    check(x)\n"
        "    if x is None:\n"
        '        raise ValueError(f"not {x + 1}")\n'
        "    return min(x + 2, g(x, axis=axis))\n"
    )
    places = list(automatic.places(text))
    changed = [
        automatic.mutating.mutate_code(text, operators.chosen()[place.operator], place.occurrence) for place in places
    ]
    differences = {automatic.difference(text, code) for code in changed}
    assert "check(x) → pass" in differences
    assert 'raise ValueError(f"not {x + 1}") → pass' in differences
    assert "if x is None: → if x is not None:" in differences
    assert "return min(x + 2, g(x, axis=axis)) → return max(x + 2, g(x, axis=axis))" in differences
    assert "return min(x + 2, g(x, axis=axis)) → return min(x - 2, g(x, axis=axis))" in differences
    assert "return min(x + 2, g(x, axis=axis)) → return min(x + 2, g(x,))" in differences
    assert not [d for d in differences if d.startswith("def ")]  # annotations stay
    assert not [d for d in differences if d.startswith("raise") and not d.endswith("→ pass")]  # messages stay


def test_the_sample_is_the_same_every_time_and_leaves_the_source_alone():
    pytest.importorskip("cosmic_ray")
    from tests.mutants import automatic

    before = mutation.source("core/framework.py")
    one, two = (automatic.mutants("core/framework.py", (), 8, seed=14) for _ in range(2))
    assert one == two
    assert len({mutant.identifier for mutant in one}) == 8
    assert {m.identifier for m in one} < {m.identifier for m in automatic.mutants("core/framework.py", (), 12, seed=14)}
    assert mutation.source("core/framework.py") == before
    assert all(mutant.text != before for mutant in one)


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    """Every mistake that was written down, tried against the tests that it names."""
    path = tmp_path_factory.mktemp("mutants") / "results.json"
    # A process of its own: it forks, which no process that has used TensorFlow can.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "tests.mutants", "--by-hand", "--results", str(path)]
    run = subprocess.run(command, cwd=mutation.ROOT, env=environment, capture_output=True, text=True, check=False)
    assert path.exists(), run.stdout[-3000:] + run.stderr[-3000:]
    return json.loads(path.read_text()), run.stdout[-10000:] + run.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("mistake", mistakes.MISTAKES, ids=lambda mistake: mistake.name.replace(" ", "-"))
def test_each_mistake_is_caught(mistake, tried):
    entries, output = tried
    if mistake.file.startswith("flower/"):
        pytest.importorskip("flwr")
    assert mutation.as_mutant(mistake).identifier in entries, output
    assert entries[mutation.as_mutant(mistake).identifier]["outcome"] == sandbox.ASSERTION, output
