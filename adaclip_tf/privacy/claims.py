"""What is claimed of a run against what can be seen of it: claims that are false are refused. No Keras in here."""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import NamedTuple

from adaclip_tf.privacy import past_steps
from adaclip_tf.privacy.drawn import Drawn
from adaclip_tf.privacy.mechanism import Mechanism
from adaclip_tf.privacy.private_optimizer import PrivateOptimizer, as_int


class Given(NamedTuple):
    """What can be seen of the data that a run was given. None where it could not be seen.

    Attributes:
      arrays: whether Keras cuts it into batches, shuffled or in order.
      rows: examples in a pass.
      batch_size: of all batches but the last one of a pass.
      drawn: how the batches were drawn, if they come from a draw of ours.
      num_batches: of a pass over a dataset that ends.
      mapped: whether a function may have left out examples of such batches since.
      passes_meet: whether examples of two passes may meet in a batch, or in the batches of a pass.
      found: whether the data was found at all.
    """

    arrays: bool = False
    rows: int | None = None
    batch_size: int | None = None
    drawn: Drawn | None = None
    num_batches: int | None = None
    mapped: bool = False
    passes_meet: bool = False
    found: bool = False


def check_optimizer(optimizer: PrivateOptimizer, claimed: Mechanism, drawn: Drawn | None) -> None:
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
        parts = "1 part" if drawn.accumulation_steps == 1 else f"{drawn.accumulation_steps} parts"
        raise ValueError(
            f"The batches come in {parts} each and the optimizer has `accumulation_steps`="
            f"{optimizer.accumulation_steps}; give both the same number."
        )
    if poisson and not _one_each(optimizer, claimed):
        warnings.warn(
            "Microbatches hold several examples. The epsilon shown is proven only if these groups are "
            "fixed beforehand and Poisson-sampled whole, not for examples that are sampled one by "
            "one and then grouped. Use num_microbatches=None, or batches of fixed size and sampling='shuffled'.",
            UserWarning,
            stacklevel=3,
        )


def check_data(given: Given, claimed: Mechanism, parts: int) -> None:
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
        what = "arrays" if given.arrays else "a dataset"
        raise ValueError(
            f"PrivacyBudget's `num_examples` is {claimed.num_examples}, and `fit` was given {what} of {given.rows} "
            "rows. Both are the number of training examples."
        )
    whole, poisson = claimed.num_examples, claimed.sampling == "poisson"
    size = None if given.batch_size is None else min(given.batch_size * parts, whole)
    if given.mapped and poisson and size != claimed.batch_size:
        size = None  # the function may draw some of these examples
    if size not in (None, claimed.batch_size):
        logical = f" in {parts} parts (`accumulation_steps`)" if parts > 1 else ""
        raise ValueError(
            f"PrivacyBudget's `batch_size` is {claimed.batch_size}{logical}, and `fit` was given batches of "
            f"{given.batch_size}."
        )
    if claimed.sampling == "shuffled" and (given.num_batches or math.inf) < claimed.shortest_epoch * parts:
        raise ValueError(
            f"PrivacyBudget counts an epoch of {whole} examples in batches of {claimed.batch_size}, and "
            f"the dataset that `fit` was given ends after {given.num_batches} batches: its examples come again sooner. "
            "Give `num_examples` and `batch_size` as the dataset has them."
        )
    if (given.arrays or size is not None) and poisson and claimed.batch_size < whole:
        what = "arrays, which it cuts into batches" if given.arrays else "batches"
        raise ValueError(
            f"PrivacyBudget accounts for Poisson sampling, and `fit` was given {what} of fixed size: that epsilon "
            "would be too small. Give `fit` what `poisson_batches(...)` returns; or account for what you have, by "
            "`PrivacyBudget(..., sampling='shuffled')`."
        )
    if given.passes_meet and claimed.sampling == "shuffled":
        raise ValueError(
            "PrivacyBudget counts each example once per epoch, and the dataset that `fit` was given repeats its "
            "examples before it cuts them into batches: one can be in a batch, or an epoch, twice. Put `repeat` behind "
            "`batch`."
        )


def check_is_drawn(given: Given, counted: Drawn) -> None:
    """Whether a run was given the batches that a budget took its numbers from, as far as it was found what it got."""
    if given.found and given.drawn is None:
        raise ValueError(
            f"`PrivacyBudget.of(batches)` counts batches of {counted.batch_size} that were drawn by Poisson sampling, "
            "and `fit` was given something else, in which no such draw can be seen. Give `fit` these batches, or what "
            "`map`, `prefetch` or `repeat` make of them. For batches of another origin say how they are formed, by "
            "`PrivacyBudget(num_examples=..., batch_size=..., sampling=...)`."
        )


def assumption(given: Given, claimed: Mechanism) -> str:
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


