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
 - Other callbacks may restore the optimizer when training begins (`BackupAndRestore`). So what depends on its state
   is looked at, again, when the first epoch begins.

What can be seen to be false is refused (`privacy.claims`), before the first step where it can be. What can't be
seen is how a dataset of one's own draws its batches: a line says what is assumed of it.
"""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from adaclip_tf._internal import keras, regularizers, signatures, validate
from adaclip_tf.privacy import account, claims, fit_data, private_optimizer, run_checks, statement
from adaclip_tf.privacy import ledger as ledger_lib
from adaclip_tf.privacy.drawn import Drawn, require_drawn
from adaclip_tf.privacy.horizon import Horizon
from adaclip_tf.privacy.mechanism import SAMPLINGS, Mechanism
from adaclip_tf.privacy.meter import PrivacyMeter


class PrivacyBudgetSpentError(RuntimeError):
    """Raised where one more training step would pass `target_epsilon`."""


class PrivacyBudget(tf.keras.callbacks.Callback):
    """Keras callback: logs "epsilon", stops before `target_epsilon`, writes the privacy statement.

    Example:
      >>> batches = poisson_batches((x, y), expected_batch_size=10)
      >>> budget = PrivacyBudget.of(batches, delta=1e-5, target_epsilon=2.0)
      >>> model.fit(batches, epochs=100, callbacks=[budget])                           # doctest: +SKIP

    Steps are read from the optimizer's own count of noised steps, which is saved with its state, and so is what noise
    and batch size they had: a resumed run goes on where it stopped, and is refused with other noise. (Build the
    model before restoring a `tf.train.Checkpoint`: what it restores lazily cannot be counted before the first step.)
    What else was computed from the data goes into `other_event`, or into a ledger.

    Args:
      num_examples: n, the size of the training set.
      batch_size: B, the expected size of a logical batch: the optimizer's `expected_batch_size`.
      delta: of (epsilon, delta).
      target_epsilon: training stops before the step that would pass it. None only reports.
      accountant: "rdp", "pld" (tighter; tenths of a second per epoch, seconds at the start), or another by its name.
      sampling: "poisson" or "shuffled"; what is proven for which: see `adaclip_tf.privacy.events`.
      examples_per_user: protects a user who has up to this many examples.
      other_event: a dp_accounting event to add, such as `PrivatePCA(...).event`.
      statement_path: where to write the statement, as `<path>.txt` and `<path>.json`: with the chosen
        accountant after every epoch, with all of them at the end. Of several workers the first one writes.
      ledger: a file in which all that is spent on this data is written down, before it is spent, and added up: earlier
        phases, optimizers and programs count too. See `adaclip_tf.privacy.ledger`. For a training in one process.
      new_phase: with a ledger that knows more steps of this optimizer than it has itself, goes on as a new phase.
    """

    @signatures.other_names(epsilon="use `target_epsilon`", expected_batch_size="use `batch_size`")
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
        ledger: str | os.PathLike[str] | None = None,
        new_phase: bool = False,
    ):
        super().__init__()
        validate.one_of("sampling", sampling, SAMPLINGS)
        self.target_epsilon = None if target_epsilon is None else validate.positive("target_epsilon", target_epsilon)
        self.statement_path = None if statement_path is None else validate.path("statement_path", statement_path)
        self._account = account.Account(
            Mechanism(1.0, num_examples, batch_size, sampling),
            delta=delta,
            accountant=accountant,
            examples_per_user=examples_per_user,
            other_event=other_event,
            ledger=None if ledger is None else ledger_lib.Ledger(ledger),
            new_phase=validate.boolean("new_phase", new_phase),
        )
        self._drawn: Drawn | None = None
        self._horizon = Horizon()
        self._started = self._checked = self._told = False
        self._given = claims.Given()
        self._running: private_optimizer.PrivateOptimizer | None = None
        self._why_stopped: str | None = None
        self._at_end_of_epoch: float | None = None

    @classmethod
    def of(cls, batches: Any, *, delta: float, target_epsilon: float | None = None, **options: Any) -> PrivacyBudget:
        """A budget that takes n, B and the way of sampling from the batches themselves, or from a mechanism.

        Args:
          batches: what `poisson_batches` or `distributed_poisson_batches` returned, unchanged. After `.map(...)` and
            similar calls the batches may go to `fit`, but not here. Or a `Mechanism`; the noise is the optimizer's.
          delta, target_epsilon, **options: as for `PrivacyBudget`.
        """
        known = batches if isinstance(batches, Mechanism) else require_drawn(batches)
        for name in ("num_examples", "batch_size", "sampling"):
            if name in options:
                raise ValueError(f"`{name}` is known from the batches; leave it out. Got {options[name]!r}.")
        made = cls(
            num_examples=known.num_examples,
            batch_size=known.batch_size,
            sampling=known.sampling,
            delta=delta,
            target_epsilon=target_epsilon,
            **options,
        )
        made._drawn = known if isinstance(known, Drawn) else None
        return made

    # -----------------------------------------------------------------------------------------------
    # What a user may ask.

    @property
    def meter(self) -> PrivacyMeter:
        """What counts epsilon: n, B, sampling, delta, the accountant."""
        return self._account.meter

    @property
    def num_examples(self) -> int:
        """n."""
        return self.meter.claimed.num_examples

    @property
    def batch_size(self) -> int:
        """B."""
        return self.meter.claimed.batch_size

    @property
    def sampling(self) -> str:
        """How batches are taken to be drawn."""
        return self.meter.claimed.sampling

    @property
    def delta(self) -> float:
        """Of (epsilon, delta)."""
        return self.meter.delta

    @property
    def accountant(self) -> str:
        """The name of what adds up."""
        return self.meter.accountant

    @property
    def noised_steps(self) -> int:
        """Noised steps that the weights have seen, by the optimizer's own count; 0 before it has state."""
        return private_optimizer.noised_steps(self._optimizer)

    @property
    def epsilon(self) -> float:
        """The epsilon spent up to now."""
        return self.epsilon_at(self._account.told(self.noised_steps, self._horizon.steps_per_call))

    def epsilon_at(self, steps: int) -> float:
        """The epsilon spent when the optimizer counts `steps`."""
        return self.meter.epsilon_at(self._optimizer, steps)

    @property
    def remaining_steps(self) -> int | None:
        """How many more noised steps the target allows; None without a target."""
        return self._horizon.remaining(self.noised_steps)

    def report(self, accountants: tuple[str, ...] | None = None) -> dict[str, Any]:
        """The `privacy_report` of what has been spent up to now; by all accountants, or by those named."""
        self._account.told(self.noised_steps, self._horizon.steps_per_call)
        report = self.meter.report(self._optimizer, accountants)
        if report is None:
            raise ValueError("No noised step has been taken yet, so there is nothing to report. Train first.")
        return report

    # -----------------------------------------------------------------------------------------------
    # Keras's hooks.

    def on_train_begin(self, logs=None):
        optimizer = self._running = self._optimizer
        self._account.broken_off(optimizer, self._horizon.steps_per_call)
        self._started, self._checked, self._why_stopped = False, False, None
        given = self._given = fit_data.given_to_fit(self.model)
        self.meter.check(optimizer, given, self._drawn)
        run_checks.check_files(self.model, self.statement_path, self._account.ledger)
        if self.model.built:
            regularizers.check(self.model)
            optimizer.build(self.model.trainable_variables)  # a lazily restored count must be there now
            claims.check_past(optimizer, self.meter.claimed, given)
        parts, batches = optimizer.accumulation_steps, self.params.get("steps")
        per_call = run_checks.steps_per_call(self.model, parts, batches)
        self._horizon = Horizon(parts, per_call, batches, allowed=self._horizon.allowed)
        if not self._told:
            self._told = True
            assumed = claims.assumption(given, self.meter.claimed) if self._drawn is None else None
            run_checks.tell(self.model, self.params, assumed)

    def on_epoch_begin(self, epoch, logs=None):
        if not self._started:
            self._start()
        self._horizon.batches_seen = 0
        end = self._horizon.end_of_epoch(self.noised_steps)
        self._at_end_of_epoch = None if end is None else self.epsilon_at(end)

    def on_train_batch_begin(self, batch, logs=None):
        self._check_optimizer()
        steps, horizon = self.noised_steps, self._horizon
        if self._account.ledger is not None and self._account.rewound(steps):
            self._start()  # something has restored an older state in the middle of it
        if self._account.has_more():
            self._plan()  # somebody has spent of the same ledger in the middle of it
        if horizon.next_call_passes(steps):
            self._account.end(steps)
            raise PrivacyBudgetSpentError(self._spent(steps))
        self._account.before_call(steps, horizon.steps_per_call, horizon.end_of_epoch(steps))

    def on_train_batch_end(self, batch, logs=None):
        self._horizon.batches_seen = batch + 1
        self._check_optimizer()
        if logs is not None and self._at_end_of_epoch is not None:
            logs["epsilon"] = self._at_end_of_epoch
        steps = self._after_call(thorough=not self._checked)
        if self._horizon.next_call_passes(steps):
            self._why_stopped = f"PrivacyBudget has stopped the training: {self._spent(steps)}"
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        self._check_optimizer()
        steps = self._after_call(thorough=True)
        self._horizon.batches_per_epoch = self._horizon.batches_per_epoch or self._horizon.batches_seen
        self._account.settle(steps)
        if logs is not None:
            logs["epsilon"] = self.epsilon_at(steps)
        statement.keep(self.statement_path, self._statement((self.accountant,)))

    def on_train_end(self, logs=None):
        self._account.end(self.noised_steps)
        if self._why_stopped is not None:  # now that the progress bar has ended its line
            run_checks.say(self.params, self._why_stopped)
        statement.keep(self.statement_path, self._statement(None), at_end=True)

    @property
    def _optimizer(self) -> private_optimizer.PrivateOptimizer:
        return private_optimizer.require(getattr(self.model, "optimizer", None), "PrivacyBudget")

    def _check_optimizer(self) -> None:
        """Keras goes on with the optimizer that the run began with, and so does what counts its steps."""
        if self._running is not None and self.model.optimizer is not self._running:
            running, self._running = self._running, None
            self._account.end(private_optimizer.noised_steps(running))
            raise run_checks.replaced(running.name)

    def _start(self) -> None:
        """What depends on the optimizer's state, once everybody has restored what there is to restore."""
        self._started = True
        if self.model.built:
            claims.check_past(self._optimizer, self.meter.claimed, self._given)
        self._account.begin(self._optimizer)
        run_checks.warn_of_other_phases(self._account.forgotten(self._optimizer))
        self._plan()

    def _plan(self) -> None:
        if self.target_epsilon is not None:
            self._horizon.allowed = self.meter.largest_steps(self._optimizer, self.target_epsilon)

    def _spent(self, steps: int) -> str:
        return self._horizon.spent(steps, self.epsilon_at(steps), self.target_epsilon)

    def _after_call(self, thorough: bool) -> int:
        """Looks at what the call has done; the count of steps after it."""
        steps, optimizer = self.noised_steps, self._optimizer
        if thorough:
            self._checked = steps > 0
            if self._account.has_another_phase(optimizer):  # that a checkpoint has restored lazily, in the call
                self._start()
        self._account.after_call(optimizer, steps, thorough=thorough)
        return steps

    def _statement(self, accountants: tuple[str, ...] | None) -> dict[str, Any] | None:
        """What the statement reports; None where this process has none to write."""
        if self.statement_path is None or self.noised_steps == 0 or not keras.is_chief(self.model):
            return None
        return self.meter.report(self._optimizer, accountants)
