"""(a, b) from a compiled function: what is 0 in any state is still known to be 0, what is in the state is not copied.

What a function returns is a tensor like any other: that `ScaledClip` always has a = 0 would be lost, and with it that
norms need no product with a. And a = m, as the function returns it, would be a copy of m.
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
    traced = function.get_concrete_function(state, trained).graph
    center, scale = function(state, trained)
    given = {inside.ref(): outside for inside, outside in zip(traced.inputs, tf.nest.flatten(state))}
    inner = [graph.behind(tensor, ("Identity",)) for tensor in traced.structured_outputs.center]
    return core.Transform([_known(tensor, a, given) for tensor, a in zip(inner, center)], scale)


def _known(inside: tf.Tensor, result: tf.Tensor, given: dict[Any, tf.Tensor]) -> tf.Tensor:
    """`result` of a function, where it is not 0 in every call, or one of its arguments, by its tensor `inside`."""
    if inside.shape.rank == 0 and tf.get_static_value(inside) == 0.0:
        return tf.constant(0.0)
    return given.get(inside.ref(), result)
