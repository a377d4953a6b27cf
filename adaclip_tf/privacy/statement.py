"""A run's guarantee as numbers (`privacy_report`) and in words (`privacy_statement`, which has them of `wording`)."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import math
import os
from collections.abc import Sequence
from typing import Any

import dp_accounting
from absl import logging

from adaclip_tf._internal import files, signatures, validate
from adaclip_tf.privacy import accountants as accountants_lib
from adaclip_tf.privacy import choice as choice_lib
from adaclip_tf.privacy import events as events_lib
from adaclip_tf.privacy.choice import PrivateChoice
from adaclip_tf.privacy.epsilon import check_delta, epsilon_of
from adaclip_tf.privacy.mechanism import SAMPLINGS, Mechanism
from adaclip_tf.privacy.wording import describe


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
    choice: PrivateChoice | None = None,
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
        choice=choice,
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
    choice: PrivateChoice | None = None,
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
      accountants: which epsilons to compute; None for all accountants that are registered, and can.
      choice: where the run is the best of a random number of such runs, each with `other_event`.

    Returns:
      `epsilon` holds, for each way of drawing batches, one number per accountant: "poisson", and
      "shuffled", which counts each example once per epoch with no amplification. An infinite epsilon (no
      noise) is None. `guarantee` is the entry of `epsilon` for the `sampling` that was used.
    """
    events_lib.check_other_event(other_event)
    validate.one_of("sampling", mechanism.sampling, SAMPLINGS)
    count = mechanism.count(epochs=epochs, steps=steps)
    delta = check_delta(delta, mechanism.num_examples)
    examples_per_user = validate.positive_integer("examples_per_user", examples_per_user)
    if accountants is not None and (isinstance(accountants, str) or not isinstance(accountants, Sequence)):
        raise ValueError(
            f"`accountants` must be a list of names, such as ['rdp', 'pld'], or None; got {accountants!r}."
        )
    epsilons: dict[str, dict[str, float | None]] = {}
    events: dict[str, dp_accounting.DpEvent] = {}
    for kind in SAMPLINGS:
        training = dataclasses.replace(mechanism, sampling=kind).event(epochs=epochs, steps=steps)
        run = dp_accounting.ComposedDpEvent([training] if other_event is None else [other_event, training])
        events[kind] = choice_lib.chosen(run, choice)
        epsilons[kind] = {}
        able = accountants_lib.names() if choice is None else (choice_lib.ACCOUNTANT,)
        for name in able if accountants is None else accountants:
            choice_lib.check_accountant(choice, name)
            value = epsilon_of(events[kind], delta=delta, accountant=name, examples_per_user=examples_per_user)
            epsilons[kind][name] = float(value) if math.isfinite(value) else None
    return {
        "noise_multiplier": mechanism.noise_multiplier,
        "num_examples": mechanism.num_examples,
        "batch_size": mechanism.batch_size,
        "microbatch_sensitivity": mechanism.microbatch_sensitivity,
        "delta": delta,
        "steps": count,
        "epochs": validate.plain(epochs) if epochs is not None else count / mechanism.epoch,
        "sampling": mechanism.sampling,
        "sampling_probability": mechanism.batch_size / mechanism.num_examples,
        "examples_per_user": examples_per_user,
        "neighbouring_relation": mechanism.relation,
        "unit": "example" if examples_per_user == 1 else f"user with up to {examples_per_user} examples",
        "epsilon": epsilons,
        "guarantee": epsilons[mechanism.sampling],
        "choice": None if choice is None else dataclasses.asdict(choice),
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


def keep(path: str | None, report: dict[str, Any] | None, at_end: bool = False) -> None:
    """Writes what a budget reports, if anything. A full disk must not cost a training: it is told of before the end."""
    if path is None or report is None:
        return
    try:
        write_report(report, path)
    except OSError as error:
        if not at_end:
            logging.error("`statement_path`=%r could not be written: %s", path, error)
            return
        raise OSError(
            f"`statement_path`={path!r} could not be written: {error}. The model is trained and has its count of "
            "noised steps; `privacy_statement` makes the same statement."
        ) from error


def base_path(path: str | os.PathLike[str]) -> str:
    """`path` without a suffix `.txt` or `.json`."""
    root, suffix = os.path.splitext(os.fspath(path))
    return root if suffix in (".txt", ".json") else os.fspath(path)
