"""`fit` of Keras 3 on several workers, which averages a step's numbers along an axis that they do not have."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import trainer as _trainer

_reduce_per_replica = _trainer.reduce_per_replica


def average_single_numbers() -> None:
    """Has Keras average single numbers of several workers as such; all else it reduces as before."""
    _trainer.reduce_per_replica = _reduce_single_numbers_too


def _reduce_single_numbers_too(values: Any, strategy: Any, reduction: str) -> Any:
    several = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) and strategy.num_replicas_in_sync > 1
    if not several or reduction not in ("auto", "mean"):
        return _reduce_per_replica(values, strategy, reduction)

    def reduce(value: Any) -> Any:
        if strategy.experimental_local_results(value)[0].shape.rank == 0:
            return strategy.reduce("MEAN", value, axis=None)
        return _reduce_per_replica(value, strategy, reduction)

    return keras.tree.map_structure(reduce, values)
