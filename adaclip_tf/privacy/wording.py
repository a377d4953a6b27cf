"""A privacy report in words, as text. The page in HTML is `page`; both say the same.

They follow the reporting advice of Ponomareva et al., "How to DP-fy ML" (2023, arXiv 2303.00654), section 5.3: what is
protected against whom, the unit, the neighbouring relation, the accounting and its assumptions, and what lies outside.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from adaclip_tf.privacy import event_words

_WIDTH = 88


def describe(report: dict[str, Any]) -> str:
    """The words for a `privacy_report`."""
    sections = [
        "Differentially private training\n" + "=" * 31,
        _fill(_what_ran(report)),
        _fill(_what_is_protected(report)),
        _epsilon_table(report),
        "This rests on:\n" + _bullets(assumptions(report)),
        "It does not cover:\n" + _bullets(NOT_COVERED),
        f"Computed by {report['computed_by']}.",
    ]
    return "\n\n".join(sections) + "\n"


def _what_ran(report: dict[str, Any]) -> str:
    text = (
        f"{report['steps']:,} noised steps ({report['epochs']:g} epochs) over {report['num_examples']:,} "
        f"examples, {report['batch_size']:,} expected in each batch "
        f"(q = {report['sampling_probability']:g}), Gaussian noise of {report['noise_multiplier']:g} times "
        "the clipping norm on the sum of each batch."
    )
    if report["microbatch_sensitivity"] != 1.0:
        text += (
            " Microbatches hold several examples, of which one can move its microbatch's clipped gradient by "
            f"{report['microbatch_sensitivity']:g}: the effective noise multiplier is "
            f"{report['noise_multiplier'] / report['microbatch_sensitivity']:g}."
        )
    if report.get("choice"):
        text += (
            f" It is the best of a random number of such runs ({report['choice']['law']}, "
            f"{report['choice']['mean_runs']:g} on average), and the figures are of all of them and of the choice."
        )
    if report["includes_other_event"]:
        words = event_words.words_of(report["includes_other_event"])
        text += f" The figures include what else used the same data: {words}."
    return text


def _what_is_protected(report: dict[str, Any]) -> str:
    whom = "one training example" if report["examples_per_user"] == 1 else f"one {report['unit']}"
    return (
        f"Protected: whether {whom} was in the training data, and what it held, against anyone who sees the "
        "final model, the weights after every step, every private gradient and AdaCliP's means and variances. "
        f"Neighbouring data sets: {report['neighbouring_relation']} ({report['unit']}). For these, the "
        "probabilities of any outcome differ by at most a factor e^epsilon, up to delta = "
        f"{report['delta']:g}."
    )


def _epsilon_table(report: dict[str, Any]) -> str:
    names = list(report["guarantee"])
    titles = {
        "poisson": "Poisson-sampled batches",
        "shuffled": "shuffled batches of fixed size, no amplification",
    }
    lines = [
        f"{'epsilon at delta = ' + format(report['delta'], 'g'):52s}" + "".join(f"{n.upper():>12s}" for n in names)
    ]
    for kind, values in report["epsilon"].items():
        mark = "  <- this run" if kind == report["sampling"] else ""
        numbers = "".join(f"{'infinite' if v is None else format(v, '.4f'):>12s}" for v in values.values())
        lines.append(f"  {titles[kind]:50s}{numbers}{mark}")
    return "\n".join(lines)


def assumptions(report: dict[str, Any]) -> list[str]:
    """What the guarantee rests on, in sentences."""
    lines = []
    if report["sampling"] == "poisson":
        lines.append(
            "Poisson sampling: every example joined every batch independently with probability q "
            "(`poisson_batches`). For shuffled batches of fixed size this epsilon is customary but not "
            "proven, and can be too small; what is proven then is the line without amplification, for the "
            "neighbouring relation that replaces one example by one that contributes nothing."
        )
    else:
        lines.append(
            "Each example used once per epoch, in batches formed without looking at the data. Proven "
            "without any gain from shuffling; the Poisson line is what Poisson sampling would give, not a "
            "bound on this run. A run that was resumed in the middle of an epoch has begun one epoch more."
        )
    if report["microbatch_sensitivity"] != 1.0:
        lines.append(
            "Microbatches whose grouping does not depend on which examples are present: groups fixed "
            "beforehand and sampled whole, or batches of fixed size. Examples that are Poisson-sampled "
            "one by one and then grouped by position do NOT satisfy this, and nothing is proven for them. "
            "For whole groups and q <= 1/2 the RDP figure is a proven bound; the PLD figure is not."
        )
    lines.append(
        f"A divisor B = {report['batch_size']:,} and a training-set size n = {report['num_examples']:,} "
        "that are public, and the same noise multiplier and batch size in every step."
    )
    lines.append(
        "Noise drawn from the operating system's entropy and kept secret; no `seed=`. Gaussian noise in "
        "floating point stands for real-valued noise (Mironov 2012 shows the gap)."
    )
    if report.get("choice"):
        lines.append(
            "A number of runs that was drawn from that law and kept secret, candidates that were drawn at random, "
            "scores that did not look at the training data (or are counted in every run), and no other run published: "
            "Papernot and Steinke 2022, Theorems 2 and 6."
        )
    if report["examples_per_user"] > 1:
        lines.append(
            f"At most {report['examples_per_user']} examples per user; group privacy by Vadhan 2017, Lemma 2.2."
        )
    return lines


NOT_COVERED = [
    "Choosing hyper-parameters, architecture or stopping time by looking at the same data without noise.",
    "Anything else computed from the training data: its loss and accuracy in the progress bar, metrics "
    "tagged `nonprivate/`, pre-processing that was fitted to it.",
]


def _fill(text: str) -> str:
    return textwrap.fill(text, _WIDTH)


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(textwrap.fill(line, _WIDTH, initial_indent=" - ", subsequent_indent="   ") for line in lines)
