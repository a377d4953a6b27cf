"""Runs a problem: the competitors tuned on the held-out part, then everything on the test set with new seeds.

Every run leaves a file; the same command again goes on where it stopped. A file of another setting is not taken.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from adaclip_tf._internal import files
from adaclip_tf.scales import method as constants
from examples.tabular import competitors, default, problems, search
from examples.tabular.competitors import METHODS, Candidate
from examples.tabular.problems import Problem

FIRST_FINAL_SEED = 1000  # tuning has 0, 1, ...

Results = dict[str, Any]


class Runs:
    """Outcomes in files of a folder, each with what it is the outcome of."""

    def __init__(self, folder: pathlib.Path, told: Callable[[str], None] = lambda text: None):
        self._folder, self._told = folder, told

    def get(self, key: str, identity: dict[str, Any], compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The outcome that is kept under `key` for the same `identity`, or a new one."""
        path = self._folder / f"{key}.json"
        identity = json.loads(json.dumps(identity))
        if path.exists():
            kept = json.loads(path.read_text())
            if kept["identity"] == identity:
                return kept["outcome"]
        outcome = compute()
        with files.replacing(path) as file:
            file.write((json.dumps({"identity": identity, "outcome": outcome}, indent=1) + "\n").encode())
        self._told(f"{key}: {outcome['metric']:.2f}")
        return outcome


def run(
    problem: Problem,
    runs: Runs,
    data_dir: str | None = None,
    seeds: int | None = None,
    tuned: Results | None = None,
) -> Results:
    """Everything about one problem; with `tuned`, earlier results, the competitors are taken from there."""
    if tuned is not None and not same_setting(problem, tuned):
        raise ValueError(f"The results that are kept of {problem.name!r} are of another setting: run it anew.")
    load = functools.lru_cache(maxsize=1)(lambda: problem.load(data_dir))
    numbers = range(FIRST_FINAL_SEED, FIRST_FINAL_SEED + (seeds or problem.seeds))
    methods: dict[str, Any] = {
        name: tuned["methods"][name] if tuned else _competitor(problem, name, load, runs, numbers) for name in METHODS
    }
    settings = dataclasses.asdict(constants.DEFAULT)
    methods["default"] = {
        "settings": settings,
        "runs": [
            runs.get(
                f"{problem.name}/default-{seed}",
                {**_identity(problem), "settings": settings, "seed": seed},
                functools.partial(lambda seed: default.train(problem, load(), seed), seed),
            )
            for seed in numbers
        ],
    }
    table = load()
    width = table.x_train.shape[1]
    weights = competitors.initial_weights(problem, width, np.random.default_rng(0))
    z, steps = competitors.calibrated(len(table.x_train), problem.batch_size, problem.epochs, problem.epsilon)
    return {
        **_identity(problem),
        "title": problem.title,
        "metric": problem.metric,
        "fresh": problem.fresh,
        "examples": len(table.x_train),
        "test_examples": len(table.x_test),
        "parameters": int(sum(kernel.size for kernel in weights)),
        "noise_multiplier": z,
        "steps": steps,
        "methods": methods,
    }


def _competitor(problem: Problem, method: str, load: Callable[[], Any], runs: Runs, numbers: range) -> dict[str, Any]:
    def outcome(stage: str, candidate: Candidate, seed: int) -> dict[str, Any]:
        def compute() -> dict[str, Any]:
            table = problems.held_out(load()) if stage == "tune" else load()
            metric, loss = competitors.train(problem, table, method, candidate, seed)
            return {"metric": metric, "loss": loss}

        key = f"{problem.name}/{method}-{stage}-{candidate.clip:g}-{candidate.rate:g}-{seed}"
        return runs.get(key, {**_identity(problem), **candidate._asdict(), "seed": seed}, compute)

    def evaluate(candidate: Candidate, coarse: bool) -> search.Outcome:
        outcomes = [outcome("tune", candidate, seed) for seed in range(1 if coarse else problem.tuning_seeds)]
        return float(np.mean([one["metric"] for one in outcomes])), float(np.mean([one["loss"] for one in outcomes]))

    found = search.search(method, evaluate)
    chosen = search.chosen(found.climbed)
    return {
        "candidates": found.candidates,
        "coarse": [[*candidate, *value] for candidate, value in found.coarse.items()],
        "tried": [[*candidate, *value] for candidate, value in found.climbed.items()],
        "chosen": {goal: candidate._asdict() for goal, candidate in chosen.items()},
        "runs": {goal: [outcome("final", candidate, seed) for seed in numbers] for goal, candidate in chosen.items()},
    }


def same_setting(problem: Problem, results: Results) -> bool:
    """Whether results are of the problem as it is now."""
    return all(results[name] == value for name, value in _identity(problem).items())


def _identity(problem: Problem) -> dict[str, Any]:
    names = ("name", "kind", "epsilon", "batch_size", "epochs", "hidden", "outputs")
    return {name: getattr(problem, name) for name in names}
