"""All that is attacked: single trainings of every kind, and whole programs."""

from __future__ import annotations

from examples.audit import experiment, whole_runs
from examples.audit.experiment import Setting

# (z, q, T)
MECHANISMS = ((1.0, 1.0, 1), (2.0, 1.0, 1), (4.0, 1.0, 16), (1.0, 0.1, 10), (0.7, 0.25, 5))
MICROBATCHED = ((3.0, 1.0, 1),)
OF_INNER = ((4.0, 1.0, 16), (0.7, 0.25, 5))


def settings() -> list[Setting]:
    """The grid."""
    own = [
        Setting(optimizer, path, *mechanism, microbatches=mechanism in MICROBATCHED)
        for mechanism in (*MECHANISMS, *MICROBATCHED)
        for optimizer in experiment.OPTIMIZERS
        for path in experiment.PATHS
    ]
    inner = [Setting(optimizer, "ghost", *mechanism) for mechanism in OF_INNER for optimizer in experiment.INNER]
    return [*own, *inner, *whole_runs.settings()]


def views(setting: Setting) -> int:
    """How many views an attack on it has: weights, or what an inner optimizer keeps; and AdaCliP's state."""
    return 2 if setting.optimizer.startswith("adaclip") else 1


def audit(grid, *, canaries: int, runs: int, confidence: float, seed: int | None = None, progress=iter):
    """Runs and evaluates the grid. All bounds together hold with `confidence`."""
    each = 1.0 - (1.0 - confidence) / (3 * sum(views(setting) for setting in grid))
    findings = []
    for number, setting in enumerate(progress(grid)):
        run = whole_runs.RUNS.get(setting.optimizer, experiment.run)
        trials = run(setting, canaries=canaries, runs=runs, seed=None if seed is None else seed + number)
        findings += experiment.evaluate(setting, trials, each)
    return findings
