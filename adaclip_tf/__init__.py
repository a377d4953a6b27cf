"""AdaCliP for Keras: differentially private training with adaptive clipping.

Public names are imported on first use, so that `import adaclip_tf` costs nothing and a program that
only counts epsilon does not wait for Keras.
"""

import importlib

from adaclip_tf import _versions

_versions.check()

__version__ = "0.1.0"

_HOME = {
    "AdaClipSumQuery": "query",
    "DPAdaClipSGD": "optimizer",
    "DPFixedClipSGD": "optimizer",
    "PrivacyBudget": "budget",
    "PrivacyBudgetSpentError": "budget",
    "Ledger": "ledger",
    "PrivacyTensorBoard": "tensorboard",
    "PrivatePCA": "pca",
    "check_model": "mixing",
    "check_release": "inspection",
    "distributed_poisson_batches": "sampling",
    "epsilon": "accounting",
    "epsilon_of": "accounting",
    "noise_multiplier": "calibration",
    "optimizer_event": "accounting",
    "poisson_batches": "sampling",
    "privacy_statement": "statement",
    "release": "releasing",
    "split_budget": "calibration",
    "training_event": "accounting",
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
