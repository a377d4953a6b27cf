"""What the library asks of Keras, answered by the generation that `tf.keras` is. Nothing else tells them apart."""

from __future__ import annotations

import tensorflow as tf

from adaclip_tf._internal.keras_both import FitCall, has_several_workers, is_chief, layers_of

GENERATION = 2 if getattr(tf.keras, "__version__", "2.15").startswith("2.") else 3  # 2.15 does not say

if GENERATION == 2:
    from adaclip_tf._internal.keras2 import (
        BatchNormalization,
        OptimizerBase,
        Preprocessing,
        has_keras_train_step,
        index_of,
        last_learning_rate,
        module_name,
        modules_in,
        native,
        own_weights,
        path_of,
        running_fit,
        saving,
        steps_per_execution,
        takes_tensors_as_logs,
    )
else:
    from adaclip_tf._internal.keras3 import (  # type: ignore[assignment]
        BatchNormalization,
        OptimizerBase,
        Preprocessing,
        has_keras_train_step,
        index_of,
        last_learning_rate,
        module_name,
        modules_in,
        native,
        own_weights,
        path_of,
        running_fit,
        saving,
        steps_per_execution,
        takes_tensors_as_logs,
    )

__all__ = [
    "GENERATION",
    "BatchNormalization",
    "FitCall",
    "OptimizerBase",
    "Preprocessing",
    "has_keras_train_step",
    "has_several_workers",
    "index_of",
    "is_chief",
    "last_learning_rate",
    "layers_of",
    "module_name",
    "modules_in",
    "native",
    "own_weights",
    "path_of",
    "running_fit",
    "saving",
    "steps_per_execution",
    "takes_tensors_as_logs",
]
