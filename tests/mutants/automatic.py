"""Mutants that cosmic-ray makes: every place of a module where one can be, and a sample of them.

The sample is the same from run to run. A place is drawn by a hash of its own line, not by its number, so that a change
of the module elsewhere leaves the rest of the sample as it was.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
from collections.abc import Iterator
from typing import NamedTuple

from cosmic_ray import mutating
from cosmic_ray.ast import ast_nodes, get_ast

from tests.mutants import mutation, operators

Position = tuple[int, int]  # line from 1, column from 0


class Place(NamedTuple):
    """One change at one place."""

    position: Position
    operator: str
    occurrence: int  # as cosmic-ray counts


def mutants(file: str, tests: tuple[str, ...], most: int, seed: int) -> list[mutation.Mutant]:
    """A sample of at most `most` mutants of a module, one per place."""
    text = mutation.source(file)
    by_place: dict[Position, list[Place]] = {}
    for place in places(text):
        by_place.setdefault(place.position, []).append(place)
    named = _named(text, list(by_place))
    drawn = sorted(by_place, key=lambda position: _hash(seed, file, named[position]))
    result: list[mutation.Mutant] = []
    for position in drawn:
        if len(result) == most:
            break
        mutant = _first_valid(file, text, by_place[position], named[position], tests, seed)
        if mutant is not None:
            result.append(mutant)
    return sorted(result, key=lambda mutant: mutant.identifier)


def places(text: str) -> Iterator[Place]:
    """Every change that can be made, but in annotations and in texts for people."""
    skipped, signatures = _skipped(text), _signatures(text)
    nodes = list(ast_nodes(get_ast(text)))
    for name, operator in operators.chosen().items():
        occurrence = 0
        for node in nodes:
            for start, _ in operator.mutation_positions(node):
                # To cosmic-ray the star in `def f(x, *, y)` is a product.
                left_alone = skipped + signatures if "BinaryOperator" in name else skipped
                if not any(first <= start < last for first, last in left_alone):
                    yield Place(start, name, occurrence)
                occurrence += 1


def _first_valid(file, text, candidates, name, tests, seed):
    """The first change at a place, in an order by hash, that is Python and not what was there before."""
    for place in sorted(candidates, key=lambda place: _hash(seed, name, place.operator, place.occurrence)):
        changed = mutating.mutate_code(text, operators.chosen()[place.operator], place.occurrence)
        try:
            same = changed is None or ast.dump(ast.parse(changed)) == ast.dump(ast.parse(text))
        except SyntaxError:
            continue
        if not same:
            change = difference(text, changed)
            identifier = f"{file}:{name.split(':')[0]}:{_hash(name, change)[:6]}"
            return mutation.Mutant(identifier, mutation.BY_TOOL, file, change, changed, tests)
    return None


def difference(old: str, new: str) -> str:
    """The lines that differ, as `before` to `after`."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm="")
    changed = [line for line in lines if line[:3] not in ("---", "+++") and line[0] in "+-"]
    before, after = (" ".join(line[1:].strip() for line in changed if line[0] == sign) for sign in "-+")
    return f"{before} → {after}"


def _named(text: str, positions: list[Position]) -> dict[Position, str]:
    """A name for each place: function, line, and which of the places on equal lines it is."""
    functions = list(_functions(ast.parse(text), ""))
    lines = text.splitlines()
    names: dict[Position, str] = {}
    seen: dict[str, int] = {}
    for row, column in sorted(positions):
        inside = [name for name, first, last in functions if first <= row <= last]
        stem = f"{inside[-1] if inside else 'module'}:{lines[row - 1].strip()}"
        seen[stem] = seen.get(stem, -1) + 1
        names[row, column] = f"{stem}:{seen[stem]}"
    return names


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, int, int]]:
    """(qualified name, first line, last line) of every class and function, outer ones first."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            name = f"{prefix}{child.name}"
            yield name, child.lineno, child.end_lineno or child.lineno
            yield from _functions(child, f"{name}.")


def _skipped(text: str) -> list[tuple[Position, Position]]:
    """Where nothing is changed: annotations and messages."""
    found: list[ast.AST] = []
    for node in ast.walk(ast.parse(text)):
        for field in ("annotation", "returns"):
            if getattr(node, field, None) is not None:
                found.append(getattr(node, field))
        if isinstance(node, ast.JoinedStr):
            found.append(node)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("warn", "warning"):
            found += node.keywords  # stacklevel
    return [((n.lineno, n.col_offset), (n.end_lineno, n.end_col_offset)) for n in found]


def _signatures(text: str) -> list[tuple[Position, Position]]:
    """From each `def` to its body."""
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    return [((f.lineno, f.col_offset), (f.body[0].lineno, f.body[0].col_offset)) for f in functions]


def _hash(*parts) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()
