"""What the library asks of Keras, answered by the generation that `tf.keras` is. Nothing else tells them apart."""

from __future__ import annotations

import tensorflow as tf

from adaclip_tf._internal.keras_both import (
    FitCall,
    has_several_workers,
    is_chief,
    is_functional,
    layers_of,
    made_of,
    strategy_of,
)

GENERATION = 2 if getattr(tf.keras, "__version__", "2.15").startswith("2.") else 3  # 2.15 does not say

if GENERATION == 2:
    from adaclip_tf._internal.keras2 import (
        BatchNormalization,
        LossScaleOptimizer,
        OptimizerBase,
        Preprocessing,
        clone,
        has_keras_train_step,
        has_state,
        index_of,
        is_step_function,
        last_learning_rate,
        module_name,
        modules_in,
        native,
        optimizer_called,
        optimizer_from,
        own_weights,
        path_of,
        running_fit,
        saving,
        steps_per_execution,
        takes_tensors_as_logs,
        update_by,
    )
else:
    from adaclip_tf._internal.keras3 import (  # type: ignore[assignment]
        BatchNormalization,
        LossScaleOptimizer,
        OptimizerBase,
        Preprocessing,
        clone,
        has_keras_train_step,
        has_state,
        index_of,
        is_step_function,
        last_learning_rate,
        module_name,
        modules_in,
        native,
        optimizer_called,
        optimizer_from,
        own_weights,
        path_of,
        running_fit,
        saving,
        steps_per_execution,
        takes_tensors_as_logs,
        update_by,
    )

__all__ = [
    "GENERATION",
    "BatchNormalization",
    "FitCall",
    "LossScaleOptimizer",
    "OptimizerBase",
    "Preprocessing",
    "clone",
    "has_keras_train_step",
    "has_several_workers",
    "has_state",
    "index_of",
    "is_chief",
    "is_functional",
    "is_step_function",
    "last_learning_rate",
    "layers_of",
    "made_of",
    "module_name",
    "modules_in",
    "native",
    "optimizer_called",
    "optimizer_from",
    "own_weights",
    "path_of",
    "running_fit",
    "saving",
    "steps_per_execution",
    "strategy_of",
    "takes_tensors_as_logs",
    "update_by",
]
