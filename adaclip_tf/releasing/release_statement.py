"""The words and numbers that go with a release: what the training was, what the file holds, what is not covered."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from typing import Any

from adaclip_tf.privacy import accountants, events, private_optimizer
from adaclip_tf.privacy import statement as statement_lib
from adaclip_tf.privacy.epsilon import epsilon_of
from adaclip_tf.privacy.mechanism import Mechanism
from adaclip_tf.releasing import twins

FORMAT = "adaclip_tf release 1"
TEXT, JSON = "privacy_statement.txt", "privacy_statement.json"  # members of a .keras file
GROUP = "privacy_statement"  # with "text" and "json", in an HDF5 file
_WIDTH = 88


def training_facts(optimizer: Any) -> dict[str, Any]:
    """What the optimizer itself says of the training. All of it is public."""
    return {
        "optimizer": type(optimizer).__name__,
        "noised_steps": private_optimizer.noised_steps(optimizer),
        "noise_multiplier": optimizer.past_steps().noise_multiplier,
        "expected_batch_size": optimizer.expected_batch_size,
        "num_microbatches": optimizer.num_microbatches,
        "microbatch_sensitivity": float(optimizer.microbatch_sensitivity),
    }


def read(statement: Any, optimizer: Any) -> tuple[str, dict[str, Any] | None]:
    """The words, and the report if there is one, of what the user gave as `statement`."""
    if statement is None:
        return _without_epsilon(optimizer), None
    if isinstance(statement, str) and statement.strip():
        return statement.strip() + "\n", None
    if getattr(statement, "model", ...) is None:
        raise ValueError("`statement` is a callback that was in no `fit`; give the PrivacyBudget of this training.")
    report = statement.report() if callable(getattr(statement, "report", None)) else statement
    if not isinstance(report, dict) or "guarantee" not in report:
        raise ValueError(
            "`statement` must be the PrivacyBudget that was in `fit`, a report of `statement.privacy_report`, "
            f"or a text; got {type(statement).__name__}."
        )
    _check_fits(report, optimizer)
    return statement_lib.describe(report), json.loads(json.dumps(report, allow_nan=False))


def _check_fits(report: dict[str, Any], optimizer: Any) -> None:
    """A statement may claim less than the optimizer did for privacy, never more."""
    facts = training_facts(optimizer)
    claims = [
        ("steps", "noised_steps", lambda claim, fact: claim < fact),
        ("noise_multiplier", "noise_multiplier", lambda claim, fact: claim > fact * (1 + 1e-9)),
        ("microbatch_sensitivity", "microbatch_sensitivity", lambda claim, fact: claim < fact),
        ("batch_size", "expected_batch_size", lambda claim, fact: claim != fact),
    ]
    for claim, fact, wrong in claims:
        if report.get(claim) is not None and facts[fact] is not None and wrong(report[claim], facts[fact]):
            raise ValueError(
                f"`statement` says {claim}={report[claim]}, but the optimizer has {fact}={facts[fact]}. Give the "
                "PrivacyBudget of this training, or make the report again."
            )
    _check_epsilon(report, optimizer)
    if report.get("sampling") == "poisson" and not (optimizer.expected_batch_size or optimizer.num_microbatches):
        raise ValueError(
            "`statement` is for Poisson-sampled batches, but the optimizer has no `expected_batch_size`: it divided by "
            "each batch's true size, which is private then, and the weights show it. Train with `expected_batch_size`."
        )


def _check_epsilon(report: dict[str, Any], optimizer: Any) -> None:
    """No epsilon below that of what the optimizer alone has seen: its steps, and what its scales were asked by."""
    if not {"num_examples", "batch_size", "delta"} <= set(report):
        return
    past, delta = optimizer.past_steps(), report["delta"]
    step = Mechanism(
        past.noise_multiplier,
        report["num_examples"],
        report["batch_size"],
        report.get("sampling", "poisson"),
        float(optimizer.microbatch_sensitivity),
    )
    event = events.with_prior(step.event(steps=past.steps), optimizer.prior)
    quick = [name for name in report["guarantee"] if name in accountants.names() and accountants.named(name).quick]
    for name in quick or list(report["guarantee"])[:1]:
        claimed, least = report["guarantee"][name], epsilon_of(event, delta=delta, accountant=name)
        if claimed is not None and claimed < least * (1 - 1e-6):
            asked = "" if optimizer.prior is None else ", and what was asked for its scales before,"
            raise ValueError(
                f"`statement` says epsilon {claimed:.6g} by {name.upper()}, but the optimizer's {past.steps} noised "
                f"steps{asked} cost {least:.6g} at delta={delta:g}. Give the PrivacyBudget of this training, or "
                "`other_event=` to the report."
            )


def _without_epsilon(optimizer: Any) -> str:
    facts = training_facts(optimizer)
    batch = facts["expected_batch_size"]
    text = (
        f"{facts['noised_steps']:,} noised steps by {facts['optimizer']}, Gaussian noise of "
        f"{facts['noise_multiplier']:g} times the clipping norm on the sum of each batch"
        + (f", {batch:,} examples expected in each." if batch else ".")
        + " No epsilon is stated: it follows from these figures, the number of training examples, the way in which "
        "batches were drawn, and delta (`adaclip_tf.privacy_statement`)."
    )
    if not batch and not facts["num_microbatches"]:
        text += " Sums were divided by each batch's own size, which is sound only if all batches had one fixed size."
    if optimizer.prior is not None:
        text += (
            " Besides, the data was asked for the scales of gradients before the first step: in all one release with "
            f"Gaussian noise of {optimizer.prior.noise_multiplier:.6g} times its sensitivity."
        )
    if facts["microbatch_sensitivity"] != 1.0:
        text += f" One example can move that sum by {facts['microbatch_sensitivity']:g} times the clipping norm."
    return "Differentially private training\n" + "=" * 31 + "\n\n" + textwrap.fill(text, _WIDTH) + "\n"


def complete(text: str, contents: dict[str, Any]) -> str:
    """The statement with what this file holds; what it does not cover comes first."""
    numbers = Counter(contents["weights"].values())
    parts = [f"{numbers[kind]} arrays {kind}" for kind in twins.KINDS if numbers[kind]]
    holds = (
        "The file that this statement is in holds the model's architecture, which is taken to be public, and its "
        f"weights: {', '.join(parts)}. No optimizer, no metrics, no other state."
    )
    sections = [text, textwrap.fill(holds, _WIDTH) + "\n"]
    if contents["public"]:
        names = ", ".join(contents["public"])
        told = f"Layers that hold something else, which was declared public or paid for: {names}."
        sections.append(textwrap.fill(told, _WIDTH) + "\n")
    if contents["not_covered"]:
        names = ", ".join(contents["not_covered"])
        told = (
            f"NOT COVERED by this statement, and published without protection, is what these layers hold: {names}. "
            "It may have been computed from the training data without noise."
        )
        sections.insert(0, textwrap.fill(told, _WIDTH) + "\n")
    return "\n".join(sections)
