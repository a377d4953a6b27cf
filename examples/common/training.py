"""One private training run from a config: data, model, noise multiplier, optimizer, `fit`, statement.

`run` does one, `run_seeds` several, `summary` says what came out. examples/train.py is a command line over them,
configs/ holds configs.
"""

from __future__ import annotations

import contextlib
import math
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, Callable, NamedTuple

import ml_collections
import numpy as np
import tensorflow as tf
from absl import logging

import adaclip_tf
from adaclip_tf import tensorboard
from examples.common import data, models, noise_plan, projection, scaled, strategies, workdirs

OPTIMIZERS = (
    *("adaclip", "fixed_clip", "norm_bound", "per_layer", "whitening", "per_coordinate", "quantile", "sgd"),
    "scales",  # what `make_private` makes (`scaled`)
)
_TEST_BATCH = 1000
_MOMENTS = ("beta_1", "beta_2", "h1", "h2", "gamma", "variance_scaling", "clamp")


class Result(NamedTuple):
    """What a run came to. `metric` is the test accuracy, or the mean squared test error of a regression."""

    metric_name: str
    metric: float
    epsilon: float
    noise_multiplier: float
    pca_noise_multiplier: float | None
    scales_noise: tuple[float, float] | None  # of `make_private`'s queries, on rows and on counts
    noise_norm: float
    history: dict[str, list[float]]  # per epoch: epsilon, noise_norm, val_..., and Keras's own, which are not private
    accounted: dict[str, Any]  # the arguments of `privacy_statement`; empty for plain SGD
    source: str


# ---------------------------------------------------------------------------------------------------
# The optimizer.


def make_optimizer(
    config: ml_collections.ConfigDict, noise_multiplier: float, steps: int
) -> tf.keras.optimizers.Optimizer:
    """One of `OPTIMIZERS` but the last, each with its own fields of the config, for a run of `steps`."""
    kind = models.check_choice("optimizer", config.optimizer, OPTIMIZERS)
    if kind == "scales":
        raise ValueError("config.optimizer='scales' needs the data: see `scaled.prepare`.")
    rate = _learning_rate(config, steps)
    if kind == "sgd":
        return tf.keras.optimizers.SGD(rate, config.momentum)
    common = {
        "learning_rate": rate,
        "momentum": config.momentum,
        "noise_multiplier": noise_multiplier,
        "expected_batch_size": config.expected_batch_size,
        "seed": config.seed if config.reproducible else None,
    }
    moments = {**{field: config[field] for field in _MOMENTS}, "initial_std": config.initial_std or None}
    if kind == "adaclip":
        return adaclip_tf.DPAdaClipSGD(**common, **moments)
    if kind == "whitening":
        return adaclip_tf.DPWhiteningSGD(**common, **moments)
    if kind == "per_layer":
        return adaclip_tf.DPPerLayerClipSGD(**common, l2_norm_clip=config.l2_norm_clip)
    if kind == "per_coordinate":
        return adaclip_tf.DPPerCoordinateClipSGD(**common, value_clip=config.value_clip)
    if kind == "quantile":
        return adaclip_tf.DPQuantileClipSGD(
            **common, l2_norm_clip=config.l2_norm_clip, target_quantile=config.target_quantile
        )
    clip = config.l2_norm_clip if kind == "fixed_clip" else config.largest_gradient_norm
    return adaclip_tf.DPFixedClipSGD(**common, l2_norm_clip=clip)


def _learning_rate(config: ml_collections.ConfigDict, steps: int) -> Any:
    """The rate, or its straight line down to `learning_rate_end` of itself at the last step."""
    if not 0.0 <= config.learning_rate_end <= 1.0:
        raise ValueError(f"config.learning_rate_end must be between 0 and 1; got {config.learning_rate_end!r}.")
    if config.learning_rate_end == 1.0:
        return config.learning_rate
    end = config.learning_rate * config.learning_rate_end
    return tf.keras.optimizers.schedules.PolynomialDecay(config.learning_rate, steps, end)


# ---------------------------------------------------------------------------------------------------
# One run.


