"""Turns the benchmark's results into a table and figures."""

from __future__ import annotations

import pathlib

from benchmarks import contenders
from examples.common import figures


def write(results: dict, out: pathlib.Path) -> None:
    """Writes results.md and the figures into `out`."""
    (out / "results.md").write_text(table(results))
    _bars(results, out / "speed.png")
    if "growth" in results:
        _growth(results["growth"], out / "growth.png")


def table(results: dict) -> str:
    """Markdown: a section per case, then memory and growth."""
    lines = []
    for case, rows in results["cases"].items():
        base = rows[contenders.BASELINE]
        lines += [
            f"### {case}",
            "",
            "| | ms per step | times SGD | first step, s | first step under XLA, s | peak memory, MB |",
            "|---|---|---|---|---|---|",
        ]
        for name, row in sorted(rows.items(), key=lambda item: item[1]["seconds"]):
            memory = f"{row['peak_bytes'] / 1e6:.0f}" if row.get("peak_bytes") else ""
            ratio = row["seconds"] / base["seconds"]
            milliseconds = row["seconds"] * 1e3
            compiled = f"{row['xla_first_step_busy']:.1f}" if row.get("xla_first_step_busy") else ""
            first = f"{row['first_step_seconds']:.1f}"
            lines.append(f"| {name} | {milliseconds:.2f} | {ratio:.2f} | {first} | {compiled} | {memory} |")
        lines.append("")
    large = results.get("memory_mlp_4096")
    if large and all(large.values()):
        ratio = large[contenders.OURS] / large[contenders.BASELINE]
        lines += [f"Peak memory of the MLP at batch 4096: {ratio:.2f} times SGD's.", ""]
    for axis, points in results.get("growth", {}).items():
        lines += [f"### growth with {axis}", "", f"| {axis} | SGD, ms | ours, ms | ratio |", "|---|---|---|---|"]
        for point, rows in points.items():
            base, ours = rows[contenders.BASELINE]["seconds"], rows[contenders.OURS]["seconds"]
            lines.append(f"| {point} | {base * 1e3:.2f} | {ours * 1e3:.2f} | {ours / base:.2f} |")
        lines.append("")
    return "\n".join(lines)


def _bars(results, path):
    """A panel for each case with all contenders in one order, so that names stand once."""
    cases = results["cases"]
    ratios = {
        case: {name: row["seconds"] / rows[contenders.BASELINE]["seconds"] for name, row in rows.items()}
        for case, rows in cases.items()
    }
    every = {name for found in ratios.values() for name in found}
    names = sorted(every, key=lambda name: -max(found.get(name, 0.0) for found in ratios.values()))
    size = (figures.PAGE, 0.3 * len(names) + 1.2)
    with figures.drawn(path, 1, len(cases), size=size, squeeze=False, sharey=True) as (figure, axes):
        for axis, (case, found) in zip(axes[0], ratios.items()):
            for place, name in enumerate(names):
                if name in found:
                    colour = figures.COLOURS[1] if name.startswith("DP") else figures.GREY
                    axis.barh(place, found[name] - 0.5, left=0.5, color=colour)
                    axis.annotate(f" {found[name]:.3g}", (found[name], place), va="center", fontsize=8)
                else:
                    axis.annotate(" -", (0.5, place), va="center", fontsize=8)
            axis.set_xscale("log")
            axis.set_title(case)
            axis.set_xlim(0.5, 30 * max(found.values()))  # room for the numbers
            axis.set_yticks(range(len(names)), names, fontsize=8)
            axis.grid(visible=False, axis="y")
        figure.supxlabel("times a step of Keras SGD", fontsize=10)


def _growth(growth, path):
    with figures.drawn(path, 1, 2, size=(figures.PAGE, 3.4)) as (_, axes):
        for axis, (name, points) in zip(axes, growth.items()):
            for contender in (contenders.BASELINE, contenders.OURS):
                times = [rows[contender]["seconds"] * 1e3 for rows in points.values()]
                axis.loglog([int(point) for point in points], times, label=contender)
            axis.set_xlabel(name)
            axis.set_ylabel("ms per step")
        axes[0].legend()
