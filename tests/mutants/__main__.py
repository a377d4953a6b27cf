"""Tries every mutant and writes docs/mutants.md: see there.

python -m tests.mutants                             # all of them (also: make mutants), hours; goes on after a stop
python -m tests.mutants --only core/rules.py flower --per-module 40
python -m tests.mutants --list
"""

from __future__ import annotations

import argparse
import pathlib
import signal
import sys
from collections.abc import Iterable

from tests.mutants import mistakes, mutation, page, results, sandbox
from tests.mutants.modules import MODULES
from tests.mutants.mutation import Mutant

_SLOWEST = 900.0  # seconds that no selection of tests may take


def main(arguments: list[str] | None = None) -> int:
    options = _parsed(arguments)
    planned = plan(options.per_module, options.seed, by_tool=not options.by_hand)
    chosen = [mutant for mutant in planned if not options.only or {mutant.file, _room(mutant)} & set(options.only)]
    if options.list:
        print("\n".join(f"{mutant.identifier}\n    {mutant.change}" for mutant in chosen))
        return 0
    found = results.Results(options.results)
    pending = [mutant for mutant in chosen if options.afresh or found.known(mutant) is None]
    if options.page:
        pending = []
    print(f"{len(pending)} of {len(chosen)} mutants to try.", flush=True)
    if pending:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the copy and the tests go too
        sandbox.warm_up()
        with sandbox.copied() as folder:
            _try_all(folder, pending, found)
    if options.by_hand:
        return 0 if all(_is_killed(found, mutant) for mutant in chosen) else 1
    if not options.only:
        found.forget({mutant.identifier for mutant in planned})
    met = page.write(planned, found, options.per_module)
    print(f"{page.PATH}: the goal is {'met' if met else 'NOT met, or not all were tried'}.")
    return 0 if met or (options.only and all(found.known(mutant) for mutant in chosen)) else 1


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.splitlines()[0])
    names = sorted({*MODULES, *(file.partition("/")[0] for file in MODULES)})
    parser.add_argument("--only", nargs="+", metavar="MODULE", choices=names, help="such as core/rules.py, or flower")
    parser.add_argument("--per-module", type=int, default=4, help="how many mutants by tool a module gets")
    parser.add_argument("--seed", type=int, default=14, help="draws other places")
    parser.add_argument("--by-hand", action="store_true", help="the written mistakes alone, and no page")
    parser.add_argument("--results", type=pathlib.Path, default=results.PATH)
    parser.add_argument("--afresh", action="store_true", help="try again what is known")
    parser.add_argument("--page", action="store_true", help="try nothing, write the page from what is known")
    parser.add_argument("--list", action="store_true", help="say what would be tried, and stop")
    return parser.parse_args(arguments)


def plan(per_module: int, seed: int, by_tool: bool = True) -> list[Mutant]:
    """Every mutant, in the order of the table of modules."""
    written = [mutation.as_mutant(mistake) for mistake in mistakes.MISTAKES]
    planned: list[Mutant] = []
    for file, tests in MODULES.items():
        planned += [mutant for mutant in written if mutant.file == file]
        if by_tool:
            from tests.mutants import automatic  # needs cosmic-ray

            planned += automatic.mutants(file, tests, per_module, seed)
    return planned


def _try_all(folder: pathlib.Path, pending: list[Mutant], found: results.Results) -> None:
    usual = _Usual(folder, {mutant.identifier: _quickest(mutant, found) for mutant in pending})
    for number, mutant in enumerate(pending, 1):
        outcome = _outcome(folder, mutant, usual)
        if outcome is None:
            continue  # nothing can be said about it; the page says that it was not run
        verdict = outcome.how if mutant.kind == mutation.BY_TOOL else _verdict_by_hand(mutant, outcome)
        verdict = results.SURVIVED if verdict == sandbox.PASSED else verdict
        killed_by = list(outcome.failed) if verdict in results.KILLED else []
        found.note(folder, mutant, verdict, killed_by, outcome.seconds)
        print(f"{number}/{len(pending)} {verdict:9} {outcome.seconds:5.1f} s  {mutant.identifier}", flush=True)


