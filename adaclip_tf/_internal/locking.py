"""A lock that one process holds at a time, and that is free again when the process ends, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import threading
from collections.abc import Iterator

_HELD: dict[str, tuple[int, int]] = {}  # path -> (file descriptor, how often)
_GUARD = threading.Lock()


class LockedError(RuntimeError):
    """Another process holds the lock."""


def acquire(path: str | os.PathLike[str]) -> None:
    """Takes the lock file `path`, which is made if need be, or raises `LockedError`. A process may take it twice."""
    path = os.path.realpath(path)
    with _GUARD:
        descriptor, times = _HELD.get(path, (-1, 0))
        if not times:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                holder = os.read(descriptor, 200).decode(errors="replace").strip() or "unknown"
                os.close(descriptor)
                raise LockedError(f"{path!r} is held by another program: {holder}") from error
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        _HELD[path] = (descriptor, times + 1)


def release(path: str | os.PathLike[str]) -> None:
    """Gives back what one `acquire` took."""
    path = os.path.realpath(path)
    with _GUARD:
        descriptor, times = _HELD.pop(path)
        if times > 1:
            _HELD[path] = (descriptor, times - 1)
        else:
            os.close(descriptor)  # the file stays: to remove it would open a gap


@contextlib.contextmanager
def held(path: str | os.PathLike[str]) -> Iterator[None]:
    """The lock, for the time of a `with` block."""
    acquire(path)
    try:
        yield
    finally:
        release(path)


def _forget_in_child() -> None:
    """A forked child shares the descriptor, and with it the lock; it holds neither."""
    for descriptor, _ in _HELD.values():
        os.close(descriptor)
    _HELD.clear()


os.register_at_fork(after_in_child=_forget_in_child)
