"""Standard normal draws whose key comes from the operating system.

`tf.random.set_seed` and `np.random.seed` make every ordinary TensorFlow draw predictable, and
predictable noise is no noise. A `NoiseSource` takes its key from `os.urandom`, keeps it out of
checkpoints (a restored run must not replay old noise), and turns (key, step, variable) into draws
with TensorFlow's counter-based Philox generator, so that no two of them share a stream.
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
    """

    def __init__(self, seed: int | None = None):
        if seed is None:
            key = np.frombuffer(os.urandom(16), dtype=np.int64)
        else:
            key = np.random.SeedSequence(seed).generate_state(2, np.uint64).view(np.int64)
        with tf.init_scope():
            self._key = tf.Variable(key, trainable=False, dtype=tf.int64, name="noise_key")

    def standard_normals(self, shapes: Sequence[Any], step: tf.Tensor) -> list[tf.Tensor]:
        """Float32 draws in each of `shapes`. The same `step` of the same source gives the same draws."""
        step_key = tf.random.experimental.stateless_fold_in(self._key, tf.cast(step, tf.int64))
        return [
            tf.random.stateless_normal(
                shape, tf.random.experimental.stateless_fold_in(step_key, index), alg="philox"
            )
            for index, shape in enumerate(shapes)
        ]
