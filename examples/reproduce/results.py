"""The results file of an experiment, and the numbers that are read off it."""

from __future__ import annotations

import json
import math
import pathlib
from typing import Any

import dp_accounting
import numpy as np

import adaclip_tf
from adaclip_tf.privacy import events
from adaclip_tf.scales import method
from configs import base, paper
from examples.reproduce import experiments

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
_KEPT = (
    "method",
    "epsilon",
    "number",
    "accuracy",
    "epsilon_spent",
    "noise_multiplier",
    "pca_noise_multiplier",
    "scales_noise",
    "steps",
    "num_examples",
    "noise_norm",
    "gradient_error",
    "by_epoch",
    "seconds",
)

Results = dict[str, Any]


def store(
    experiment: experiments.Experiment,
    tuned: list[dict[str, Any]],
    chosen: dict[str, dict[str, experiments.Candidate]],
    final: list[dict[str, Any]],
    folder: pathlib.Path = DOCS / "results",
) -> pathlib.Path:
    """Writes everything that an experiment came to."""
    results = {
        "experiment": experiment.name,
        "command": f"python -m examples.reproduce --experiment={experiment.name}",
        "settings": paper.EXPERIMENTS[experiment.name],
        "grids": {name: method.grid for name, method in experiment.methods.items()},
        "chosen": chosen,
        "epsilon_pld": {f"{epsilon:g}": pld_epsilon(experiment, final, epsilon) for epsilon in experiment.epsilons},
        "tuned": [{name: run[name] for name in ("method", "epsilon", "number", "accuracy")} for run in tuned],
        "runs": [{name: run[name] for name in _KEPT} for run in final],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{experiment.name}.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    return path


def stored(name: str, docs: pathlib.Path) -> Results | None:
    """What `store` wrote for an experiment, if it was run."""
    path = docs / "results" / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def tuned(experiment: experiments.Experiment, docs: pathlib.Path = DOCS) -> list[dict[str, Any]] | None:
    """What the grids came to when they were searched, if that is known and the grids are still the same."""
    results = stored(experiment.name, docs)
    grids = json.loads(json.dumps({name: method.grid for name, method in experiment.methods.items()}))
    return results["tuned"] if results is not None and results["grids"] == grids else None


def pld_epsilon(experiment: experiments.Experiment, final: list[dict[str, Any]], epsilon: float) -> float:
    """The epsilon of the same runs by privacy loss distributions, the largest of all methods.

    All have the same noise, but those that learn scales: these spend a part on the queries.
    """
    fields = ("noise_multiplier", "pca_noise_multiplier", "scales_noise", "steps", "num_examples")
    noises = {json.dumps([run[name] for name in fields]) for run in final if run["epsilon"] == epsilon}
    return max(_pld_epsilon(experiment, *json.loads(one)) for one in noises)


def _pld_epsilon(experiment, noise, pca_noise, scales_noise, steps, num_examples) -> float:
    parts = [
        adaclip_tf.training_event(
            noise_multiplier=noise,
            num_examples=num_examples,
            batch_size=paper.EXPERIMENTS[experiment.name]["expected_batch_size"],
            steps=steps,
        )
    ]
    if pca_noise is not None:
        parts.append(events.gaussian_event(pca_noise))
    if scales_noise is not None:
        parts.append(method.DEFAULT.event(method.QueryNoise(*scales_noise)))
    event = dp_accounting.ComposedDpEvent(parts)
    return adaclip_tf.epsilon_of(event, delta=base.get_config().delta, accountant="pld")


def values(results: Results, method: str, epsilon: float, name: str = "accuracy") -> np.ndarray:
    """One number per seed."""
    return np.array([run[name] for run in results["runs"] if (run["method"], run["epsilon"]) == (method, epsilon)])


def difference(results: Results, epsilon: float, method: str = "adaclip", other: str = "abadi") -> tuple[float, float]:
    """How far `method` is ahead of `other`, in percent, and the standard error of that."""
    ours, theirs = (100.0 * values(results, name, epsilon) for name in (method, other))
    error = math.sqrt(ours.var(ddof=1) / len(ours) + theirs.var(ddof=1) / len(theirs)) if len(ours) > 1 else math.inf
    return float(ours.mean() - theirs.mean()), error


def _noise_and_batch(results: Results, epsilon: float) -> tuple[float, float]:
    z = float(values(results, "adaclip", epsilon, "noise_multiplier")[0])
    return z, float(results["settings"]["expected_batch_size"])


def noise_in_variance(experiment: experiments.Experiment, results: Results, epsilon: float) -> float:
    """d z^2 / B: the noise in one step's view of a coordinate's variance, as a multiple of that variance."""
    z, batch_size = _noise_and_batch(results, epsilon)
    return experiment.parameters * z**2 / batch_size


def saturation(experiment: experiments.Experiment, results: Results, epsilon: float) -> float:
    """AdaCliP's mean |b| over that of s = sqrt(h2) in all coordinates, which is a fixed clip of sqrt(d h2)."""
    z, batch_size = _noise_and_batch(results, epsilon)
    h2 = results["chosen"]["adaclip"][f"{epsilon:g}"]["h2"]
    at_ceiling = z * experiment.parameters * math.sqrt(h2) / batch_size
    return float(values(results, "adaclip", epsilon, "noise_norm").mean()) / at_ceiling
