"""The clients of the federated example: who holds which digits, and what a client does in a round.

Softmax regression, in NumPy: a client of a thousand has a row or two, and computes for a fraction of a millisecond.
`app` is a Flower `ClientApp` like any other: it knows nothing of privacy.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from examples.common import data

ARRAYS, METRICS = "arrays", "metrics"  # as Flower's strategies name them
NAMES = ("kernel", "bias")


class Rows(NamedTuple):
    """What a client holds."""

    x: np.ndarray
    y: np.ndarray


class LocalTraining(NamedTuple):
    """What a client does in a round: a few steps of SGD. Each takes the next `batch` rows, over and over."""

    steps: int = 4
    batch: int = 4
    learning_rate: float = 0.1


def deal(x: np.ndarray, y: np.ndarray, num_clients: int, alpha: float = 0.3, seed: int = 0) -> list[Rows]:
    """Deals the examples to clients, each example to one, by Dirichlet's distribution (Hsu et al. 2019).

    Every client draws its shares of the labels from Dirichlet(alpha), and its size from a log-normal distribution: with
    a small alpha most have seen few labels, and some hold many times what others do. Nobody is left without a row.
    """
    if not 1 <= num_clients <= len(y):
        raise ValueError(f"`num_clients` must be from 1 to the number of examples, {len(y)}; got {num_clients!r}.")
    rng = np.random.default_rng(seed)
    labels = np.unique(y)
    waiting = {label: list(rng.permutation(np.flatnonzero(y == label))) for label in labels}
    shares = rng.dirichlet(np.full(len(labels), alpha), size=num_clients)
    sizes = np.exp(rng.normal(size=num_clients))
    turns = np.concatenate(
        [np.arange(num_clients), rng.choice(num_clients, len(y) - num_clients, p=sizes / sizes.sum())]
    )
    held: list[list[int]] = [[] for _ in range(num_clients)]
    for client in turns:
        wish = shares[client] * [bool(waiting[label]) for label in labels]
        wish = wish if wish.sum() > 0 else np.array([float(bool(waiting[label])) for label in labels])
        held[client].append(waiting[rng.choice(labels, p=wish / wish.sum())].pop())
    flat = x.reshape(len(x), -1).astype(np.float32)
    return [Rows(flat[rows], y[rows]) for rows in held]


def initial_weights(features: int, classes: int) -> dict[str, np.ndarray]:
    """Zeros: the start favours no class."""
    return {"kernel": np.zeros([features, classes], np.float32), "bias": np.zeros([classes], np.float32)}


def train(weights: dict[str, np.ndarray], rows: Rows, server_round: int, local: LocalTraining) -> dict[str, np.ndarray]:
    """The weights after a client's steps; the rows of round r begin where those of round r - 1 ended."""
    kernel, bias = (weights[name].copy() for name in NAMES)
    turns = (server_round - 1) * local.steps * local.batch + np.arange(local.steps * local.batch)
    for batch in np.split(turns % len(rows.y), local.steps):
        x, y = rows.x[batch], rows.y[batch]
        error = _softmax(x @ kernel + bias)
        error[np.arange(len(y)), y] -= 1.0
        kernel -= local.learning_rate * x.T @ error / len(y)
        bias -= local.learning_rate * error.mean(axis=0)
    return {"kernel": kernel, "bias": bias}


def accuracy(weights: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> float:
    """The fraction of `y` that the model gets right."""
    scores = x.reshape(len(x), -1) @ weights["kernel"] + weights["bias"]
    return float(np.mean(np.argmax(scores, axis=-1) == y))


def _softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def client_app(clients: Sequence[Rows], local: LocalTraining, mods: list | None = None) -> ClientApp:
    """An app whose node with partition k is client k."""
    app = ClientApp(mods=mods or [])

    @app.train()
    def train_locally(message: Message, context: Context) -> Message:
        rows = clients[int(context.node_config["partition-id"])]
        weights = {name: array.numpy() for name, array in message.content[ARRAYS].items()}
        trained = train(weights, rows, int(message.content["config"]["server-round"]), local)
        content = RecordDict(
            {
                ARRAYS: record_of(trained),
                METRICS: MetricRecord({"num-examples": len(rows.y)}),  # which a private server does not look at
            }
        )
        return Message(content, reply_to=message)

    return app


def record_of(weights: dict[str, np.ndarray]) -> ArrayRecord:
    """Weights as Flower sends them."""
    return ArrayRecord({name: Array(weights[name]) for name in NAMES})


@functools.lru_cache(maxsize=4)
def digits(num_clients: int, alpha: float = 0.3) -> tuple[data.Data, tuple[Rows, ...]]:
    """scikit-learn's digits and what each client holds of them, dealt once in a process."""
    loaded = data.load("digits")
    return loaded, tuple(deal(loaded.x_train, loaded.y_train, num_clients, alpha))


@dataclasses.dataclass(frozen=True)
class Digits(Sequence):
    """What the clients hold of the digits. It travels to other processes as two numbers, and each deals for itself."""

    num_clients: int
    alpha: float = 0.3

    def __len__(self) -> int:
        return self.num_clients

    def __getitem__(self, client):
        return digits(self.num_clients, self.alpha)[1][client]
