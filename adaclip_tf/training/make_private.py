"""`make_private`: a model, data and a target in; private training out, with nothing left to choose."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf._internal import signatures, validate
from adaclip_tf.data import sampling
from adaclip_tf.data.targets import PrivateTargetScaling
from adaclip_tf.optimizers import replicas
from adaclip_tf.optimizers.adaclip import DPAdaClipSGD
from adaclip_tf.privacy import accountants
from adaclip_tf.privacy.budget import PrivacyBudget
from adaclip_tf.privacy.ledger import Ledger
from adaclip_tf.scales import method
from adaclip_tf.scales.private_scales import SLICE, PrivateScales
from adaclip_tf.training import checks, scaled_data
from adaclip_tf.training import plan as planning
from adaclip_tf.training.private_training import PrivateTraining


@signatures.other_names(
    epsilon="use `target_epsilon`",
    expected_batch_size="use `batch_size`",
    optimizer="it chooses one itself. To hand the private gradient to another, use `DPAdaClip(optimizer, ...)`",
    noise_multiplier="it follows from `target_epsilon`",
)
def make_private(
    model: Any,
    data: Any,
    *,
    loss: Any,
    target_epsilon: float,
    delta: float,
    batch_size: int,
    epochs: int,
    metrics: Any = None,
    classes: int | None = None,
    learning_rate: float | None = None,
    scale_targets: bool = False,
    accountant: str = "rdp",
    ledger: str | os.PathLike[str] | None = None,
    remember: str | os.PathLike[str] | None = None,
    statement_path: str | os.PathLike[str] | None = None,
    num_examples: int | None = None,
    slice_size: int = SLICE,
    compile_arguments: dict[str, Any] | None = None,
    settings: method.Method = method.DEFAULT,
    seed: int | None = None,
    verbose: bool = True,
) -> PrivateTraining:
    """Prepares private training with no clip, no learning rate and no other setting to choose (docs/no_tuning.md).

    Looks at the data once, privately (`PrivateScales`), and compiles the model with an optimizer that clips and steps
    according to the result. The weights are not changed; start from a fresh model.

    Example:
      >>> private = make_private(model, (x, y), loss="sparse_categorical_crossentropy", target_epsilon=1.0,
      ...                        delta=1e-5, batch_size=512, epochs=10, metrics=["accuracy"])      # doctest: +SKIP
      >>> private.fit(validation_data=(x_test, y_test))                                            # doctest: +SKIP
      >>> print(private.statement())                                                               # doctest: +SKIP

    Args:
      model: a Keras model whose examples stay apart, with Keras's own `train_step`. It is compiled again.
      data: `(x, y)` or `(x, y, sample_weight)`, as for `poisson_batches`. Weights up to 1 count in full; a larger
        weight multiplies the gradient before it is clipped, and is partly undone (`gradients.weighted`).
      loss: as for `model.compile`.
      target_epsilon, delta: what scales and training may cost together (and what a ledger holds).
      batch_size: B, the expected size of a batch.
      epochs: passes over the data; noise and learning rate are chosen for that number.
      metrics: as for `model.compile`. On the training data they are not private.
      classes: K; None takes it from the loss and the model's output, 2 for all but categorical losses.
      learning_rate: a number, of the first step, from which it falls to 0; None for the method's. One that was tuned on
        this data costs privacy that is not counted here (`PrivateChoice`).
      scale_targets: for regression on targets in units of their own, such as dollars: asks for their mean and deviation
        with noise (`PrivateTargetScaling`), within the target, and trains on deviations from the mean. `.predict` of
        what is returned, and `.predictor()`, are in the targets' units again; the model itself is not.
      accountant: "rdp" or "pld".
      ledger: a file that remembers what was spent on this data (`Ledger`). The target is then for all of it.
      remember: a file for the scales and the plan. If it exists, they are taken from it and nothing is asked
        again: a program that was killed goes on with `callbacks=[tf.keras.callbacks.BackupAndRestore(...)]`.
      statement_path: where to write the privacy statement.
      num_examples: n, where `data` is a function of row numbers.
      slice_size: examples that the queries look at together; memory is in proportion to it.
      compile_arguments: further arguments of `model.compile`, such as `loss_weights`.
      settings: the constants of the method.
      seed: for tests only: NOT private.
      verbose: prints the table of what was chosen.

    Returns:
      A `PrivateTraining`: `.fit(...)`, `.optimizer`, `.batches`, `.statement()`, `.summary()`.
    """
    load, n = sampling.loader(data, num_examples)
    batch_size = validate.positive_integer("batch_size", batch_size)
    epochs = validate.positive_integer("epochs", epochs)
    remember = None if remember is None else validate.path("remember", remember)
    accountants.named(accountant)
    learning_rate = None if learning_rate is None else validate.positive("learning_rate", learning_rate)
    compiled = {"loss": loss, **checks.for_compile(compile_arguments)}
    validate.boolean("verbose", verbose)
    checks.check_files(remember=remember, ledger=ledger, statement_path=statement_path)
    if not isinstance(settings, method.Method):
        raise ValueError(f"`settings` must be a `Method`; got {settings!r}.")
    batches = sampling.poisson_batches(data, expected_batch_size=batch_size, num_examples=num_examples, seed=seed)
    example = tf.nest.map_structure(tf.convert_to_tensor, load(np.array([0])))
    checks.check(model, loss, example, ledger)
    columns = scaled_data.columns(example, _names(loss)) if validate.boolean("scale_targets", scale_targets) else 0
    wanted: dict[str, Any] = {
        "num_examples": n,
        "batch_size": batch_size,
        "epochs": epochs,
        "target_epsilon": validate.positive("target_epsilon", target_epsilon),
        "delta": validate.positive("delta", delta),
        "accountant": accountant,
    }
    book = None if ledger is None else Ledger(ledger)
    if remember is not None and os.path.exists(remember):
        scales, plan, targets = _remembered(remember, wanted, columns)
        _write_down(book, targets, scales)
        data = scaled_data.scaled(data, targets)
    else:
        spent = None if book is None or not any(book.read()) else book.event()
        found = classes_of(model, loss, example) if classes is None else validate.positive_integer("classes", classes)
        kernels = sum(len(variable.shape) > 1 for variable in model.trainable_variables)
        plan = planning.make_plan(
            **wanted, classes=found, kernels=kernels, before=spent, settings=settings, target_columns=columns
        )
        if learning_rate is not None:
            plan = dataclasses.replace(plan, learning_rate=learning_rate)
        scales = PrivateScales(
            noise_multiplier=plan.rows_noise,
            count_noise=plan.counts_noise,
            classes=plan.classes,
            settings=settings,
            seed=seed,
        )
        with replicas.scope(model.distribute_strategy):
            model.compile(metrics=metrics, **compiled)  # what is wrong with it is told before anything is asked
        targets = None
        if plan.targets_noise is not None:
            targets = PrivateTargetScaling(noise_multiplier=plan.targets_noise, seed=seed)
            _write_down(book, targets)  # before it is spent
            targets.fit(scaled_data.targets(load, n, slice_size))
            data = scaled_data.scaled(data, targets)
        _write_down(book, scales)
        # A loss by itself can be asked for under a strategy of Keras 2, too.
        alone = loss if isinstance(loss, tf.keras.losses.Loss) and not compile_arguments else None
        scales.fit(model, alone, data, num_examples=num_examples, slice_size=slice_size)
        scales.notes = {**plan.notes(), **({} if targets is None else {"targets": targets.notes()})}
        if remember is not None:
            scales.save(remember)
    if targets is not None:
        batches = sampling.poisson_batches(data, expected_batch_size=batch_size, num_examples=num_examples, seed=seed)
    with replicas.scope(model.distribute_strategy):
        optimizer = DPAdaClipSGD(
            tf.keras.optimizers.schedules.PolynomialDecay(
                plan.learning_rate, plan.steps, end_learning_rate=0.0, power=plan.rate_fall
            ),
            noise_multiplier=plan.noise_multiplier,
            expected_batch_size=batch_size,
            scales=scales,
            precondition=True,
            seed=seed,
        )
        model.compile(optimizer=optimizer, metrics=metrics, **compiled)
        optimizer.build(model.trainable_variables)
    budget = PrivacyBudget.of(
        batches,
        delta=delta,
        target_epsilon=target_epsilon,
        accountant=accountant,
        statement_path=statement_path,
        **({"other_event": scaled_data.asked_event(scales, targets)} if ledger is None else {"ledger": ledger}),
    )
    made = PrivateTraining(model, batches, budget, scales, plan, ", ".join(_names(loss)), targets)
    if verbose:
        print(made.summary())
    return made


def _remembered(
    path: str | os.PathLike[str], wanted: dict[str, Any], columns: int
) -> tuple[PrivateScales, planning.Plan, PrivateTargetScaling | None]:
    scales = PrivateScales.load(path)
    notes = dict(scales.notes)
    known = notes.pop("targets", None)
    try:
        plan = planning.Plan.from_notes(notes, wanted)
        targets = None if known is None else PrivateTargetScaling.from_notes(known)
        if columns != (0 if targets is None else len(targets.notes()["mean"])):
            raise ValueError(f"it is of a training with scale_targets={targets is not None}, or of other targets")
        return scales, plan, targets
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"`remember`={os.fspath(path)!r} does not fit: {error}. Give the same arguments as then, or another file."
        ) from error


def _write_down(book: Ledger | None, *asked: PrivateTargetScaling | PrivateScales | None) -> None:
    """Has the ledger hold what is asked before training, once."""
    for each in asked:
        if book is not None and each is not None and all(release.name != each.name for release in book.read()[1]):
            book.add(each.name, each.event)


def classes_of(model: Any, loss: Any, example: Any) -> int:
    """K: the width of the output for categorical losses, else 2."""
    categorical = [name for name in _names(loss) if "categorical" in name.lower()]
    if not categorical:
        return 2
    outputs = tf.nest.flatten(model(tf.keras.utils.unpack_x_y_sample_weight(example)[0]))
    return max(int(output.shape[-1] or 2) for output in outputs)


def _names(loss: Any) -> list[str]:
    """What the losses are called."""
    return [
        part if isinstance(part, str) else getattr(part, "__name__", type(part).__name__)
        for part in tf.nest.flatten(loss)
        if part is not None
    ]
