"""The table, the page, the figure and the results file of the audit."""

from __future__ import annotations

import json
import os
import pathlib

from examples.audit import experiment
from examples.common import figures

PAGE = """# Audit: the epsilon that attacks prove, next to the one that is claimed

Written by `{command}`; do not edit by hand.

Each line is an attack on real runs through `model.compile` and `fit`: {runs} runs of T steps with {canaries:,}
canaries each, in the data by fair coins. The attacker chose the canaries' gradients (far longer than the clip, each
in a direction of its own), knows all settings, and sees every release: the weights, or AdaCliP's state m, after
every step. "Claimed" is the library's accountant (PLD) for exactly these steps and this sampling; all figures are for
delta = {delta:g}. "two per microbatch" are microbatches of two examples, where the sensitivity is 2 and the claim that
of z / 2.

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


def draw(findings, path: pathlib.Path) -> None:
    """Claims and bounds, one column per finding."""
    figure, axes = figures.subplots(size=(9, 4.5))
    columns = range(len(findings))
    axes.plot(columns, [found.claimed for found in findings], "k_", markersize=12, markeredgewidth=2, label="claimed")
    for name, marker, label in (
        ("gaussian", "o", "measured: Gaussian"),
        ("attack", "^", "measured: attack"),
        ("one_run", "s", "measured: one run"),
    ):
        axes.plot(columns, [getattr(found, name) for found in findings], marker, markersize=4, label=label)
    seen, ticks = None, []
    for column, found in enumerate(findings):
        mechanism = found.setting[2:]
        if mechanism != seen:
            s = found.setting
            text = f"z={s.noise_multiplier:g}, q={s.sampling_probability:g}\nT={s.steps}"
            ticks.append((column, text + (", microbatches" if s.microbatches else "")))
            axes.axvline(column - 0.5, color="0.85", linewidth=0.8)
        seen = mechanism
    axes.set_xticks([column for column, _ in ticks], [text for _, text in ticks], fontsize=8, ha="left")
    axes.set(ylabel=f"epsilon at delta = {experiment.DELTA:g}", ylim=(0, None))
    axes.legend(frameon=False, fontsize=8)
    figures.save(figure, path)


def write(findings, folder: pathlib.Path, *, docs: bool, command: str, **of_the_runs) -> list[pathlib.Path]:
    """The page, the figure and the results, and where they are."""
    page = folder / "audit.md"
    figure = folder / "figures" / "audit.png" if docs else folder / "audit.png"
    results = folder / "results" / "audit.json" if docs else folder / "audit.json"
    for path in (page, figure, results):
        path.parent.mkdir(parents=True, exist_ok=True)
    draw(findings, figure)
    rows = [{**f.setting._asdict(), **f._asdict(), "measured": f.measured} for f in findings]
    for row in rows:
        del row["setting"]
    results.write_text(json.dumps({"delta": experiment.DELTA, **of_the_runs, "findings": rows}, indent=1) + "\n")
    page.write_text(_page(findings, os.path.relpath(figure, folder), command, of_the_runs))
    return [page, figure, results]


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
