"""The table, the page and the results file of the federated comparison. `page` holds the words."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
from typing import NamedTuple

import numpy as np

from examples.federated import comparison, page

TRUST = page.TRUST.strip()


class Paths(NamedTuple):
    """Where a report goes."""

    page: pathlib.Path
    results: pathlib.Path

    @classmethod
    def folder(cls, folder: str) -> Paths:
        root = pathlib.Path(folder)
        return cls(root / "federated.md", root / "federated.json")

    @classmethod
    def docs(cls) -> Paths:
        """The committed report."""
        root = pathlib.Path(__file__).parents[2] / "docs"
        return cls(root / "federated.md", root / "results" / "federated.json")


def table(results: dict[str, list[comparison.Result]]) -> str:
    """Mean (standard deviation over runs) of the test accuracy, and epsilon per client, in Markdown."""
    lines = ["| | options | server's learning rate | test accuracy | epsilon per client | noise norm, last round |"]
    lines.append("|---|---|--:|--:|--:|--:|")
    for name, method in comparison.methods().items():
        runs = results[name]
        spent = f"{runs[0].epsilon:.3f}" if math.isfinite(runs[0].epsilon) else "infinite"
        accuracy = _cell([run.accuracy for run in runs])
        noise = f"{np.mean([run.noise_norm for run in runs]):.3f}"
        lines.append(
            f"| {method.label} | {method.options} | {method.learning_rate:g} | {accuracy} | {spent} | {noise} |"
        )
    return "\n".join(lines)


def _cell(values: list[float]) -> str:
    spread = f" ({np.std(values, ddof=1):.3f})" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread}"


def write(
    results: dict[str, list[comparison.Result]],
    plan: comparison.Plan,
    paths: Paths,
    command: str,
    *,
    engine: str,
    dimension: int,
) -> Paths:
    """Writes page and results; returns where.

    Args:
      results, plan: of the comparison.
      paths: where to.
      command: that made them.
      engine: that clients ran on, a key of `page.ENGINES`.
      dimension: the number of weights.
    """
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
    paths.page.write_text(
        page.PAGE.format(
            command=command,
            clients=plan.clients,
            per_round=plan.per_round,
            q=plan.per_round / plan.clients,
            rounds=plan.rounds,
            alpha=plan.alpha,
            local_steps=plan.local.steps,
            momentum=plan.momentum,
            z=plan.noise_multiplier,
            delta=plan.delta,
            seeds=len(next(iter(results.values()))),
            dimension=dimension,
            ratio=dimension * plan.noise_multiplier**2 / plan.per_round,
            table=table(results),
            engine=page.ENGINES[engine].strip(),
            trust=TRUST,
        )
    )
    held = {
        "command": command,
        "plan": {**dataclasses.asdict(plan), "noise_multiplier": plan.noise_multiplier},
        # JSON has no infinity.
        "runs": {
            name: [{k: v if math.isfinite(v) else None for k, v in run._asdict().items()} for run in runs]
            for name, runs in results.items()
        },
        "engine": engine,
        "dimension": dimension,
    }
    paths.results.write_text(json.dumps(held, indent=1) + "\n")
    return paths
