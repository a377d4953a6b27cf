"""Poisson-sampled batches for `model.fit`: the sampling that the accounting assumes.

Formal guarantee. In every step every example joins the batch with probability q = expected_batch_size / n,
independently of the other examples and of the other steps. It is drawn as a Binomial(n, q) batch size and
then a uniformly random set of that size, which is the same law and takes time in proportion to the
batch, not to n.

Edge cases.

| case                                 | result                                                             |
|--------------------------------------|--------------------------------------------------------------------|
| nobody was drawn                     | an empty batch; Keras's loss and metrics leave it out. (Not so     |
|                                      | TensorFlow's oneDNN convolutions: `_warn_of_empty_batches`)        |
| a new epoch, or any new iterator     | fresh draws, never a replay; with `seed`, fresh but reproducible   |
| tf.random.set_seed / np.random.seed  | no effect: the key comes from the operating system                 |
| data larger than memory              | only the rows that were drawn are read                             |
| accumulation_steps=K                 | ONE draw with q, cut into K parts: K draws with q / K would be     |
|                                      | another mechanism, in which an example can count several times     |
| MirroredStrategy                     | ONE draw with q, cut into a part for each replica                  |
| several workers                      | `distributed_poisson_batches`: each draws from rows of its own.    |
|                                      | `poisson_batches` fails there ("unshardable source dataset"):      |
|                                      | TensorFlow would take a part of each worker's own draw, and could  |
|                                      | take an example twice                                              |

Rows of a batch are in ascending order of their index. That says nothing that the set itself does not.

What comes back knows how it was drawn (`privacy.drawn`), so that a `PrivacyBudget` need not be told again. That is a
property of the very object: what `.map(...)`, `.prefetch(...)` and the like make of it is another one, which does not
know.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from absl import logging

from adaclip_tf._internal import validate
from adaclip_tf.privacy import drawn

_RARE = 1e-3  # empty batches that an epoch may be expected to have before a word is said


def poisson_batches(
    arrays: Any,
    *,
    expected_batch_size: int,
    steps: int | None = None,
    seed: int | None = None,
    num_examples: int | None = None,
    accumulation_steps: int = 1,
) -> tf.data.Dataset:
    """Batches by true Poisson sampling, as a dataset that `model.fit` takes.

    Example:
      >>> batches = poisson_batches((x_train, y_train), expected_batch_size=600, steps=100)  # doctest: +SKIP
      >>> model.fit(batches, epochs=10)                                                      # doctest: +SKIP

    Give the optimizer the same `expected_batch_size`: the true size of a batch is private.

    Args:
      arrays: an array, or a tuple or dict of arrays (nested as `fit` wants them: `(x, y)`,
        `(x, y, sample_weight)`, `({"image": ..., "text": ...}, y)`), all of one length. An array is anything with a
        `shape` and a `dtype` that is indexed by a vector of row numbers in ascending order: numpy arrays and
        memory maps, h5py data sets. They are held, not copied. Or a function from such a vector to the
        rows, for everything else.
      expected_batch_size: q n, the mean size of a logical batch.
      steps: logical batches per iteration, so per epoch of `fit`; n / expected_batch_size, rounded up, if None.
      seed: None, the right value for training: draws from the operating system's entropy. An integer makes them
        reproducible, for tests only: the amplification that is accounted for holds against those who do not know
        who was drawn.
      num_examples: n; needed where `arrays` is a function.
      accumulation_steps: the optimizer's. Each logical batch comes in this many parts, one after another.

    Returns:
      A dataset of known cardinality, `steps` times `accumulation_steps`, and with one element spec (the batch
      dimension is None), so that training does not retrace for each size.
    """
    load, n = loader(arrays, num_examples)
    size = _batch_size(expected_batch_size, n)
    length = validate.positive_integer("steps", -(-n // size) if steps is None else steps)
    parts = validate.positive_integer("accumulation_steps", accumulation_steps)
    _warn_of_empty_batches(size / parts, length * parts)
    dataset = _dataset(load, range(n), size / n, length, parts, seed, ())
    options = tf.data.Options()
    # There are no files to share out, so this makes several workers fail: what they would do by default is not Poisson.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.FILE
    return drawn.note(dataset.with_options(options), drawn.Drawn(n, size, parts))


def _warn_of_empty_batches(expected: float, number: int) -> None:
    """TensorFlow 2.15's oneDNN convolutions give an empty batch a wrong shape, and the layer behind them fails.

    No other batch may be put in its place: the number of examples would no longer be Poisson's.
    """
    if number * math.exp(-expected) > _RARE and os.environ.get("TF_ENABLE_ONEDNN_OPTS") != "0":
        logging.log_first_n(
            logging.WARNING,
            "Poisson batches of %g examples on average are empty now and then. If the model has convolutions, set "
            "TF_ENABLE_ONEDNN_OPTS=0 before TensorFlow is imported: its oneDNN kernels fail on empty batches.",
            1,
            expected,
        )


def distributed_poisson_batches(
    strategy: tf.distribute.Strategy,
    arrays: Any,
    *,
    expected_batch_size: int,
    seed: int | None = None,
    num_examples: int | None = None,
    accumulation_steps: int = 1,
) -> tf.distribute.DistributedDataset:
    """Poisson sampling over all replicas of a strategy, on one machine or several.

    Worker i of W draws from the rows i, i + W, i + 2 W, ... alone, each with probability q, and reads no others. As
    these sets are disjoint and the draws independent, all workers' batches together are one Poisson draw from
    all rows. No worker knows whom another one drew.

    Example:
      >>> batches = distributed_poisson_batches(strategy, (x, y), expected_batch_size=600)   # doctest: +SKIP
      >>> model.fit(batches, epochs=10, steps_per_epoch=100)                                 # doctest: +SKIP

    The dataset has no end, so `fit` needs `steps_per_epoch`: the number of logical batches times
    `accumulation_steps`.

    Args:
      strategy: what the model was made under.
      arrays: as for `poisson_batches`; the same rows in the same order on every worker, of which each reads its own.
      expected_batch_size: q n, the mean size of a logical batch, all replicas together.
      seed, num_examples, accumulation_steps: as for `poisson_batches`.
    """
    load, n = loader(arrays, num_examples)
    size = _batch_size(expected_batch_size, n)
    parts = validate.positive_integer("accumulation_steps", accumulation_steps)

    def of_worker(context: tf.distribute.InputContext) -> tf.data.Dataset:
        workers, worker = context.num_input_pipelines, context.input_pipeline_id
        # Elements go to the worker's replicas by turns.
        replicas = context.num_replicas_in_sync // workers
        return _dataset(load, range(worker, n, workers), size / n, None, parts * replicas, seed, (worker,))

    batches = strategy.distribute_datasets_from_function(of_worker)
    return drawn.note(batches, drawn.Drawn(n, size, parts))


def _dataset(
    load: Callable[[np.ndarray], Any],
    rows: range,
    probability: float,
    steps: int | None,
    parts: int,
    seed: int | None,
    stream: tuple[int, ...],
) -> tf.data.Dataset:
    """Draws from `rows`, each cut into `parts` elements; without end if `steps` is None."""
    first = _map(np.asarray, load(np.array(rows[:1])))
    empty = _map(lambda row: row[:0], first)
    seed = validate.seed("seed", seed)
    iterations = itertools.count()

    def batches() -> Iterator[Any]:
        generator = _generator(seed, (*stream, next(iterations)))
        for _ in itertools.count() if steps is None else range(steps):
            chosen = draw(generator, len(rows), probability)
            for indices in np.array_split(rows.start + rows.step * chosen, parts):
                yield checked(load(indices), len(indices)) if len(indices) else empty

    spec = _map(lambda row: tf.TensorSpec([None, *row.shape[1:]], row.dtype), first)
    dataset = tf.data.Dataset.from_generator(batches, output_signature=spec).prefetch(1)
    cardinality = tf.data.INFINITE_CARDINALITY if steps is None else steps * parts
    return dataset.apply(tf.data.experimental.assert_cardinality(cardinality))


def _batch_size(expected_batch_size: int, num_examples: int) -> int:
    size = validate.positive_integer("expected_batch_size", expected_batch_size)
    if size > num_examples:
        raise ValueError(
            f"`expected_batch_size` must be at most the number of examples, {num_examples}; "
            f"got {expected_batch_size!r}."
        )
    return size


def draw(generator: np.random.Generator, num_examples: int, probability: float) -> np.ndarray:
    """Row numbers of one batch, ascending: each of `num_examples` with `probability`, independently."""
    count = generator.binomial(num_examples, probability)
    return np.sort(generator.choice(num_examples, count, replace=False, shuffle=False))


def _generator(seed: int | None, stream: tuple[int, ...]) -> np.random.Generator:
    """A stream of its own for each iteration and worker; `SeedSequence()` reads the operating system's entropy."""
    sequence = np.random.SeedSequence() if seed is None else np.random.SeedSequence(seed, spawn_key=stream)
    return np.random.Generator(np.random.Philox(sequence))


