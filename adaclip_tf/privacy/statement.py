"""A run's guarantee as numbers (`privacy_report`) and in words (`privacy_statement`).

The words follow the reporting advice of Ponomareva et al., "How to DP-fy ML" (2023, arXiv 2303.00654),
section 5.3: what is protected against whom, the unit, the neighbouring relation, the accounting and its
assumptions, and what lies outside.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import textwrap
from collections.abc import Sequence
from typing import Any

import dp_accounting

from adaclip_tf._internal import files, validate
from adaclip_tf.privacy import accounting
from adaclip_tf.privacy.mechanism import SAMPLINGS, Mechanism

_WIDTH = 88


def privacy_report(
    *,
    noise_multiplier: float,
    delta: float,
    num_examples: int,
    batch_size: int,
    epochs: float | None = None,
    steps: int | None = None,
    sampling: str = "poisson",
    microbatch_sensitivity: float = 1.0,
    examples_per_user: int = 1,
    other_event: dp_accounting.DpEvent | None = None,
    accountants: Sequence[str] = ("rdp", "pld"),
) -> dict[str, Any]:
    """The guarantee of a run as a dictionary of plain numbers and strings, ready for JSON.

    Args:
      The arguments of `accounting.epsilon`, and
      other_event: what else was computed from the same data, such as `PrivatePCA(...).event`.
      accountants: which epsilons to compute.

    Returns:
      `epsilon` holds, for each way of drawing batches, one number per accountant: "poisson", and
      "shuffled", which counts each example once per epoch with no amplification. An infinite epsilon (no
      noise) is None. `guarantee` is the entry of `epsilon` for the `sampling` that was used.
    """
    accounting.check_other_event(other_event)
    validate.one_of("sampling", sampling, SAMPLINGS)
    steps_of = {
        kind: Mechanism(noise_multiplier, num_examples, batch_size, kind, microbatch_sensitivity) for kind in SAMPLINGS
    }
    count = steps_of[sampling].count(epochs=epochs, steps=steps)
    accounting.check_delta(delta, num_examples)
    epsilons: dict[str, dict[str, float | None]] = {}
    events: dict[str, dp_accounting.DpEvent] = {}
    for kind, step in steps_of.items():
        training = step.event(epochs=epochs, steps=steps)
        events[kind] = dp_accounting.ComposedDpEvent([training] if other_event is None else [other_event, training])
        epsilons[kind] = {}
        for name in accountants:
            value = accounting.epsilon_of(
                events[kind], delta=delta, accountant=name, examples_per_user=examples_per_user
            )
            epsilons[kind][name] = float(value) if math.isfinite(value) else None
    return {
        "noise_multiplier": noise_multiplier,
        "num_examples": num_examples,
        "batch_size": batch_size,
        "microbatch_sensitivity": microbatch_sensitivity,
        "delta": delta,
        "steps": count,
        "epochs": epochs if epochs is not None else count / steps_of[sampling].epoch,
        "sampling": sampling,
        "sampling_probability": batch_size / num_examples,
        "examples_per_user": examples_per_user,
        "neighbouring_relation": steps_of[sampling].relation,
        "unit": "example" if examples_per_user == 1 else f"user with up to {examples_per_user} examples",
        "epsilon": epsilons,
        "guarantee": epsilons[sampling],
        "includes_other_event": None if other_event is None else repr(other_event),
        "event": repr(events[sampling]),
        "computed_by": f"dp_accounting {importlib.metadata.version('dp-accounting')}",
    }


def privacy_statement(**arguments: Any) -> str:
    """The guarantee of a run in words; the arguments of `privacy_report`.

    Example:
      >>> print(privacy_statement(  # doctest: +ELLIPSIS
      ...     noise_multiplier=1.1, delta=1e-5, num_examples=60000, batch_size=600, epochs=10))
      Differentially private training
      ...
    """
    return describe(privacy_report(**arguments))


def describe(report: dict[str, Any]) -> str:
    """The words for a `privacy_report`."""
    sections = [
        "Differentially private training\n" + "=" * 31,
        _fill(_what_ran(report)),
        _fill(_what_is_protected(report)),
        _epsilon_table(report),
        "This rests on:\n" + _bullets(_assumptions(report)),
        "It does not cover:\n" + _bullets(_NOT_COVERED),
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
    if report["includes_other_event"]:
        text += f" The figures include what else used the same data: {report['includes_other_event']}."
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


def _assumptions(report: dict[str, Any]) -> list[str]:
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
            "beforehand and sampled as wholes, or batches of fixed size. Examples that are Poisson-sampled "
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
    if report["examples_per_user"] > 1:
        lines.append(
            f"At most {report['examples_per_user']} examples per user; group privacy by Vadhan 2017, Lemma 2.2."
        )
    return lines


_NOT_COVERED = [
    "Choosing hyper-parameters, architecture or stopping time by looking at the same data without noise.",
    "Anything else computed from the training data: its loss and accuracy in the progress bar, metrics "
    "tagged `nonprivate/`, pre-processing that was fitted to it.",
]


def _fill(text: str) -> str:
    return textwrap.fill(text, _WIDTH)


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(textwrap.fill(line, _WIDTH, initial_indent=" - ", subsequent_indent="   ") for line in lines)


def write_report(report: dict[str, Any], path: str | os.PathLike[str]) -> tuple[str, str]:
    """Writes `path`.txt and `path`.json (a suffix of either kind is dropped first), each in one rename.

    Returns:
      The two file names.
    """
    base = base_path(path)
    texts = {".txt": describe(report), ".json": json.dumps(report, indent=2, allow_nan=False) + "\n"}
    for suffix, text in texts.items():
        with files.replacing(base + suffix) as file:
            file.write(text.encode())
    return base + ".txt", base + ".json"


def base_path(path: str | os.PathLike[str]) -> str:
    """`path` without a suffix `.txt` or `.json`."""
    root, suffix = os.path.splitext(os.fspath(path))
    return root if suffix in (".txt", ".json") else os.fspath(path)
