"""Would one change of the default help where it is behind? The default in NumPy, with changes; on held-out parts.

    python -m examples.tabular.study              # writes docs/results/tabular_study.json, goes on where it stopped
    python -m examples.tabular.study --problem=diabetes --change=rate_05
    python -m examples.tabular.study --round=2    # what came of it: writes docs/results/tabular_choice.json
    python -m examples.tabular.study --judge      # by the test sets of reserved problems: .../tabular_judged.json

Trains on five sixths of the TRAINING parts and looks at the last sixth, never at a test set: of the problems that the
default was chosen on, and of others that are in no comparison (`OTHERS`). Nothing here is private: "known" changes look
at the data without noise, to see what an idea is worth at best.

How a change of the default is chosen (written down before the second round of changes was run):

1. Looked at first, by seeds from 6000 on, on half of the problems: `LOOKED_AT`. What may change: how much of a row's
   size is frequency, by one more noised question (how often a row is not 0; for all rows, or to raise rare ones alone);
   the power and the clip, as functions of kappa; the learning rate of squared losses, as a function of kappa, T and n;
   the floor; averages of late iterates.
2. At most three candidates go on. By new seeds, from 7000 on, on all problems of the study, one is chosen if its mean
   difference by seed is above two standard errors on diabetes, wives and pharmacy, those that it is for, or on those
   of them that it claims to mend; and if no other problem loses more than two standard errors. A loss that it would
   fail by is looked at once more, with as many further seeds, and counts if all of them together show it.
3. What was chosen is judged once, by `problems.RESERVED` and by the test sets of the comparison, and is told
   whatever comes out. The default changes if it is level with the old one or better on each of the reserved ones.

What came of it, and where it was not as written: `words.ROUND_2` and what follows it, which the page has.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from absl import app, flags

from adaclip_tf.scales.method import Method
from adaclip_tf.training import plan as planning
from examples.tabular import competitors, problems, report, study_problems, study_scales, study_table
from examples.tabular.comparison import Runs
from examples.tabular.problems import Problem
from examples.tabular.study_changes import CHANGES, EVERY, ROUND_2, TOLD_OF_ROUND_2, Change
from examples.tabular.study_warmup import Warmup, signal
from examples.tabular.tables import Table

SEEDS, SEEDS_OF_FEW, SEEDS_OF_FEW_2 = 4, 24, 16  # for sets of some hundred rows; in the second round
FIRST_SEED, FIRST_OF_ROUND_2, FIRST_TO_JUDGE = 5000, 9000, 1000
SEEDS_TO_JUDGE = 20
LOOKED_AT = (
    "adult",
    "flights",
    "spam",
    "diabetes",
    "boston",
    "elderly",
    "germans",
    "wages",
    "diamonds_01",
    "wives",
    "pharmacy",
)


def train(problem: Problem, table: Table, change: Change, seed: int) -> dict[str, float]:
    """As `make_private` would, in NumPy; the metric and the loss on the table's test part."""
    rng = np.random.default_rng(seed)
    x, y, n = competitors.with_ones(table.x_train), table.y_train, len(table.x_train)
    weights = competitors.initial_weights(problem, table.x_train.shape[1], rng)
    classes = problem.outputs if problem.kind == "softmax" else 2
    plan = _plan(problem, n, classes, change.settings)
    asked = Warmup(problem, weights, x, y, plan, change, rng)
    clip, shapes = asked.learn()
    coordinates = sum(kernel.size for kernel in weights)
    mult = change.settings.multiplier_for(plan.noise_multiplier, coordinates, problem.batch_size, classes)
    sizes = [clip * shape for shape in shapes]
    rate, z = _rate(problem, plan, change, classes, coordinates), plan.noise_multiplier
    power, unseen, decay = [np.zeros(w.shape, np.float32) for w in weights], 1.0, change.settings.damping_decay
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(plan.steps):
            batch = np.flatnonzero(rng.random(n, dtype=np.float32) < problem.batch_size / n)
            pairs = competitors.factors(problem, weights, x[batch], y[batch])
            squares = sum(((a / s[:, 0]) ** 2).sum(axis=1) * (dy * dy).sum(axis=1) for (a, dy), s in zip(pairs, sizes))
            factor = 1.0 / np.maximum(mult, np.sqrt(squares))
            now = rate * (1.0 - step / plan.steps) ** plan.rate_fall * max(1.0, mult)
            unseen *= decay
            for index, ((a, dy), size) in enumerate(zip(pairs, sizes)):
                noised = (a / size[:, 0]).T @ (dy * factor[:, None])
                noised = noised + z * rng.standard_normal(noised.shape, dtype=np.float32)
                direction = noised / np.maximum(np.sqrt(power[index] / max(1.0 - unseen / decay, 1e-6)) / 4.0, 1.0)
                power[index] = decay * power[index] + (1.0 - decay) * (noised / z) ** 2
                weights[index] = (weights[index] - now / problem.batch_size * direction / size).astype(np.float32)
        outputs = competitors.outputs(weights, competitors.with_ones(table.x_test))
        metric, loss = problems.score(problem, outputs, table.y_test)
    return {"metric": metric, "loss": loss, "clip": clip, "multiplier": mult, "learning_rate": rate}


