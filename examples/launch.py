"""Starts several workers of a program on this machine, for MultiWorkerMirroredStrategy.

    python -m examples.launch --workers=2 -- -m examples.train --strategy=multi_worker --workdir=runs/two

What follows `--` is given to Python, once per worker, with a TF_CONFIG that names all workers on free ports of the
loopback. Worker 0 prints here; the others print to files in `--logs`, or here as well.

If a worker dies, the others wait for it in an all-reduce that can't end, so all are stopped. With
`--restarts` they are started anew, on new ports: a program that keeps backups (`tf.keras.callbacks.BackupAndRestore`)
goes on where the last one was made.
"""

from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from absl import app, flags, logging

_WORKERS = flags.DEFINE_integer("workers", 2, "How many processes.", lower_bound=1)
_RESTARTS = flags.DEFINE_integer("restarts", 0, "How many times to start all anew when one fails.", lower_bound=0)
_LOGS = flags.DEFINE_string("logs", None, "Folder for what workers 1, 2, ... print; None prints it here.")
_POLL_SECONDS = 0.2
_GRACE_SECONDS = 5.0


def launch(
    arguments: Sequence[str],
    workers: int,
    *,
    restarts: int = 0,
    log_dir: str | os.PathLike[str] | None = None,
    started: Callable[[list[subprocess.Popen]], None] = lambda processes: None,
) -> int:
    """Runs `python *arguments` as `workers` processes until all are done. Returns 0, or the code of one that failed.

    Args:
      arguments: for Python, such as ["-m", "examples.train"].
      workers: how many processes.
      restarts: how many times all are started anew when one fails.
      log_dir: where workers 1, 2, ... print to, as worker_<number>.log; here if None.
      started: called with the processes whenever they were started.
    """
    for attempt in range(restarts + 1):
        processes = _start(arguments, workers, log_dir)
        try:
            started(processes)
            code = _wait(processes)
        finally:
            _stop(processes)
        if code == 0:
            return 0
        logging.warning("A worker ended with code %d; restarts left: %d.", code, restarts - attempt)
    return code


def tf_config(ports: Sequence[int], index: int) -> str:
    """TF_CONFIG of worker `index`: all workers on this machine, the first of them the chief."""
    addresses = [f"localhost:{port}" for port in ports]
    return json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("localhost", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _start(arguments, workers, log_dir) -> list[subprocess.Popen]:
    ports = free_ports(workers)
    processes = []
    for index in range(workers):
        environment = {**os.environ, "TF_CONFIG": tf_config(ports, index)}
        output = None
        if index and log_dir is not None:
            pathlib.Path(log_dir).mkdir(parents=True, exist_ok=True)
            output = open(pathlib.Path(log_dir) / f"worker_{index}.log", "a")  # noqa: SIM115
        processes.append(subprocess.Popen([sys.executable, *arguments], env=environment, stdout=output, stderr=output))
        if output is not None:
            output.close()  # the process has it
    return processes


def _wait(processes: Sequence[subprocess.Popen]) -> int:
    """0 once all have ended well, or the code of the first that has not."""
    while True:
        codes = [process.poll() for process in processes]
        for code in codes:
            if code:
                return code
        if all(code == 0 for code in codes):
            return 0
        time.sleep(_POLL_SECONDS)


def _stop(processes: Sequence[subprocess.Popen]) -> None:
    """Ends those that still run: kindly at first."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.terminate()
    for process in running:
        try:
            process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main(argv):
    arguments = argv[1:]
    if not arguments:
        raise app.UsageError("say what to run, after `--`: `-m examples.train --strategy=multi_worker`, say.")
    code = launch(arguments, _WORKERS.value, restarts=_RESTARTS.value, log_dir=_LOGS.value)
    if code:
        sys.exit(code if code > 0 else 128 - code)  # as a shell does: 137 for one that was killed


if __name__ == "__main__":
    app.run(main)
