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
needs, say B, and moves the counter on by at least B (by 256 B, in fact) in one indivisible op, `RngReadAndSkip`,
which hands out the counter S from before. So each call owns the range S, ..., S + B - 1, in threads, graphs and loops
too. Within it each (variable, term) has a range, all in a row (`layout`), and its i-th pair of numbers is made of the
i-th block there. All additions are of 128 bits, with carry. So (call, variable, term, pair of numbers) and blocks
correspond one to one until the counter has come round, after 2^120 blocks: 4e19 years at 10^9 a second. Eager mode,
graphs, XLA and (by TensorFlow's sources) GPUs use counters alike: block k of an op that starts at counter c has
counter c + k.

What can be worked back. Whoever has a whole block and a key can undo Philox's rounds: from known blocks, trying 2^64
keys would do. So no whole block is shown. Of a block's four words the first two are a radius, the third an angle, and
the fourth is never used. Two numbers in float32 show some 25 of the radius's 64 bits and 25 of the angle's 32: some
78 bits of every block stay unknown. To guess them is no shorter than to guess the 64 secret bits of the counter,
which with the key makes 2^128 again. An argument against this one way, no proof: docs/security.md.

A draw is one of Box and Muller's two numbers from 96 random bits (`core.box_muller`): it reaches 9.49 standard
deviations. `terms=n` adds up n draws and divides by sqrt(n).

Two ways to the same numbers. In graphs, many of them are made by one loop that XLA compiles (`core.philox`), 2 ns
each on one core. Compiling takes 0.1 s: few numbers, and all in eager mode, come from TensorFlow's own ops, 15 ns
each. They differ in the last bits. A noised sum shows as much of a draw's bits either way.

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

import functools
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from adaclip_tf._internal import made, variables
from adaclip_tf.core import box_muller, philox

_PHILOX = 1  # `tf.random.Algorithm.PHILOX`, as raw ops want it
_ROW = 8  # pairs of numbers: 64 bytes, so that a draw that begins a row can be read where it lies, without a copy
_TOGETHER = 2**24  # numbers; more would wait in memory for their turn
_MANY = 2**15  # numbers that are worth compiling a loop for

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
        firsts = [starts.ravel()[group[0]] for group in groups]
        key, counters = self._take(np.array(firsts, np.uint64), blocks)
        drawn: list[tf.Tensor] = []
        for group, counter in zip(groups, tf.unstack(counters, num=len(groups))):
            drawn += _draw([numbers[i] for i in group], key, counter)
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
        draw = draws[0] if self._terms == 1 else tf.add_n(draws) / math.sqrt(self._terms)
        return made.reshape(draw, shape.as_list())

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
      First blocks, [variables, terms], counted from the first of the call; and the number of blocks of the call. Both
      are multiples of 8.

    >>> layout([8, 17], terms=1)     # 4 pairs, 9 pairs
    (array([[0],
           [8]], dtype=uint64), 24)
    """
    lengths = [_ROW * _rows(size) for size in sizes for _ in range(terms)]
    ends = np.cumsum([0, *lengths], dtype=np.uint64)
    return ends[:-1].reshape([len(sizes), terms]), int(ends[-1])


def _rows(number: int) -> int:
    """How many rows so many numbers take."""
    return -(-number // (2 * _ROW))


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


def _draw(numbers: Sequence[int], key: tf.Tensor, counter: tf.Tensor) -> list[tf.Tensor]:
    """Draws of so many `numbers` each, flat, whose blocks lie in a row, the first one's at `counter`."""
    rows = [_rows(number) for number in numbers]
    pairs = _ROW * sum(rows)
    many = 2 * pairs >= _MANY and not tf.executing_eagerly() and tf.test.is_built_with_xla()
    drawn = (_compiled if many else _interpreted)(pairs, key, counter)
    parts = tf.split(tf.reshape(drawn, [sum(rows), 2 * _ROW]), rows) if len(rows) > 1 else [drawn]
    return [_first(number, made.reshape(part, [-1])) for part, number in zip(parts, numbers)]


def _first(number: int, flat: tf.Tensor) -> tf.Tensor:
    """`flat[:number]`, in as few ops as can be: there is one for each variable."""
    if flat.shape[0] == number:
        return flat
    return made.op("Slice", flat, made.constant([0]), made.constant([number]))


def _interpreted(pairs: int, key: tf.Tensor, counter: tf.Tensor) -> tf.Tensor:
    """So many pairs, [2 pairs], by TensorFlow's ops."""
    words = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[2 * pairs], key=key, counter=counter, alg=_PHILOX, dtype=tf.uint64
    )
    radii, angles = tf.unstack(tf.reshape(words, [pairs, 2]), axis=1)
    angles = tf.bitcast(tf.cast(angles, tf.uint32), tf.int32)  # the lower half: the third word
    return tf.reshape(box_muller.normals(radii, angles), [-1])


def _compiled(pairs: int, key: tf.Tensor, counter: tf.Tensor) -> tf.Tensor:
    """The same by one loop."""
    # Two outputs would be two loops, which make every block twice. So both numbers of a pair are one element: a complex
    # number, or where everything around is compiled too, which can't take that apart without a copy, 64 bits.
    if control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        cosine, sine = (tf.cast(tf.bitcast(part, tf.uint32), tf.uint64) for part in _pairs(pairs, key, counter))
        drawn = cosine | tf.bitwise.left_shift(sine, tf.constant(32, tf.uint64))
    else:
        drawn = _loop(pairs)(key, counter)
    return tf.reshape(tf.bitcast(drawn, tf.float32), [-1])


@functools.lru_cache(maxsize=32)
def _loop(pairs: int) -> Any:
    """A function of key and counter, which all sources share."""
    return tf.function(lambda *of: tf.complex(*_pairs(pairs, *of)), jit_compile=True, autograph=False)


def _pairs(pairs: int, key: tf.Tensor, counter: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    low, high, angles, _ = philox.blocks(pairs, key, counter)
    return box_muller.quick_pairs(low, high, tf.bitcast(angles, tf.int32))


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
