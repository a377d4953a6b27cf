"""What a private step can't do without, as bare TensorFlow ops, beside Keras's SGD and our step.

    python -m benchmarks.floors --out=runs/floors

For every model and way of clipping: the products and passes that come on top of SGD's step, each timed by itself on
tensors of the model's shapes, and taken together with SGD's own time. What SGD does and a private step need not do (a
kernel's gradient, where gradients of examples are at hand) is taken off again. That is no proof of a floor: it is what
the forms cost that we know of, with nothing around them. It also says how many ops each has traced.

| piece             | what it is                                                                         |
|-------------------|------------------------------------------------------------------------------------|
| rows              | one pass over [n, width] that squares and adds up: norms of the examples' x, or dy |
| weighed by p      | (x^2 p) . dy^2: a square of each, one product as large as the layer's              |
| weighed by a p    | (x a p) . dy: one product more, and a sum                                          |
| patches           | one copy of all windows that a kernel sees                                         |
| of examples       | a kernel's gradient for each example, its norm, and their sum by one more pass     |
| of all            | the kernel's gradient as SGD has it, which that takes the place of                 |
| what repeats      | which rows of a table an example looks up more than once                           |
| sum as a table    | the weighted sum of what was looked up, for all rows of the table                  |
| a and b looked up | two gathers, a quotient, a difference                                              |
| noise             | normal numbers for all parameters, by our sampler                                  |
| parameters        | one pass: noise, quotient, update; for AdaCliP m, s, a and b as well               |

`benchmarks.floors_of_uses` has what variables add that are used more than once: shared, tied and unrolled layers.
"""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import app, flags
from tensorflow.python.eager import context

from adaclip_tf.core import noise
from adaclip_tf.gradients.ghost import embeddings
from benchmarks import cases, contenders, floors_of_uses, timing
from benchmarks.floors_of_uses import ADACLIP, FIXED, WAYS, Piece

_OUT = flags.DEFINE_string("out", "runs/floors", "Folder for results.json and results.md.")
_ROUNDS = flags.DEFINE_integer("rounds", 7, "How often each has its turn.", lower_bound=3)


def _rows(n: int, width: int) -> Piece:
    return Piece(f"rows [{n}, {width}]", lambda x: tf.math.reduce_euclidean_norm(x, 1), [[n, width]])


