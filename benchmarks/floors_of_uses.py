"""Pieces of floors for variables that are used more than once: see `benchmarks.floors`, which times them.

| piece            | what it is                                                                                     |
|------------------|------------------------------------------------------------------------------------------------|
| pairs of uses    | sum_tt' (x_t . x_t')(dy_t . dy_t'): products of each example's few rows, and of their gradients  |
| pairs by p       | the same with p between: a product as large as the layer's for each pair of uses, and of a p     |
| crossed          | of a table that is looked up and multiplied: P at the rows that were looked up, and a sum        |
| joined uses      | one copy of the rows of all uses, which lie in as many tensors                                   |
| of examples      | a kernel's gradient for each example, its norm, and their sum by one more pass                   |
| of all           | the kernel's gradient as SGD has it: a product for each use, added up; which that takes place of |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

FIXED, ADACLIP = "DPFixedClipSGD ghost", "DPAdaClipSGD ghost"
WAYS = (FIXED, ADACLIP)


class Piece(NamedTuple):
    """Ops on tensors of these shapes; `sign` is -1 for what a private step does not do."""

    name: str
    function: Callable[..., Any]
    shapes: Sequence[Sequence[int]]
    sign: int = 1


def few(n: int, uses: int, inner: int, outer: int) -> dict[str, list[Piece]]:
    """A dense layer that is used a few times."""
    shape, rows = f"{uses} x [{n}, {inner}] [{n}, {outer}]", [[n, uses, inner], [n, uses, outer]]
    pairs = uses * (uses + 1) // 2

    def plain(x: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.matmul(x, x, transpose_b=True) * tf.matmul(dy, dy, transpose_b=True), [1, 2])

    def weighed(x: tf.Tensor, dy: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
        places = [(s, t) for s in range(uses) for t in range(s, uses)]
        xs, dys = (tf.concat([a[:, s] * a[:, t] for s, t in places], 0) for a in (x, dy))
        return _bilinear(xs, p, dys)

    def linear(x: tf.Tensor, dy: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
        return _bilinear(tf.reshape(x, [n * uses, inner]), p, tf.reshape(dy, [n * uses, outer]))

    kernel = [inner, outer]
    return {
        FIXED: [Piece(f"pairs of uses {shape}", plain, rows)],
        ADACLIP: [
            Piece(f"pairs by p, {pairs} {shape}", weighed, [*rows, kernel]),
            Piece(f"weighed by a p {shape}", linear, [*rows, kernel]),
        ],
    }


def _bilinear(x: tf.Tensor, matrix: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    if x.shape[1] <= y.shape[1]:
        return tf.reduce_sum(tf.matmul(y, matrix, transpose_b=True) * x, 1)
    return tf.reduce_sum(tf.matmul(x, matrix) * y, 1)


def many(n: int, uses: int, inner: int, outer: int) -> dict[str, list[Piece]]:
    """A kernel that is used by many steps of an unrolled loop."""
    shape, size = f"{uses} x [{n}, {inner}] [{n}, {outer}]", inner * outer
    each = [*[[n, inner]] * uses, *[[n, outer]] * uses]

    def joined(*arrays: tf.Tensor) -> list[tf.Tensor]:
        return [tf.stack(arrays[:uses], 1), tf.stack(arrays[uses:], 1)]

    def of_examples(x: tf.Tensor, dy: tf.Tensor, weights: tf.Tensor) -> list[tf.Tensor]:
        g = tf.reshape(tf.matmul(x, dy, transpose_a=True), [n, size])
        return [tf.math.reduce_euclidean_norm(g, 1), tf.matmul(weights, g)]

    def of_all(*arrays: tf.Tensor) -> tf.Tensor:
        return tf.add_n([tf.matmul(x, dy, transpose_a=True) for x, dy in zip(arrays[:uses], arrays[uses:])])

    pieces = [
        Piece(f"joined uses {shape}", joined, each),
        Piece(f"of examples {shape}", of_examples, [[n, uses, inner], [n, uses, outer], [1, n]]),
        Piece(f"of all {shape}", of_all, each, -1),
    ]
    return dict.fromkeys(WAYS, pieces)


def crossed(n: int, length: int, vocabulary: int, width: int) -> dict[str, list[Piece]]:
    """What a table adds that is both looked up and multiplied, besides the pieces of either."""
    indices = tf.constant(np.random.default_rng(0).integers(0, vocabulary, [n, length]))

    def plain(values: tf.Tensor, x: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
        chosen = tf.gather(dy, indices, batch_dims=1)
        return tf.reduce_sum(chosen * tf.reduce_sum(values * x[:, tf.newaxis], 2), 1)

    def weighed(values: tf.Tensor, x: tf.Tensor, dy: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        return plain(values / tf.square(tf.gather(b, indices)), x, dy)

    shapes = [[n, length, width], [n, width], [n, vocabulary]]
    return {
        FIXED: [Piece("crossed", plain, shapes)],
        ADACLIP: [Piece("crossed, by p", weighed, [*shapes, [vocabulary, width]])],
    }