def loader(arrays: Any, num_examples: int | None) -> tuple[Callable[[np.ndarray], Any], int]:
    """A function from row numbers to rows, and how many rows there are; `arrays` as for `poisson_batches`."""
    if callable(arrays):
        if num_examples is None:
            raise ValueError("`num_examples` is needed where `arrays` is a function of row numbers.")
        n = validate.positive_integer("num_examples", num_examples)
        _check_loader(arrays, n)
        return arrays, n
    if isinstance(arrays, tf.data.Dataset):
        raise ValueError(
            "`arrays` must be arrays, whose rows can be drawn at random; got a dataset, which has no rows."
        )
    held = _map(_as_array, arrays)
    lengths = {array.shape[0] for array in _leaves(held)}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(f"`arrays` must all hold the same number of examples, 1 or more; got {sorted(lengths)}.")
    (n,) = lengths
    if num_examples not in (None, n):
        raise ValueError(f"`num_examples` must be {n}, the length of `arrays`, or None; got {num_examples!r}.")
    return lambda indices: _map(lambda array: array[indices], held), n


def _check_loader(load: Callable[[np.ndarray], Any], n: int) -> None:
    """Asks for the last row, so that a wrong `num_examples` is told now and not in the middle of training."""
    try:
        checked(load(np.array([n - 1])), 1)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"`arrays` is a function that cannot load row {n - 1}, the last of `num_examples`={n}: {error}. It gets a "
            "vector of row numbers, and returns an array, or a tuple or dict of arrays, with that many rows."
        ) from error


