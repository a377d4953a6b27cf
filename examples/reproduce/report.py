"""docs/results.md and its figures, from the results files that examples/reproduce/__main__.py writes."""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Sequence
from typing import Any

import dp_accounting
import numpy as np

import adaclip_tf
from adaclip_tf.privacy import events
from configs import base, paper
from examples.reproduce import experiments

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
README = DOCS.parent / "README.md"
_KEPT = (
    "method",
    "epsilon",
    "number",
    "accuracy",
    "epsilon_spent",
    "noise_multiplier",
    "pca_noise_multiplier",
    "steps",
    "num_examples",
    "noise_norm",
    "gradient_error",
    "by_epoch",
    "seconds",
)

Results = dict[str, Any]


# ---------------------------------------------------------------------------------------------------
# The results file.


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
        "grids": experiment.grids,
        "chosen": chosen,
        "epsilon_pld": {f"{epsilon:g}": pld_epsilon(experiment, final, epsilon) for epsilon in experiment.epsilons},
        "tuned": [{name: run[name] for name in ("method", "epsilon", "number", "accuracy")} for run in tuned],
        "runs": [{name: run[name] for name in _KEPT} for run in final],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{experiment.name}.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    return path


def _stored(name: str, docs: pathlib.Path) -> Results | None:
    """What `store` wrote for an experiment, if it was run."""
    path = docs / "results" / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def pld_epsilon(experiment: experiments.Experiment, final: list[dict[str, Any]], epsilon: float) -> float:
    """The epsilon of the same runs by privacy loss distributions. All methods have the same noise."""
    runs = [run for run in final if run["epsilon"] == epsilon]
    noises = {(run["noise_multiplier"], run["pca_noise_multiplier"], run["steps"], run["num_examples"]) for run in runs}
    ((noise, pca_noise, steps, num_examples),) = noises
    event = adaclip_tf.training_event(
        noise_multiplier=noise,
        num_examples=num_examples,
        batch_size=paper.EXPERIMENTS[experiment.name]["expected_batch_size"],
        steps=steps,
    )
    if pca_noise is not None:
        event = dp_accounting.ComposedDpEvent([events.gaussian_event(pca_noise), event])
    return adaclip_tf.epsilon_of(event, delta=base.get_config().delta, accountant="pld")


# ---------------------------------------------------------------------------------------------------
# Tables.


def values(results: Results, method: str, epsilon: float, name: str = "accuracy") -> np.ndarray:
    """One number per seed."""
    return np.array([run[name] for run in results["runs"] if (run["method"], run["epsilon"]) == (method, epsilon)])


def accuracy_table(experiment: experiments.Experiment, results: Results) -> str:
    """Test accuracy in percent, mean (sd), with the published rows below ours."""
    rows = []
    for method, label in experiment.labels.items():
        cells = [_percent(values(results, method, epsilon)) for epsilon in experiment.epsilons]
        rows.append([label, *cells])
        if method in experiment.published:
            theirs = experiment.published[method]
            rows.append([f"*{theirs.label}*", *[f"*{value:.2f}*" for value in theirs.accuracies]])
    rows.append(["epsilon by PLD", *[f"{results['epsilon_pld'][f'{e:g}']:.3f}" for e in experiment.epsilons]])
    return _markdown(["epsilon (RDP)", *[f"{epsilon:g}" for epsilon in experiment.epsilons]], rows)


def short_table(experiment: experiments.Experiment, results: Results) -> str:
    """The README's: means of AdaCliP and of Abadi et al. with a tuned clip, and who is to be compared with."""
    rows = [
        [experiment.labels[method], *[f"{100.0 * values(results, method, e).mean():.2f}" for e in experiment.epsilons]]
        for method in ("adaclip", "abadi")
    ]
    theirs = experiment.published.get("adaclip") or experiment.published["abadi"]
    rows.append([theirs.label, *[f"{value:.2f}" for value in theirs.accuracies]])
    return _markdown([f"{experiment.title}, epsilon", *[f"{epsilon:g}" for epsilon in experiment.epsilons]], rows)


def chosen_table(experiment: experiments.Experiment, results: Results) -> str:
    """What the grids chose."""
    rows = [
        [label, *[_candidate(results["chosen"][method][f"{epsilon:g}"]) for epsilon in experiment.epsilons]]
        for method, label in experiment.labels.items()
    ]
    return _markdown(["chosen", *[f"{epsilon:g}" for epsilon in experiment.epsilons]], rows)


