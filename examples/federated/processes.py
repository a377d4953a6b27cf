"""The private app on a SuperLink and SuperNodes of Flower's, each a process of this machine.

    python -m examples.federated.processes --clients=4 --rounds=5

Starts `flower-superlink`, one `flower-supernode` for each client, and `flwr run`; ends them when the run has ended. The
app is examples/federated/app: what it learnt, the ledger and all logs are in --folder. Started again with the same
folder, it goes on: kill it whenever you like.

Nothing here is encrypted or authenticated (`--insecure`), and all addresses are 127.0.0.1: for trying things out.
Flower's telemetry and its look for a newer version are switched off.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from absl import app, flags

ROOT = pathlib.Path(__file__).resolve().parents[2]
APP = pathlib.Path(__file__).with_name("app")


class Federation:
    """A SuperLink and its SuperNodes, from `with` to its end.

    Args:
      folder: for logs, for Flower's own files and for the app's.
      num_clients: how many SuperNodes.
    """

    def __init__(self, folder: str | os.PathLike[str], num_clients: int):
        self.folder = pathlib.Path(folder).resolve()
        self._num_clients = num_clients
        self._processes: dict[str, subprocess.Popen] = {}
        names = ("serverappio", "fleet", "control")
        ports = _free_ports(1) * 3 if _has("flower-superlink", "--port") else _free_ports(3)
        self._ports = dict(zip(names, ports))
        self._environment = {
            **os.environ,
            "FLWR_HOME": str(self.folder / "flower"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "PATH": os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ.get("PATH", "")]),
            "TF_CPP_MIN_LOG_LEVEL": "2",
        }

    def __enter__(self) -> Federation:
        (self.folder / "flower").mkdir(parents=True, exist_ok=True)
        address = f"127.0.0.1:{self._ports['control']}"
        (self.folder / "flower" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{address}"\ninsecure = true\n'
        )
        try:
            self._start_superlink()
            for index in range(self._num_clients):
                self.start_client(index)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        for name in [*self._processes][::-1]:  # clients first
            self.kill(name, signal.SIGTERM)

    def start_client(self, index: int) -> None:
        """Starts the SuperNode of client `index`, or starts it again."""
        (port,) = _free_ports(1)
        config = f"partition-id={index} num-partitions={self._num_clients}"
        own = (
            ["--port", str(port)]
            if _has("flower-supernode", "--port")
            else ["--clientappio-api-address", f"127.0.0.1:{port}"]
        )
        link = f"127.0.0.1:{self._ports['fleet']}"
        self._start(
            f"client-{index}", ["flower-supernode", "--insecure", "--superlink", link, "--node-config", config, *own]
        )

    def _start_superlink(self) -> None:
        own = ["--host", "127.0.0.1", "--port", str(self._ports["fleet"])]
        if not _has("flower-superlink", "--port"):  # older ones have a port for each
            own = [
                word for name, port in self._ports.items() for word in (f"--{name}-api-address", f"127.0.0.1:{port}")
            ]
        self._start("superlink", ["flower-superlink", "--insecure", *own])
        for name in ("fleet", "control"):
            _wait_for(self._ports[name], self._processes["superlink"])

    def _start(self, name: str, command: list[str]) -> None:
        log = open(self.folder / f"{name}.log", "ab")  # noqa: SIM115  the process keeps it
        self._processes[name] = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=self.folder, env=self._environment, start_new_session=True
        )

    def kill(self, name: str, by: int = signal.SIGKILL) -> None:
        """Ends "superlink" or "client-3", with all processes that it has started."""
        process = self._processes.pop(name)
        started = _descendants(process.pid)  # before it is gone, and they are nobody's
        process.send_signal(by)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=20 if by != signal.SIGKILL else 0.1)
        for pid in [process.pid, *started]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def run(self, config: Mapping[str, Any], timeout: float = 600.0) -> dict[str, Any]:
        """Runs the app to its end; returns what its server found.

        Raises:
          RuntimeError: where it ends without a result, with the end of its log.
        """
        result = self.folder / "result.json"
        result.unlink(missing_ok=True)
        self.submit(config)
        end = time.monotonic() + timeout
        while not result.exists():
            if time.monotonic() > end or self._processes["superlink"].poll() is not None:
                raise RuntimeError(f"No result after {timeout:g} s.\n{self.log('superlink')[-4000:]}")
            time.sleep(0.5)
        return json.loads(result.read_text())

    def submit(self, config: Mapping[str, Any]) -> None:
        """`flwr run`: hands the app to the SuperLink, which starts it."""
        project = self.folder / "app"
        shutil.rmtree(project, ignore_errors=True)
        shutil.copytree(APP, project, ignore=shutil.ignore_patterns("__pycache__", "BUILD"))
        if importlib.util.find_spec("flwr.cli.flower_config") is None:  # older Flower looks for addresses in the app
            link = f'[tool.flwr.federations.here]\naddress = "127.0.0.1:{self._ports["control"]}"\ninsecure = true\n'
            with open(project / "pyproject.toml", "a", encoding="utf-8") as file:
                file.write(f'\n[tool.flwr.federations]\ndefault = "here"\n\n{link}')
        held = {"folder": str(self.folder), "num-clients": self._num_clients, "wait-for": self._num_clients, **config}
        words = " ".join(f"{name}={json.dumps(value)}" for name, value in held.items())
        done = subprocess.run(
            ["flwr", "run", str(project), "here", "--run-config", words],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            env=self._environment,
            timeout=300,
        )
        (self.folder / "run.log").write_text(done.stdout + done.stderr)
        if done.returncode:
            raise RuntimeError(f"`flwr run` failed:\n{done.stdout}{done.stderr}")

    def log(self, name: str) -> str:
        """What "superlink" or "client-3" has printed."""
        return (self.folder / f"{name}.log").read_text(errors="replace")


def _has(program: str, option: str) -> bool:
    """Whether this Flower's program knows the option: they have changed over its versions."""
    path = pathlib.Path(sys.executable).with_name(program)
    return option in subprocess.run([str(path), "--help"], capture_output=True, text=True, check=True).stdout.split()


