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
    cases = results["cases"]
    figure, axes = figures.subplots(1, len(cases), size=(3.6 * len(cases), 3.8), squeeze=False)
    for axis, (case, rows) in zip(axes[0], cases.items()):
        names = sorted(rows, key=lambda name: -rows[name]["seconds"])
        ratios = [rows[name]["seconds"] / rows[contenders.BASELINE]["seconds"] for name in names]
        colours = ["tab:orange" if name.startswith("DP") else "tab:grey" for name in names]
        axis.barh(names, ratios, color=colours)
        axis.set_xscale("log")
        axis.set_title(case)
        axis.set_xlabel("times Keras SGD")
        for position, ratio in enumerate(ratios):
            axis.annotate(f" {ratio:.1f}", (ratio, position), va="center", fontsize=8)
        axis.set_xlim(0.5, max(ratios) * 4)
    figures.save(figure, path, dots_per_inch=110)


def _growth(growth, path):
    figure, axes = figures.subplots(1, 2, size=(9, 3.6))
    for axis, (name, points) in zip(axes, growth.items()):
        for contender in (contenders.BASELINE, contenders.OURS):
            times = [rows[contender]["seconds"] * 1e3 for rows in points.values()]
            axis.loglog([int(point) for point in points], times, marker="o", label=contender)
        axis.set_xlabel(name)
        axis.set_ylabel("ms per step")
        axis.legend()
    figures.save(figure, path, dots_per_inch=110)
