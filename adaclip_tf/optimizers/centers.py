"""(a, b) from a compiled function, with what is 0 in any state still known to be 0.

What a function returns is a tensor like any other: that `ScaledClip` always has a = 0 would be lost, and with it that
norms need no product with a.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from adaclip_tf import core
from adaclip_tf.gradients import graph


def transform(function: Any, state: Any, trained: tuple[int, ...]) -> core.Transform:
    """`function(state, trained)`, a `tf.function` that returns a `core.Transform`. Not compiled without a state."""
    if not tf.nest.flatten(state):
        return function.python_function(state, trained)
    inside = function.get_concrete_function(state, trained).graph.structured_outputs
    center, scale = function(state, trained)
    return core.Transform([tf.constant(0.0) if _is_zero(i) else a for i, a in zip(inside.center, center)], scale)


def _is_zero(tensor: tf.Tensor) -> bool:
    """Whether a tensor of a function's graph is the scalar 0 in every call."""
    return tensor.shape.rank == 0 and tf.get_static_value(graph.behind(tensor, ("Identity",))) == 0.0
