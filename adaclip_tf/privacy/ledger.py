"""`Ledger`: a file that remembers what was spent on one data set, over all phases, programs and restarts.

    budget = PrivacyBudget(..., ledger="private/ledger.json")         # on every training on this data
    Ledger("private/ledger.json").add("pca", pca.event)                # for all else that looked at it
    python -m adaclip_tf.privacy --ledger=private/ledger.json --delta=1e-5

Epsilon is then that of everything in the file together. One ledger belongs to one data set.

Phases. An optimizer draws a random phase with its state, which is saved and restored with it (`past_steps`). So a
restored optimizer goes on with its phase, and whatever has no such state (a new optimizer after layers were frozen,
weights that were loaded alone, another program) is a new phase, which adds to all earlier ones. That is always safe.

Written before it is spent. A step is reserved before it is taken, in a file that is synced to the disk and replaced in
one rename. A run that ends settles at the steps that it took, so that stopping and resuming costs exactly what one run
costs. A run that is killed leaves its reservation, at most `BLOCK` steps ahead, and those count as spent: they may
have been taken, and seen, in a checkpoint, a log or by someone at the screen. What a resumed run then takes again
comes on top, since it is noised again: both draws could have been seen.

| the optimizer's count is   | then                                                                                    |
|----------------------------|-----------------------------------------------------------------------------------------|
| where the phase stopped    | it goes on                                                                              |
| ahead of it                | it goes on; the steps that were taken without a ledger are added                        |
| behind, and it was killed  | it goes on; all that had been reserved stays paid                                       |
| behind, and it had ended   | refused: the state is an old one, and what came after it is known to exist. With        |
|                            | `new_phase=True` it goes on as a new phase, on top of what the ledger holds             |

With shuffled batches a run that is broken off within an epoch has begun that epoch, and counts it whole.

One file has one ledger, by whatever name: symbolic links are followed, hard ones refused, and a path holds when the
program changes its folder.

The lock. While a program trains, it holds `<path>.lock` (by `flock`: free when the process ends), and others that want
to write are refused; anyone may read. Workers of one training would all write: they are refused too.
"""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from typing import Any

import dp_accounting

from adaclip_tf._internal import files, locking, validate
from adaclip_tf.privacy import accountants, event_json
from adaclip_tf.privacy import epsilon as epsilon_lib
from adaclip_tf.privacy.mechanism import Mechanism

FORMAT, VERSION = "adaclip_tf.privacy.ledger", 1
BLOCK = 100  # steps that are reserved at a time
_WRITING = threading.RLock()  # from reading to writing: the lock of the file is one for all threads of a process


@dataclasses.dataclass(frozen=True)
class Phase:
    """Steps of one optimizer. `start` and `reserved` are counts of the optimizer's, of its last run in this phase."""

    id: str
    optimizer: str
    mechanism: Mechanism
    paid: int = 0  # steps of the runs before the last one
    start: int = 0
    reserved: int = 0
    open: bool = False  # a run that has not ended, or was killed

    def __post_init__(self):
        if not isinstance(self.id, str) or not self.id or not isinstance(self.optimizer, str):
            raise ValueError(f"a phase whose name is {self.id!r} of {self.optimizer!r}")
        for name in ("paid", "start", "reserved"):
            if getattr(self, name) != 0:
                validate.positive_integer(name, getattr(self, name))
        validate.boolean("open", self.open)
        if self.reserved < self.start:
            raise ValueError(f"a phase that began at step {self.start} and ended at {self.reserved}")

    @property
    def steps(self) -> int:
        """Noised steps that are paid for."""
        return self.paid + self.reserved - self.start

    @property
    def event(self) -> dp_accounting.DpEvent:
        """Of all these steps."""
        return self.mechanism.event(steps=self.steps) if self.steps else dp_accounting.NoOpDpEvent()

    def resumed(self, count: int) -> Phase:
        """The phase with a run that goes on where the optimizer has taken `count` steps."""
        paid = self.steps
        if self.mechanism.sampling == "shuffled":  # an epoch that was begun is an epoch
            paid = self.mechanism.releases(paid) * self.mechanism.shortest_epoch
        start = min(count, self.reserved)
        return dataclasses.replace(self, paid=paid, start=start, reserved=max(count, start), open=True)


@dataclasses.dataclass(frozen=True)
class Release:
    """Something else that looked at the data: an event, and of which phase it was the `other_event`, if of one."""

    name: str
    event: dp_accounting.DpEvent
    phase: str | None = None


