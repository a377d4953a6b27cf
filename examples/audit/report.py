"""The table, the page, the figure and the results file of the audit."""

from __future__ import annotations

import json
import os
import pathlib

from examples.audit import experiment, whole_runs
from examples.common import figures

PAGE = """# Audit: the epsilon that attacks prove, next to the one that is claimed

Written by `{command}`; do not edit by hand.

Each line is an attack on real runs through `model.compile` and `fit`: {runs} runs of T steps with {canaries:,}
canaries each, in the data by fair coins. The attacker chose the canaries' gradients (far longer than the clip, each
in a direction of its own), knows all settings, and sees every release: the weights, or AdaCliP's state m, after
every step. "Claimed" is the library's accountant (PLD) for exactly these steps and this sampling; all figures are for
delta = {delta:g}. "two per microbatch" are microbatches of two examples, where the sensitivity is 2 and the claim that
of z / 2. "adaclip, Adam" and "fixed, momentum" are `DPAdaClip` and `DPFixedClip` around another optimizer: the attacker
sees the weights, or Adam's moment.

The last lines are whole programs, whose claim is their own. `make_private`: the warm-up's noised row norms and then all
weights of {epochs} steps, against its plan's epsilon for both. Two phases: AdaCliP and then a fixed clip on the same
data and weights, against what their ledger holds. All data is in each of their batches, so that all that they release
is worth one Gaussian mechanism: its z is given, with T = 1.

The lower bounds, which all hold together with confidence {confidence:.0%} ({bounds} bounds, Bonferroni):

- **attack**: Clopper-Pearson bounds on both errors of a threshold attack, without any assumption on the mechanism. With
  so many trials it cannot prove more than an epsilon of about {most:.1f}, nor see what happens with probability delta.
- **Gaussian**: the same errors, extrapolated along the trade-off curve of Poisson-sampled Gaussian mechanisms
  (Nasr et al. 2023). This is the tight one, and it refutes the claim if it exceeds it.
- **one run**: Steinke, Nasr, Jagielski 2023, from the first run alone.

{table}

![claimed and measured epsilon]({figure})

No bound exceeds its claim. The largest bound of each line is {low:.0%} to {high:.0%} of it, {mean:.0%} on average:
{full:.0%} without sampling, {sampled:.0%} with it, where the attack does little better than a coin and would take more
trials. An audit can show that something is wrong, never that all is well: it sees the canaries that it tries, in the
directions that it looks at. Variants of the library that are broken on purpose, and which this and other tests must
catch, are in `tests/mutants/mutation_test.py`.
"""


