"""What a `PrivacyBudget` needs of the `fit` that it runs in: files that can be written, steps that can be counted."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from absl import logging

from adaclip_tf._internal import files, keras
from adaclip_tf.privacy import statement
from adaclip_tf.privacy.ledger import Ledger


def check_files(model: Any, statement_path: str | None, ledger: Ledger | None) -> None:
    """Whether what is to be written can be: told now, not after an epoch."""
    if statement_path is not None and keras.is_chief(model):
        for suffix in (".txt", ".json"):
            files.check_writable("statement_path", statement.base_path(statement_path) + suffix)
    if ledger is not None:
        if keras.has_several_workers(model):
            raise ValueError(
                "`ledger` is for a training in one process: workers would all write to it. Train without it, and "
                "write down what it cost by `Ledger.add(name, optimizer_event(...))`."
            )
        files.check_writable("ledger", ledger.path)


def steps_per_call(model: Any, accumulation_steps: int, batches_per_epoch: int | None) -> int:
    """How many noised steps one call of the train function takes at most."""
    batches = keras.steps_per_execution(model)
    if batches is None:
        raise ValueError(
            "`steps_per_execution='auto'` changes how many steps one call takes, so PrivacyBudget "
            "cannot stop in time; compile with a number."
        )
    if (batches_per_epoch or 0) % accumulation_steps:
        raise ValueError(
            f"An epoch has {batches_per_epoch} batches, which is not a multiple of the optimizer's "
            f"`accumulation_steps`={accumulation_steps}: a logical batch would span two epochs, and "
            "could hold an example twice."
        )
    batches = min(batches, batches_per_epoch or batches)
    return -(-batches // accumulation_steps)


# They decide by a metric, or keep what was best by one.
_DECIDING = (
    tf.keras.callbacks.EarlyStopping,
    tf.keras.callbacks.ReduceLROnPlateau,
    tf.keras.callbacks.ModelCheckpoint,
)


def warn_of_releases(model: Any) -> None:
    """Says which callbacks of the running `fit` decide by Keras's loss or metrics of the training data.

    These are computed without noise. What is decided by them, when to stop, which weights to keep, is seen in the
    model: a release that no accountant counts.
    """
    call = keras.running_fit(model)
    for callback in call.callbacks if call else ():
        if isinstance(callback, tf.keras.callbacks.TerminateOnNaN):
            logging.warning(
                "%s stops by the loss of the training data, which one example can make NaN: a stop says something "
                "about the example, and no epsilon counts it. Leave it out: the optimizer leaves out such an example.",
                type(callback).__name__,
            )
        if not isinstance(callback, _DECIDING) or not getattr(callback, "save_best_only", True):
            continue
        monitor = str(callback.monitor)
        if not monitor.startswith("val_") and monitor != "epsilon":
            logging.warning(
                "%s decides by %r, which Keras computes from the training data without noise: what it decides is a "
                "release of private data, and no epsilon counts it. Let it monitor data that needs no protection (%r), "
                "or leave it out.",
                type(callback).__name__,
                monitor,
                f"val_{monitor}",
            )


def warn_of_other_phases(steps: int) -> None:
    """Says that the weights have taken so many steps that are not counted, if any."""
    if steps:
        logging.warning(
            "The weights have taken %d noised steps by another private optimizer, which this PrivacyBudget does not "
            "count. If these were on the same data, its epsilon is too small: use one PrivacyBudget, or one `ledger`, "
            "for all phases, or give what they cost as `other_event`.",
            steps,
        )


def replaced(name: str) -> ValueError:
    """The error where `model.optimizer` is no longer the one of this name, with which `fit` runs."""
    return ValueError(
        f"`model.optimizer` was replaced while `fit` runs. Keras goes on with the one before, {name}, and "
        "PrivacyBudget would count the steps of the new one. End this `fit`, call `model.compile` with the new "
        "optimizer, and call `fit` again: the budget adds up both."
    )


def tell(model: Any, params: dict[str, Any], assumed: str | None) -> None:
    """What is to be said once, when training begins: of callbacks, and what is assumed of the batches."""
    warn_of_releases(model)
    if assumed is not None:
        say(params, assumed)


def say(params: dict[str, Any], text: str) -> None:
    """A line beside the progress bar; a line in the log for those who want none (`verbose=0` in `params`)."""
    if params.get("verbose", 1) and tf.keras.utils.is_interactive_logging_enabled():
        print(text, flush=True)
    else:
        logging.info("%s", text)
