"""Writes docs/mutants.md from what was found out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.mutants import mutation, sandbox
from tests.mutants.explained import EXPLAINED
from tests.mutants.modules import MODULES
from tests.mutants.mutation import Mutant
from tests.mutants.results import KILLED, Results

PATH = mutation.ROOT / "docs" / "mutants.md"
GOAL = 0.95

_HEAD = """# Mutants: would the tests notice?

`make mutants` writes this page; do not edit it. It puts mistakes into copies of the modules that carry the guarantee,
one at a time, and runs the tests that belong to the module (`tests/mutants/modules.py`). A mistake that no test fails
for has survived.

- By hand: {by_hand} mistakes that a person could make and that would cost privacy, its accounting or the result
  (`tests/mutants/mistakes_*.py`). Each names the tests that must fail for it, by what they assert: a crash is not
  enough.
- By tool: cosmic-ray's operators, and four more (a check left out, a `raise` left out, a keyword left out, min for
  max), at up to {most} places of each module, drawn by a hash, the same ones in every run.
"""


def write(planned: Sequence[Mutant], results: Results, most: int) -> bool:
    """Writes the page; whether the goal is met: 95 % killed, every survivor explained, none left out."""
    rows = {mutant.identifier: (mutant, results.known(mutant)) for mutant in planned}
    by_hand = sum(mutant.kind == mutation.BY_HAND for mutant in planned)
    parts = [_HEAD.format(by_hand=by_hand, most=most), _table(rows), _survivors(rows), _adding()]
    PATH.write_text("\n".join(parts))
    done = [entry for _, entry in rows.values() if entry is not None]
    survivors = [name for name, (_, entry) in rows.items() if entry and not _killed(entry)]
    complete = len(done) == len(rows)
    return complete and not set(survivors) - set(EXPLAINED) and _rate(done) >= GOAL


def _killed(entry: dict[str, Any]) -> bool:
    return entry["outcome"] in KILLED


def _rate(entries: Sequence[dict[str, Any]]) -> float:
    return sum(map(_killed, entries)) / max(len(entries), 1)


def _cell(entries: Sequence[dict[str, Any] | None]) -> str:
    done = [entry for entry in entries if entry is not None]
    if not entries:
        return ""
    missing = f", {len(entries) - len(done)} not run" if len(done) < len(entries) else ""
    return f"{sum(map(_killed, done))} of {len(done)}{missing}"


def _table(rows) -> str:
    lines = ["| module | by hand, killed | by tool, killed | rate |", "|---|---|---|---|"]
    for file in [*MODULES, None]:
        chosen = [(mutant, entry) for mutant, entry in rows.values() if file in (None, mutant.file)]
        if not chosen:
            continue
        kinds = [[e for m, e in chosen if m.kind == kind] for kind in (mutation.BY_HAND, mutation.BY_TOOL)]
        done = [entry for _, entry in chosen if entry is not None]
        # Of a part a rate would flatter: survivors are what a changed test makes try again.
        rate = f"{100 * _rate(done):.1f} %" if len(done) == len(chosen) else "not all run"
        name = "all" if file is None else f"`{file}`"
        lines.append(f"| {name} | {_cell(kinds[0])} | {_cell(kinds[1])} | {rate} |")
    return "\n".join(lines) + "\n"


def _survivors(rows) -> str:
    lines = ["## Survivors", ""]
    for name, (mutant, entry) in rows.items():
        if entry is not None and not _killed(entry):
            reason = EXPLAINED.get(name, "**Not explained: write a test, or say why none can fail.**")
            how = "could not be run" if entry["outcome"] == sandbox.BROKEN else "survived"
            lines.append(f"- `{name}` {how}: `{mutant.change.replace('`', chr(39))}`. {reason}")
    return "\n".join(lines if len(lines) > 2 else [*lines, "None."]) + "\n"


def _adding() -> str:
    return """## To add one

- A module: a line in `MODULES` (`tests/mutants/modules.py`), with its tests, quick ones first.
- A mistake: a `Mutation` in one of `tests/mutants/mistakes_*.py`: a text that occurs in the module once, what to put
  in its place, and the tests that must fail.
  `tests/mutants/mutation_test.py` says at once if the text is gone or a test is.
- An explanation: the identifier and a sentence in `tests/mutants/explained.py`, only where no test could fail.

`python -m tests.mutants --only gradients/ghost/terms.py` tries one module, `--list` lists what would be tried,
`--afresh` forgets what was found out. Killed runs go on where they were: results are in `docs/results/mutants.json`.
"""
