"""Two ways to the same numbers, timed in turns: why a step does it as it does. docs/benchmark.md has the outcomes.

python -m benchmarks.tried
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from absl import app, flags

from adaclip_tf.core import noise
from benchmarks import floors, timing

Pieces = list[floors.Piece]


def sums_as_tables(positions: int = 32_768, vocabulary: int = 10_000, width: int = 64) -> Pieces:
    """The weighted sum of looked-up rows; TensorFlow has four ops for it."""
    indices = tf.constant(np.random.default_rng(0).integers(0, vocabulary, positions))

    def product(pieces: int) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
        def total(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
            rows = tf.reshape(indices[:, tf.newaxis] * pieces + tf.range(pieces, dtype=tf.int64), [-1])
            return tf.raw_ops.SparseTensorDenseMatMul(
                a_indices=tf.stack([rows, tf.range(positions * pieces, dtype=tf.int64)], axis=1),
                a_values=tf.repeat(weights, pieces),
                a_shape=tf.constant([vocabulary * pieces, positions * pieces], tf.int64),
                b=tf.reshape(values, [positions * pieces, width // pieces]),
            )

        return total

    def segments(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(values * weights[:, tf.newaxis], indices, vocabulary)

    def scattered(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        return tf.scatter_nd(indices[:, tf.newaxis], values * weights[:, tf.newaxis], [vocabulary, width])

    ways = {
        "sparse product": product(1),
        "sparse product, rows cut in four": product(4),
        "unsorted_segment_sum": segments,
        "scatter_nd": scattered,
    }
    return [floors.Piece(f"table: {name}", way, [[positions, width], [positions]]) for name, way in ways.items()]


def norms_of_rows(n: int = 32_768, width: int = 64) -> Pieces:
    """Squares that are added up, in one pass or two."""
    ways = {
        "square, then sum": lambda x: tf.reduce_sum(tf.square(x), 1),
        "euclidean norm": lambda x: tf.math.reduce_euclidean_norm(x, 1),
        "batched product": lambda x: tf.matmul(x[:, tf.newaxis], x[:, :, tf.newaxis]),
    }
    return [floors.Piece(f"rows: {name}", way, [[n, width]]) for name, way in ways.items()]


def patches(n: int = 250) -> Pieces:
    """Windows of the first convolution of the benchmark's CNN: TensorFlow's own, a pass of that size, and products."""

    def own(x: tf.Tensor) -> tf.Tensor:
        return tf.image.extract_patches(x, [1, 8, 8, 1], [1, 2, 2, 1], [1, 1, 1, 1], "SAME")

    def longer_last(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return tf.matmul(y, x, transpose_a=True)

    def longer_first(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return tf.matmul(x, y, transpose_a=True)

    return [
        floors.Piece("patches: extract_patches", own, [[n, 28, 28, 1]]),
        floors.Piece("patches: one pass", lambda x: x + 1.0, [[n, 196 * 64]]),
        floors.Piece("of examples: 64 last", longer_last, [[n, 196, 64], [n, 196, 16]]),
        floors.Piece("of examples: 16 last", longer_first, [[n, 196, 64], [n, 196, 16]]),
    ]


def normals(size: int = 640_000) -> Pieces:
    """Normal numbers by our loop, by our ops without it, and by TensorFlow's."""
    source = noise.NoiseSource()
    small = [noise._MANY // 4] * (4 * size // noise._MANY)
    return [
        floors.Piece("noise: one loop", lambda: source.fresh_normals([[size]])[0], []),
        floors.Piece("noise: ops", lambda: tf.concat([source.fresh_normals([[part]])[0] for part in small], 0), []),
        floors.Piece("noise: TensorFlow's", lambda: tf.random.normal([size]), []),
    ]


def main(argv):
    del argv
    pieces = [*sums_as_tables(), *norms_of_rows(), *patches(), *normals()]
    times = timing.take_turns({piece.name: floors.Timed(piece) for piece in pieces}, flags.FLAGS.rounds)
    print("| way | ms |\n|---|--:|")
    for name, row in times.items():
        print(f"| {name} | {row['seconds'] * 1e3:.2f} |")


if __name__ == "__main__":
    app.run(main)
