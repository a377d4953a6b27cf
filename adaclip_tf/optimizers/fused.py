"""XLA for the passes over all parameters: a dozen become one, a quarter of the time on a large model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

# Coordinates. Models of up to 10^5 were as fast without XLA, which costs a first step half a second or so; between
# that and this number nothing was measured.
FROM = 2**18


def is_large(specs: Sequence[tf.TensorSpec]) -> bool:
    """Whether the passes over variables of these shapes are worth compiling."""
    return sum(spec.shape.num_elements() for spec in specs) > FROM


def after(tensors: Sequence[tf.Tensor], specs: Sequence[tf.TensorSpec]) -> Any:
    """What is made under it waits for `tensors` where the variables are large.

    Noise would else be drawn while the backward pass runs, and take the place of all parameters all the time.
    """
    return tf.control_dependencies(tensors if is_large(specs) else [])


def without_transform(compiled: Any, state: Any, trained: Any, transform: Any, *arguments: Any) -> Any:
    """Calls what computes (a, b) itself where it gets None: that is faster than to read them, and keeps no copy."""
    del transform
    return compiled(state, trained, None, *arguments)


def _call(compiled: Any, *arguments: Any) -> Any:
    return compiled(*arguments)


def if_large(
    function: Callable[..., Any],
    specs: Callable[[], Sequence[tf.TensorSpec]],
    run: Callable[..., Any] = _call,
) -> Callable[..., Any]:
    """`function`, compiled where the variables `specs()`, asked at every call, have more than `FROM` coordinates.

    `run(compiled, *arguments)` calls what was compiled.
    """
    compiled = tf.function(function, jit_compile=tf.test.is_built_with_xla(), autograph=False)

    def call(*arguments: Any) -> Any:
        return run(compiled, *arguments) if is_large(specs()) else function(*arguments)

    return call