def _quickest(mutant: Mutant, found: results.Results) -> list[str]:
    """What to run first: all that a written mistake names; the test that noticed a change when it was tried last."""
    return list(mutant.tests) if mutant.kind == mutation.BY_HAND else found.once_killed_by(mutant)


def _outcome(folder: pathlib.Path, mutant: Mutant, usual: _Usual) -> sandbox.Outcome | None:
    """Of all tests that are named, or up to the first that fails; None where they fail without a mistake, too."""
    by_hand = mutant.kind == mutation.BY_HAND
    quickest = usual.quickest(mutant)
    if quickest is not None:
        tests, seconds = quickest
        outcome = sandbox.run(folder, mutant.file, mutant.text, tests, 3.0 * seconds + 30.0, stop=not by_hand)
        if by_hand or set(outcome.failed) & set(tests):
            return outcome
    seconds_of_all = None if by_hand else usual.seconds(mutant.tests)
    if seconds_of_all is None:
        return None
    return sandbox.run(folder, mutant.file, mutant.text, mutant.tests, 3.0 * seconds_of_all + 30.0)


def _verdict_by_hand(mutant: Mutant, outcome: sandbox.Outcome) -> str:
    """ASSERTION if every test that is named failed by what it asserts."""
    if outcome.how == sandbox.TIMEOUT:
        return sandbox.BROKEN  # a mistake that hangs is not the one that was meant
    for test in mutant.tests:
        hows = [how for name, how in outcome.failed.items() if name == test or name.startswith(f"{test}[")]
        if sandbox.ASSERTION not in hows:
            print(f"  {test} did not notice: {outcome.output[-600:]}")
            return sandbox.BROKEN if hows or outcome.how == sandbox.BROKEN else results.SURVIVED
    return sandbox.ASSERTION


class _Usual:
    """How long tests take on the library as it is, where they must pass. Each is run once, a file at a time.

    Args:
      folder: the copy.
      first: the tests that each mutant is tried against first, by its identifier; some have none.
    """

    def __init__(self, folder: pathlib.Path, first: dict[str, list[str]]):
        self._folder, self._first = folder, first
        self._by_file: dict[str, set[str]] = {}
        for test in (test for tests in first.values() for test in tests):
            self._by_file.setdefault(_file(test), set()).add(test)
        self._seconds: dict[tuple[str, ...], float | None] = {}

    def quickest(self, mutant: Mutant) -> tuple[list[str], float] | None:
        """What a mutant is tried against first, and how long that takes; None where there is no such thing."""
        tests = self._first[mutant.identifier]
        groups = {tuple(sorted(self._by_file[_file(test)])) for test in tests}
        seconds = self._of(groups) if groups else None
        return None if seconds is None else (tests, seconds)

    def seconds(self, tests: Iterable[str]) -> float | None:
        return self._of({(test,) for test in tests})

    def _of(self, groups: set[tuple[str, ...]]) -> float | None:
        found = [self._of_one(group) for group in sorted(groups)]
        return None if None in found else sum(seconds for seconds in found if seconds is not None)

    def _of_one(self, tests: tuple[str, ...]) -> float | None:
        if tests not in self._seconds:
            file = next(iter(MODULES))
            outcome = sandbox.run(self._folder, file, mutation.source(file), tests, _SLOWEST, stop=False)
            self._seconds[tests] = outcome.seconds if outcome.how == sandbox.PASSED else None
            print(f"{_file(tests[0])} without a mistake: {outcome.how}, {outcome.ran} tests, {outcome.seconds:.0f} s.")
            if outcome.how != sandbox.PASSED:
                print(f"{outcome.failed}\n{outcome.output}", flush=True)
        return self._seconds[tests]


def _file(test: str) -> str:
    return test.partition("::")[0]


def _room(mutant: Mutant) -> str:
    return mutant.file.partition("/")[0]


def _is_killed(found: results.Results, mutant: Mutant) -> bool:
    entry = found.known(mutant)
    return entry is not None and entry["outcome"] in results.KILLED


if __name__ == "__main__":
    sys.exit(main())