def error_table(experiment: experiments.Experiment, results: Results) -> str:
    """Mean |g - g~| of every method, and the ratio of AdaCliP's to the others'."""
    rows = []
    ours = {epsilon: values(results, "adaclip", epsilon, "gradient_error") for epsilon in experiment.epsilons}
    for method, label in experiment.labels.items():
        theirs = {epsilon: values(results, method, epsilon, "gradient_error") for epsilon in experiment.epsilons}
        rows.append([label, *[_plain(theirs[epsilon]) for epsilon in experiment.epsilons]])
        if method != "adaclip":
            ratios = [f"{np.mean(ours[epsilon]) / np.mean(theirs[epsilon]):.2f}" for epsilon in experiment.epsilons]
            rows.append([f"AdaCliP / {label}", *ratios])
    return _markdown(["epsilon", *[f"{epsilon:g}" for epsilon in experiment.epsilons]], rows)


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


def verdict_table(experiment: experiments.Experiment, results: Results) -> str:
    """AdaCliP against Abadi et al. with a clip that was tuned as hard."""
    cells, words = [], []
    for epsilon in experiment.epsilons:
        ahead, error = difference(results, epsilon)
        cells.append(f"{ahead:+.2f} ± {error:.2f}")
        words.append("level" if abs(ahead) <= 2.0 * error else ("AdaCliP" if ahead > 0.0 else "Abadi et al."))
    rows = [
        ["AdaCliP minus tuned clip ± standard error", *cells],
        ["ahead by more than two standard errors", *words],
        ["d z² / B", *[f"{noise_in_variance(experiment, results, epsilon):.2g}" for epsilon in experiment.epsilons]],
        [
            "norm of b over its ceiling",
            *[f"{saturation(experiment, results, epsilon):.2f}" for epsilon in experiment.epsilons],
        ],
    ]
    return _markdown(["epsilon", *[f"{epsilon:g}" for epsilon in experiment.epsilons]], rows)


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
    return ", ".join(f"{label} {candidate[name]:.3g}" for name, label in short.items() if name in candidate)


# ---------------------------------------------------------------------------------------------------
# Figures.


def draw_accuracy(experiment: experiments.Experiment, results: Results, path: pathlib.Path) -> None:
    """Accuracy against epsilon, the spread over seeds, and the published figures as dashed lines."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    for method, label in experiment.labels.items():
        all_values = np.array([100.0 * values(results, method, epsilon) for epsilon in experiment.epsilons])
        spread = all_values.std(axis=1, ddof=1) if all_values.shape[1] > 1 else None
        bar = axes.errorbar(experiment.epsilons, all_values.mean(axis=1), spread, marker="o", capsize=3, label=label)
        if method in experiment.published:
            theirs = experiment.published[method]
            axes.plot(experiment.epsilons, theirs.accuracies, "--", color=bar.lines[0].get_color(), label=theirs.label)
    axes.set(xscale="log", xlabel="epsilon at delta = 1e-5", ylabel="test accuracy on MNIST, %")
    axes.set_xticks(experiment.epsilons, [f"{epsilon:g}" for epsilon in experiment.epsilons])
    axes.minorticks_off()
    _finish(figure, axes, path)


def draw_error(experiment: experiments.Experiment, results: Results, path: pathlib.Path) -> None:
    """Mean |g - g~| against epsilon."""
    figure, axes = _pyplot().subplots(figsize=(6, 4), layout="constrained")
    for method, label in experiment.labels.items():
        errors = [values(results, method, epsilon, "gradient_error").mean() for epsilon in experiment.epsilons]
        axes.plot(experiment.epsilons, errors, marker="o", label=label)
    axes.set(xscale="log", yscale="log", xlabel="epsilon at delta = 1e-5", ylabel="mean of |g - g~| over a run")
    axes.set_xticks(experiment.epsilons, [f"{epsilon:g}" for epsilon in experiment.epsilons])
    axes.minorticks_off()
    _finish(figure, axes, path)


def draw_convergence(experiment: experiments.Experiment, results: Results, path: pathlib.Path) -> None:
    """Accuracy after every epoch at epsilon 0.5, mean over seeds."""
    figure, axes = _pyplot().subplots(figsize=(6, 4), layout="constrained")
    for method, label in experiment.labels.items():
        curves = 100.0 * values(results, method, 0.5, "by_epoch")
        axes.plot(range(1, curves.shape[1] + 1), curves.mean(axis=0), marker="o", markersize=3, label=label)
    axes.set(xlabel="epoch", ylabel="test accuracy on MNIST, %")
    _finish(figure, axes, path)


def _pyplot():
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _finish(figure, axes, path: pathlib.Path) -> None:
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, metadata={"Software": None})
    _pyplot().close(figure)


# ---------------------------------------------------------------------------------------------------
# The page.

HEAD = """# The paper's experiments on MNIST

Written by `python -m examples.reproduce`; do not edit by hand. The paper's first experiment, regression against the
dimension, has its own page: [regression.md](regression.md).

