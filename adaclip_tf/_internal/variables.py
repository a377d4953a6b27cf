"""Variables that belong to one process, and variables that are made while a function is being traced."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops


def local_variable(value: Any, dtype: tf.DType, name: str | None = None) -> tf.Variable:
    """A variable of this process alone, on the current device: not mirrored, not broadcast, whatever the scope."""
    with tf.init_scope():
        # `tf.Variable(...)` would ask the strategy to make it.
        return resource_variable_ops.ResourceVariable(value, trainable=False, dtype=dtype, name=name)


@contextlib.contextmanager
def made_at_once() -> Iterator[None]:
    """Variables that are made in here are made eagerly, and done with, though a `tf.function` may be being traced.

    `tf.init_scope` alone does not do it: TensorFlow notes that the function made a variable, throws its graph away
    and traces it again, and tracing is most of a first step. Under a distribution strategy, which makes variables in
    its own way, and in graphs that are in no `tf.function`, it is `tf.init_scope` and no more.
    """
    with tf.init_scope():
        if tf.distribute.has_strategy() or not tf.executing_eagerly():
            yield
        else:
            with tf.variable_creator_scope(_make):
                yield


def _make(next_creator: Any, **arguments: Any) -> tf.Variable:
    """What makes a variable where nobody has asked to be told: `next_creator` would be the function's."""
    del next_creator
    return resource_variable_ops.default_variable_creator_v2(**arguments)
