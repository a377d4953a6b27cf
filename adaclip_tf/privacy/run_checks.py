"""What a `PrivacyBudget` refuses: claims that it can see to be false, and runs that can't be accounted for."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import tensorflow as tf

from adaclip_tf._internal import files
from adaclip_tf.data import sampling
from adaclip_tf.optimizers import past
from adaclip_tf.privacy import fit_data, statement
from adaclip_tf.privacy.ledger import Ledger
from adaclip_tf.privacy.mechanism import Mechanism


def check_optimizer(optimizer: Any, claimed: Mechanism, drawn: sampling.Drawn | None) -> None:
    """The optimizer's arguments against what the budget was told, or took from the batches (`drawn`)."""
    size = optimizer.expected_batch_size
    if size is not None and size != claimed.batch_size:
        raise ValueError(
            f"The optimizer's `expected_batch_size` is {size} and PrivacyBudget's `batch_size` is "
            f"{claimed.batch_size}; both are the expected size of a logical batch and must be equal."
        )
    poisson = claimed.sampling == "poisson"
    if size is None and optimizer.num_microbatches is None and poisson and claimed.batch_size < claimed.num_examples:
        raise ValueError(
            "The optimizer has no `expected_batch_size`, so it divides by each batch's own size, which is private "
            f"under Poisson sampling. Give it `expected_batch_size={claimed.batch_size}`; or, if all batches have one "
            "fixed size, account for them by `PrivacyBudget(..., sampling='shuffled')`."
        )
    if drawn is not None and drawn.accumulation_steps != optimizer.accumulation_steps:
        raise ValueError(
            f"The batches come in {drawn.accumulation_steps} parts each and the optimizer has `accumulation_steps`="
            f"{optimizer.accumulation_steps}; give both the same number."
        )
    if poisson and not _one_each(optimizer, claimed):
        warnings.warn(
            "Microbatches hold several examples. The epsilon shown is proven only if these groups are "
            "fixed beforehand and Poisson-sampled as wholes, not for examples that are sampled one by "
            "one and then grouped. Use num_microbatches=None, or batches of fixed size and sampling='shuffled'.",
            UserWarning,
            stacklevel=3,
        )


def check_data(given: fit_data.Given, claimed: Mechanism, parts: int) -> None:
    """What `fit` was given against what the budget was told. `parts`: batches of a logical batch."""
    if given.drawn is not None:
        for name in ("sampling", "num_examples", "batch_size"):
            theirs, ours = getattr(given.drawn, name), getattr(claimed, name)
            if theirs != ours:
                raise ValueError(
                    f"PrivacyBudget's `{name}` is {ours!r}, and the batches that `fit` was given have {theirs!r}. "
                    "`PrivacyBudget.of(batches, ...)` takes it from them."
                )
    if given.rows is not None and given.rows != claimed.num_examples:
        raise ValueError(
            f"PrivacyBudget's `num_examples` is {claimed.num_examples}, and `fit` was given arrays of {given.rows} "
            "rows. Both are the number of training examples."
        )
    if given.batch_size is not None and min(given.batch_size * parts, claimed.num_examples) != claimed.batch_size:
        logical = f" in {parts} parts (`accumulation_steps`)" if parts > 1 else ""
        raise ValueError(
            f"PrivacyBudget's `batch_size` is {claimed.batch_size}{logical}, and `fit` was given batches of "
            f"{given.batch_size}."
        )
    fixed = given.arrays or given.batch_size is not None
    if fixed and claimed.sampling == "poisson" and claimed.batch_size < claimed.num_examples:
        what = "arrays, which it cuts into batches" if given.arrays else "batches"
        raise ValueError(
            f"PrivacyBudget accounts for Poisson sampling, and `fit` was given {what} of fixed size: that epsilon "
            "would be too small. Give `fit` what `poisson_batches(...)` returns; or account for what you have, by "
            "`PrivacyBudget(..., sampling='shuffled')`."
        )


def check_files(model: Any, statement_path: str | None, ledger: Ledger | None) -> None:
    """Whether what is to be written can be: told now, not after an epoch."""
    if statement_path is not None and writes(model):
        for suffix in (".txt", ".json"):
            files.check_writable("statement_path", statement.base_path(statement_path) + suffix)
    if ledger is not None:
        if model.distribute_strategy.extended._in_multi_worker_mode():
            raise ValueError(
                "`ledger` is for a training in one process: workers would all write to it. Train without it, and "
                "write down what it cost by `Ledger.add(name, optimizer_event(...))`."
            )
        files.check_writable("ledger", ledger.path)


