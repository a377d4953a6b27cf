"""The training runs of an experiment: every candidate once on held-out images, then the chosen ones with every seed."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_collections
import numpy as np

from configs import paper
from examples.common import data
from examples.reproduce.experiments import Candidate, Experiment

HELD_OUT = 10_000  # training images to judge candidates by; the test set is for the chosen one


class Job(NamedTuple):
    """One training run."""

    experiment: str
    stage: str  # "tune" on the held-out part, or "final" on the test set
    method: str
    epsilon: float
    number: int  # of the candidate, or of the seed
    config: dict[str, Any]
    measures_error: bool = False
    shows_convergence: bool = False

    @property
    def key(self) -> str:
        return f"{self.stage}-{self.method}-{self.epsilon:g}-{self.number}"


def tuning_jobs(experiment: Experiment) -> list[Job]:
    """Every candidate of every method, once, at every epsilon; none where a method has only one."""
    return [
        _job(experiment, "tune", method, epsilon, number, candidate)
        for epsilon in experiment.epsilons
        for method in experiment.methods
        for number, candidate in enumerate(experiment.candidates(method, epsilon))
        if len(experiment.candidates(method, epsilon)) > 1
    ]


def final_jobs(experiment: Experiment, chosen: dict[str, dict[str, Candidate]], seeds: int | None) -> list[Job]:
    """The chosen candidates, with every seed; None for as many as the experiment has."""
    return [
        _job(experiment, "final", method, epsilon, seed, {**chosen[method][f"{epsilon:g}"], "seed": seed})
        for seed in range(seeds or experiment.seeds)
        for epsilon in experiment.epsilons
        for method in experiment.methods
    ]


def _job(experiment, stage, method, epsilon, number, changes) -> Job:
    config = paper.make_config(experiment.name, method, epsilon, **changes)
    return Job(
        experiment=experiment.name,
        stage=stage,
        method=method,
        epsilon=epsilon,
        number=number,
        config=config.to_dict(),
        measures_error=experiment.measures_error and stage == "final",
        shows_convergence=experiment.shows_convergence and stage == "final",
    )


def job_config(job: Job) -> ml_collections.ConfigDict:
    """The config as `examples.common.training` wants it."""
    return ml_collections.ConfigDict(job.config)


def choose(experiment: Experiment, tuned: list[dict[str, Any]]) -> dict[str, dict[str, Candidate]]:
    """The candidate with the best held-out accuracy, for every method and epsilon."""
    chosen: dict[str, dict[str, Candidate]] = {}
    for method in experiment.methods:
        for epsilon in experiment.epsilons:
            runs = [run for run in tuned if (run["method"], run["epsilon"]) == (method, epsilon)]
            best = max(runs, key=lambda run: run["accuracy"], default={"number": 0})
            chosen.setdefault(method, {})[f"{epsilon:g}"] = experiment.candidates(method, epsilon)[best["number"]]
    return chosen


def split(loaded: data.Data, stage: str) -> data.Data:
    """The data of a stage: for tuning, the last training images stand in for the test set."""
    if stage == "final":
        return loaded
    held_out = min(HELD_OUT, len(loaded.x_train) // 5)
    x, y = loaded.x_train, loaded.y_train
    return loaded._replace(
        x_train=np.ascontiguousarray(x[:-held_out]),
        y_train=y[:-held_out],
        x_test=x[-held_out:],
        y_test=y[-held_out:],
    )
