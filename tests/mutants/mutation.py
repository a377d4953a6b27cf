"""What a mutant is: a mistake that someone wrote down, or one that a tool made."""

from __future__ import annotations

import pathlib
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = "adaclip_tf"


class Mutation(NamedTuple):
    """A mistake that someone could make, and who notices: written by hand."""

    name: str
    file: str  # inside adaclip_tf
    old: str  # occurs in the file exactly once
    new: str
    caught_by: tuple[str, ...]  # each of these tests must fail, by what it asserts


class Mutant(NamedTuple):
    """One changed module, ready to be tried: by hand or by the tool."""

    identifier: str  # the same from run to run, and while the code around it changes
    kind: str  # BY_HAND or BY_TOOL
    file: str
    change: str  # for the page
    text: str  # the whole module, changed
    tests: tuple[str, ...]


BY_HAND, BY_TOOL = "by hand", "by tool"


def source(file: str) -> str:
    """The text of a module as it is now."""
    return (ROOT / PACKAGE / file).read_text()


def patched(mutation: Mutation) -> str:
    """The module with the mistake in it. A patch that no longer applies fails loudly."""
    text = source(mutation.file)
    count = text.count(mutation.old)
    if count != 1:
        raise ValueError(
            f"{mutation.name!r}: the patch of {mutation.file} applies {count} times, not once. Write it anew for the "
            f"code as it is: {mutation.old!r}"
        )
    return text.replace(mutation.old, mutation.new)


def as_mutant(mutation: Mutation) -> Mutant:
    identifier = f"{mutation.file}:{mutation.name}"
    return Mutant(identifier, BY_HAND, mutation.file, mutation.name, patched(mutation), mutation.caught_by)
