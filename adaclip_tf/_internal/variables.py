"""Variables that belong to one process, whatever distribution strategy is around them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops


def local_variable(value: Any, dtype: tf.DType, name: str | None = None) -> tf.Variable:
    """A variable of this process alone, on the current device: not mirrored, not broadcast, whatever the scope."""
    with tf.init_scope():
        # `tf.Variable(...)` would ask the strategy to make it.
        return resource_variable_ops.ResourceVariable(value, trainable=False, dtype=dtype, name=name)
