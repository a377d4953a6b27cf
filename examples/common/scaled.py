"""A run of `make_private`: scales that are learnt privately before training, as a part of the target epsilon."""

from __future__ import annotations

import pathlib
from typing import Any

import ml_collections

import adaclip_tf
from adaclip_tf.training.private_training import PrivateTraining
from examples.common import models


def prepare(
    config: ml_collections.ConfigDict,
    model: Any,
    arrays: tuple[Any, Any],
    metric: Any,
    folder: pathlib.Path | None,
) -> PrivateTraining:
    """Compiles `model` with learnt scales; batches and budget come with it. A second run in `folder` asks nothing."""
    return adaclip_tf.make_private(
        model,
        arrays,
        loss=models.make_loss(config),
        metrics=[metric],
        target_epsilon=config.target_epsilon,
        delta=config.delta,
        batch_size=config.expected_batch_size,
        epochs=config.epochs,
        learning_rate=config.learning_rate or None,
        accountant=config.accountant,
        remember=folder / "scales.npz" if folder else None,
        statement_path=folder / "privacy" if folder else None,
        seed=config.seed if config.reproducible else None,
        verbose=False,
    )