Test accuracy in percent: mean (standard deviation) over {seeds} seeds, at delta = 1e-5, with true Poisson sampling.
Epsilon is by Renyi accounting, as in the paper; the last line gives the same runs by privacy loss distributions. Rows
in italics are what others reported. Every method has the same model, batch size, epochs, learning-rate schedule and
noise multiplier, and at every epsilon the same number of candidates: trained once on 50,000 training images, judged on
the other 10,000. The best candidate was then trained anew on all 60,000 with every seed, and met the test set only
there. Where the grids lie was decided by trials on the same held-out images, for all methods. The search itself is not
private: it looked at MNIST many times. Softmax regression, momentum and the MLP up to epsilon 1 were run with
one of TensorFlow's normal draws per value of the noise, the others with two. The settings are configs:
`python -m examples.train --config=configs/paper.py:softmax/adaclip/0.5`.

## Does AdaCliP beat a clip that was tuned as hard?

Not here: the tables below have the differences with their standard errors. Why: what a step shows of a coordinate's
variance carries noise of about d z² / B times that variance, and in all these runs this is far above 1. Then the
residual is noise: it passes the ceiling h2 when a normal variable passes one standard deviation, with probability
0.317, and falls to the floor otherwise. So s² is 0.317 h2 in every coordinate, |b| is 0.56 of what s = sqrt(h2) gives
(the tables' last line measures it), and AdaCliP is a fixed clip of 0.56 sqrt(d h2) around the mean m: as good as a clip
that was tuned, and no better. It has an advantage where few coordinates carry the gradient and d z² / B is small
enough to tell which: in the regression experiment.
"""

README_TABLES = ("softmax", "mlp", "cnn")
NOTES = {
    "softmax": "784 x 10 weights, batch 600, {epochs} epochs, a learning rate that falls to 0 on a straight line.",
    "mlp": (
        "PrivatePCA to 60 dimensions with {pca_fraction:.0%} of epsilon (by itself), 1,000 hidden units, batch "
        "{expected_batch_size:,}, {epochs} epochs (20 at epsilon 2 and 4), a learning rate that falls to 0 on a "
        "straight line. Epsilon pays for PCA and training together."
    ),
    "momentum": (
        "Softmax regression with the noise of the norm bound 28 and no other clipping (the paper's appendix), batch "
        "{expected_batch_size:,}, {epochs} epochs, a constant learning rate."
    ),
    "cnn": "Batch {expected_batch_size:,}, {epochs} epochs, a learning rate that falls to 0 on a straight line.",
}


def write(docs: pathlib.Path = DOCS) -> list[pathlib.Path]:
    """Writes the page and its figures from the results files that are there; returns the paths."""
    sections, written, seeds = [], [], 0
    for experiment in experiments.EXPERIMENTS.values():
        results = _stored(experiment.name, docs)
        if results is None:
            continue
        seeds = max(seeds, len({run["number"] for run in results["runs"]}))
        section, figures = _section(experiment, results, docs)
        sections.append(section)
        written += figures
    page = docs / "results.md"
    page.write_text("\n".join([HEAD.format(seeds=seeds), *sections]))
    return [page, *written]


def write_readme(readme: pathlib.Path = README, docs: pathlib.Path = DOCS) -> pathlib.Path:
    """Puts the short tables of the results files between their marks in the README."""
    text = readme.read_text()
    for name in README_TABLES:
        results = _stored(name, docs)
        if results is None:
            continue
        begin, end = f"<!-- results: {name} -->\n", "<!-- end -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}{short_table(experiments.EXPERIMENTS[name], results)}\n{end}{after}"
    readme.write_text(text)
    return readme


def _section(
    experiment: experiments.Experiment, results: Results, docs: pathlib.Path
) -> tuple[str, list[pathlib.Path]]:
    accuracy = docs / "figures" / f"{experiment.name}.png"
    draw_accuracy(experiment, results, accuracy)
    size = len(next(iter(experiment.grids.values())))
    parts = [
        f"## {experiment.title}",
        f"{NOTES[experiment.name].format(**results['settings'])} {size} candidates per method and epsilon.",
        accuracy_table(experiment, results),
        f"![accuracy against epsilon](figures/{accuracy.name})",
    ]
    figures = [accuracy]
    if "abadi" in experiment.labels:
        parts.append(verdict_table(experiment, results))
    if experiment.measures_error:
        figures.append(docs / "figures" / f"{experiment.name}_error.png")
        draw_error(experiment, results, figures[-1])
        parts += [
            "### How far the private gradient is from the true one",
            "|g - g~| per step, averaged over the run, in the runs above: noise and clipping together.",
            error_table(experiment, results),
            f"![error against epsilon](figures/{figures[-1].name})",
        ]
    if experiment.shows_convergence:
        figures.append(docs / "figures" / f"{experiment.name}_convergence.png")
        draw_convergence(experiment, results, figures[-1])
        parts.append(f"Convergence at epsilon 0.5:\n\n![convergence](figures/{figures[-1].name})")
    parts.append(
        f"<details><summary>What the grids chose</summary>\n\n{chosen_table(experiment, results)}\n\n</details>"
    )
    return "\n\n".join(parts) + "\n", figures
