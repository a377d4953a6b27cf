"""AdaCliP for Keras: differentially private training with adaptive clipping.

Public names are imported on first use, so that `import adaclip_tf` costs nothing and a program that
only counts epsilon does not wait for Keras.
"""

import importlib

from adaclip_tf._internal import versions

versions.check()

__version__ = "0.1.0"

_HOME = {
    "AdaClipSumQuery": "query",
    "DPAdaClipSGD": "optimizers.adaclip",
    "ClippedSumQuery": "query",
    "DPFixedClipSGD": "optimizers.fixed_clip",
    "DPOptimizer": "optimizers.dp_optimizer",
    "DPPerCoordinateClipSGD": "optimizers.per_coordinate_clip",
    "DPPerLayerClipSGD": "optimizers.per_layer_clip",
    "DPQuantileClipSGD": "optimizers.quantile_clip",
    "DPWhiteningSGD": "optimizers.whitening",
    "PrivacyBudget": "privacy.budget",
    "PrivacyBudgetSpentError": "privacy.budget",
    "Ledger": "privacy.ledger",
    "PrivacyTensorBoard": "tensorboard.callback",
    "PrivatePCA": "data.pca",
    "check_model": "optimizers.check_model",
    "check_release": "releasing.inspection",
    "distributed_poisson_batches": "data.sampling",
    "epsilon": "privacy.epsilon",
    "epsilon_of": "privacy.epsilon",
    "noise_multiplier": "privacy.calibration",
    "optimizer_event": "privacy.events",
    "poisson_batches": "data.sampling",
    "privacy_statement": "privacy.statement",
    "release": "releasing.release",
    "split_budget": "privacy.calibration",
    "training_event": "privacy.events",
}

__all__ = sorted(_HOME)  # noqa: PLE0605


def __getattr__(name):
    if name not in _HOME:
        raise AttributeError(f"module 'adaclip_tf' has no attribute {name!r}; it has {', '.join(__all__)}.")
    value = getattr(importlib.import_module(f"adaclip_tf.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted([*globals(), *__all__])