def run(
    config: ml_collections.ConfigDict,
    workdir: str | os.PathLike[str] | None = None,
    *,
    loaded: data.Data | None = None,
    verbose: int | str = 0,
    callbacks: Iterable[tf.keras.callbacks.Callback] = (),
    wrap: Callable[[tf.keras.Model], tf.keras.Model] | None = None,
    validate: bool = True,
    strategy: tf.distribute.Strategy | None = None,
) -> Result:
    """Trains once and evaluates on the test set.

    Args:
      config: as configs/base.py describes.
      workdir: where checkpoints, TensorBoard logs, history and the privacy statement go. A run that was interrupted
        goes on where its last epoch ended, with the same PCA, the same noise and the same epsilon in the end; one that
        is complete is only evaluated. None keeps nothing.
      loaded: the data, if it is at hand; `config.dataset` otherwise.
      verbose: as for `fit`.
      callbacks: more of them.
      wrap: makes the model that is trained from the config's.
      validate: whether to evaluate after every epoch too, for the history.
      strategy: what to train under, one of `strategies.NAMES`.
    """
    if config.reproducible:
        logging.warning("config.reproducible=True makes noise and sampling predictable: NOT private.")
        tf.random.set_seed(config.seed)  # tensorflow-privacy's query draws from it
    if config.pca_components and strategies.several_workers(strategy):
        raise ValueError("config.pca_components must be 0 on several workers: each would fit, and pay for, a PCA.")
    if config.optimizer == "scales" and (config.pca_components or strategy):
        raise ValueError("config.optimizer='scales' goes with neither config.pca_components nor a strategy.")
    folder = workdirs.prepare(config, workdir)
    loaded = loaded or data.load(config.dataset, config.data_dir or None)
    num_examples = len(loaded.x_train)
    plan = noise_plan.make_plan(config, num_examples)
    x_train, x_test, other_event = projection.project(config, plan, loaded, folder)
    arrays, test = (x_train, loaded.y_train), (x_test, loaded.y_test)

    with strategy.scope() if strategy else contextlib.nullcontext():
        model = models.make_model(config, x_train.shape[1:], loaded.num_classes)
        model = wrap(model) if wrap else model
        metric = models.make_metric(config)
        if config.optimizer != "scales":
            optimizer = make_optimizer(config, plan.noise_multiplier, plan.steps_per_epoch * config.epochs)
            model.compile(optimizer, models.make_loss(config), metrics=[metric])
    budget: adaclip_tf.PrivacyBudget | None
    if config.optimizer == "scales":
        private = scaled.prepare(config, model, arrays, metric, folder)
        optimizer, batches, budget = private.optimizer, private.batches, private.budget
        other_event = private.scales.event
        plan = plan._replace(noise_multiplier=private.plan.noise_multiplier)
        queries = (private.plan.rows_noise, private.plan.counts_noise)
    else:
        queries = None
        if config.optimizer != "sgd":
            optimizer.build(model.trainable_variables)  # so that a checkpoint can restore the count of steps
        batches = _batches(config, plan, arrays, strategy)
        budget = _budget(config, batches, other_event, folder)
    all_callbacks = _callbacks(config, budget, folder, strategy) + list(callbacks)
    fitted = model.fit(
        batches,
        steps_per_epoch=plan.steps_per_epoch if strategy else None,
        epochs=config.epochs,
        validation_data=test if validate else None,
        validation_batch_size=_TEST_BATCH,
        verbose=verbose,
        callbacks=all_callbacks,
    )
    score = model.evaluate(*test, batch_size=_TEST_BATCH, verbose=0, return_dict=True)[metric.name]
    return Result(
        metric_name=metric.name,
        metric=float(score),
        epsilon=budget.epsilon if budget else float("inf"),
        noise_multiplier=plan.noise_multiplier,
        pca_noise_multiplier=plan.pca_noise_multiplier,
        scales_noise=queries,
        noise_norm=float(optimizer.private_metrics()["noise_norm"]) if budget else 0.0,
        history=workdirs.read_history(folder) if folder and strategies.writes(strategy) else fitted.history,
        accounted=_accounted(config, num_examples, other_event, optimizer),
        source=loaded.source,
    )


