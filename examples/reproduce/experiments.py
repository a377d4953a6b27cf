"""The paper's experiments on MNIST: who is compared, at which epsilons, over which grids.

Every method of an experiment has a grid of the same size at every epsilon. Methods with a knob of their own (a clip,
h2) search that and the learning rate; the others search the learning rate alone, more finely. All share the model, the
batch size, the epochs and the learning-rate schedule, which configs/paper.py holds.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import ml_collections
import numpy as np

from configs import paper
from examples.common import data

HELD_OUT = 10_000  # training images to judge candidates by; the test set is for the chosen one
SEEDS = 5

Candidate = dict[str, float]


class Published(NamedTuple):
    """A row that others reported, in percent."""

    label: str
    accuracies: tuple[float, ...]


class Experiment(NamedTuple):
    """One table."""

    name: str
    title: str
    parameters: int  # d
    epsilons: tuple[float, ...]
    grids: dict[str, list[Candidate]]  # per method
    labels: dict[str, str]
    published: dict[str, Published]  # per method
    rate_factors: dict[float, float] | None = None  # per epsilon, what all learning rates are multiplied by
    epochs: dict[float, int] | None = None  # per epsilon, where not as in configs/paper.py
    measures_error: bool = False  # also |g - g~|, which is not private
    shows_convergence: bool = False  # the accuracy after every epoch, which takes time

    def candidates(self, method: str, epsilon: float) -> list[Candidate]:
        """The grid of a method at an epsilon."""
        factor = (self.rate_factors or {}).get(epsilon, 1.0)
        epochs = {"epochs": self.epochs[epsilon]} if self.epochs and epsilon in self.epochs else {}
        return [
            {**candidate, "learning_rate": factor * candidate["learning_rate"], **epochs}
            for candidate in self.grids[method]
        ]


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


def _clips(rates: tuple[float, ...], clips: tuple[float, ...]) -> list[Candidate]:
    """While everything is clipped, a step is as long as rate times clip: so rates are given for a clip of 1."""
    return [{"learning_rate": rate / clip, "l2_norm_clip": clip} for clip, rate in itertools.product(clips, rates)]


def _ceilings(rates: tuple[float, ...], ceilings: tuple[float, ...]) -> list[Candidate]:
    """s starts at its ceiling: from the default, sqrt(h1 h2), it takes longer to rise than these runs are."""
    return [
        {"learning_rate": rate, "h2": h2, "initial_std": math.sqrt(h2)}
        for h2, rate in itertools.product(ceilings, rates)
    ]


def _rates(*rates: float) -> list[Candidate]:
    return [{"learning_rate": rate} for rate in rates]


_MOMENTA = {"0": 1.0, "0.5": 0.5, "0.9": 0.1, "0.99": 0.01}  # 1 - momentum: a step's length in the long run

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            name="softmax",
            title="Softmax regression",
            parameters=7_850,
            epsilons=(0.1, 0.25, 0.5, 1.0, 2.0),
            grids={
                "norm_bound": _rates(0.005, 0.01, 0.02, 0.05, 0.1, 0.3),
                "abadi_4": _rates(0.05, 0.1, 0.2, 0.4, 0.8, 1.6),
                "abadi": _clips((0.4, 1.2, 3.6), (0.5, 2.0)),
                "adaclip": _ceilings((0.4, 1.2, 3.6), (3e-5, 3e-4)),
            },
            labels={
                "norm_bound": "norm bound 28",
                "abadi_4": "Abadi et al., clip 4",
                "abadi": "Abadi et al., clip tuned",
                "adaclip": "AdaCliP",
            },
            published={
                "norm_bound": Published("norm bound 28 in the paper", (73.45, 79.18, 84.30, 88.02, 89.65)),
                "abadi_4": Published("Abadi et al., clip 4, in the paper", (84.23, 87.81, 90.13, 90.74, 90.97)),
                "adaclip": Published("AdaCliP in the paper", (85.37, 88.11, 90.29, 90.87, 91.15)),
            },
            rate_factors={1.0: 3.0, 2.0: 3.0},  # less noise allows longer steps
        ),
        Experiment(
            name="mlp",
            title="MLP on a private PCA",
            parameters=71_010,
            epsilons=(0.2, 0.5, 1.0, 2.0, 4.0),
            grids={
                "abadi_layers": _rates(0.5, 1.0, 2.0, 3.0, 4.0, 8.0),
                "abadi": _clips((5.0, 10.0, 20.0), (1.0, 2.5)),
                "adaclip": _ceilings((5.0, 10.0, 20.0), (3e-5, 1e-4)),
            },
            labels={
                "abadi_layers": "Abadi et al., clip 4 per layer",
                "abadi": "Abadi et al., clip tuned",
                "adaclip": "AdaCliP",
            },
            published={
                "abadi_layers": Published(
                    "Abadi et al., clip 4 per layer, in the paper", (85.55, 90.23, 92.92, 94.96, 95.91)
                ),
                "adaclip": Published("AdaCliP in the paper", (87.18, 91.26, 93.71, 95.56, 96.31)),
            },
            rate_factors={0.2: math.sqrt(0.2), 0.5: math.sqrt(0.5), 4.0: 1.5},
            epochs={2.0: 20, 4.0: 20},  # little noise: 8 epochs are too few to arrive
            measures_error=True,
        ),
        Experiment(
            name="momentum",
            title="Momentum with the noise of norm 28",
            parameters=7_850,
            epsilons=(0.1, 0.5, 2.0),
            grids={
                f"momentum_{name}": _rates(*[length * part for length in (0.01, 0.04, 0.16)])
                for name, part in _MOMENTA.items()
            },
            labels={f"momentum_{name}": f"momentum {name}" for name in _MOMENTA},
            published={},
            shows_convergence=True,
        ),
        Experiment(
            name="cnn",
            title="The CNN of tensorflow-privacy's tutorial",
            parameters=26_010,
            epsilons=(1.19, 3.01, 7.1),
            grids={
                "abadi": _clips((2.0, 4.0), (0.5, 1.0)),
                "adaclip": _ceilings((3.0, 6.0), (3e-5,)) + _ceilings((1.5, 3.0), (1e-4,)),
            },
            labels={"abadi": "Abadi et al., clip tuned", "adaclip": "AdaCliP"},
            published={"abadi": Published("DP-SGD in tensorflow-privacy's tutorial", (95.0, 96.6, 97.0))},
            rate_factors={1.19: 0.6},
        ),
    )
}


def tuning_jobs(experiment: Experiment) -> list[Job]:
    """Every candidate of every method, once, at every epsilon."""
    return [
        _job(experiment, "tune", method, epsilon, number, candidate)
        for epsilon in experiment.epsilons
        for method in experiment.grids
        for number, candidate in enumerate(experiment.candidates(method, epsilon))
    ]


def final_jobs(experiment: Experiment, chosen: dict[str, dict[str, Candidate]], seeds: int) -> list[Job]:
    """The chosen candidates, with every seed."""
    return [
        _job(experiment, "final", method, epsilon, seed, {**chosen[method][f"{epsilon:g}"], "seed": seed})
        for seed in range(seeds)
        for epsilon in experiment.epsilons
        for method in experiment.grids
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
    """The config as `examples.training` wants it."""
    return ml_collections.ConfigDict(job.config)


def choose(experiment: Experiment, tuned: list[dict[str, Any]]) -> dict[str, dict[str, Candidate]]:
    """The candidate with the best held-out accuracy, for every method and epsilon."""
    chosen: dict[str, dict[str, Candidate]] = {}
    for method in experiment.grids:
        for epsilon in experiment.epsilons:
            runs = [run for run in tuned if (run["method"], run["epsilon"]) == (method, epsilon)]
            best = max(runs, key=lambda run: run["accuracy"])
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
