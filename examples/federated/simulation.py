"""Flower's simulation engine: every client is a SuperNode of its own to the server, and runs on a worker of Ray's.

Messages are put into a SuperLink's state, travel to a worker and back, and come in whatever order: all that `grid`
leaves out. What a client costs here is nearly all Ray's and Flower's doing; docs/federated.md has what was measured.

Nobody is told: Flower's telemetry and Ray's statistics of use are off (`__init__`), and there is no dashboard. Ray's
processes listen on all of the machine's addresses, and would run whatever they are sent: so they ask for a token, which
`__init__` draws. Ray before 2.52 knows no tokens: keep it behind a firewall.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import TypeVar

from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

T = TypeVar("T")
_OBJECT_STORE = 100 * 2**20  # bytes; Ray would take a third of the memory, and what travels is small


def available() -> bool:
    """Whether the engine is installed."""
    return importlib.util.find_spec("ray") is not None


def run(client: ClientApp, num_clients: int, serve: Callable[[Grid], T], *, workers: int | None = None) -> T:
    """What `serve` makes of a grid of so many simulated SuperNodes; they end with it.

    Args:
      client: the app of them all. It is sent along with every message, so it should be small.
      num_clients: how many SuperNodes; each has its own `partition-id`.
      serve: the server's side. It runs in a thread of this process.
      workers: processes of Ray's that take turns as clients; None for one per processor.

    Raises:
      RuntimeError: where Ray is missing, with what to install.
      Exception: what `serve` raises.
    """
    if not available():
        raise RuntimeError("Flower's simulation engine needs Ray: pip install 'adaclip-tf[simulation]'.")
    from flwr.simulation import run_simulation

    found: list[T] = []
    server = ServerApp()

    @server.main()
    def main(grid, context):
        del context
        found.append(serve(grid))

    config = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {
            "num_cpus": workers,
            "include_dashboard": False,
            "log_to_driver": False,
            "object_store_memory": _OBJECT_STORE,
            "_system_config": {"worker_niceness": 0},  # Ray's 15 makes a busy machine's server wait for its clients
        },
    }
    run_simulation(server, client, num_clients, backend_config=config)
    (result,) = found
    return result
