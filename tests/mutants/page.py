"""Writes docs/mutants.md from what was found out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.mutants import mutation, sandbox
from tests.mutants.explained import EQUIVALENT, HARMLESS
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
  max), at up to {most} places of each module, drawn by a hash, the same ones in every run. What this page says, it
  says of these places: others were not tried.

Survivors are of three kinds. Of an equivalent one no test could notice anything: the program does the same. A harmless
one does something else, but nothing that privacy, its accounting or any result hangs on: how much memory is used, how
a line is broken. All others are gaps, and say so below. No mistake by hand may survive, for whatever reason.
"""


def write(planned: Sequence[Mutant], results: Results, most: int) -> bool:
    """Writes the page; whether the goal is met: see `_verdict`."""
    rows = {mutant.identifier: (mutant, results.known(mutant)) for mutant in planned}
    by_hand = sum(mutant.kind == mutation.BY_HAND for mutant in planned)
    verdict, met = _verdict(rows)
    head = _HEAD.format(by_hand=by_hand, most=most)
    PATH.write_text("\n".join([head, verdict, _table(rows), _survivors(rows), _adding()]))
    return met


def _verdict(rows) -> tuple[str, bool]:
    """What came of it, in words; whether all were tried, 95 % of those that are not equivalent killed, no gap left."""
    done = {name: entry for name, (_, entry) in rows.items() if entry is not None}
    survivors = {name for name, entry in done.items() if not _killed(entry)}
    equivalent, harmless = survivors & EQUIVALENT.keys(), survivors & HARMLESS.keys()
    gaps = survivors - equivalent - harmless
    gaps |= {name for name in survivors if rows[name][0].kind == mutation.BY_HAND}
    missing = len(rows) - len(done)
    killed, score = len(done) - len(survivors), _score(done)
    met = not missing and not gaps and score >= GOAL
    lines = [
        f"- Killed: {killed} of {len(done)}, {100 * killed / max(len(done), 1):.1f} % of all that were tried.",
        f"- Killed of those that are not equivalent: {killed} of {len(done) - len(equivalent)}, {100 * score:.1f} %. "
        f"The goal is {100 * GOAL:.0f} %.",
        f"- Survivors: {len(survivors)}. Equivalent: {len(equivalent)}; harmless: {len(harmless)}; gaps: {len(gaps)}.",
        f"- Not tried, or to be tried again since the code or its tests have changed: {missing}.",
        f"- The goal, with no gap and nothing left untried, is {'met' if met else 'NOT met'}.",
    ]
    return "\n".join(lines) + "\n", met


def _killed(entry: dict[str, Any]) -> bool:
    return entry["outcome"] in KILLED


def _score(done: Mapping[str, dict[str, Any]]) -> float:
    """Killed, of those that are not equivalent."""
    killed = sum(map(_killed, done.values()))
    return killed / max(killed + sum(not _killed(e) and name not in EQUIVALENT for name, e in done.items()), 1)


def _cell(entries: Sequence[dict[str, Any] | None]) -> str:
    done = [entry for entry in entries if entry is not None]
    if not entries:
        return ""
    missing = f", {len(entries) - len(done)} not run" if len(done) < len(entries) else ""
    return f"{sum(map(_killed, done))} of {len(done)}{missing}"


def _table(rows) -> str:
    lines = [
        "| module | by hand, killed | by tool, killed | of all | of those not equivalent |",
        "|---|---|---|---|---|",
    ]
    for file in [*MODULES, None]:
        chosen = [(mutant, entry) for mutant, entry in rows.values() if file in (None, mutant.file)]
        if not chosen:
            continue
        kinds = [[e for m, e in chosen if m.kind == kind] for kind in (mutation.BY_HAND, mutation.BY_TOOL)]
        done = {mutant.identifier: entry for mutant, entry in chosen if entry is not None}
        # Of a part rates would flatter: survivors are what a changed test makes try again.
        whole = len(done) == len(chosen)
        rates = (sum(map(_killed, done.values())) / max(len(done), 1), _score(done))
        of_all, score = (f"{100 * rate:.1f} %" if whole else "not all run" for rate in rates)
        name = "all" if file is None else f"`{file}`"
        lines.append(f"| {name} | {_cell(kinds[0])} | {_cell(kinds[1])} | {of_all} | {score} |")
    return "\n".join(lines) + "\n"


def _survivors(rows) -> str:
    lines = ["## Survivors", ""]
    for name, (mutant, entry) in rows.items():
        if entry is not None and not _killed(entry):
            reason = "**A gap: write a test, or say why none can fail.**"
            for kind, reasons in (("Equivalent", EQUIVALENT), ("Harmless", HARMLESS)):
                reason = f"{kind}: {reasons[name]}" if name in reasons else reason
            how = "could not be run" if entry["outcome"] == sandbox.BROKEN else "survived"
            lines.append(f"- `{name}` {how}: `{mutant.change.replace('`', chr(39))}`. {reason}")
    return "\n".join(lines if len(lines) > 2 else [*lines, "None."]) + "\n"


def _adding() -> str:
    return """## To add one

- A module: a line in `MODULES` (`tests/mutants/modules.py`), with its tests, quick ones first.
- A mistake: a `Mutation` in one of `tests/mutants/mistakes_*.py`: a text that occurs in the module once, what to put
  in its place, and the tests that must fail.
  `tests/mutants/mutation_test.py` says at once if the text is gone or a test is.
- An explanation: the identifier and a sentence in `tests/mutants/explained.py`, as equivalent or as harmless.

`python -m tests.mutants --only gradients/ghost/terms.py` tries one module, `--only flower` a folder, `--per-module 40`
more places, `--list` lists what would be tried, `--afresh` forgets what was found out. Killed runs go on where they
were: results are in `docs/results/mutants.json`. Flower's modules need its own environment, as `make mutants` has it.
"""
