"""docs/tabular.md, its figures and the table of docs/summary.md, from the results files of docs/results."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from adaclip_tf.scales import method as constants
from examples.common import figures
from examples.tabular import imbalance, packages, study_table, words
from examples.tabular.competitors import METHODS
from examples.tabular.problems import PROBLEMS

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SUMMARY = DOCS / "summary.md"
BEGIN, END = "<!-- results: tabular -->\n", "<!-- end -->"
OURS = "`make_private`, nothing tuned"
VERDICTS = ("ahead", "level", "behind")
OLD, NEW = "used for choosing the default", "not used for choosing"

Results = dict[str, Any]


class Value(NamedTuple):
    """A mean over seeds and its standard error."""

    mean: float
    error: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.error:.2f}"


def value(numbers: Sequence[float]) -> Value:
    """Of some runs.

    >>> print(value([1.0, 3.0]))
    2.00 ± 1.00
    """
    array = np.asarray(numbers, float)
    return Value(float(array.mean()), float(array.std(ddof=1) / math.sqrt(len(array))) if len(array) > 1 else math.inf)


def ours(results: Results, name: str = "metric") -> Value:
    """The default's."""
    return value([run[name] for run in results["methods"]["default"]["runs"]])


def theirs(results: Results, method: str) -> Value:
    """A competitor's: of its two choices, by held-out metric and by held-out loss, the better one on the test set."""
    runs = results["methods"][method]["runs"]
    return max((value([run["metric"] for run in chosen]) for chosen in runs.values()), key=lambda found: found.mean)


def verdict(mine: Value, other: Value) -> str:
    """Who is ahead by more than two standard errors of the difference.

    >>> verdict(Value(90.0, 0.1), Value(89.5, 0.1)), verdict(Value(90.0, 0.1), Value(89.8, 0.1))
    ('ahead', 'level')
    """
    difference = mine.mean - other.mean
    if not abs(difference) > 2.0 * math.hypot(mine.error, other.error):
        return "level"
    return "ahead" if difference > 0.0 else "behind"


def best(results: Results) -> tuple[str, Value]:
    """The competitor with the better test metric."""
    return max(((name, theirs(results, name)) for name in METHODS), key=lambda pair: pair[1].mean)


def store(name: str, results: Results, docs: pathlib.Path = DOCS) -> pathlib.Path:
    """Writes what a problem came to."""
    path = docs / "results" / f"tabular_{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")
    return path


def stored(name: str, docs: pathlib.Path = DOCS) -> Results | None:
    """What `store` wrote, if the problem was run."""
    path = docs / "results" / f"tabular_{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def all_stored(docs: pathlib.Path) -> list[Results]:
    """The problems that were run, in their order: those that the default was chosen on first."""
    return [results for results in (stored(name, docs) for name in PROBLEMS) if results]


def is_fresh(results: Results) -> bool:
    """Whether the default was not chosen on it; files of before there were such problems do not say."""
    return results.get("fresh", False)


def parts_of(every: Sequence[Results]) -> dict[str, list[Results]]:
    """Problems that the default's constants were chosen on, and those that were not; what there is of them."""
    parts = {OLD: [one for one in every if not is_fresh(one)], NEW: [one for one in every if is_fresh(one)]}
    return {name: found for name, found in parts.items() if found}


def title(results: Results) -> str:
    kind = {"r2": " (R²)", "auc": " (AUC)", "accuracy": ""}[results["metric"]]
    return f"{results['title']}, {results['epsilon']:g}{kind}"


