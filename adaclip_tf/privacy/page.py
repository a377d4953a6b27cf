"""The privacy statement as a web page for readers who are no engineers: a data protection officer, a lawyer.

It says the same as `wording.describe`, of the same report, in fewer symbols: what is promised to whom, the one number
and what it means, what the promise rests on, what it leaves out.
"""

from __future__ import annotations

import html
import math
import os
from typing import Any

from adaclip_tf._internal import files
from adaclip_tf.privacy import event_words, wording

_STYLE = (
    "body{font:17px/1.5 Georgia,serif;max-width:42em;margin:3em auto;padding:0 1em;color:#222}"
    "h1{font-size:1.5em}h2{font-size:1.15em;margin-top:1.6em}"
    "table{border-collapse:collapse}td{padding:.2em 1em .2em 0;vertical-align:top}"
    ".number{font-size:1.3em;font-weight:bold}"
)


def page(report: dict[str, Any]) -> str:
    """The page, HTML that needs nothing else."""
    found = [value for value in report["guarantee"].values() if value is not None]
    body = [
        "<h1>Privacy statement of a trained model</h1>",
        _paragraph(_promise(report, max(found) if found else None)),
        "<h2>What the number means</h2>",
        _paragraph(_meaning(report, max(found) if found else None)),
        "<h2>How the model was trained</h2>",
        _table(report),
        "<h2>What this rests on</h2>",
        _list(wording.assumptions(report)),
        "<h2>What it does not cover</h2>",
        _list(wording.NOT_COVERED),
        _paragraph(f"Computed by {html.escape(report['computed_by'])}."),
    ]
    title = "<title>Privacy statement</title>"
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8">{title}<style>{_STYLE}</style></head>'
    return f"{head}<body>{''.join(body)}</body></html>\n"


def write(report: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Writes the page, in one rename."""
    with files.replacing(os.fspath(path)) as file:
        file.write(page(report).encode())


def _promise(report: dict[str, Any], epsilon: float | None) -> str:
    whom = "any one person's record" if report["examples_per_user"] == 1 else f"any one {html.escape(report['unit'])}"
    if epsilon is None:
        return "This training had <b>no noise</b>, and so there is no promise of privacy."
    return (
        "The model was trained with <b>differential privacy</b>. Whoever sees it learns almost the same whether or not "
        f"{whom} was in the training data. How much it can differ is bounded by "
        f'<span class="number">epsilon = {epsilon:.2f}</span>, up to a probability of failure of {report["delta"]:g}.'
    )


def _meaning(report: dict[str, Any], epsilon: float | None) -> str:
    if epsilon is None:
        return "Without noise nothing is promised."
    factor = math.exp(min(epsilon, 700.0))
    # By Bayes: a guess with odds 1 : 1 can become one with odds e^epsilon : 1 at most.
    sure = factor / (1.0 + factor)
    return (
        f"Whatever somebody may conclude from the model, they would conclude it with at most {factor:.3g} times the "
        f"probability if the record had been left out. Somebody who thought it as likely as not that the record was in "
        f"the data can become at most {100 * sure:.1f} % sure of it from the model, except in {report['delta']:g} of "
        "all cases. Smaller is better; 0 would be a model that has learnt nothing."
    )


def _table(report: dict[str, Any]) -> str:
    rows = {
        "Records in the training data": f"{report['num_examples']:,}",
        "Records that are looked at in one step": f"{report['batch_size']:,} on average, "
        + ("drawn at random" if report["sampling"] == "poisson" else "in shuffled order"),
        "Steps": f"{report['steps']:,}",
        "Noise": f"{report['noise_multiplier']:g} times as much as one record can add to a step",
        "Who is protected": html.escape(report["unit"]),
    }
    if report["includes_other_event"]:
        rows["Also counted"] = html.escape(event_words.words_of(report["includes_other_event"]))
    return "<table>" + "".join(f"<tr><td>{name}</td><td>{value}</td></tr>" for name, value in rows.items()) + "</table>"


def _paragraph(text: str) -> str:
    return f"<p>{text}</p>"


def _list(lines: Any) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(line.replace('`', ''))}</li>" for line in lines) + "</ul>"
