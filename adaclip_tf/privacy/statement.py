"""A run's guarantee as numbers (`privacy_report`) and in words (`privacy_statement`).

The words follow the reporting advice of Ponomareva et al., "How to DP-fy ML" (2023, arXiv 2303.00654),
section 5.3: what is protected against whom, the unit, the neighbouring relation, the accounting and its
assumptions, and what lies outside.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import math
import os
import textwrap
from collections.abc import Sequence
from typing import Any

import dp_accounting

from adaclip_tf._internal import files, signatures
from adaclip_tf.privacy import accountants as accountants_lib
from adaclip_tf.privacy import event_words
from adaclip_tf.privacy import events as events_lib
from adaclip_tf.privacy.epsilon import check_delta, epsilon_of
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
    accountants: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The guarantee of a run as a dictionary: `report_on` the `Mechanism` that the arguments describe.

    Args:
      noise_multiplier, num_examples, batch_size, sampling, microbatch_sensitivity: as in
        `adaclip_tf.privacy.mechanism.Mechanism`.
      The rest: as in `report_on`.
    """
    return report_on(
        Mechanism(noise_multiplier, num_examples, batch_size, sampling, microbatch_sensitivity),
        delta=delta,
        epochs=epochs,
        steps=steps,
        examples_per_user=examples_per_user,
        other_event=other_event,
        accountants=accountants,
    )


def report_on(
    mechanism: Mechanism,
    *,
    delta: float,
    epochs: float | None = None,
    steps: int | None = None,
    examples_per_user: int = 1,
    other_event: dp_accounting.DpEvent | None = None,
    accountants: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The guarantee of a run as a dictionary of plain numbers and strings, ready for JSON.

    Example:
      >>> report = report_on(Mechanism(1.1, 60000, 600), delta=1e-5, epochs=10, accountants=["rdp"])
      >>> round(report["guarantee"]["rdp"], 4), report["steps"]
      (1.7118, 1000)

    Args:
      mechanism: of one step.
      delta, epochs, steps, examples_per_user: as in `epsilon`.
      other_event: what else was computed from the same data, such as `PrivatePCA(...).event`.
      accountants: which epsilons to compute; None for all accountants that are registered.

    Returns:
      `epsilon` holds, for each way of drawing batches, one number per accountant: "poisson", and
      "shuffled", which counts each example once per epoch with no amplification. An infinite epsilon (no
      noise) is None. `guarantee` is the entry of `epsilon` for the `sampling` that was used.
    """
    events_lib.check_other_event(other_event)
    count = mechanism.count(epochs=epochs, steps=steps)
    check_delta(delta, mechanism.num_examples)
    epsilons: dict[str, dict[str, float | None]] = {}
    events: dict[str, dp_accounting.DpEvent] = {}
    for kind in SAMPLINGS:
        training = dataclasses.replace(mechanism, sampling=kind).event(epochs=epochs, steps=steps)
        events[kind] = dp_accounting.ComposedDpEvent([training] if other_event is None else [other_event, training])
        epsilons[kind] = {}
        for name in accountants_lib.names() if accountants is None else accountants:
            value = epsilon_of(events[kind], delta=delta, accountant=name, examples_per_user=examples_per_user)
            epsilons[kind][name] = float(value) if math.isfinite(value) else None
    return {
        "noise_multiplier": mechanism.noise_multiplier,
        "num_examples": mechanism.num_examples,
        "batch_size": mechanism.batch_size,
        "microbatch_sensitivity": mechanism.microbatch_sensitivity,
        "delta": delta,
        "steps": count,
        "epochs": epochs if epochs is not None else count / mechanism.epoch,
        "sampling": mechanism.sampling,
        "sampling_probability": mechanism.batch_size / mechanism.num_examples,
        "examples_per_user": examples_per_user,
        "neighbouring_relation": mechanism.relation,
        "unit": "example" if examples_per_user == 1 else f"user with up to {examples_per_user} examples",
        "epsilon": epsilons,
        "guarantee": epsilons[mechanism.sampling],
        "includes_other_event": None if other_event is None else repr(other_event),
        "event": repr(events[mechanism.sampling]),
        "computed_by": f"dp_accounting {importlib.metadata.version('dp-accounting')}",
    }


@signatures.keywords_only
def privacy_statement(
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
    accountants: Sequence[str] | None = None,
) -> str:
    """The guarantee of a run in words; the arguments of `privacy_report`.

    Example:
      >>> print(privacy_statement(  # doctest: +ELLIPSIS
      ...     noise_multiplier=1.1, delta=1e-5, num_examples=60000, batch_size=600, epochs=10))
      Differentially private training
      ...
    """
    return describe(
        privacy_report(
            noise_multiplier=noise_multiplier,
            delta=delta,
            num_examples=num_examples,
            batch_size=batch_size,
            epochs=epochs,
            steps=steps,
            sampling=sampling,
            microbatch_sensitivity=microbatch_sensitivity,
            examples_per_user=examples_per_user,
            other_event=other_event,
            accountants=accountants,
        )
    )


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
