"""The comparison: AdaCliP, a fixed clip and a quantile clip at the same epsilon per client, on digits of 1,000 clients.

Every run is `PrivateStrategy` around Flower's FedAvgM, a Flower `ClientApp`, and messages between them, on any grid of
Flower's: that of one process (`grid`), or that of its simulation engine (`simulation`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from flwr.app import ArrayRecord, MetricRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvgM

import adaclip_tf
from adaclip_tf import core
from adaclip_tf.flower import PrivateStrategy
from examples.common import data
from examples.federated import clients as clients_lib

_LOCAL = clients_lib.LocalTraining()


@dataclasses.dataclass(frozen=True)
class Plan:
    """What all methods have in common. Every number here is public."""

    clients: int = 1000
    per_round: int = 100  # B, expected
    rounds: int = 100
    target_epsilon: float = 2.0
    delta: float = 1e-4
    alpha: float = 0.3  # Dirichlet's
    local: clients_lib.LocalTraining = _LOCAL
    momentum: float = 0.9  # the server's

    @functools.cached_property
    def noise_multiplier(self) -> float:
        """z with which all rounds together cost a client `target_epsilon`."""
        return adaclip_tf.noise_multiplier(
            target_epsilon=self.target_epsilon,
            delta=self.delta,
            num_examples=self.clients,
            batch_size=self.per_round,
            steps=self.rounds,
        )


@dataclasses.dataclass(frozen=True)
class Method:
    """A row of the table."""

    label: str
    options: str
    rule: core.ClippingRule
    learning_rate: float  # the server's
    private: bool = True


class Result(NamedTuple):
    """What a run came to."""

    accuracy: float  # on the test set
    epsilon: float  # per client
    noise_norm: float  # of the noise in the mean update, in the last round


def methods() -> dict[str, Method]:
    """AdaCliP, the two clips, and no privacy, each with the best of the options that were tried."""
    h2 = 1e-4
    moments = core.MomentEstimator(h1=h2 / 30.0, h2=h2, initial_std=math.sqrt(h2) / 2.0)
    options = f"h2 = {h2:g}, h1 = h2 / 30, initial s = sqrt(h2) / 2"
    quantile = core.QuantileClip(initial_clip=0.3, target_quantile=0.5)
    return {
        "adaclip": Method("AdaCliP", options, core.AdaClip(moments), 2.0),
        "fixed": Method("fixed clip", "C = 0.3", core.FixedClip(0.3), 1.0),
        "quantile": Method("quantile clip", "median, from C = 0.3", quantile, 1.0),
        "not_private": Method("no clip, no noise: not private", "", core.FixedClip(1e6), 1.0, private=False),
    }


def client_app(plan: Plan) -> ClientApp:
    """What all clients run, whichever grid they are on."""
    return clients_lib.client_app(clients_lib.Digits(plan.clients, plan.alpha), plan.local)


def train(
    method: Method,
    plan: Plan,
    loaded: data.Data,
    grid: Grid,
    *,
    seed: int | None = None,
    on_round: Callable[[int, float], Any] = lambda done, epsilon: None,
) -> Result:
    """One run of one method with the clients of `grid`; `on_round` gets the rounds done and the epsilon spent."""
    strategy = PrivateStrategy(
        FedAvgM(server_learning_rate=method.learning_rate, server_momentum=plan.momentum, fraction_evaluate=0.0),
        method.rule,
        noise_multiplier=plan.noise_multiplier if method.private else 0.0,
        num_clients=plan.clients,
        clients_per_round=plan.per_round,
        delta=plan.delta,
        target_epsilon=plan.target_epsilon if method.private else None,
        min_clients=plan.clients,  # an engine may still be registering them
        seed=seed,
    )

    def told(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        del arrays
        if server_round:
            on_round(server_round, strategy.epsilon)
        return None

    result = strategy.start(
        grid,
        clients_lib.record_of(
            clients_lib.initial_weights(math.prod(loaded.x_train.shape[1:]), loaded.num_classes or 1)
        ),
        num_rounds=plan.rounds,
        evaluate_fn=told,
    )
    weights = {name: array.numpy() for name, array in result.arrays.items()}
    return Result(
        clients_lib.accuracy(weights, loaded.x_test, loaded.y_test),
        strategy.epsilon,
        float(result.train_metrics_clientapp[strategy.rounds_done]["noise_norm"]),
    )


def compare(
    loaded: data.Data,
    plan: Plan,
    grid: Grid,
    seeds: int = 3,
    *,
    seed: int | None = None,
    start_run: Callable[[str, int], Callable[[int, float], Any]] = lambda label, run: lambda done, epsilon: None,
) -> dict[str, list[Result]]:
    """Every method `seeds` times on the same clients, with fresh noise and fresh samples of clients.

    Args:
      loaded: the data that is dealt out.
      plan: what all runs have in common.
      grid: where the clients are, each with `client_app(plan)`.
      seeds: runs per method.
      seed: None for use; an integer makes noise and sampling predictable, for tests only.
      start_run: called with the method's label and the run's number; gives the `on_round` of that run.
    """
    return {
        name: [
            train(
                method,
                plan,
                loaded,
                grid,
                seed=None if seed is None else seed + run,
                on_round=start_run(method.label, run),
            )
            for run in range(seeds)
        ]
        for name, method in methods().items()
    }


def check(results: dict[str, list[Result]], plan: Plan, least_accuracy: float) -> str:
    """Says in a line that every private run kept its budget and learnt; RuntimeError if not."""
    for name, runs in results.items():
        for result in runs:
            if name != "not_private" and not 0.9 * plan.target_epsilon < result.epsilon <= plan.target_epsilon:
                raise RuntimeError(f"{name} spent epsilon {result.epsilon:.4f} of {plan.target_epsilon:g}.")
            if not result.accuracy > least_accuracy:
                raise RuntimeError(f"{name} reached {result.accuracy:.3f}; expected more than {least_accuracy:g}.")
    return f"ok: every run learnt, each private one within epsilon {plan.target_epsilon:g} per client"
