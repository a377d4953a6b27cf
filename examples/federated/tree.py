"""The processes of a federated simulation: server -> aggregators -> workers, each a process of the operating system.

    server         the process that makes the `Tree`: holds the model, adds the noise
      aggregator   passes the broadcast on, merges its workers' sample states
        worker     holds its clients' data: local updates, clipping, sums

In every round the broadcast goes down and one sample state comes up from each process, merged on the way with
`merge_sample_states`. What travels is numpy's npz format over pipes, read with `allow_pickle=False`: plain arrays,
in which no program can hide.

| case                              | result                                                       |
|-----------------------------------|--------------------------------------------------------------|
| a worker none of whose clients is | sends zeros                                                  |
| sampled, or a round without any   |                                                              |
| a process ends                    | RuntimeError in the server; that round publishes nothing     |
| the server ends, or is killed     | the others find their pipes closed, and end                  |
"""

from __future__ import annotations

import functools
import io
import multiprocessing
import signal
from collections.abc import Sequence
from multiprocessing import connection
from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf import query
from examples.federated import clients as federation_clients

# A fork server imports TensorFlow once, before anything of it runs, instead of once per process.
_CONTEXT: Any = multiprocessing.get_context(
    "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
)


def pack(**groups: Sequence[Any]) -> bytes:
    """Named lists of arrays as bytes.

    >>> unpack(pack(weights=[np.zeros(3), np.ones([])], clients=[]))
    {'weights': [array([0., 0., 0.]), array(1.)], 'clients': []}
    """
    file = io.BytesIO()
    arrays = {
        f"{name}.{index}": np.asarray(array) for name, group in groups.items() for index, array in enumerate(group)
    }
    counts = {name: np.array(len(group)) for name, group in groups.items()}
    np.savez(file, **counts, **arrays)
    return file.getvalue()


def unpack(message: bytes) -> dict[str, list[np.ndarray]]:
    """What `pack` packed. Refuses anything but plain arrays."""
    with np.load(io.BytesIO(message), allow_pickle=False) as held:
        names = [name for name in held.files if "." not in name]
        return {name: [held[f"{name}.{index}"] for index in range(int(held[name]))] for name in names}


# ---------------------------------------------------------------------------------------------------
# What the processes run.


def run_worker(parent: connection.Connection) -> None:
    """Gets its clients' data once, then answers each broadcast with a sample state, until the pipe closes."""
    _start_child()
    setup = unpack(parent.recv_bytes())
    population = federation_clients.Population(*setup["population"])
    steps, batch, learning_rate = setup["local"]
    shapes = [tuple(shape) for shape in setup["shapes"]]
    site = federation_clients.Site(population, shapes, int(steps), int(batch), float(learning_rate))
    for message in _messages(parent):
        parent.send_bytes(pack(sample_state=site.collect(_read_broadcast(message))))


def run_aggregator(parent: connection.Connection, children: Sequence[connection.Connection]) -> None:
    """Passes each broadcast to its children as it came, and the merged sample state up."""
    _start_child()
    (shapes,) = unpack(parent.recv_bytes()).values()
    dp_query = query.AdaClipSumQuery([tf.TensorSpec(shape) for shape in shapes], 0.0, 1.0)
    for message in _messages(parent):
        for child in children:
            child.send_bytes(message)
        parent.send_bytes(pack(sample_state=merge(dp_query, [_receive(child) for child in children])))


def merge(dp_query: query.AdaClipSumQuery, sample_states: Sequence[Any]) -> Any:
    """All of them as one; the empty state if there are none."""
    return functools.reduce(dp_query.merge_sample_states, sample_states, dp_query.initial_sample_state())


def _start_child() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server decides when to end
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def _messages(parent: connection.Connection):
    while True:
        try:
            yield parent.recv_bytes()
        except EOFError:
            return


def _receive(child: connection.Connection) -> list[np.ndarray]:
    return unpack(child.recv_bytes())["sample_state"]


def _read_broadcast(message: bytes) -> federation_clients.Broadcast:
    held = unpack(message)
    (clients,), (number,) = held["clients"], held["round_number"]
    return federation_clients.Broadcast(held["weights"], held["center"], held["scale"], clients, int(number))


# ---------------------------------------------------------------------------------------------------
# The server's end.


class Tree:
    """Starts the processes and deals the clients out to the workers.

    >>> with Tree(population, shapes, aggregators=2, workers=2) as tree:  # doctest: +SKIP
    ...     sample_state = tree.collect(broadcast)

    Args:
      population: all clients.
      shapes: of the weights.
      aggregators: how many.
      workers: how many for each aggregator.
      steps, batch, learning_rate: of the clients' local SGD; see `federation_clients.Site`.
    """

    def __init__(
        self,
        population: federation_clients.Population,
        shapes: Sequence[Sequence[int]],
        *,
        aggregators: int = 2,
        workers: int = 2,
        steps: int = 4,
        batch: int = 4,
        learning_rate: float = 0.1,
    ):
        self._query = query.AdaClipSumQuery([tf.TensorSpec(shape) for shape in shapes], 0.0, 1.0)
        self._processes: list[Any] = []
        self._children: list[connection.Connection] = []
        _CONTEXT.set_forkserver_preload([__name__])
        all_shapes = [np.array(shape, np.int64) for shape in shapes]
        for index in range(aggregators):
            down: list[connection.Connection] = []
            for number in range(index * workers, (index + 1) * workers):
                top, bottom = _CONTEXT.Pipe()
                self._start(f"worker {number}", run_worker, bottom)
                part = population.part(number, aggregators * workers)
                top.send_bytes(pack(population=part, local=[steps, batch, learning_rate], shapes=all_shapes))
                down.append(top)
            top, bottom = _CONTEXT.Pipe()
            self._start(f"aggregator {index}", run_aggregator, bottom, down)
            top.send_bytes(pack(shapes=all_shapes))
            self._children.append(top)

    def _start(self, name: str, target: Any, parent: connection.Connection, *rest: list[connection.Connection]) -> None:
        """Starts a process that holds one end of `parent`; the server's copies of what it holds are closed."""
        process = _CONTEXT.Process(target=target, args=(parent, *rest), name=name, daemon=True)
        process.start()
        self._processes.append(process)
        for held in (parent, *(end for ends in rest for end in ends)):
            held.close()

    @property
    def pids(self) -> dict[str, int]:
        """The process ids, by name."""
        return {process.name: process.pid for process in self._processes}

    def collect(self, broadcast: federation_clients.Broadcast) -> Any:
        """The sample state of all sampled clients, without noise: for `get_noised_result` and nobody else."""
        message = pack(
            weights=broadcast.weights,
            center=broadcast.center,
            scale=broadcast.scale,
            clients=[broadcast.clients],
            round_number=[broadcast.round_number],
        )
        try:
            for child in self._children:
                child.send_bytes(message)
            return merge(self._query, [_receive(child) for child in self._children])
        except (EOFError, OSError) as error:
            ended = ", ".join(self._ended()) or "which one is not known yet"
            raise RuntimeError(
                f"A process of the tree ended ({ended}), and its clients are out of reach. Nothing of this round was "
                "published. Start the program again."
            ) from error

    def _ended(self) -> list[str]:
        return [process.name for process in self._processes if not process.is_alive()]

    def close(self) -> None:
        """Closes the pipes, on which every process ends."""
        for child in self._children:
            child.close()
        for process in self._processes:
            process.join(timeout=10.0)
            if process.is_alive():
                process.kill()

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
