"""What a demonstration came to, whichever problem it was on; and the check that it came to what it should."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
from typing import Any


@dataclasses.dataclass
class Run:
    """One training.

    Attributes:
      name: of its folder, and of its run in TensorBoard.
      label: in tables and figures.
      chosen: what was chosen by hand, or tuned, in words.
      metric: on the test set, in percent.
      epsilon, noise_norm, seconds: at the end.
      history: "epsilon", "metric" (percent) and "noise_norm" after every epoch.
      least: the metric that is expected at least.
    """

    name: str
    label: str
    chosen: str
    metric: float
    epsilon: float
    noise_norm: float
    seconds: float
    history: dict[str, list[float]]
    least: float


@dataclasses.dataclass
class Results:
    """All trainings of a demonstration.

    Attributes:
      title: of the problem.
      metric: its name, in words.
      source: where the data came from.
      target_epsilon, delta: the same for all runs.
      seconds: all of it.
      runs: in their order.
      closing: what is to be said in the end.
    """

    title: str
    metric: str
    source: str
    target_epsilon: float
    delta: float
    seconds: float
    runs: list[Run]
    closing: str

    def as_dict(self) -> dict[str, Any]:
        """As plain values."""
        return dataclasses.asdict(self)


def empty_folder(output: str, name: str) -> pathlib.Path:
    """The folder of a run, without what an earlier demonstration left there."""
    folder = pathlib.Path(output) / name
    if list(folder.glob("events.out.tfevents*")) or (folder / "config.json").exists():
        shutil.rmtree(folder)
    return folder


def check(results: Results) -> str:
    """Says in a line that all runs kept their budget and learnt; RuntimeError if not."""
    for run in results.runs:
        target = results.target_epsilon
        if not 0.9 * target < run.epsilon <= target:
            raise RuntimeError(f"{run.label} spent epsilon {run.epsilon:.4f} of {target:g}.")
        if not run.metric > run.least:
            raise RuntimeError(f"{run.label} reached {run.metric:.1f}; expected more than {run.least:g}.")
    reached = ", ".join(f"{run.label} {run.metric:.1f}" for run in results.runs)
    return f"ok: {results.metric} of {reached}, each within its epsilon ({results.seconds:.0f} s)"