@functools.lru_cache(maxsize=256)
def _plan(problem: Problem, examples: int, classes: int, settings: Method) -> planning.Plan:
    return planning.make_plan(
        num_examples=examples,
        batch_size=problem.batch_size,
        epochs=problem.epochs,
        target_epsilon=problem.epsilon,
        delta=problems.DELTA,
        classes=classes,
        kernels=2 if problem.hidden else 1,
        accountant="rdp",
        before=None,
        settings=settings,
    )


def _rate(problem: Problem, plan: planning.Plan, change: Change, classes: int, coordinates: int) -> float:
    by_class = change.settings.rate_per_class * max(classes, 2)
    noisy = change.settings.learning_rate(plan.noise_alone, problem.batch_size, plan.steps, classes, 1) < by_class
    if change.squared and problem.kind == "linear":
        by_noise = change.settings.rate_by_noise * problem.batch_size / (plan.noise_alone * math.sqrt(plan.steps))
        return min(by_class, by_noise * study_scales.squared_factor(signal(plan), coordinates))
    return plan.learning_rate * (change.rate_noisy if noisy else 1.0)


def run(
    name: str, changes: Sequence[str], runs: Runs, seeds: int | None, data_dir: str | None, first: int
) -> dict[str, list[float]]:
    """The metrics of each change, on held-out parts."""
    problem = study_problems.PROBLEMS[name]
    load = functools.lru_cache(maxsize=1)(lambda: problems.held_out(problem.load(data_dir)))
    few = SEEDS_OF_FEW_2 if first == FIRST_OF_ROUND_2 else SEEDS_OF_FEW
    number = seeds or (few if problem.tuning_seeds > 3 else SEEDS)
    return _outcomes(problem, load, changes, runs, range(first, first + number), "study")


def judge(problem: Problem, runs: Runs, seeds: int | None, data_dir: str | None) -> dict[str, list[float]]:
    """The default, and what each set of reserved problems judged, on a test set."""
    load = functools.lru_cache(maxsize=1)(lambda: problem.load(data_dir))
    numbers = range(FIRST_TO_JUDGE, FIRST_TO_JUDGE + (seeds or SEEDS_TO_JUDGE))
    return _outcomes(problem, load, tuple(ROUND_2), runs, numbers, "judge")


def _outcomes(
    problem: Problem, load: Callable[[], Table], changes: Sequence[str], runs: Runs, seeds: range, folder: str
) -> dict[str, list[float]]:
    def outcome(change: str, seed: int) -> dict[str, Any]:
        about = dataclasses.asdict(EVERY[change])
        identity = {"problem": problem.name, "epsilon": problem.epsilon, "change": about, "seed": seed}
        key = f"{folder}/{problem.name}-{change}-{seed}"
        return runs.get(key, identity, lambda: train(problem, load(), EVERY[change], seed))

    return {change: [outcome(change, seed)["metric"] for seed in seeds] for change in changes}


def main(argv):
    del argv
    values = flags.FLAGS
    runs = Runs(pathlib.Path(values.runs), lambda text: None)
    found: dict[str, dict[str, list[float]]] = {}

    def keep(name: str, outcomes: dict[str, list[float]]) -> None:
        found[name] = outcomes
        print(study_table.table({name: outcomes}).splitlines()[2], flush=True)

    if values.judge:
        for problem in (*problems.RESERVED_LAST, *problems.RESERVED, *problems.RESERVED_AGAIN):
            keep(problem.name, judge(problem, runs, values.seeds, values.data_dir))
        report.store("judged", found)
        return
    names = list(study_problems.PROBLEMS) if "all" in values.problem else values.problem
    known = TOLD_OF_ROUND_2 if values.round == 2 else tuple(CHANGES)
    changes = list(known) if "all" in values.change else list(dict.fromkeys(["default", *values.change]))
    first = FIRST_OF_ROUND_2 if values.round == 2 else FIRST_SEED
    for name in names:
        keep(name, run(name, changes, runs, values.seeds, values.data_dir, first))
    if "all" in values.problem and "all" in values.change:
        report.store("choice" if values.round == 2 else "study", found)


if __name__ == "__main__":
    flags.DEFINE_multi_enum("problem", ["all"], ["all", *study_problems.PROBLEMS], "Which; may be given several times.")
    flags.DEFINE_multi_enum("change", ["all"], ["all", *EVERY], "Which, beside the default.")
    flags.DEFINE_integer("round", 1, "1: ideas, each by itself. 2: what came of them.", lower_bound=1, upper_bound=2)
    flags.DEFINE_bool("judge", False, "Judge the second round by the test sets of the reserved problems.")
    flags.DEFINE_integer("seeds", None, "Runs of each; 4, or 24 for small sets, without it.", lower_bound=2)
    flags.DEFINE_string("runs", "runs/tabular", "Folder with a file for every run.")
    flags.DEFINE_string("data_dir", None, "Folder for the packages; ~/.cache/adaclip_tf without it.")
    app.run(main)
