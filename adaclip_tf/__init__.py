"""AdaCliP for Keras: differentially private training with adaptive clipping.

Public names are imported on first use, so that `import adaclip_tf` costs nothing and a program that
only counts epsilon does not wait for Keras.
"""

import importlib
from typing import TYPE_CHECKING

from adaclip_tf._internal import versions

if TYPE_CHECKING:  # editors and type checkers see the names; `_HOME` is what happens
    from adaclip_tf.auditing.audit import audit
    from adaclip_tf.data.pca import PrivatePCA
    from adaclip_tf.data.sampling import distributed_poisson_batches, poisson_batches
    from adaclip_tf.data.targets import PrivateTargetScaling
    from adaclip_tf.optimizers.adaclip import DPAdaClipSGD
    from adaclip_tf.optimizers.adaclip_any import DPAdaClip
    from adaclip_tf.optimizers.check_model import check_model
    from adaclip_tf.optimizers.dp_optimizer import DPOptimizer
    from adaclip_tf.optimizers.fix_model import fix_model
    from adaclip_tf.optimizers.fixed_clip import DPFixedClipSGD
    from adaclip_tf.optimizers.fixed_clip_any import DPFixedClip
    from adaclip_tf.optimizers.per_coordinate_clip import DPPerCoordinateClipSGD
    from adaclip_tf.optimizers.per_layer_clip import DPPerLayerClipSGD
    from adaclip_tf.optimizers.quantile_clip import DPQuantileClipSGD
    from adaclip_tf.optimizers.whitening import DPWhiteningSGD
    from adaclip_tf.privacy.budget import PrivacyBudget, PrivacyBudgetSpentError
    from adaclip_tf.privacy.calibration import noise_multiplier, split_budget
    from adaclip_tf.privacy.choice import PrivateChoice
    from adaclip_tf.privacy.epsilon import epsilon, epsilon_of
    from adaclip_tf.privacy.events import optimizer_event, training_event
    from adaclip_tf.privacy.ledger import Ledger
    from adaclip_tf.privacy.statement import privacy_statement
    from adaclip_tf.query import AdaClipSumQuery, ClippedSumQuery
    from adaclip_tf.releasing.inspection import check_release
    from adaclip_tf.releasing.release import release
    from adaclip_tf.scales.private_scales import PrivateScales
    from adaclip_tf.tensorboard.callback import PrivacyTensorBoard
    from adaclip_tf.training.make_private import make_private

versions.check()

__version__ = "0.1.0"

_HOME = {
    "AdaClipSumQuery": "query",
    "audit": "auditing.audit",
    "check_model": "optimizers.check_model",
    "check_release": "releasing.inspection",
    "ClippedSumQuery": "query",
    "distributed_poisson_batches": "data.sampling",
    "DPAdaClip": "optimizers.adaclip_any",
    "DPAdaClipSGD": "optimizers.adaclip",
    "DPFixedClip": "optimizers.fixed_clip_any",
    "DPFixedClipSGD": "optimizers.fixed_clip",
    "DPOptimizer": "optimizers.dp_optimizer",
    "DPPerCoordinateClipSGD": "optimizers.per_coordinate_clip",
    "DPPerLayerClipSGD": "optimizers.per_layer_clip",
    "DPQuantileClipSGD": "optimizers.quantile_clip",
    "DPWhiteningSGD": "optimizers.whitening",
    "epsilon": "privacy.epsilon",
    "epsilon_of": "privacy.epsilon",
    "fix_model": "optimizers.fix_model",
    "Ledger": "privacy.ledger",
    "make_private": "training.make_private",
    "noise_multiplier": "privacy.calibration",
    "optimizer_event": "privacy.events",
    "poisson_batches": "data.sampling",
    "privacy_statement": "privacy.statement",
    "PrivacyBudget": "privacy.budget",
    "PrivacyBudgetSpentError": "privacy.budget",
    "PrivacyTensorBoard": "tensorboard.callback",
    "PrivateChoice": "privacy.choice",
    "PrivatePCA": "data.pca",
    "PrivateScales": "scales.private_scales",
    "PrivateTargetScaling": "data.targets",
    "release": "releasing.release",
    "split_budget": "privacy.calibration",
    "training_event": "privacy.events",
}

__all__ = [
    "AdaClipSumQuery",
    "ClippedSumQuery",
    "DPAdaClip",
    "DPAdaClipSGD",
    "DPFixedClip",
    "DPFixedClipSGD",
    "DPOptimizer",
    "DPPerCoordinateClipSGD",
    "DPPerLayerClipSGD",
    "DPQuantileClipSGD",
    "DPWhiteningSGD",
    "Ledger",
    "PrivacyBudget",
    "PrivacyBudgetSpentError",
    "PrivacyTensorBoard",
    "PrivateChoice",
    "PrivatePCA",
    "PrivateScales",
    "PrivateTargetScaling",
    "audit",
    "check_model",
    "check_release",
    "distributed_poisson_batches",
    "epsilon",
    "epsilon_of",
    "fix_model",
    "make_private",
    "noise_multiplier",
    "optimizer_event",
    "poisson_batches",
    "privacy_statement",
    "release",
    "split_budget",
    "training_event",
]


def __getattr__(name):
    if name not in _HOME:
        raise AttributeError(f"module 'adaclip_tf' has no attribute {name!r}; it has {', '.join(__all__)}.")
    value = getattr(importlib.import_module(f"adaclip_tf.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted([*globals(), *__all__])
