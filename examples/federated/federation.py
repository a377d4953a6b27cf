"""The server of a federated simulation: samples users, adds the noise, moves the model, counts epsilon per user.

A round (the paper's "B random users"), with the library's query as it is:

| where      | what                                                                                         |
|------------|----------------------------------------------------------------------------------------------|
| server     | samples each of n users with probability q = B / n; `derive_sample_params`; broadcasts         |
| client     | a few steps of local SGD; the record is the change of the model; `preprocess_record`           |
| worker     | `accumulate_preprocessed_record` over its clients                                            |
| aggregator | `merge_sample_states` over its workers                                                       |
| server     | `merge_sample_states`, `get_noised_result`, a step with momentum along the noised mean         |

Formal guarantee. A user's record has norm at most 1 after `preprocess_record`, however many rows the user has and
whatever is in them, and no other record depends on it. So a round is the Gaussian mechanism of noise multiplier z
on a Poisson sample of users, under the addition or removal of one user with all of their data: the accountant's
example is a user here, n is the number of users and B the expected number of users in a round.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import adaclip_tf
from adaclip_tf import core, query
from adaclip_tf.data import sampling
from adaclip_tf.privacy import curve
from adaclip_tf.privacy.mechanism import Mechanism
from examples.common import data
from examples.federated import clients as federation_clients
from examples.federated import tree as federation_tree

Collect = Callable[[federation_clients.Broadcast], Any]


@dataclasses.dataclass(frozen=True)
class Plan:
    """What all methods have in common. Every number here is public."""

    users: int = 1000
    users_per_round: int = 100  # B, expected
    rounds: int = 100
    target_epsilon: float = 2.0
    delta: float = 1e-4
    local_steps: int = 4
    local_batch: int = 4
    local_learning_rate: float = 0.1
    momentum: float = 0.9  # the server's
    aggregators: int = 2
    workers: int = 2  # per aggregator

    @functools.cached_property
    def noise_multiplier(self) -> float:
        """z with which all rounds together cost a user `target_epsilon`."""
        return adaclip_tf.noise_multiplier(
            target_epsilon=self.target_epsilon, steps=self.rounds, **self._sampled(delta=self.delta)
        )

    def epsilon_curve(self, noise_multiplier: float) -> curve.EpsilonCurve:
        """Rounds -> epsilon of one user."""
        return curve.EpsilonCurve(Mechanism(noise_multiplier, **self._sampled()), delta=self.delta)

    def _sampled(self, **more: Any) -> dict[str, Any]:
        return {"num_examples": self.users, "batch_size": self.users_per_round, **more}


@dataclasses.dataclass(frozen=True)
class Method:
    """A row of the table."""

    label: str
    options: str
    choice: core.ClippingRule
    learning_rate: float  # the server's
    private: bool = True


class Result(NamedTuple):
    """What a run came to."""

    accuracy: float  # on the test set
    epsilon: float  # per user
    noise_norm: float  # of the noise in the mean update, in the last round


def train(
    dp_query: query.AdaClipSumQuery,
    collect: Collect,
    weights: Sequence[np.ndarray],
    plan: Plan,
    learning_rate: float,
    *,
    seed: int | None = None,
    on_round: Callable[[int], Any] = lambda done: None,
) -> tuple[list[np.ndarray], Any]:
    """Runs all rounds; returns (weights, the query's last state), functions of noised sums alone.

    Args:
      dp_query: makes (a, b), adds the noise.
      collect: from a broadcast to the sample state of the sampled clients, as `federation_tree.Tree.collect`.
      weights: to start from.
      plan: the rounds, the sampling, the momentum.
      learning_rate: the server's.
      seed: None for use: who is sampled comes from the operating system's entropy. An integer is for tests.
      on_round: called with the number of rounds done.
    """
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed)))
    state = dp_query.initial_global_state()
    velocity = [np.zeros_like(weight) for weight in weights]
    weights = list(weights)
    for number in range(plan.rounds):
        clients = sampling.draw(generator, plan.users, plan.users_per_round / plan.users)
        params = dp_query.derive_sample_params(state)
        sample_state = collect(federation_clients.Broadcast(weights, params.center, params.scale, clients, number))
        noised_sum, state, _ = dp_query.get_noised_result(sample_state, state)
        # Divided by the expected number of users: the true one is private.
        mean = [total.numpy() / plan.users_per_round for total in noised_sum]
        velocity = [plan.momentum * v + g for v, g in zip(velocity, mean)]
        weights = [w + learning_rate * v for w, v in zip(weights, velocity)]
        on_round(number + 1)
    return weights, state


# ---------------------------------------------------------------------------------------------------
# The comparison.


def methods(dataset: str) -> dict[str, Method]:
    """AdaCliP, a fixed clip, and no privacy, each with the best of the options that were tried on `dataset`."""
    chosen = _CHOSEN[dataset]
    clip, clip_rate = chosen["fixed_clip"]
    h2, ada_rate = chosen["adaclip"]
    moments = core.MomentEstimator(h1=h2 / 30.0, h2=h2, initial_std=math.sqrt(h2) / 2.0)
    options = f"h2 = {h2:g}, h1 = h2 / 30, initial s = sqrt(h2) / 2"
    return {
        "adaclip": Method("AdaCliP", options, core.AdaClip(moments), ada_rate),
        "fixed_clip": Method("fixed clip", f"C = {clip:g}", core.FixedClip(clip), clip_rate),
        "not_private": Method(
            "no clip, no noise: not private", "", core.FixedClip(1e6), chosen["not_private"], private=False
        ),
    }


_CHOSEN: dict[str, dict[str, Any]] = {  # (the clip, or h2; the server's learning rate)
    "digits": {"adaclip": (1e-4, 2.0), "fixed_clip": (0.3, 1.0), "not_private": 1.0},
    "mnist": {"adaclip": (1e-5, 0.3), "fixed_clip": (0.3, 0.3), "not_private": 1.0},
}
DATASETS = tuple(_CHOSEN)


def initial_weights(loaded: data.Data) -> list[np.ndarray]:
    """Those of softmax regression, which all runs start from."""
    return federation_clients.initial_weights(math.prod(loaded.x_train.shape[1:]), [], loaded.num_classes or 1)


def compare(
    loaded: data.Data,
    plan: Plan,
    seeds: int = 3,
    *,
    seed: int | None = None,
    start_run: Callable[[str, int], Callable[[int, float], Any]] = lambda label, run: lambda done, epsilon: None,
) -> dict[str, list[Result]]:
    """Every method `seeds` times on the same clients and processes, with fresh noise and fresh samples of users.

    Args:
      loaded: the data that is dealt out to `plan.users` clients.
      plan: what all runs have in common.
      seeds: runs per method.
      seed: None for use; an integer makes noise and sampling predictable, for tests only.
      start_run: called with the method's label and the run's number; what it returns is called in every round with the
        number of rounds done and the epsilon spent.
    """
    population = federation_clients.deal(loaded.x_train, loaded.y_train, plan.users)
    weights = initial_weights(loaded)
    results: dict[str, list[Result]] = {}
    with federation_tree.Tree(
        population,
        [weight.shape for weight in weights],
        aggregators=plan.aggregators,
        workers=plan.workers,
        steps=plan.local_steps,
        batch=plan.local_batch,
        learning_rate=plan.local_learning_rate,
    ) as tree:
        for name, method in methods(loaded.name).items():
            z = plan.noise_multiplier if method.private else 0.0
            epsilon = plan.epsilon_curve(z)
            results[name] = []
            for run in range(seeds):
                report = start_run(method.label, run)
                own_seed = None if seed is None else seed + run
                specs = [tf.TensorSpec(weight.shape) for weight in weights]
                dp_query = query.ClippedSumQuery(method.choice, specs, z, float(plan.users_per_round), seed=own_seed)
                trained, state = train(
                    dp_query,
                    tree.collect,
                    weights,
                    plan,
                    method.learning_rate,
                    seed=own_seed,
                    on_round=functools.partial(_report, report, epsilon),
                )
                results[name].append(
                    Result(
                        federation_clients.accuracy(trained, loaded.x_test, loaded.y_test),
                        epsilon(plan.rounds),
                        float(dp_query.derive_metrics(state)["noise_norm"]),
                    )
                )
    return results


def _report(report: Callable[[int, float], Any], epsilon: curve.EpsilonCurve, done: int) -> None:
    report(done, epsilon(done))


def check(results: dict[str, list[Result]], plan: Plan, least_accuracy: float) -> str:
    """Says in a line that every private run kept its budget and learnt; RuntimeError if not."""
    for name, runs in results.items():
        for result in runs:
            if name != "not_private" and not 0.9 * plan.target_epsilon < result.epsilon <= plan.target_epsilon:
                raise RuntimeError(f"{name} spent epsilon {result.epsilon:.4f} of {plan.target_epsilon:g}.")
            if not result.accuracy > least_accuracy:
                raise RuntimeError(f"{name} reached {result.accuracy:.3f}; expected more than {least_accuracy:g}.")
    return f"ok: every run learnt, each private one within epsilon {plan.target_epsilon:g} per user"
