"""Standard normal draws whose key comes from the operating system.

`tf.random.set_seed` and `np.random.seed` make every ordinary TensorFlow draw predictable, and predictable noise is no
noise. A `NoiseSource` takes its key from `os.urandom` and keeps it out of checkpoints (a restored run must not replay
old noise). Replayed noise is no noise either: two noised sums with the same noise differ by a private quantity alone.
So a source counts what it has drawn, itself; no step number that a user could wind back chooses the noise.

The generator is Philox4x32-10: a function of a key of 64 bits and a counter of 128 bits, one block of four 32-bit words
for each counter. A source is three 64-bit numbers:

    key              64 bits from the operating system
    counter, above   64 bits from the operating system
    counter, below   0 at first

All 128 bits take part in every block, and nothing is hashed or folded on the way: `stateless_fold_in`, which would be
TensorFlow's way, returns two 32-bit numbers for a Python integer, one of them that integer.

Why no two draws of a source share a counter. A call of `fresh_normals` knows from its shapes how many blocks it
needs, say B, and moves the counter on by at least B (by 256 B, in fact) in one indivisible op, `RngReadAndSkip`, which
hands out the counter S from before. So each call owns the range S, ..., S + B - 1, in threads, graphs and loops too.
Within it each (variable, term) has a range for its radii and one for its angles, all in a row (`layout`), and
its i-th radius and i-th angle, which make two numbers, are the i-th words there. All additions are of 128 bits, with
carry. So (call, variable, term, pair of numbers) and (block, words of it) correspond one to one until the counter has
come round, after 2^120 blocks: 4e19 years at 10^9 a second. Eager mode, graphs, XLA and (by TensorFlow's sources) GPUs
use counters alike: block k of an op that starts at counter c has counter c + k.

What can be worked back. Whoever has a whole block and a key can undo Philox's rounds: from known blocks, trying 2^64
keys would do. So no whole block is shown. Two numbers in float32 show some 25 of their radius's 64 bits and 25 of
their angle's 32, and the latter would be most of a block of four angles. Each angle is therefore masked (XOR) with the
lower 32 bits of its radius, which do not show: it stays uniform and independent of the radius. Then some 78 bits of a
block of radii are unknown, and all of a block of angles: to guess them is no shorter than to guess the 64 secret bits
of the counter, which with the key makes 2^128 again. An argument against this one way, no proof: docs/security.md.

A draw is one of Box and Muller's two numbers from 96 random bits (`core.box_muller`): it reaches 9.49 standard
deviations. `terms=n` adds up n draws and divides by sqrt(n).

Forked processes. `os.fork` copies key and counter, so without care parent and child would draw the same noise. What
TensorFlow 2.15 can do in a forked child was found by experiment (tests/core/noise_test.py repeats it):

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
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf._internal import variables
from adaclip_tf.core import box_muller

_PHILOX = 1  # `tf.random.Algorithm.PHILOX`, as raw ops want it
_RADII_PER_BLOCK, _ANGLES_PER_BLOCK = 2, 4  # a block has 128 bits
_TOGETHER = 2**18  # numbers whose words stay in a processor's cache while they are sorted

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
    """Independent N(0, 1) draws, new ones at every call.

    Args:
      seed: None, the right value for training: a fresh key from the operating system. An integer
        makes the draws reproducible, for tests only: whoever knows the seed can subtract the noise.
      stream: a number that tells sources with the same seed apart, such as that of a replica. Without a seed all
        sources differ anyway.
      terms: how many independent draws are added up, and divided by sqrt(terms), for each that is handed out. One
        is enough: it reaches 9.49 standard deviations.

    The variable belongs to this process: a strategy's scope, which would give all workers one key, is left aside.
    A copy (`copy.deepcopy`, `pickle`) is a new source: without a seed it draws a key of its own. So does a forked
    process (see above). With a seed, copies and forked processes repeat the same draws: that is what a seed is for.

    >>> source = NoiseSource(seed=1)
    >>> [draw.shape.as_list() for draw in source.fresh_normals([(2, 3), ()])]
    [[2, 3], []]
    """

    def __init__(self, seed: int | None = None, stream: int = 0, terms: int = 1):
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
        # Its layout is that of TensorFlow's own Philox generators: counter (lower half first), key.
        self._state = variables.local_variable(_first_state(key), tf.int64, "noise_state")

    def __reduce__(self):
        return (NoiseSource, (self._seed, self._stream, self._terms))

    def fresh_normals(self, shapes: Sequence[Any]) -> list[tf.Tensor]:
        """Float32 draws in each of `shapes`, new ones at every call, in graphs, loops and threads too.

        Raises:
          ValueError: where a shape is not fully known when the graph is made.
        """
        self._own()
        shapes = [_known_shape(shape) for shape in shapes]
        sizes = [shape.num_elements() for shape in shapes]
        starts, blocks = layout(sizes, self._terms)
        numbers = np.repeat(sizes, self._terms).tolist()  # of each draw, in the order of variables, then terms
        groups = _groups(numbers)
        firsts = [starts.reshape([-1, 2])[group[0]] for group in groups]
        key, counters = self._take(np.ravel(firsts).astype(np.uint64), blocks)
        own = iter(tf.unstack(counters))  # radii, then angles, of each group's first draw
        drawn: list[tf.Tensor] = []
        for group in groups:
            drawn += _draw([numbers[i] for i in group], key, radii=next(own), angles=next(own))
        return [self._normal(shape, drawn[i * self._terms :][: self._terms]) for i, shape in enumerate(shapes)]

    def _take(self, starts: np.ndarray, blocks: int) -> tuple[tf.Tensor, tf.Tensor]:
        """The key, and the counters at each of `starts` within the next `blocks`, which no other call gets."""
        # Reading and moving on in one op: with two, threads could read the same counter.
        state = tf.raw_ops.RngReadAndSkip(
            resource=self._state.handle, alg=_PHILOX, delta=tf.constant(blocks, dtype=tf.uint64)
        )
        low, high, key = tf.unstack(tf.bitcast(state, tf.uint64))
        return key[tf.newaxis], _advance(low, high, starts)

    def _normal(self, shape: tf.TensorShape, draws: list[tf.Tensor]) -> tf.Tensor:
        return tf.reshape(draws[0] if self._terms == 1 else tf.add_n(draws) / math.sqrt(self._terms), shape)

    def _own(self) -> None:
        """Takes a new key in a process that the source was forked into."""
        if self._owner == _process():
            return
        if self._seed is None:
            with tf.init_scope():
                self._state.assign(_first_state(_new_key()))
        self._owner = _process()


def layout(sizes: Sequence[int], terms: int) -> tuple[np.ndarray, int]:
    """Where in a call's range of blocks the words of each draw lie: ranges that follow each other without overlap.

    Args:
      sizes: how many numbers each variable takes.
      terms: how many draws each number is the sum of.

    Returns:
      First blocks, [variables, terms, 2] (radii, angles), counted from the first of the call; and the number of
      blocks of the call.

    >>> layout([8, 1], terms=1)     # 4 radii of 64 bits are 2 blocks, 4 angles of 32 bits are 1
    (array([[[0, 2]],
    <BLANKLINE>
           [[3, 4]]], dtype=uint64), 5)
    """
    lengths = []
    for size in sizes:
        pairs = _ceil(size, 2)
        lengths += terms * [_ceil(pairs, _RADII_PER_BLOCK), _ceil(pairs, _ANGLES_PER_BLOCK)]
    ends = np.cumsum([0, *lengths], dtype=np.uint64)
    return ends[:-1].reshape([len(sizes), terms, 2]), int(ends[-1])


def _ceil(number: int, divisor: int) -> int:
    return -(-number // divisor)


def _advance(low: tf.Tensor, high: tf.Tensor, by: np.ndarray) -> tf.Tensor:
    """The counter (low, high) moved on by each of `by`, in 128 bits: [len(by), 2]."""
    lows = low + tf.constant(by, tf.uint64)
    carry = tf.cast(lows < low, tf.uint64)
    return tf.stack([lows, high + carry], axis=-1)


def _groups(numbers: Sequence[int]) -> list[list[int]]:
    """Which draws, of so many numbers each, are made by the same ops: neighbours that are `_TOGETHER` at most.

    Every op costs time when a step is traced, and more when XLA compiles it. The words of neighbours lie in a row.
    """
    groups: list[list[int]] = []
    total = 0
    for index, number in enumerate(numbers):
        total += number
        if not groups or total > _TOGETHER:
            groups.append([])
            total = number
        groups[-1].append(index)
    return groups


def _draw(numbers: Sequence[int], key: tf.Tensor, radii: tf.Tensor, angles: tf.Tensor) -> list[tf.Tensor]:
    """Draws of so many `numbers` each, flat, whose words lie in a row; `radii`, `angles`: the first one's counters."""
    pairs = [_ceil(number, 2) for number in numbers]
    if len(pairs) == 1:  # no pass over a large one's words but those that use them
        words, turns = _words(pairs[0], key, radii, tf.uint64), _words(pairs[0], key, angles, tf.uint32)
    else:
        words, turns = _words_of_all(pairs, key, radii)
    mask = tf.cast(words, tf.uint32)  # their lower halves
    masked = tf.bitwise.bitwise_xor(turns, mask)
    draws = box_muller.normals(words, tf.bitcast(masked, tf.int32))
    if len(pairs) == 1:
        return [draws if numbers[0] == 2 * pairs[0] else draws[: numbers[0]]]
    parts = [tf.reshape(part, [-1]) for part in tf.split(tf.reshape(draws, [2, -1]), pairs, axis=1)]
    return [part if number == 2 * half else part[:number] for part, number, half in zip(parts, numbers, pairs)]