def _as_array(leaf: Any) -> Any:
    """`leaf` itself if it can be indexed by a vector and knows its shape; else a numpy view or array of it."""
    if isinstance(leaf, tf.Tensor) or not all(hasattr(leaf, name) for name in ("shape", "dtype", "__getitem__")):
        try:
            leaf = np.asarray(leaf)
        except ValueError as error:
            raise ValueError(
                "`arrays` must be an array, or a tuple or dict of arrays, e.g. `(x, y)`; got a list that is no array."
            ) from error
    elif hasattr(leaf, "to_numpy"):  # a pandas column is indexed by label
        leaf = leaf.to_numpy()
    if len(leaf.shape) == 0:
        raise ValueError(
            f"`arrays` must have a first dimension that runs over examples; got a scalar, dtype {leaf.dtype}."
        )
    if leaf.dtype == object:
        raise ValueError("`arrays` must hold numbers, booleans or strings; got an array of Python objects.")
    return leaf


def checked(rows: Any, count: int) -> Any:
    """The rows as numpy arrays, or an error if a loader gave another number of them than it was asked for."""
    rows = _map(np.asarray, rows)
    for leaf in _leaves(rows):
        if leaf.ndim == 0:
            raise ValueError(f"The loader was asked for {count} rows and returned no array.")
        if len(leaf) != count:
            raise ValueError(f"The loader was asked for {count} rows and returned {len(leaf)}.")
    return rows


def _map(function: Callable[[Any], Any], structure: Any) -> Any:
    """Applies `function` to the leaves of nested tuples and dicts (lists are leaves, as in tf.data)."""
    if isinstance(structure, dict):
        return {key: _map(function, value) for key, value in structure.items()}
    if isinstance(structure, tuple):
        return tuple(_map(function, value) for value in structure)
    return function(structure)


def _leaves(structure: Any) -> list[Any]:
    found: list[Any] = []
    _map(found.append, structure)
    return found