def headline(every: Sequence[Results]) -> str:
    """The table of page and summary: bold is ahead of both by more than two standard errors."""
    rows: list[list[str]] = []
    for results in every:
        if is_fresh(results) and not any(NEW in row[0] for row in rows):
            rows.append([f"*{NEW}:*", *[""] * (len(METHODS) + 2)])
        mine, others = ours(results), {name: theirs(results, name) for name in METHODS}
        said = {verdict(mine, other) for other in others.values()}
        cells = [f"**{mine}**" if said == {"ahead"} else str(mine)]
        for name, other in others.items():
            rivals = [mine, *[value for key, value in others.items() if key != name]]
            wins = all(verdict(other, rival) == "ahead" for rival in rivals)
            cells.append(f"**{other}**" if wins else str(other))
        rows.append([title(results), *cells, verdict(mine, best(results)[1])])
    header = ["problem, epsilon", OURS, *[f"{label}, tuned" for label in METHODS.values()], "against the better one"]
    return markdown(header, rows)


def details(every: Sequence[Results]) -> str:
    """Sizes, and what tuning chose."""
    rows = []
    for results in every:
        cells = [title(results), f"{results['examples']:,} / {results['parameters']:,}"]
        cells.append(f"{results['noise_multiplier']:.3g}")
        runs = results["methods"]["default"]["runs"]
        middle = {name: float(np.median([run[name] for run in runs])) for name in ("clip", "learning_rate")}
        cells.append(f"{middle['clip']:.3g}, rate {middle['learning_rate']:.3g}")
        for name in METHODS:
            found = results["methods"][name]
            chosen = {f"clip {c['clip']:.3g}, rate {c['rate']:.3g}" for c in found["chosen"].values()}
            cells.append(f"{' or '.join(sorted(chosen))} ({found['candidates']} tried)")
        rows.append(cells)
    header = ["problem, epsilon", "n / d", "z", "default's median gradient", *METHODS.values()]
    return markdown(header, rows)


def counts(every: Sequence[Results]) -> str:
    """The verdicts, counted."""
    lines = []
    for name, found in {"in all": list(every), **parts_of(every)}.items():
        said = [verdict(ours(results), best(results)[1]) for results in found]
        lines.append([name, str(len(said)), *[str(said.count(word)) for word in VERDICTS]])
    return markdown(["against the better tuned competitor", "problems", *VERDICTS], lines)


def older(every: Sequence[Results], rare: Results | None = None) -> str:
    """Says whose runs of the default are of other constants than the library has now; empty where none are."""
    now = dataclasses.asdict(constants.DEFAULT)
    names = [title(results) for results in every if results["methods"]["default"].get("settings") != now]
    names += ["rare positives"] * (rare is not None and rare.get("settings") != now)
    if not names:
        return ""
    return (
        f"NOT YET RUN AGAIN since the method's constants changed, so that `make_private` stands here as it was before: "
        f"{'; '.join(names)}. `python -m examples.tabular --default_only` renews them."
    )


def unfinished(docs: pathlib.Path) -> list[str]:
    """The problems that were not run, or with fewer seeds than they have now, or with a search from one start."""
    return [name for name, problem in PROBLEMS.items() if not _finished(stored(name, docs), problem.seeds)]


def _finished(results: Results | None, seeds: int) -> bool:
    if results is None:
        return False
    found = [results["methods"][name] for name in METHODS]
    runs = [results["methods"]["default"]["runs"], *[runs for one in found for runs in one["runs"].values()]]
    return all("coarse" in one for one in found) and {len(one) for one in runs} == {seeds}


def missing(docs: pathlib.Path) -> str:
    """Names what `unfinished` found; empty where it found nothing."""
    names = unfinished(docs)
    if not names:
        return ""
    old = [title(results) for name in names if (results := stored(name, docs))]
    new = [PROBLEMS[name].title for name in names if not stored(name, docs)]
    parts = [f"with fewer seeds and one start of the search: {'; '.join(old)}"] * bool(old)
    parts += [f"not at all: {'; '.join(new)}"] * bool(new)
    return f"NOT ALL IS RUN as it is described above. So far {'. And '.join(parts)}. `make tabular` goes on."


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|---|" + "--:|" * (len(header) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def imbalance_table(results: Results) -> str:
    """Recall and what it costs."""
    rows = []
    for name, label in imbalance.METHODS.items():
        if name not in results["methods"]:
            continue  # `older` says that it is to be run again
        runs = results["methods"][name]
        rows.append([label, *[str(value([run[key] for run in runs])) for key in ("metric", "specificity", "balanced")]])
    return markdown(["", "recall, %", "specificity, %", "balanced accuracy, %"], rows)


