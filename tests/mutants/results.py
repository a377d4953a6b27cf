"""What was found out, kept in a file so that a run that was stopped goes on where it was."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
from typing import Any

from tests.mutants import mutation, sandbox
from tests.mutants.mutation import Mutant

PATH = mutation.ROOT / "docs" / "results" / "mutants.json"
SURVIVED = "survived"
KILLED = (sandbox.ASSERTION, sandbox.ERROR, sandbox.TIMEOUT)


class Results:
    """One entry per mutant, by its identifier.

    An entry counts as long as what it rests on is as it was: the module, the change, and the tests; of a mutant that
    was killed, only the file of the test that killed it. (A change of another module is not noticed: `--afresh`.)
    """

    def __init__(self, path: pathlib.Path):
        self._path = path
        self.entries: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}

    def known(self, mutant: Mutant) -> dict[str, Any] | None:
        """What is known about a mutant, if it is still true."""
        entry = self.entries.get(mutant.identifier)
        if entry is None or entry["basis"] != _basis(mutation.ROOT, mutant, entry.get("killed_by", [])):
            return None
        return entry

    def once_killed_by(self, mutant: Mutant) -> list[str]:
        """The tests that noticed the same change when it was tried last, whatever has changed since."""
        return list(self.entries.get(mutant.identifier, {}).get("killed_by", []))[:1]

    def note(self, root: pathlib.Path, mutant: Mutant, outcome: str, killed_by: list[str], seconds: float) -> None:
        """Keeps what a run on the tests under `root` showed (a copy: the working tree may have changed meanwhile)."""
        self.entries[mutant.identifier] = {
            "kind": mutant.kind,
            "file": mutant.file,
            "change": mutant.change,
            "outcome": outcome,
            "killed_by": killed_by,
            "seconds": round(seconds, 1),
            "basis": _basis(root, mutant, killed_by),
        }
        self.save()

    def forget(self, keep: set[str]) -> None:
        """Drops what is about mutants that there are no more."""
        self.entries = {name: entry for name, entry in self.entries.items() if name in keep}
        self.save()

    def save(self) -> None:
        """All or nothing: a run may be stopped at any time."""
        text = json.dumps(self.entries, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        partial = self._path.with_suffix(".partial")
        partial.write_text(text)
        os.replace(partial, self._path)


def _basis(root: pathlib.Path, mutant: Mutant, killed_by: list[str]) -> str:
    """A digest of the changed module and of the test files that the outcome rests on."""
    digest = hashlib.sha256(mutant.text.encode())
    for file in sorted({test.split("::")[0] for test in killed_by or mutant.tests}):
        path = root / file
        digest.update(path.read_bytes() if path.exists() else b"")
    return digest.hexdigest()[:16]
