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
| data larger than memory              | only the rows that were drawn are read; of a `tf.data.Dataset`,    |
|                                      | which has no rows, all, in a pass for as many steps as fit         |
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

from adaclip_tf._internal import signatures, validate
from adaclip_tf.data.rows import checked, loader, spec_of
from adaclip_tf.data.streaming import Stream
from adaclip_tf.data.structures import map_leaves
from adaclip_tf.privacy import drawn

_RARE = 1e-3  # empty batches that an epoch may be expected to have before a word is said


@signatures.other_names(batch_size="use `expected_batch_size`", epochs="give them to `fit`")
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
        memory maps (`np.load(path, mmap_mode="r")`), h5py data sets. They are held, not copied. pandas: a DataFrame
        of numbers, a Series, `dict(frame)` for an input per column; object arrays of strings. Or a data source on
        disk (`__len__` and `__getitem__`), a function from a vector of row numbers to the rows, or a
        `tf.data.Dataset` of single examples that is too large for memory, which is read in passes
        (`adaclip_tf.data.streaming`).
      expected_batch_size: q n, the mean size of a logical batch.
      steps: logical batches per iteration, so per epoch of `fit`; n / expected_batch_size, rounded up, if None.
      seed: None, the right value for training: draws from the operating system's entropy. An integer makes them
        reproducible, for tests only: the amplification that is accounted for holds against those who do not know
        which examples were drawn.
      num_examples: n; needed where `arrays` is a function, or a dataset that does not know its length.
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
    these sets are disjoint and the draws are independent, all workers' batches together are one Poisson draw from
    all rows. No worker knows which rows another one drew.

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
    first = map_leaves(np.asarray, load(np.array(rows[:1])))
    empty = map_leaves(lambda row: row[:0], first)
    together = load.steps_together(probability * len(rows)) if isinstance(load, Stream) else 1
    seed = validate.seed("seed", seed)
    iterations = itertools.count()

    def batches() -> Iterator[Any]:
        generator = _generator(seed, (*stream, next(iterations)))
        for start in itertools.count(0, together) if steps is None else range(0, steps, together):
            drawn_now: list[np.ndarray] = []
            for _ in range(together if steps is None else min(together, steps - start)):
                chosen = draw(generator, len(rows), probability)
                drawn_now += np.array_split(rows.start + rows.step * chosen, parts)
            loaded = load.many(drawn_now) if isinstance(load, Stream) else map(load_some, drawn_now)
            for indices, found in zip(drawn_now, loaded):
                yield checked(found, len(indices)) if len(indices) else empty

    def load_some(indices: np.ndarray) -> Any:
        return load(indices) if len(indices) else empty

    dataset = tf.data.Dataset.from_generator(batches, output_signature=spec_of(first)).prefetch(1)
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