def check_past(optimizer: PrivateOptimizer, claimed: Mechanism, given: Given) -> None:
    """The past steps, by the optimizer's saved state, against the present ones, on the data that is `given`."""
    seen = optimizer.past_steps()
    past_steps.check(seen, optimizer.noise_multiplier, optimizer.expected_batch_size, optimizer.name)
    if seen.steps and seen.batch_size > claimed.batch_size:
        raise ValueError(
            f"PrivacyBudget's `batch_size` is {claimed.batch_size}, and the optimizer has taken steps on batches of "
            f"{seen.batch_size}. Give the size of a logical batch; epsilon would be too small otherwise."
        )
    epochs = _epochs(optimizer, claimed, given)
    if claimed.sampling == "shuffled" and all(seen.steps % epoch for epoch in epochs):
        raise ValueError(
            f"The optimizer has taken {seen.steps} noised steps, and an epoch has {max(epochs)}: the last one was "
            "broken off, and this run would begin another, so that examples were used more often than their epochs "
            "say. Train whole epochs; or go on with a new optimizer, and a ledger, or `other_event=adaclip_tf."
            "optimizer_event(old_optimizer, num_examples=..., batch_size=..., sampling='shuffled')`."
        )
    updates = as_int(optimizer.iterations)
    if updates > seen.steps:
        raise ValueError(
            f"The optimizer has updated the weights {updates} times and counts {seen.steps} noised steps: they were "
            "restored from a checkpoint of another optimizer, whose steps were not private or are not counted. "
            "Start from public weights, and account for other private training by `other_event`."
        )


def _epochs(optimizer: PrivateOptimizer, claimed: Mechanism, given: Given) -> tuple[int, ...]:
    """How many steps an epoch can have; where what is given shows it, as it does, so many."""
    if given.arrays:
        return (claimed.epoch,)
    whole, rest = divmod(given.num_batches or 0, optimizer.accumulation_steps)
    either = (claimed.shortest_epoch, claimed.epoch)
    return (whole,) if whole in either and not rest else either


def sensitivity(optimizer: PrivateOptimizer, claimed: Mechanism) -> float:
    """That of the steps to come, and of those before.

    Microbatches of one example each, as far as the budget was told: the optimizer's state will tell after a step.
    """
    seen = optimizer.past_steps()
    planned = 1.0 if _one_each(optimizer, claimed) else optimizer.microbatch_sensitivity
    return max(planned, seen.microbatch_sensitivity) if seen.steps else planned


def false_claim(optimizer: PrivateOptimizer, planned: Mechanism) -> str | None:
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
    if seen.noise_multiplier < planned.noise_multiplier:
        return (
            f"Another private optimizer trains on the same batches: together they are like one with a noise multiplier "
            f"of {seen.noise_multiplier:.4g}, and PrivacyBudget planned for {planned.noise_multiplier:.4g}. What was "
            "taken is counted so. Train without PrivacyBudget's target and ask `optimizer_event` for the event, or "
            f"plan with `epsilon(noise_multiplier={seen.noise_multiplier:.4g}, ...)`."
        )
    if seen.batch_size > planned.batch_size:
        return (
            f"PrivacyBudget's `batch_size` is {planned.batch_size}, and a batch of {seen.batch_size} has come. Give "
            "the size of a logical batch; epsilon would be too small otherwise."
        )
    return None


def worse(optimizer: PrivateOptimizer, planned: Mechanism) -> Mechanism:
    """`planned`, as it has turned out to be."""
    seen = optimizer.past_steps()
    return dataclasses.replace(
        planned,
        noise_multiplier=min(planned.noise_multiplier, seen.noise_multiplier),
        batch_size=min(max(planned.batch_size, seen.batch_size), planned.num_examples),
        microbatch_sensitivity=max(planned.microbatch_sensitivity, seen.microbatch_sensitivity),
    )


def of_others(claimed: Mechanism, seen: past_steps.PastSteps) -> Mechanism:
    """A step that another optimizer took on the same data, by its own state."""
    return dataclasses.replace(
        claimed,
        noise_multiplier=seen.noise_multiplier,
        batch_size=min(max(claimed.batch_size, seen.batch_size), claimed.num_examples),
        microbatch_sensitivity=seen.microbatch_sensitivity,
    )


def share_batches(optimizer: PrivateOptimizer, other: past_steps.PastSteps) -> bool:
    """Whether both take their steps on the same batches, so that each has noted what both cost."""
    noted = optimizer.past_steps().noise_multiplier
    return noted < optimizer.noise_multiplier and math.isclose(noted, other.noise_multiplier, rel_tol=1e-9)


def _one_each(optimizer: PrivateOptimizer, claimed: Mechanism) -> bool:
    if optimizer.num_microbatches is None:
        return True
    size = optimizer.expected_batch_size or claimed.batch_size
    return size == optimizer.num_microbatches * optimizer.accumulation_steps