def _words_of_all(pairs: Sequence[int], key: tf.Tensor, counter: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The radii and the angles of several draws, each of them joined, by one op over all of their blocks."""
    lengths = []  # in words of 32 bits: radii, what is left of their last block, angles, the same
    for number in pairs:
        lengths += [2 * number, -2 * number % 4, number, -number % 4]
    words = tf.split(_words(sum(lengths), key, counter, tf.uint32), lengths)
    radii = tf.reshape(tf.concat(words[0::4], axis=0), [-1, 2])  # lower half first, as the op for 64 bits has them
    return tf.bitcast(radii, tf.uint64), tf.concat(words[2::4], axis=0)


def _words(number: int, key: tf.Tensor, counter: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Random words; those of block k have counter + k."""
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[number], key=key, counter=counter, alg=_PHILOX, dtype=dtype
    )


def _known_shape(shape: Any) -> tf.TensorShape:
    known = tf.TensorShape(shape)
    if not known.is_fully_defined():
        raise ValueError(
            f"`shapes` must be fully known, so that each draw gets blocks of its own; got {known}. "
            "Give every dimension a size."
        )
    return known


def _first_state(key: np.ndarray) -> np.ndarray:
    return np.array([0, *key], np.int64)


def _new_key() -> np.ndarray:
    return np.frombuffer(os.urandom(16), dtype=np.int64)
