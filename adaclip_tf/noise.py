"""Standard normal draws whose key comes from the operating system.

`tf.random.set_seed` and `np.random.seed` make every ordinary TensorFlow draw predictable, and
predictable noise is no noise. A `NoiseSource` takes its key from `os.urandom`, keeps it out of
checkpoints (a restored run must not replay old noise), and turns (key, step, variable) into draws
with TensorFlow's counter-based Philox generator, so that no two of them share a stream.

Replayed noise is no noise either: two noised sums with the same noise differ by a private quantity
alone. So `fresh_normals` counts its own calls. A step number that a user can wind back (by restoring a
checkpoint, or by starting a query's state anew) is safe with `standard_normals` only if the source is new
as well.

Forked processes. `os.fork` copies key and counter, so without care parent and child would draw the same noise. What
TensorFlow 2.15 can do in a forked child was found by experiment (tests/noise_test.py repeats it):

| in the child                                          | result                                             |
|-------------------------------------------------------|----------------------------------------------------|
| eager ops, as in an eager `AdaClipSumQuery`           | work                                               |
| a `tf.function`, traced before the fork or after it   | hangs: the threads that would run it do not exist  |
| the same compiled by XLA, before anything else ran    | works                                              |
| a variable assigned by a hook that runs at the fork   | hangs in 2 to 18 forks of 100 while the parent trains |

So the hook below touches Python alone (a hook that hangs would hang data loaders, which fork and never draw), and a
source takes a new key when it is first asked for draws in the new process: every eager call and every trace asks.
What is left is a function that was traced in the parent, first runs after the fork, in both processes, and is compiled
by XLA: its graph asks nobody. Start processes by "spawn", as TensorFlow wants it, and none of this arises.

Not quite Gaussian. TensorFlow makes a draw from two uniform numbers of 23 bits (Box-Muller), the first cut off at
1e-7. So a draw is one of at most 2^46 values, none beyond sqrt(-2 ln 1e-7) = 5.68. `terms=n` adds up n draws and
divides by sqrt(n): up to 2^(46 n) combinations, and tails up to 5.68 sqrt(n). docs/privacy.md says what that is worth.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf import replicas

_forks = 0


def _count_fork() -> None:
    global _forks  # noqa: PLW0603
    _forks += 1


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_count_fork)


def _process() -> tuple[int, int]:
    """Tells this process from those it was forked from: their numbers may come back, the count of forks grows."""
    return os.getpid(), _forks


class NoiseSource:
    """Independent N(0, 1) draws for each step and each variable.

    Args:
      seed: None, the right value for training: a fresh key from the operating system. An integer
        makes the draws reproducible, for tests only: whoever knows the seed can subtract the noise.
      stream: a number that tells sources with the same seed apart, such as that of a replica. Without a seed all
        sources differ anyway.
      terms: how many independent draws are added up, and divided by sqrt(terms), for each that is handed out. One
        draw of TensorFlow's never passes 5.68 standard deviations, which costs delta; two reach 8.03, which is enough.

    The variables belong to this process: a strategy's scope, which would give all workers one key, is left aside.
    A copy (`copy.deepcopy`, `pickle`) is a new source: without a seed it draws a key of its own. So does a forked
    process (see above). With a seed, copies and forked processes repeat the same draws: that is what a seed is for.

    >>> source = NoiseSource(seed=1)
    >>> [draw.shape.as_list() for draw in source.fresh_normals([(2, 3), ()])]
    [[2, 3], []]
    """

    def __init__(self, seed: int | None = None, stream: int = 0, terms: int = 2):
        self._seed, self._stream, self._terms = seed, stream, terms
        self._owner = _process()
        if seed is None:
            key = _new_key()
        else:
            key = (
                np.random.SeedSequence(seed, spawn_key=(stream,) if stream else ())
                .generate_state(2, np.uint64)
                .view(np.int64)
            )
        self._key = replicas.local_variable(key, tf.int64, "noise_key")
        self._calls = replicas.local_variable(0, tf.int64, "noise_calls")

    def __reduce__(self):
        return (NoiseSource, (self._seed, self._stream, self._terms))

    def fresh_normals(self, shapes: Sequence[Any]) -> list[tf.Tensor]:
        """Float32 draws in each of `shapes`, new ones at every call, in graphs and loops too."""
        return self.standard_normals(shapes, self._calls.assign_add(1))

    def standard_normals(self, shapes: Sequence[Any], step: tf.Tensor) -> list[tf.Tensor]:
        """Float32 draws in each of `shapes`. The same `step` of the same source gives the same draws."""
        self._own()
        step_key = tf.random.experimental.stateless_fold_in(self._key, tf.cast(step, tf.int64))
        return [
            self._normal(shape, tf.random.experimental.stateless_fold_in(step_key, index))
            for index, shape in enumerate(shapes)
        ]

    def _normal(self, shape: Any, key: tf.Tensor) -> tf.Tensor:
        if self._terms == 1:
            return tf.random.stateless_normal(shape, key, alg="philox")
        keys = [tf.random.experimental.stateless_fold_in(key, term) for term in range(self._terms)]
        total = tf.add_n([tf.random.stateless_normal(shape, term_key, alg="philox") for term_key in keys])
        return total / math.sqrt(self._terms)

    def _own(self) -> None:
        """Takes a new key in a process that the source was forked into."""
        if self._owner == _process():
            return
        if self._seed is None:
            with tf.init_scope():
                self._key.assign(_new_key())
        self._owner = _process()


def _new_key() -> np.ndarray:
    return np.frombuffer(os.urandom(16), dtype=np.int64)
