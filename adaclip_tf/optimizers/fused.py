"""XLA for the passes over all parameters: a dozen become one, a quarter of the time on a large model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

# Coordinates. Models of up to 10^5 were as fast without XLA, which costs a first step half a second or so; between
# that and this number nothing was measured.
FROM = 2**18
WAITS_FROM = 2**22  # from here on noise waits for the sums: below, it takes 16 MB at most, and spares the time


def is_large(specs: Sequence[tf.TensorSpec]) -> bool:
    """Whether the passes over variables of these shapes are worth compiling."""
    return _coordinates(specs) > FROM


def _coordinates(specs: Sequence[tf.TensorSpec]) -> int:
    return sum(spec.shape.num_elements() for spec in specs)


def after(weights: tf.Tensor, sums: Sequence[tf.Tensor], specs: Sequence[tf.TensorSpec]) -> Any:
    """What is made under it waits for the records' `weights`; where the variables are very large, for the `sums`.

    Noise would else be drawn before all else, which it would hold up, and take the place of all parameters all the
    time. Beside the sums it takes what these leave of the processors.
    """
    return tf.control_dependencies(sums if _coordinates(specs) > WAITS_FROM else [weights])


def if_large(function: Callable[..., Any], specs: Callable[[], Sequence[tf.TensorSpec]]) -> Callable[..., Any]:
    """`function`, compiled where the variables `specs()`, asked at every call, have more than `FROM` coordinates."""
    compiled = tf.function(function, jit_compile=tf.test.is_built_with_xla(), autograph=False)

    def call(*arguments: Any) -> Any:
        return compiled(*arguments) if is_large(specs()) else function(*arguments)

    return call
