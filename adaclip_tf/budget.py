"""`PrivacyBudget`: epsilon in Keras's progress bar, and an end to training before it passes a target.

What Keras 2.15 does, and what follows from it:

 - `fit` looks at `model.stop_training` after each call of the train function, not before. So the largest
   number of noised steps within the target is worked out once, when training begins, and training stops
   right after the last of them. Where not even one more is allowed (a budget spent before a resume, say),
   `PrivacyBudgetSpentError` is raised before the first batch: nothing else keeps Keras from taking a step.
 - With `steps_per_execution` above 1 one call takes several steps. Training then stops before the call that
   might pass the target, which can leave some steps of the budget unused.
 - The progress bar shows the mean over the epoch's batches of every value that is not a metric of the
   model. So the value in a batch's logs is one per epoch: the epsilon that the epoch will have reached by its
   end. It is never below the truth. An epoch's logs (`history`, CSVLogger, TensorBoard) hold the exact value.
   Callbacks that are passed to `fit` run before Keras's own, in any order: they all see it.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import tensorflow as tf
from absl import logging

from adaclip_tf import _files, _validate, accounting, curve, mixing, statement


class PrivacyBudgetSpentError(RuntimeError):
    """Raised where one more training step would pass `target_epsilon`."""


class PrivacyBudget(tf.keras.callbacks.Callback):
    """Keras callback: logs "epsilon", stops before `target_epsilon`, writes the privacy statement.

    Example:
      >>> budget = PrivacyBudget(num_examples=60000, batch_size=600, delta=1e-5, target_epsilon=2.0)
      >>> model.fit(batches, epochs=100, callbacks=[budget])                           # doctest: +SKIP

    Steps are read from the optimizer's own count of noised steps, which is saved with its state: a resumed run
    goes on where it stopped. (Build the model before restoring a `tf.train.Checkpoint`: what it
    restores lazily cannot be counted before the first step.) All steps must have had the same noise multiplier
    and batch size; what else the data has paid for goes into `other_event`.

    Args:
      num_examples: n, the size of the training set.
      batch_size: B, the expected size of a logical batch: the optimizer's `expected_batch_size`.
      delta: of (epsilon, delta).
      target_epsilon: training stops before the step that would pass it. None only reports.
      accountant: "rdp" or "pld". PLD is tighter and takes tenths of a second per epoch, seconds at the start.
      sampling: "poisson" or "shuffled"; what is proven for which: see `adaclip_tf.accounting`.
      examples_per_user: protects a user who has up to this many examples.
      other_event: a dp_accounting event to add, such as `PrivatePCA(...).event`.
      statement_path: where to write the statement, as `<path>.txt` and `<path>.json`: with the chosen
        accountant after every epoch, with both at the end. Of several workers the first one writes.
    """

    def __init__(
        self,
        *,
        num_examples: int,
        batch_size: int,
        delta: float,
        target_epsilon: float | None = None,
        accountant: str = "rdp",
        sampling: str = "poisson",
        examples_per_user: int = 1,
        other_event: Any = None,
        statement_path: str | os.PathLike[str] | None = None,
    ):
        super().__init__()
        if target_epsilon is not None:
            _validate.positive("target_epsilon", target_epsilon)
        self.target_epsilon = target_epsilon
        self.accountant = _validate.one_of("accountant", accountant, tuple(accounting.ACCOUNTANTS))
        self.batch_size = batch_size
        self.statement_path = None if statement_path is None else _validate.path("statement_path", statement_path)
        self._arguments = {
            "num_examples": num_examples,
            "batch_size": batch_size,
            "delta": delta,
            "sampling": sampling,
            "examples_per_user": examples_per_user,
            "other_event": other_event,
        }
        # Names a bad argument now, not when training starts.
        accounting.release_event(
            noise_multiplier=1.0, num_examples=num_examples, batch_size=batch_size, sampling=sampling
        )
        accounting.check_delta(delta, num_examples)
        accounting.check_other_event(other_event)
        _validate.positive_integer("examples_per_user", examples_per_user)
        self._curve: curve.EpsilonCurve | None = None
        self._curve_key: tuple[float, float] | None = None
        self._allowed: int | None = None
        self._steps_per_call = 1
        self._batches_per_epoch: int | None = None
        self._batches_seen = 0
        self._at_end_of_epoch: float | None = None

    # -----------------------------------------------------------------------------------------------
    # What a user may ask.

    @property
    def noised_steps(self) -> int:
        """Noised steps that the weights have seen, by the optimizer's own count; 0 before it has state."""
        try:
            return _as_int(_optimizer_of(self.model).noised_steps)
        except ValueError:
            return 0

    @property
    def epsilon(self) -> float:
        """The epsilon spent up to now."""
        return self._epsilon_curve()(self.noised_steps)

    @property
    def remaining_steps(self) -> int | None:
        """How many more noised steps the target allows; None without a target."""
        return None if self._allowed is None else max(0, self._allowed - self.noised_steps)

    def report(self, accountants: tuple[str, ...] = tuple(accounting.ACCOUNTANTS)) -> dict[str, Any]:
        """The `privacy_report` of what has been spent up to now."""
        optimizer = _optimizer_of(self.model)
        return statement.privacy_report(
            noise_multiplier=float(optimizer.noise_multiplier),
            microbatch_sensitivity=float(optimizer.microbatch_sensitivity),
            steps=self.noised_steps,
            accountants=accountants,
            **self._arguments,
        )

    # -----------------------------------------------------------------------------------------------
    # Keras's hooks.

    def on_train_begin(self, logs=None):
        optimizer = _optimizer_of(self.model)
        self._check(optimizer)
        if self.statement_path is not None and _writes(self.model):
            for suffix in (".txt", ".json"):  # told now, not after an epoch
                _files.check_writable("statement_path", statement.base_path(self.statement_path) + suffix)
        if self.model.built:
            mixing.check_losses(self.model)
            optimizer.build(self.model.trainable_variables)  # a lazily restored count must be there now
            self._check_count(optimizer)
        epsilon_curve = self._epsilon_curve()
        if self.target_epsilon is not None:
            self._allowed = epsilon_curve.largest_steps(self.target_epsilon)
        self._batches_per_epoch = self.params.get("steps")
        if (self._batches_per_epoch or 0) % optimizer.accumulation_steps:
            raise ValueError(
                f"An epoch has {self._batches_per_epoch} batches, which is not a multiple of the optimizer's "
                f"`accumulation_steps`={optimizer.accumulation_steps}: a logical batch would span two epochs, and "
                "could hold an example twice."
            )
        steps_per_execution = getattr(self.model, "_steps_per_execution", None)
        batches = 1 if steps_per_execution is None else _as_int(steps_per_execution)
        batches = min(batches, self._batches_per_epoch or batches)
        self._steps_per_call = -(-batches // optimizer.accumulation_steps)

    def on_epoch_begin(self, epoch, logs=None):
        self._batches_seen = 0
        self._at_end_of_epoch = None
        if self._batches_per_epoch:
            releases = -(-self._batches_per_epoch // _optimizer_of(self.model).accumulation_steps)
            end = self.noised_steps + releases
            self._at_end_of_epoch = self._epsilon_curve()(min(end, self._allowed or end))

    def on_train_batch_begin(self, batch, logs=None):
        if self._next_call_passes_the_target():
            raise PrivacyBudgetSpentError(self._spent_message())

    def on_train_batch_end(self, batch, logs=None):
        self._batches_seen = batch + 1
        if logs is not None and self._at_end_of_epoch is not None:
            logs["epsilon"] = self._at_end_of_epoch
        if self._next_call_passes_the_target():
            logging.info("PrivacyBudget stops training. %s", self._spent_message())
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        self._batches_per_epoch = self._batches_per_epoch or self._batches_seen
        if logs is not None:
            logs["epsilon"] = self.epsilon
        try:
            self._write((self.accountant,))
        except OSError as error:  # a full disk must not cost the training
            logging.error("`statement_path`=%r could not be written: %s", self.statement_path, error)

    def on_train_end(self, logs=None):
        try:
            self._write(tuple(accounting.ACCOUNTANTS))
        except OSError as error:
            raise OSError(
                f"`statement_path`={self.statement_path!r} could not be written: {error}. The model is trained and has "
                "its count of noised steps; `privacy_statement` makes the same statement."
            ) from error

    # -----------------------------------------------------------------------------------------------

    def _next_call_passes_the_target(self) -> bool:
        return self._allowed is not None and self.noised_steps + self._steps_per_call > self._allowed

    def _spent_message(self) -> str:
        steps = self.noised_steps
        text = (
            f"{steps} noised steps have cost epsilon {self._epsilon_curve()(steps):.6g}, and `target_epsilon`="
            f"{self.target_epsilon:g} allows {self._allowed} in all"
        )
        if self._steps_per_call > 1:
            text += f"; one call of the train function takes {self._steps_per_call} (`steps_per_execution`)"
        return text + "."

    def _epsilon_curve(self) -> curve.EpsilonCurve:
        """Built once, and again only if the optimizer's noise multiplier was changed."""
        optimizer = _optimizer_of(self.model)
        key = (float(optimizer.noise_multiplier), float(optimizer.microbatch_sensitivity))
        if self._curve is None or self._curve_key != key:
            self._curve = curve.EpsilonCurve(
                noise_multiplier=key[0],
                microbatch_sensitivity=key[1],
                accountant=self.accountant,
                **self._arguments,
            )
            self._curve_key = key
        return self._curve

    def _check(self, optimizer: Any) -> None:
        """Refuses what cannot be accounted for, and warns where the user must know better."""
        if getattr(self.model, "autotune_steps_per_execution", False):
            raise ValueError(
                "`steps_per_execution='auto'` changes how many steps one call takes, so PrivacyBudget "
                "cannot stop in time; compile with a number."
            )
        size = optimizer.expected_batch_size
        if size is not None and size != self.batch_size:
            raise ValueError(
                f"The optimizer's `expected_batch_size` is {size} and PrivacyBudget's `batch_size` is "
                f"{self.batch_size}; both are the expected size of a logical batch and must be equal."
            )
        poisson = self._arguments["sampling"] == "poisson"
        if size is None and poisson:
            warnings.warn(
                "The optimizer has no `expected_batch_size`, so it divides by each batch's own size, which "
                "is private under Poisson sampling. Give it one, or use batches of fixed size and "
                "sampling='shuffled' for the guarantee that is proven for them.",
                UserWarning,
                stacklevel=2,
            )
        if optimizer.microbatch_sensitivity > 1.0 and poisson:
            warnings.warn(
                "Microbatches hold several examples. The epsilon shown is proven only if these groups are "
                "fixed beforehand and Poisson-sampled as wholes, not for examples that are sampled one by "
                "one and then grouped. Use num_microbatches=None, or batches of fixed size and sampling='shuffled'.",
                UserWarning,
                stacklevel=2,
            )

    def _check_count(self, optimizer: Any) -> None:
        """Every update of the weights is a noised step, so there are never more of the former."""
        updates, noised = _as_int(optimizer.iterations), self.noised_steps
        if updates > noised:
            raise ValueError(
                f"The optimizer has updated the weights {updates} times and counts {noised} noised steps: they were "
                "restored from a checkpoint of another optimizer, whose steps were not private or are not counted. "
                "Start from public weights, and account for other private training by `other_event`."
            )

    def _write(self, accountants: tuple[str, ...]) -> None:
        if self.statement_path is None or self.noised_steps == 0 or not _writes(self.model):
            return
        statement.write_report(self.report(accountants), self.statement_path)


def _as_int(variable: Any) -> int:
    """The value of an integer variable, under a distribution strategy too (there `int(variable)` fails)."""
    return int(tf.convert_to_tensor(variable))


def _writes(model: Any) -> bool:
    """Whether this process writes files: of several workers only one does."""
    return bool(model.distribute_strategy.extended.should_checkpoint)


def _optimizer_of(model: Any) -> Any:
    """The model's optimizer, if it is one that counts its noised steps."""
    optimizer = model.optimizer
    if not hasattr(type(optimizer), "noised_steps"):
        raise ValueError(
            "PrivacyBudget needs an optimizer that counts its noised steps, DPAdaClipSGD or DPFixedClipSGD; "
            f"the model was compiled with {type(optimizer).__name__}."
        )
    return optimizer
