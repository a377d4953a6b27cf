"""XLA for the passes over all parameters: a dozen become one, a quarter of the time on a large model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

# Coordinates. Models of up to 10^5 were as fast without XLA, which costs a first step half a second or so; between
# that and this number nothing was measured.
FROM = 2**18


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
        size = sum(spec.shape.num_elements() for spec in specs())
        return run(compiled, *arguments) if size > FROM else function(*arguments)

    return call
