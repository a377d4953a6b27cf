"""Runs tests against a changed copy of the library, in a process of their own.

Nothing here ever writes to the working tree: a copy is made once, and one module of it changed at a time.

Importing TensorFlow takes ten seconds, most tests here less. So the parent imports it once, uses nothing of it, and
forks: as long as no op has run there is one thread only, and a child can do all that a new process can.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.mutants import mutation

COPIED = (mutation.PACKAGE, "examples", "benchmarks", "configs", "docs", "tests", "requirements", "tools")
COPIED += ("pyproject.toml", "README.md", "Makefile", "setup.py", "CONTRIBUTING.md", "CHANGELOG.md", "mkdocs.yml")
_OURS = (mutation.PACKAGE, "tests", "examples", "benchmarks", "configs", "tools")
# All of tensorflow-privacy where it can be imported whole; its query where that is all that can be.
_WARM = ("tensorflow", "dp_accounting", "scipy.optimize", "hypothesis", "pytest", "adaclip_tf._internal.dp_query")

PASSED, ASSERTION, ERROR, TIMEOUT, BROKEN = "passed", "assertion", "error", "timeout", "broken"


class Outcome(NamedTuple):
    """How the tests went."""

    how: str  # PASSED; ASSERTION or ERROR: how the first that failed did; TIMEOUT; BROKEN: no test could be run
    failed: dict[str, str]  # test: ASSERTION or ERROR
    ran: int
    seconds: float
    output: str  # the end of what was printed


def warm_up() -> None:
    """Imports what every test needs. Nothing in this process may run an op afterwards."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for name in _WARM:
        importlib.import_module(name)
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        raise RuntimeError(f"{threads} threads after the imports: a fork of this process might hang.")


@contextlib.contextmanager
def copied() -> Iterator[pathlib.Path]:
    """A copy of what the tests read, for as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = pathlib.Path(name)
        for part in COPIED:
            source = mutation.ROOT / part
            if source.is_dir():
                shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():
                shutil.copy(source, folder / part)
        yield folder


def run(folder: pathlib.Path, file: str, text: str, tests: Sequence[str], timeout: float, stop: bool = True) -> Outcome:
    """Runs `tests` with `file` replaced by `text`; up to the first failure, or all of them."""
    path = folder / mutation.PACKAGE / file
    original = path.read_text()
    path.write_text(text)
    try:
        return _forked(folder, tests, timeout, stop)
    finally:
        path.write_text(original)


def _forked(folder: pathlib.Path, tests: Sequence[str], timeout: float, stop: bool) -> Outcome:
    report, log = folder / "outcome.json", folder / "output.txt"
    report.unlink(missing_ok=True)
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            _child(folder, tests, stop, report, log)
        except BaseException:  # the parent's code must not go on in a child
            traceback.print_exc()
        finally:
            os._exit(0)
    done = False
    try:
        done = _wait(child, timeout)
    finally:
        if not done:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what its tests may have left running
    seconds = time.monotonic() - start
    output = log.read_text(errors="replace")[-3000:] if log.exists() else ""
    if not done:
        return Outcome(TIMEOUT, {}, 0, seconds, output)
    if not report.exists():
        return Outcome(ERROR, {}, 0, seconds, output)  # the interpreter itself died
    result = json.loads(report.read_text())
    return Outcome(result["how"], result["failed"], result["ran"], seconds, output)


def _wait(child: int, seconds: float) -> bool:
    """Whether the child ends within so many seconds. What the machine gave to others meanwhile does not count."""
    left, last = seconds, time.monotonic()
    while left > 0.0:
        done, _ = os.waitpid(child, os.WNOHANG)
        if done:
            return True
        time.sleep(0.02)
        now = time.monotonic()
        left, last = left - min(now - last, 0.1), now
    return False


def _child(folder: pathlib.Path, tests: Sequence[str], stop: bool, report: pathlib.Path, log: pathlib.Path) -> None:
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(folder)
    _see_only(folder)
    import pytest

    recorder = _Recorder()
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--tb=line", "--durations-min=1e6"]
    code = pytest.main([*options, *(["-x"] if stop else []), *tests], plugins=[recorder])
    how = next(iter(recorder.failed.values()), PASSED)
    if code not in (0, 1) or recorder.ran == 0:
        how = ERROR if recorder.failed else BROKEN
    home = getattr(sys.modules.get(mutation.PACKAGE), "__file__", None)
    if home is not None and not home.startswith(str(folder)):
        how = BROKEN  # the tests saw another copy
    report.write_text(json.dumps({"how": how, "failed": recorder.failed, "ran": recorder.ran}))


def _see_only(folder: pathlib.Path) -> None:
    """Makes the copy the one that is imported, here and in processes that tests start."""
    for name in [name for name in sys.modules if name.split(".")[0] in _OURS]:
        del sys.modules[name]
    root = mutation.ROOT.resolve()
    sys.path[:] = [str(folder)] + [path for path in sys.path if pathlib.Path(path or ".").resolve() != root]
    sys.dont_write_bytecode = True  # two mutants of one size and one second would look alike to the cache
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ["PYTHONPATH"] = str(folder)
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        del os.environ[name]
    importlib.invalidate_caches()


class _Recorder:
    """A pytest plugin that notes which tests failed, and how."""

    def __init__(self):
        self.failed: dict[str, str] = {}
        self.ran = 0

    def pytest_runtest_makereport(self, item, call):
        if call.when == "call":
            self.ran += 1
        if call.excinfo is None or call.excinfo.typename == "Skipped":
            return
        asserted = call.when == "call" and call.excinfo.typename in ("AssertionError", "Failed")
        self.failed.setdefault(item.nodeid, ASSERTION if asserted else ERROR)

    def pytest_collectreport(self, report):
        if report.failed:
            self.failed.setdefault(report.nodeid, ERROR)