def draw(every: Sequence[Results], path: pathlib.Path) -> None:
    """Every method's distance from the default, in units of the metric, with two standard errors."""
    with figures.drawn(path, size=(figures.PAGE, 0.36 * len(every) + 1.3)) as (_, axes):
        for offset, marker, (name, label) in zip((-0.12, 0.12), figures.MARKERS, METHODS.items()):
            pairs = [(ours(results), theirs(results, name)) for results in every]
            gaps = [mine.mean - other.mean for mine, other in pairs]
            errors = [2.0 * math.hypot(mine.error, other.error) for mine, other in pairs]
            errors = [error if math.isfinite(error) else 0.0 for error in errors]  # one seed shows no spread
            places = np.arange(len(every)) + offset
            axes.errorbar(gaps, places, xerr=errors, fmt=marker, label=f"against {label}, tuned")
        axes.axvline(0.0, color="black", linewidth=0.8)
        split = sum(not is_fresh(results) for results in every)
        if 0 < split < len(every):  # a line between what the default was chosen on and what it was not
            axes.axhline(split - 0.5, color="black", linewidth=0.8, linestyle=":")
            axes.annotate(
                f"below: {NEW}",
                (1.0, split - 0.5),
                (-3, -3),
                ("axes fraction", "data"),
                "offset points",
                ha="right",
                va="top",
                fontsize="small",
            )
        axes.set_xscale("symlog", linthresh=1.0)
        axes.set_xlabel("points by which the default is ahead (bars: two standard errors)")
        axes.set_yticks(range(len(every)), [title(results) for results in every])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.legend()


def write(docs: pathlib.Path = DOCS) -> list[pathlib.Path]:
    """The page and its figure; returns the paths."""
    every, rare = all_stored(docs), stored("imbalance", docs)
    page, figure = docs / "tabular.md", docs / "figures" / "tabular.png"
    parts = [words.HEAD, markdown(words.COLUMNS, words.ROWS).replace("--:", "---"), words.PREPARED]
    written = [page]
    if every:
        draw(every, figure)
        written.append(figure)
        figure_line = f"![how far the default is ahead](figures/{figure.name})"
        parts += [
            "## Results",
            headline(every),
            *filter(None, [older(every, rare), missing(docs)]),
            counts(every),
            figure_line,
            words.WHEN,
        ]
        parts += ["## Sizes, noise and what tuning chose", details(every)]
    if tried := stored("study", docs):
        parts += ["## What was tried where it is behind", words.STUDY, study_table.table(tried), words.AFTER_STUDY]
    chosen, judged = stored("choice", docs), stored("judged", docs)
    if tried and chosen and judged:
        parts += [words.ROUND_2, study_table.table(chosen), words.JUDGED, study_table.table(judged, judged)]
        parts += [words.AFTER_ROUND_2]
    if rare:
        parts += ["## Rare positives with class weights", words.IMBALANCE, imbalance_table(rare)]
    archives = (packages.ADULT, packages.PYDATASET, packages.FLIGHTS, packages.SPAM)
    sums = markdown(["package", "file", "SHA-256"], [[p.title, p.file, f"`{p.sha256}`"] for p in archives])
    parts += ["## The archives", sums]
    page.write_text("\n\n".join(parts) + "\n")
    return written


def write_summary(summary: pathlib.Path = SUMMARY, docs: pathlib.Path = DOCS) -> pathlib.Path:
    """Puts the table between its marks in the summary, where both are there."""
    text, every = summary.read_text(), all_stored(docs)
    if every and BEGIN in text:
        before, _, rest = text.partition(BEGIN)
        _, _, after = rest.partition(END)
        table = "\n\n".join(filter(None, [headline(every), older(every), missing(docs)]))
        summary.write_text(f"{before}{BEGIN}{table}\n{END}{after}")
    return summary