def steps_per_call(model: Any, optimizer: Any, batches_per_epoch: int | None) -> int:
    """How many noised steps one call of the train function takes at most."""
    if getattr(model, "autotune_steps_per_execution", False):
        raise ValueError(
            "`steps_per_execution='auto'` changes how many steps one call takes, so PrivacyBudget "
            "cannot stop in time; compile with a number."
        )
    if (batches_per_epoch or 0) % optimizer.accumulation_steps:
        raise ValueError(
            f"An epoch has {batches_per_epoch} batches, which is not a multiple of the optimizer's "
            f"`accumulation_steps`={optimizer.accumulation_steps}: a logical batch would span two epochs, and "
            "could hold an example twice."
        )
    steps_per_execution = getattr(model, "_steps_per_execution", None)
    batches = 1 if steps_per_execution is None else as_int(steps_per_execution)
    batches = min(batches, batches_per_epoch or batches)
    return -(-batches // optimizer.accumulation_steps)


def assumption(given: fit_data.Given, claimed: Mechanism) -> str:
    """What a budget takes for granted, in a line."""
    n, size = f"{claimed.num_examples:,}", f"{claimed.batch_size:,}"
    if claimed.sampling == "shuffled":
        return f"PrivacyBudget counts each of {n} examples once per epoch, in batches of {size} (sampling='shuffled')."
    text = f"PrivacyBudget counts Poisson-sampled batches, {size} of {n} examples expected in each"
    if given.drawn is not None:
        return f"{text}, which is what `fit` was given."
    return (
        f"{text}. It can't see whether these batches are: take them from `poisson_batches`, or say sampling='shuffled'."
    )


def check_past(optimizer: Any, claimed: Mechanism) -> None:
    """The past steps, by the optimizer's saved state, against the present ones."""
    seen = optimizer.past_steps()
    past.check(seen, optimizer.noise_multiplier, optimizer.expected_batch_size, optimizer.name)
    if seen.steps and seen.batch_size > claimed.batch_size:
        raise ValueError(
            f"PrivacyBudget's `batch_size` is {claimed.batch_size}, and the optimizer has taken steps on batches of "
            f"{seen.batch_size}. Give the size of a logical batch; epsilon would be too small otherwise."
        )
    updates = as_int(optimizer.iterations)
    if updates > seen.steps:
        raise ValueError(
            f"The optimizer has updated the weights {updates} times and counts {seen.steps} noised steps: they were "
            "restored from a checkpoint of another optimizer, whose steps were not private or are not counted. "
            "Start from public weights, and account for other private training by `other_event`."
        )


def sensitivity(optimizer: Any, claimed: Mechanism) -> float:
    """That of the steps to come, and of those before.

    Microbatches of one example each, as far as the budget was told: the optimizer's state will tell after a step.
    """
    seen = optimizer.past_steps()
    planned = 1.0 if _one_each(optimizer, claimed) else optimizer.microbatch_sensitivity
    return max(planned, seen.microbatch_sensitivity) if seen.steps else planned


def false_claim(optimizer: Any, planned: Mechanism) -> str | None:
    """What the steps just taken were, if it is worse than what was planned for; else None."""
    seen = optimizer.past_steps()
    if not seen.steps:
        return None
    if seen.microbatch_sensitivity > planned.microbatch_sensitivity:
        return (
            f"`num_microbatches`={optimizer.num_microbatches} was to be one example each, by PrivacyBudget's "
            f"`batch_size`={planned.batch_size}, and a microbatch has held several: twice the sensitivity. Use "
            "`num_microbatches=None` for one gradient per example."
        )
    if seen.batch_size > planned.batch_size:
        return (
            f"PrivacyBudget's `batch_size` is {planned.batch_size}, and a batch of {seen.batch_size} has come. Give "
            "the size of a logical batch; epsilon would be too small otherwise."
        )
    return None


def worse(optimizer: Any, planned: Mechanism) -> Mechanism:
    """`planned`, as it has turned out to be."""
    seen = optimizer.past_steps()
    return dataclasses.replace(
        planned,
        batch_size=min(max(planned.batch_size, seen.batch_size), planned.num_examples),
        microbatch_sensitivity=max(planned.microbatch_sensitivity, seen.microbatch_sensitivity),
    )


def _one_each(optimizer: Any, claimed: Mechanism) -> bool:
    if optimizer.num_microbatches is None:
        return True
    size = optimizer.expected_batch_size or claimed.batch_size
    return size == optimizer.num_microbatches * optimizer.accumulation_steps


def writes(model: Any) -> bool:
    """Whether this process writes files: of several workers only one does."""
    return bool(model.distribute_strategy.extended.should_checkpoint)


def as_int(variable: Any) -> int:
    """The value of an integer variable, under a distribution strategy too (there `int(variable)` fails)."""
    return int(tf.convert_to_tensor(variable))