def table(findings) -> str:
    """One line per finding, in Markdown."""
    lines = [
        "| optimizer | path | sees | z | q | T | claimed | attack | Gaussian | one run | best / claimed |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for found in findings:
        s = found.setting
        path = f"{s.path}, two per microbatch" if s.microbatches else s.path
        numbers = " | ".join(f"{x:.2f}" for x in (found.claimed, found.attack, found.gaussian, found.one_run))
        lines.append(
            f"| {s.optimizer} | {path} | {found.view} | {s.noise_multiplier:g} | {s.sampling_probability:g} | "
            f"{s.steps} | {numbers} | {found.measured / found.claimed:.0%} |"
        )
    return "\n".join(lines)


MEASURED = {"gaussian": "measured: Gaussian", "attack": "measured: attack", "one_run": "measured: one run"}


def draw(findings, path: pathlib.Path) -> None:
    """A panel for each mechanism, a line for each attack on it: bounds as points, the claim as a bar to their right.

    Inner optimizers and whole programs are in a panel of their own, over the whole width.
    """
    panels: dict[tuple, list] = {}
    for found in findings:
        if found.setting.optimizer in experiment.OPTIMIZERS:
            panels.setdefault(found.setting[2:], []).append(found)
    others = [found for found in findings if found.setting.optimizer not in experiment.OPTIMIZERS]
    columns = max(min(3, len(panels)), 1)
    rows = -(-len(panels) // columns) + bool(others)
    with figures.drawn(path, rows, columns, size=(figures.PAGE, 2.4 * rows + 0.8), squeeze=False) as (figure, axes):
        for one in axes.flat[len(panels) :]:
            one.remove()
        for index, (one, same) in enumerate(zip(axes.flat, panels.values())):
            names = [f"{found.setting.optimizer}, {found.setting.path}: {found.view}" for found in same]
            _panel(one, same, names if index % columns == 0 else [""] * len(names))
            one.set_title(_mechanism(same[0].setting))
        drawn = list(axes.flat[: len(panels)])
        if others:
            drawn.append(figure.add_subplot(axes.flat[0].get_gridspec()[-1, :]))
            lengths = [f", T = {f.setting.steps}" if f.setting.optimizer in experiment.INNER else "" for f in others]
            names = [f"{f.setting.optimizer}{length}: {f.view}" for f, length in zip(others, lengths)]
            _panel(drawn[-1], others, names)
            drawn[-1].set_title("inner optimizers and whole programs")
        handles, labels = drawn[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
        for one in drawn[-1:] if others else drawn[-columns:]:
            one.set_xlabel(f"epsilon at delta = {experiment.DELTA:g}")


def _mechanism(s) -> str:
    title = f"z = {s.noise_multiplier:g}, q = {s.sampling_probability:g}, T = {s.steps}"
    return title + ("\ntwo per microbatch" if s.microbatches else "")


def _panel(axes, findings, names: list[str]) -> None:
    places = range(len(findings))
    for marker, (name, label) in zip(figures.MARKERS, MEASURED.items()):
        axes.plot([getattr(found, name) for found in findings], places, marker, label=label)
    claimed = [found.claimed for found in findings]
    axes.plot(claimed, places, "|", color="black", markersize=12, markeredgewidth=2, label="claimed")
    axes.set_xlim(-0.04 * max(claimed), 1.08 * max(claimed))  # points at 0 are not to be cut
    axes.set_yticks(places, names)
    axes.set_ylim(len(names) - 0.5, -0.5)


def write(findings, folder: pathlib.Path, *, docs: bool, command: str, **of_the_runs) -> list[pathlib.Path]:
    """The page, the figure and the results, and where they are."""
    page = folder / "audit.md"
    figure, results = _places(folder, docs)
    for path in (page, figure, results):
        path.parent.mkdir(parents=True, exist_ok=True)
    draw(findings, figure)
    rows = [{**f.setting._asdict(), **f._asdict(), "measured": f.measured} for f in findings]
    for row in rows:
        del row["setting"]
    results.write_text(json.dumps({"delta": experiment.DELTA, **of_the_runs, "findings": rows}, indent=1) + "\n")
    page.write_text(_page(findings, os.path.relpath(figure, folder), command, of_the_runs))
    return [page, figure, results]


def redraw(folder: pathlib.Path, *, docs: bool) -> pathlib.Path:
    """The figure anew, from the results file; returns where it is."""
    figure, results = _places(folder, docs)
    findings = []
    for row in json.loads(results.read_text())["findings"]:
        setting = experiment.Setting(**{name: row.pop(name) for name in experiment.Setting._fields})
        del row["measured"]  # which follows from the others
        findings.append(experiment.Finding(setting, **row))
    draw(findings, figure)
    return figure


def _places(folder: pathlib.Path, docs: bool) -> tuple[pathlib.Path, pathlib.Path]:
    """Of the figure and of the results."""
    if docs:
        return folder / "figures" / "audit.png", folder / "results" / "audit.json"
    return folder / "audit.png", folder / "audit.json"


def _page(findings, figure, command, of_the_runs):
    shares = [found.measured / found.claimed for found in findings]
    by_sampling = {
        sampled: [share for share, f in zip(shares, findings) if (f.setting.sampling_probability < 1.0) == sampled]
        for sampled in (False, True)
    }
    trials = of_the_runs["runs"] * of_the_runs["canaries"] * 3 // 8  # with the canary, after the choice of thresholds
    bounds = 3 * len(findings)
    return PAGE.format(
        command=command,
        table=table(findings),
        figure=figure,
        delta=experiment.DELTA,
        epochs=whole_runs.EPOCHS,
        bounds=bounds,
        most=experiment.most_provable(trials, 1.0 - (1.0 - of_the_runs["confidence"]) / bounds),
        low=min(shares),
        high=max(shares),
        mean=_mean(shares),
        full=_mean(by_sampling[False]),
        sampled=_mean(by_sampling[True]),
        **of_the_runs,
    )


def _mean(values):
    return sum(values) / max(len(values), 1)