def dense(n: int, inner: int, outer: int) -> dict[str, list[Piece]]:
    """A dense layer."""
    shape, shapes = f"[{n}, {inner}] [{inner}, {outer}]", [[n, inner], [n, outer], [inner, outer]]

    def bilinear(x: tf.Tensor, y: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
        if inner <= outer:
            return tf.reduce_sum(tf.matmul(y, p, transpose_b=True) * x, 1)
        return tf.reduce_sum(tf.matmul(x, p) * y, 1)

    by_p = Piece(f"weighed by p {shape}", lambda x, y, p: bilinear(tf.square(x), tf.square(y), p), shapes)
    return {
        FIXED: [_rows(n, inner), _rows(n, outer)],
        ADACLIP: [by_p, Piece(f"weighed by a p {shape}", bilinear, shapes)],
    }


def convolution(n: int, image: Sequence[int], kernel: Sequence[int], out: Sequence[int], **options: Any):
    """A convolution of [n, *image] to [n, *out]."""
    positions, taps, channels = out[0] * out[1], kernel[0] * kernel[1] * kernel[2], kernel[3]

    def of_examples(x: tf.Tensor, y: tf.Tensor, weights: tf.Tensor) -> list[tf.Tensor]:
        g = tf.reshape(tf.matmul(y, x, transpose_a=True), [n, taps * channels])
        return [tf.math.reduce_euclidean_norm(g, 1), tf.matmul(weights, g)]

    def of_all(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.Conv2DBackpropFilter(input=x, filter_sizes=kernel, out_backprop=y, **options)

    pieces = [
        Piece(f"patches {kernel}", lambda x: x + 1.0, [[n, positions * taps]]),
        Piece(f"of examples {kernel}", of_examples, [[n, positions, taps], [n, positions, channels], [1, n]]),
        Piece(f"of all {kernel}", of_all, [[n, *image], [n, *out]], -1),
    ]
    return dict.fromkeys(WAYS, pieces)


def lookup(n: int, length: int, vocabulary: int, width: int) -> dict[str, list[Piece]]:
    """An embedding."""
    size = n * length
    indices = tf.constant(np.random.default_rng(0).integers(0, vocabulary, size))
    table = tf.Variable(tf.zeros([vocabulary, width]))

    def repeats() -> tf.Tensor:
        keys = indices + vocabulary * (tf.range(size, dtype=tf.int64) // length)
        _, places, counts = tf.unique_with_counts(keys)
        return tf.gather(counts, places)

    def total(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        pieces = embeddings._pieces(width)  # into shorter rows, where these are faster
        rows = tf.reshape(indices[:, tf.newaxis] * pieces + tf.range(pieces, dtype=tf.int64), [-1])
        return tf.raw_ops.SparseTensorDenseMatMul(
            a_indices=tf.stack([rows, tf.range(size * pieces, dtype=tf.int64)], axis=1),
            a_values=tf.repeat(weights, length * pieces),
            a_shape=tf.constant([vocabulary * pieces, size * pieces], tf.int64),
            b=tf.reshape(values, [size * pieces, width // pieces]),
        )

    def a_and_b(values: tf.Tensor, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        return values / tf.gather(b, indices) - tf.gather(a, indices)

    def scatter(values: tf.Tensor) -> tf.Tensor:
        table.scatter_sub(tf.IndexedSlices(values, indices))
        return table[0]

    shapes = [[size, width], [vocabulary, width], [vocabulary, width]]
    both = [
        Piece("what repeats", repeats, []),
        _rows(size, width),
        Piece("sum as a table", total, [[size, width], [n]]),
        Piece("SGD's update of rows", scatter, [[size, width]], -1),
    ]
    return {FIXED: both, ADACLIP: [*both, Piece("a and b looked up", a_and_b, shapes)]}


def _both_as_tables(layer: dict[str, list[Piece]]) -> dict[str, list[Piece]]:
    """A look-up's pieces where SGD forms the gradient of the whole table as well."""
    same = ("sum as a table", "SGD's update of rows")
    return {way: [piece for piece in pieces if piece.name not in same] for way, pieces in layer.items()}


def parameters(size: int) -> dict[str, list[Piece]]:
    """Noise and update of so many parameters."""
    source = noise.NoiseSource()
    drawn = Piece(f"noise {size}", lambda: source.fresh_normals([[size]])[0], [])

    def fixed(total: tf.Tensor, normals: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        return weights - 0.1 * (total + normals) / 100.0

    def adaclip(total, normals, weights, m, variance):
        std = tf.sqrt(variance)
        b = tf.sqrt(std) * tf.sqrt(tf.reduce_sum(std))
        mean = b * ((total - m) / b + normals) / 100.0 + m
        residual = 100.0 * (tf.square(mean - m) - tf.square(b / 100.0))
        variance = 0.9 * variance + 0.1 * tf.clip_by_value(residual, 1e-12, 1e-3)
        return weights - 0.1 * mean, 0.99 * m + 0.01 * mean, variance

    compiled = [tf.function(one, jit_compile=True, autograph=False) for one in (fixed, adaclip)]
    return {
        FIXED: [drawn, Piece("parameters", compiled[0], [[size]] * 3)],
        ADACLIP: [drawn, Piece("parameters", compiled[1], [[size]] * 5)],
    }


_SAME, _VALID = ({"strides": [1, 2, 2, 1], "padding": padding} for padding in ("SAME", "VALID"))
PIECES: dict[str, Callable[[int], list[dict[str, list[Piece]]]]] = {
    "softmax": lambda n: [dense(n, 784, 10)],
    "mlp": lambda n: [dense(n, 60, 1000), dense(n, 1000, 10)],
    "large": lambda n: [dense(n, 60, 140_000), dense(n, 140_000, 10)],
    "cnn": lambda n: [
        convolution(n, [28, 28, 1], [8, 8, 1, 16], [14, 14, 16], **_SAME),
        convolution(n, [13, 13, 16], [4, 4, 16, 32], [5, 5, 32], **_VALID),
        dense(n, 512, 32),
        dense(n, 32, 10),
    ],
    "embedding": lambda n: [lookup(n, 128, 10_000, 64), dense(n, 64, 10)],
    "shared": lambda n: [floors_of_uses.few(n, 3, 256, 512), dense(n, 1536, 10)],
    # SGD's gradient of the table is a whole table, too.
    "tied": lambda n: [
        _both_as_tables(lookup(n, 32, 2000, 64)),
        dense(n, 64, 2000),
        floors_of_uses.crossed(n, 32, 2000, 64),
        dense(n, 64, 64),
    ],
    "unrolled": lambda n: [floors_of_uses.many(n, 20, 32, 64), floors_of_uses.many(n, 20, 64, 64), dense(n, 64, 10)],
}

_CASES = flags.DEFINE_list("cases", [*PIECES], "Which models.")


class Timed:
    """A piece that takes turns like a `timing.Trainer`."""

    first_step = first_step_busy = 0.0

    def __init__(self, piece: Piece):
        rng = np.random.default_rng(0)
        self._arrays = [tf.constant(rng.uniform(0.5, 1.5, size=shape).astype(np.float32)) for shape in piece.shapes]
        self._function = tf.function(lambda *arrays: tf.nest.flatten(piece.function(*arrays)), autograph=False)
        self.turn()

    def turn(self, repeats: int = 10) -> tuple[float, float]:
        start, busy = time.perf_counter(), time.process_time()
        for _ in range(repeats):
            results = self._function(*self._arrays)
        del results
        context.async_wait()
        return (time.perf_counter() - start) / repeats, (time.process_time() - busy) / repeats


def ops_of(case: cases.Case, who: str) -> tuple[timing.Trainer, int]:
    """A trainer, and how many ops there are in the functions that its first step has traced."""
    runtime = context.context()
    before = set(runtime.list_function_names())
    trainer = timing.Trainer(case, who)
    new = set(runtime.list_function_names()) - before
    return trainer, sum(len(runtime.get_function_def(name).node_def) for name in new)


def measure(name: str, rounds: int, case: cases.Case | None = None, pieces: Any = None) -> dict:
    """One model: SGD's time, and for each way of clipping its time and its pieces'."""
    case = case or cases.find(name)
    made = {who: ops_of(case, who) for who in (contenders.BASELINE, *WAYS)}
    size = int(next(iter(made.values()))[0].model.count_params())
    layers = [*(pieces or PIECES[name])(case.batch_size), parameters(size)]
    wanted = {_key(way, piece): piece for layer in layers for way in WAYS for piece in layer[way]}
    nothing = Piece("", lambda: tf.constant(0.0), [])  # what a call costs: SGD's step has that in it already
    timed = {key: Timed(piece) for key, piece in {**wanted, "": nothing}.items()}
    times = timing.take_turns(timed | {who: trainer for who, (trainer, _) in made.items()}, rounds)
    call = times[""]["seconds"]
    base = times[contenders.BASELINE]["seconds"]
    result: dict = {"SGD": base, "ops": made[contenders.BASELINE][1], "ways": {}}
    for way in WAYS:
        listed = []
        for layer in layers:
            for piece in layer[way]:
                alone = max(times[_key(way, piece)]["seconds"] - call, 0.0)
                listed.append([piece.name, piece.sign * alone])
        floor = base + sum(seconds for _, seconds in listed)
        result["ways"][way] = {"seconds": times[way]["seconds"], "ops": made[way][1], "floor": floor, "pieces": listed}
    return result


def _key(way: str, piece: Piece) -> str:
    return f"{piece.name} {way if piece.name == 'parameters' else ''}"


def table(results: dict) -> str:
    """Markdown: floors and steps, then what the floors are made of."""
    lines = [
        "| model | | SGD, ms | with the pieces, ms | times SGD | our step, ms | times SGD | ops of SGD | ours |",
        "|---|---|" + "--:|" * 7,
    ]
    rest = ["", "| model | | piece | ms |", "|---|---|---|--:|"]
    for name, result in results.items():
        base = result["SGD"]
        for way, row in result["ways"].items():
            cells = [base * 1e3, row["floor"] * 1e3, row["floor"] / base, row["seconds"] * 1e3, row["seconds"] / base]
            shown = " | ".join(f"{cell:.2f}" for cell in cells)
            lines.append(f"| {name} | {way.split()[0]} | {shown} | {result['ops']} | {row['ops']} |")
            rest += [f"| {name} | {way.split()[0]} | {piece} | {ms * 1e3:.2f} |" for piece, ms in row["pieces"]]
    return "\n".join([*lines, *rest]) + "\n"


def main(argv):
    del argv
    out = pathlib.Path(_OUT.value)
    out.mkdir(parents=True, exist_ok=True)
    for who in (contenders.BASELINE, *WAYS):  # what TensorFlow sets up once
        timing.Trainer(cases.CASES["softmax"], who)
    results = {}
    for name in _CASES.value:
        print(f"{name} ...", flush=True)
        results[name] = measure(name, _ROUNDS.value)
        (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        (out / "results.md").write_text(table(results))
    print(table(results))


if __name__ == "__main__":
    app.run(main)
