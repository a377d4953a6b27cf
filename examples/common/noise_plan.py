"""How much noise a config's target epsilon takes, of training and of the PCA together."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import ml_collections

import adaclip_tf


class Plan(NamedTuple):
    """The noise that meets the target."""

    steps_per_epoch: int
    noise_multiplier: float
    pca_noise_multiplier: float | None


def make_plan(config: ml_collections.ConfigDict, num_examples: int) -> Plan:
    """Works out the noise multipliers with which the whole run costs `config.target_epsilon`."""
    per_epoch = -(-num_examples // config.expected_batch_size)
    if config.optimizer == "sgd":
        return Plan(per_epoch, 0.0, 0.0 if config.pca_components else None)
    arguments = (config.target_epsilon, config.delta, num_examples, config.expected_batch_size)
    fraction = config.pca_fraction if config.pca_components else None
    return Plan(per_epoch, *_noise(*arguments, per_epoch * config.epochs, config.accountant, fraction))


@functools.lru_cache(maxsize=128)
def _noise(
    target_epsilon: float,
    delta: float,
    num_examples: int,
    batch_size: int,
    steps: int,
    accountant: str,
    pca_fraction: float | None,
) -> tuple[float, float | None]:
    """Noise multipliers of training and of the PCA. Remembered: the search takes a second, and seeds share it."""
    arguments: dict[str, Any] = {
        "target_epsilon": target_epsilon,
        "delta": delta,
        "num_examples": num_examples,
        "batch_size": batch_size,
        "steps": steps,
        "accountant": accountant,
    }
    if pca_fraction is None:
        return adaclip_tf.noise_multiplier(**arguments), None
    split = adaclip_tf.split_budget(pca_fraction=pca_fraction, **arguments)
    return split.training_noise_multiplier, split.pca_noise_multiplier
