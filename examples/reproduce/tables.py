"""The tables of docs/results.md and docs/summary.md, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from examples.reproduce import experiments
from examples.reproduce.results import Results, difference, noise_in_variance, saturation, values


def accuracy_table(experiment: experiments.Experiment, results: Results) -> str:
    """Test accuracy in percent, mean (sd), with the published rows below ours."""
    rows = []
    for name, method in experiment.methods.items():
        cells = [_percent(values(results, name, epsilon)) for epsilon in experiment.epsilons]
        rows.append([method.label, *cells])
        if method.published:
            theirs = method.published
            rows.append([f"*{theirs.label}*", *[f"*{value:.2f}*" for value in theirs.accuracies]])
    rows.append(["epsilon by PLD", *[f"{results['epsilon_pld'][f'{e:g}']:.3f}" for e in experiment.epsilons]])
    return _markdown(["epsilon (RDP)", *[f"{epsilon:g}" for epsilon in experiment.epsilons]], rows)


def short_table(experiment: experiments.Experiment, results: Results) -> str:
    """The summary's: means of AdaCliP, of Abadi et al. with a tuned clip and of learnt scales, and published ones."""
    shown = ("adaclip", "abadi", "scales")
    ours = {name: experiment.methods[name] for name in shown if name in experiment.methods}
    rows = [
        [method.label, *[f"{100.0 * values(results, name, e).mean():.2f}" for e in experiment.epsilons]]
        for name, method in ours.items()
    ]
    theirs = next(method.published for method in ours.values() if method.published)
    rows.append([theirs.label, *[f"{value:.2f}" for value in theirs.accuracies]])
    return _markdown([f"{experiment.title}, epsilon", *[f"{epsilon:g}" for epsilon in experiment.epsilons]], rows)


def chosen_table(experiment: experiments.Experiment, results: Results) -> str:
    """What the grids chose."""
    rows = [
        [method.label, *[_candidate(results["chosen"][name][f"{epsilon:g}"]) for epsilon in experiment.epsilons]]
        for name, method in experiment.methods.items()
    ]
    return _markdown(["chosen", *[f"{epsilon:g}" for epsilon in experiment.epsilons]], rows)


def error_table(experiment: experiments.Experiment, results: Results) -> str:
    """Mean |g - g~| of every method, and the ratio of AdaCliP's to the others'."""
    rows = []
    ours = {epsilon: values(results, "adaclip", epsilon, "gradient_error") for epsilon in experiment.epsilons}
    for name, method in experiment.methods.items():
        theirs = {epsilon: values(results, name, epsilon, "gradient_error") for epsilon in experiment.epsilons}
        rows.append([method.label, *[_plain(theirs[epsilon]) for epsilon in experiment.epsilons]])
        if name != "adaclip":
            ratios = [f"{np.mean(ours[epsilon]) / np.mean(theirs[epsilon]):.2f}" for epsilon in experiment.epsilons]
            rows.append([f"AdaCliP / {method.label}", *ratios])
    return _markdown(["epsilon", *[f"{epsilon:g}" for epsilon in experiment.epsilons]], rows)


def verdict_table(experiment: experiments.Experiment, results: Results) -> str:
    """AdaCliP against Abadi et al. with a clip that was tuned as hard."""
    others = {name: method for name, method in experiment.methods.items() if name == "scales"}
    cells, words = [], []
    for epsilon in experiment.epsilons:
        ahead, error = difference(results, epsilon)
        cells.append(f"{ahead:+.2f} ± {error:.2f}")
        words.append("level" if abs(ahead) <= 2.0 * error else ("AdaCliP" if ahead > 0.0 else "Abadi et al."))
    rows = [
        ["AdaCliP minus tuned clip ± standard error", *cells],
        ["ahead by more than two standard errors", *words],
        *[_beside(experiment, results, name, method.label) for name, method in others.items()],
        ["d z² / B", *[f"{noise_in_variance(experiment, results, epsilon):.2g}" for epsilon in experiment.epsilons]],
        [
            "norm of b over its ceiling",
            *[f"{saturation(experiment, results, epsilon):.2f}" for epsilon in experiment.epsilons],
        ],
    ]
    return _markdown(["epsilon", *[f"{epsilon:g}" for epsilon in experiment.epsilons]], rows)


def _beside(experiment: experiments.Experiment, results: Results, name: str, label: str) -> list[str]:
    """How far another method is ahead of the tuned clip."""
    both = [difference(results, epsilon, method=name) for epsilon in experiment.epsilons]
    return [f"{label} minus tuned clip ± standard error", *[f"{ahead:+.2f} ± {error:.2f}" for ahead, error in both]]


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|---|" + "--:|" * (len(header) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def _percent(numbers: np.ndarray) -> str:
    spread = f" ({100.0 * numbers.std(ddof=1):.2f})" if len(numbers) > 1 else ""
    return f"{100.0 * numbers.mean():.2f}{spread}"


def _plain(numbers: np.ndarray) -> str:
    spread = f" ({numbers.std(ddof=1):.2g})" if len(numbers) > 1 else ""
    return f"{numbers.mean():.3g}{spread}"


def _candidate(candidate: experiments.Candidate) -> str:
    short = {"learning_rate": "rate", "l2_norm_clip": "clip", "h2": "h2", "epochs": "epochs"}
    if candidate["learning_rate"] == 0.0:  # `make_private`
        return "its own rate"
    return ", ".join(f"{label} {candidate[name]:.3g}" for name, label in short.items() if name in candidate)