def _free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _wait_for(port: int, process: subprocess.Popen, timeout: float = 120.0) -> None:
    end = time.monotonic() + timeout
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"Nothing answers at port {port}.")


def _descendants(pid: int) -> list[int]:
    """Processes that `pid` has started, those that they have started, and so on."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in map(str.split, listed.splitlines())}
    found, new = [], [pid]
    while new:
        new = [child for child, parent in parents.items() if parent in new]
        found += new
    return found


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}; see --help for the flags.")
    values = flags.FLAGS
    with Federation(values.folder, values.clients) as federation:
        print(f"SuperLink and {values.clients} SuperNodes are running; logs in {federation.folder}", flush=True)
        found = federation.run(
            {
                "num-rounds": values.rounds,
                "clients-per-round": values.per_round,
                "noise-multiplier": values.noise_multiplier,
                "target-epsilon": values.target_epsilon,
                "clipping": values.clipping,
            },
            timeout=values.timeout,
        )
    print(f"ok: {found['rounds']} rounds, epsilon {found['epsilon']:.4f} per client, accuracy {found['accuracy']:.3f}")


if __name__ == "__main__":
    flags.DEFINE_integer("clients", 4, "SuperNodes, each with its own digits.", lower_bound=1)
    flags.DEFINE_integer("per_round", 2, "How many of them a round has, in the mean.", lower_bound=1)
    flags.DEFINE_integer("rounds", 3, "How many rounds, those before a restart too.", lower_bound=1)
    flags.DEFINE_float("noise_multiplier", 1.0, "Noise on the sum over its sensitivity.")
    flags.DEFINE_float("target_epsilon", 0.0, "Ends before it is passed; 0 only counts.")
    flags.DEFINE_enum("clipping", "server", ["server", "client"], "Who clips.")
    flags.DEFINE_string("folder", "runs/federated_processes", "For logs, ledger, state and result.")
    flags.DEFINE_float("timeout", 1800.0, "Seconds to wait for the result.")
    app.run(main)
