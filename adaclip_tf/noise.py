"""Standard normal draws whose key comes from the operating system.

`tf.random.set_seed` and `np.random.seed` make every ordinary TensorFlow draw predictable, and
predictable noise is no noise. A `NoiseSource` takes its key from `os.urandom`, keeps it out of
checkpoints (a restored run must not replay old noise), and turns (key, step, variable) into draws
with TensorFlow's counter-based Philox generator, so that no two of them share a stream.

Replayed noise is no noise either: two noised sums with the same noise differ by a private quantity
alone. So `fresh_normals` counts its own calls. A step number that a user can wind back (by restoring a
checkpoint, or by starting a query's state anew) is safe with `standard_normals` only if the source is new
as well.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf


class NoiseSource:
    """Independent N(0, 1) draws for each step and each variable.

    Args:
      seed: None, the right value for training: a fresh key from the operating system. An integer
        makes the draws reproducible, for tests only: whoever knows the seed can subtract the noise.

    A copy (`copy.deepcopy`, `pickle`) is a new source: without a seed it draws a key of its own.

    >>> source = NoiseSource(seed=1)
    >>> [draw.shape.as_list() for draw in source.fresh_normals([(2, 3), ()])]
    [[2, 3], []]
    """

    def __init__(self, seed: int | None = None):
        self._seed = seed
        if seed is None:
            key = np.frombuffer(os.urandom(16), dtype=np.int64)
        else:
            key = np.random.SeedSequence(seed).generate_state(2, np.uint64).view(np.int64)
        with tf.init_scope():
            self._key = tf.Variable(key, trainable=False, dtype=tf.int64, name="noise_key")
            self._calls = tf.Variable(0, trainable=False, dtype=tf.int64, name="noise_calls")

    def __reduce__(self):
        return (NoiseSource, (self._seed,))

    def fresh_normals(self, shapes: Sequence[Any]) -> list[tf.Tensor]:
        """Float32 draws in each of `shapes`, new ones at every call, in graphs and loops too."""
        return self.standard_normals(shapes, self._calls.assign_add(1))

    def standard_normals(self, shapes: Sequence[Any], step: tf.Tensor) -> list[tf.Tensor]:
        """Float32 draws in each of `shapes`. The same `step` of the same source gives the same draws."""
        step_key = tf.random.experimental.stateless_fold_in(self._key, tf.cast(step, tf.int64))
        return [
            tf.random.stateless_normal(shape, tf.random.experimental.stateless_fold_in(step_key, index), alg="philox")
            for index, shape in enumerate(shapes)
        ]