def _batches(config, plan, arrays, strategy):
    arguments = {
        "expected_batch_size": config.expected_batch_size,
        "seed": config.seed if config.reproducible else None,
    }
    if strategy:
        return adaclip_tf.distributed_poisson_batches(strategy, arrays, **arguments)
    return adaclip_tf.poisson_batches(arrays, steps=plan.steps_per_epoch, **arguments)


def _budget(config, batches, other_event, folder) -> adaclip_tf.PrivacyBudget | None:
    if config.optimizer == "sgd":
        return None
    return adaclip_tf.PrivacyBudget.of(
        batches,
        delta=config.delta,
        target_epsilon=config.target_epsilon,
        accountant=config.accountant,
        other_event=other_event,
        statement_path=folder / "privacy" if folder else None,
    )


class _NoiseNorm(tf.keras.callbacks.Callback):
    """Puts the optimizer's noise norm into the epoch's logs."""

    def on_epoch_end(self, epoch, logs=None):
        logs["noise_norm"] = float(self.model.optimizer.private_metrics()["noise_norm"])


def _callbacks(config, budget, folder, strategy) -> list[tf.keras.callbacks.Callback]:
    """In the order in which each finds what it needs: restored state, epsilon, noise, files."""
    private: list[tf.keras.callbacks.Callback] = [budget, _NoiseNorm()] if budget else []
    if folder is None:
        return private
    backup = workdirs.backup_callback(folder, strategies.writes(strategy))
    boards = [
        tensorboard.PrivacyTensorBoard(folder, budget=budget, hparams={"optimizer": config.optimizer})
        if budget
        else tf.keras.callbacks.TensorBoard(folder)
    ]
    if not strategies.writes(strategy):
        return [backup, *private]
    return [backup, *private, *boards, tf.keras.callbacks.CSVLogger(folder / workdirs.HISTORY, append=True)]


def _accounted(config, num_examples, other_event, optimizer) -> dict[str, Any]:
    if config.optimizer == "sgd":
        return {}
    return {
        "noise_multiplier": float(optimizer.noise_multiplier),
        "delta": config.delta,
        "num_examples": num_examples,
        "batch_size": config.expected_batch_size,
        "steps": int(optimizer.noised_steps.numpy()),
        "other_event": other_event,
    }


def describe(result: Result) -> str:
    """The privacy statement of a run."""
    return adaclip_tf.privacy_statement(**result.accounted) if result.accounted else "Plain SGD: NOT private.\n"


# ---------------------------------------------------------------------------------------------------
# Several.


def run_seeds(
    config: ml_collections.ConfigDict, seeds: int, workdir: str | os.PathLike[str] | None = None, **arguments: Any
) -> list[Result]:
    """`run` for config.seed, config.seed + 1, ...: other initial weights, fresh noise, fresh batches.

    Every run has a folder of its own in `workdir`. Each is private by itself; to publish all of them costs the
    sum.
    """
    loaded = arguments.pop("loaded", None) or data.load(config.dataset, config.data_dir or None)
    results = []
    for seed in range(config.seed, config.seed + seeds):
        one = ml_collections.ConfigDict(config)
        one.seed = seed
        folder = None if workdir is None else pathlib.Path(workdir) / f"seed_{seed}"
        results.append(run(one, folder, loaded=loaded, **arguments))
    return results


def summary(results: Sequence[Result]) -> str:
    """One line: mean and standard deviation of the test metric, and epsilon."""
    values = [result.metric for result in results]
    spread = f" (sd {np.std(values, ddof=1):.4f} over {len(values)} seeds)" if len(values) > 1 else ""
    first = results[0]
    return (
        f"test {first.metric_name.replace('_', ' ')} {np.mean(values):.4f}{spread}, epsilon {first.epsilon:.4f}, "
        f"noise multiplier {first.noise_multiplier:.4f}, noise norm {first.noise_norm:.4g}"
    )


def check(config: ml_collections.ConfigDict, results: Sequence[Result]) -> None:
    """Raises RuntimeError unless every run kept its budget and came to a number."""
    for result in results:
        if config.optimizer != "sgd" and not result.epsilon <= config.target_epsilon:
            raise RuntimeError(f"epsilon {result.epsilon} is above the target {config.target_epsilon}.")
        if not math.isfinite(result.metric):
            raise RuntimeError(f"the test {result.metric_name} is {result.metric}: training diverged.")
