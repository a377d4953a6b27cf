"""The figures of docs/results.md."""

from __future__ import annotations

import pathlib

import numpy as np

from examples.common import figures
from examples.reproduce import experiments
from examples.reproduce.results import Results, values


def accuracy(experiment: experiments.Experiment, results: Results, path: pathlib.Path) -> None:
    """Accuracy against epsilon, the spread over seeds, and the published figures as dashed lines."""
    figure, axes = figures.subplots(size=(6, 4))
    for name, method in experiment.methods.items():
        all_values = np.array([100.0 * values(results, name, epsilon) for epsilon in experiment.epsilons])
        spread = all_values.std(axis=1, ddof=1) if all_values.shape[1] > 1 else None
        means = all_values.mean(axis=1)
        bar = axes.errorbar(experiment.epsilons, means, spread, marker="o", capsize=3, label=method.label)
        if method.published:
            theirs = method.published
            axes.plot(experiment.epsilons, theirs.accuracies, "--", color=bar.lines[0].get_color(), label=theirs.label)
    axes.set(ylabel="test accuracy on MNIST, %")
    _epsilons_below(axes, experiment)
    _finish(figure, axes, path)


def error(experiment: experiments.Experiment, results: Results, path: pathlib.Path) -> None:
    """Mean |g - g~| against epsilon."""
    figure, axes = figures.subplots(size=(6, 4))
    for name, method in experiment.methods.items():
        errors = [values(results, name, epsilon, "gradient_error").mean() for epsilon in experiment.epsilons]
        axes.plot(experiment.epsilons, errors, marker="o", label=method.label)
    axes.set(yscale="log", ylabel="mean of |g - g~| over a run")
    _epsilons_below(axes, experiment)
    _finish(figure, axes, path)


def convergence(experiment: experiments.Experiment, results: Results, path: pathlib.Path) -> None:
    """Accuracy after every epoch at epsilon 0.5, mean over seeds."""
    figure, axes = figures.subplots(size=(6, 4))
    for name, method in experiment.methods.items():
        curves = 100.0 * values(results, name, 0.5, "by_epoch")
        axes.plot(range(1, curves.shape[1] + 1), curves.mean(axis=0), marker="o", markersize=3, label=method.label)
    axes.set(xlabel="epoch", ylabel="test accuracy on MNIST, %")
    _finish(figure, axes, path)


def _epsilons_below(axes, experiment: experiments.Experiment) -> None:
    axes.set(xscale="log", xlabel="epsilon at delta = 1e-5")
    axes.set_xticks(experiment.epsilons, [f"{epsilon:g}" for epsilon in experiment.epsilons])
    axes.minorticks_off()


def _finish(figure, axes, path: pathlib.Path) -> None:
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
    figures.save(figure, path)