class Ledger:
    """What was spent on one data set, in a JSON file.

    Example:
      >>> ledger = Ledger(path)
      >>> ledger.add("pca", gaussian_event(8.0))
      >>> round(ledger.epsilon(delta=1e-5), 3)
      0.478

    Args:
      path: of the file, which need not exist yet.
    """

    def __init__(self, path: str | os.PathLike[str]):
        # The file itself: a link would be replaced by a ledger of its own, and "here" may be elsewhere tomorrow.
        self.path = os.path.realpath(validate.path("ledger", path))
        self.lock_path = f"{self.path}.lock"
        self.read()  # a damaged file is told now

    def read(self) -> tuple[tuple[Phase, ...], tuple[Release, ...]]:
        """Phases and other releases, as the file holds them now; none where there is no file."""
        try:
            with open(self.path, encoding="utf-8") as file:
                text = file.read()
        except FileNotFoundError:
            return (), ()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"`ledger`={self.path!r} can't be read: {error}.") from error
        try:
            return _parse(text)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"`ledger`={self.path!r} is damaged, or no ledger of this version: {error}. It was left as it is. Put "
                "back a copy; a new one forgets what was spent."
            ) from error

    def add(self, name: str, event: dp_accounting.DpEvent) -> None:
        """Writes down a release, such as `PrivatePCA(...).event`. Each call is one more: call it once for each."""
        if not isinstance(name, str) or not name:
            raise ValueError(f"`name` must say what was released, e.g. 'pca'; got {name!r}.")
        if not isinstance(event, dp_accounting.DpEvent):
            raise ValueError(
                f"`event` must be a `dp_accounting.DpEvent`, such as `PrivatePCA(...).event`; got {event!r}."
            )
        self.release(Release(name, event))

    def event(self, without: str | None = None) -> dp_accounting.DpEvent:
        """All that the file holds as one event; `without` leaves out one phase."""
        phases, releases = self.read()
        parts = [release.event for release in releases]
        parts += [phase.event for phase in phases if phase.id != without and phase.steps]
        return dp_accounting.ComposedDpEvent(parts) if parts else dp_accounting.NoOpDpEvent()

    def epsilon(
        self, *, delta: float, accountant: epsilon_lib.AccountantName = "rdp", examples_per_user: int = 1
    ) -> float:
        """The epsilon of all that the file holds, at `delta`."""
        return epsilon_lib.epsilon_of(
            self.event(), delta=delta, accountant=accountant, examples_per_user=examples_per_user
        )

    def describe(self, *, delta: float) -> str:
        """The file in words, a line for each entry, with the epsilon of all together."""
        phases, releases = self.read()
        lines = [f"What was spent on this data, by {self.path}:"]
        lines += [f"  {release.name}: {release.event}" for release in releases]
        for phase in phases:
            step, state = phase.mechanism, " (running, or killed: up to its reservation)" if phase.open else ""
            lines.append(
                f"  {phase.optimizer} {phase.id[:8]}: {phase.steps:,} steps, z = {step.noise_multiplier:g}, n = "
                f"{step.num_examples:,}, B = {step.batch_size:,}, {step.sampling}, sensitivity "
                f"{step.microbatch_sensitivity:g}{state}"
            )
        for name in accountants.names():
            try:
                value = f"{self.epsilon(delta=delta, accountant=name):.4f}"
            except ValueError as error:  # one that does not know a kind of event
                value = f"not known. {error}"
            lines.append(f"epsilon at delta = {delta:g} of all together, by {name.upper()}: {value}")
        return "\n".join(lines) + "\n"

    # -----------------------------------------------------------------------------------------------
    # For those who write.

    def locked(self) -> Any:
        """The lock, for a `with` block."""
        return locking.held(self.lock_path)

    def write(self, phases: tuple[Phase, ...], releases: tuple[Release, ...]) -> None:
        """Replaces the file by a new one. The caller must hold the lock."""
        text = json.dumps(
            {
                "format": FORMAT,
                "version": VERSION,
                "releases": [{"name": r.name, "phase": r.phase, "event": event_json.dump(r.event)} for r in releases],
                "phases": [dataclasses.asdict(phase) for phase in phases],
            },
            indent=1,
            allow_nan=False,
        )
        self._check_one_name()
        if _parse(text) != (phases, releases):  # what can't be read back must not take the place of what can
            raise ValueError(f"`ledger`={self.path!r} can't hold {releases[-1:]} exactly.")
        with files.replacing(self.path) as file:
            file.write(f"{text}\n".encode())

    def _check_one_name(self) -> None:
        """A new file takes the place of the old one under one name: under another it would stay what it is."""
        names = os.stat(self.path).st_nlink if os.path.exists(self.path) else 1
        if names > 1:
            raise ValueError(
                f"`ledger`={self.path!r} is one of {names} names of one file (hard links), and would become a ledger "
                "of its own, apart from what is written under the others. Keep one name: remove the others, or make "
                "them symbolic links, which are followed. For a backup make a copy."
            )

    def release(self, release: Release) -> None:
        """Writes `release` behind the others."""
        with self.locked(), _WRITING:
            phases, releases = self.read()
            self.write(phases, (*releases, release))

    def stamp(self) -> tuple[int, ...]:
        """Another one after each writing: every writing is a new file that takes the place of the old one."""
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise ValueError(
                f"`ledger`={self.path!r} was there, and can't be found now: {error}. What it held is not known without "
                "it. Put it back, as from a copy; a new one forgets what was spent."
            ) from error
        return found.st_ino, found.st_mtime_ns, found.st_size

    def replace(self, phase: Phase) -> None:
        """Writes `phase` instead of the one with its name, or as a new one."""
        with _WRITING:
            phases, releases = self.read()
            others = tuple(other for other in phases if other.id != phase.id)
            self.write((*others, phase), releases)


def _parse(text: str) -> tuple[tuple[Phase, ...], tuple[Release, ...]]:
    found = json.loads(text)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT!r}")
    if found.get("version") != VERSION:
        raise ValueError(f"its version is {found.get('version')!r} and not {VERSION}")
    releases = tuple(Release(_name(r["name"]), event_json.load(r["event"]), r["phase"]) for r in found["releases"])
    phases = tuple(Phase(**{**phase, "mechanism": Mechanism(**phase["mechanism"])}) for phase in found["phases"])
    if len({phase.id for phase in phases}) != len(phases):
        raise ValueError("a phase is in it twice")
    return phases, releases


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a release whose name is {value!r}")
    return value
