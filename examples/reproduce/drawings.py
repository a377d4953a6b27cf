"""The figures of docs/results.md. Bars and bands are one standard deviation over seeds."""

from __future__ import annotations

import pathlib

import numpy as np

from examples.common import figures
from examples.reproduce import experiments
from examples.reproduce.results import Results, values


def accuracy(experiment: experiments.Experiment, results: Results, path: pathlib.Path) -> None:
    """Accuracy against epsilon, the spread over seeds, and the published figures as dashed lines."""
    with figures.drawn(path) as (_, axes):
        for name, method in experiment.methods.items():
            bar = _bars(axes, experiment, [100.0 * values(results, name, e) for e in experiment.epsilons], method.label)
            if method.published:
                theirs, colour = method.published, bar.lines[0].get_color()
                axes.plot(experiment.epsilons, theirs.accuracies, "--", marker="", color=colour, label=theirs.label)
        axes.set(ylabel="test accuracy on MNIST, %")
        _epsilons_below(axes, experiment)
        axes.legend()


def error(experiment: experiments.Experiment, results: Results, path: pathlib.Path) -> None:
    """Mean |g - g~| against epsilon."""
    from matplotlib import ticker

    with figures.drawn(path) as (_, axes):
        for name, method in experiment.methods.items():
            errors = [values(results, name, epsilon, "gradient_error") for epsilon in experiment.epsilons]
            _bars(axes, experiment, errors, method.label)
        axes.set(yscale="log", ylabel="mean of |g - g~| over a run")
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 3.0, 5.0)))
        axes.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        _epsilons_below(axes, experiment)
        axes.legend()


def convergence(experiment: experiments.Experiment, results: Results, path: pathlib.Path) -> None:
    """Accuracy after every epoch at epsilon 0.5; beside it the last epochs, where the lines lie close together."""
    with figures.drawn(path, 1, 2) as (_, (left, right)):
        for index, (name, method) in enumerate(experiment.methods.items()):
            curves = 100.0 * values(results, name, 0.5, "by_epoch")
            epochs = np.arange(1, curves.shape[1] + 1)
            spread = curves.std(axis=0, ddof=1) if len(curves) > 1 else np.zeros(len(epochs))
            last = epochs > len(epochs) // 2
            for axes, shown in ((left, epochs > 0), (right, last)):
                beside = 0.06 * (index - (len(experiment.methods) - 1) / 2)  # so that bars do not cover each other
                axes.errorbar(epochs[shown] + beside, curves.mean(axis=0)[shown], spread[shown], label=method.label)
        left.set(xlabel="epoch", ylabel="test accuracy on MNIST, %")
        right.set(xlabel="epoch, the second half")
        left.legend(loc="lower right")


def _bars(axes, experiment: experiments.Experiment, by_epsilon: list[np.ndarray], label: str):
    """Means, and the standard deviation over seeds where there are several."""
    spread = [one.std(ddof=1) if len(one) > 1 else 0.0 for one in by_epsilon]
    return axes.errorbar(experiment.epsilons, [one.mean() for one in by_epsilon], spread, label=label)


def _epsilons_below(axes, experiment: experiments.Experiment) -> None:
    axes.set(xscale="log", xlabel="epsilon at delta = 1e-5")
    axes.set_xticks(experiment.epsilons, [f"{epsilon:g}" for epsilon in experiment.epsilons])
    axes.minorticks_off()
