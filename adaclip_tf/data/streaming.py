"""Rows of a `tf.data.Dataset` that is too large for memory: read in passes.

A dataset has no rows that could be asked for, so who joins which batch is drawn first, as for arrays: every example
with probability q for every step, independently. Then one pass over the dataset collects the examples of as many
steps as fit into memory, an example more than once if several steps drew it. That is Poisson sampling itself, whatever
order the dataset has and however it is stored; a shuffle buffer is not, and costs more epsilon.

The price is reading: T steps of B examples on average take about T B / `EXAMPLES_IN_MEMORY` passes.

The draw is by the place of an example in the dataset, so each pass must have the same number of examples, n, each of
them once; a pass that has another number is an error. It need not have the same order: a place is then another
example's, drawn with the same probability, still independently of all others.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf._internal import validate
from adaclip_tf.data.structures import leaves, map_leaves
from adaclip_tf.privacy.formed import formed

EXAMPLES_IN_MEMORY = 50_000
_CHUNK = 1024  # examples that are read at once


class Stream:
    """Loads examples by their places in a dataset: a function of row numbers that reads those of several calls at once.

    Attributes:
      num_examples: n.
    """

    def __init__(self, dataset: tf.data.Dataset, num_examples: int | None):
        for spec in tf.nest.flatten(dataset.element_spec):
            if not isinstance(spec, tf.TensorSpec) or not spec.shape.is_fully_defined():
                raise ValueError(
                    "`arrays` must be a dataset of single examples, dense and all of one shape (call `unbatch()` on "
                    f"one of batches, pad sequences to one length); got elements of {spec}."
                )
        cut = formed(dataset)
        if cut is not None and not cut.mapped:
            raise ValueError(
                f"`arrays` must be a dataset of single examples; got batches of {cut.batch_size}, which would be "
                "drawn, clipped and counted as one example each. Give it before `batch`, or call `unbatch()`."
            )
        known = int(dataset.cardinality())
        if num_examples is None and known < 0:
            raise ValueError(
                "`num_examples` is needed where `arrays` is a dataset that does not know how many examples it has. It "
                "must be the number of examples in one pass (no `repeat()`)."
            )
        self.num_examples = validate.positive_integer("num_examples", known if num_examples is None else num_examples)
        if known not in (tf.data.UNKNOWN_CARDINALITY, self.num_examples):
            raise ValueError(
                f"`num_examples` must be the {known} examples of one pass over the dataset (no `repeat()`); got "
                f"{num_examples!r}."
            )
        self._chunks = dataset.batch(_CHUNK).prefetch(1)
        self._structure = dataset.element_spec

    def steps_together(self, batch_size: float) -> int:
        """How many batches of that size are read in one pass."""
        return max(1, int(EXAMPLES_IN_MEMORY // max(batch_size, 1)))

    def __call__(self, indices: np.ndarray) -> Any:
        (rows,) = self.many([indices])
        return rows

    def many(self, batches: Sequence[np.ndarray]) -> Iterator[Any]:
        """The rows of each of several vectors of row numbers in ascending order, in one pass."""
        found: list[list[Any]] = [[] for _ in batches]
        start = 0
        for chunk in self._chunks.as_numpy_iterator():
            size = len(leaves(chunk)[0])
            for rows, indices in zip(found, batches):
                here = indices[(indices >= start) & (indices < start + size)] - start
                if len(here):
                    rows.append(map_leaves(operator.itemgetter(here), chunk))
            start += size
            if start > self.num_examples:
                break
        if start != self.num_examples:
            more = "more than" if start > self.num_examples else f"{start} of"
            raise ValueError(
                f"The dataset has {more} the {self.num_examples} examples that `num_examples` says. Batches would not "
                "be drawn as epsilon is counted: give the number of examples of one pass."
            )
        for index in range(len(found)):
            yield _joined(found[index], self._structure)
            found[index] = []  # one batch less in memory


def _joined(parts: list[Any], structure: Any) -> Any:
    columns = zip(*(leaves(part) for part in parts)) if parts else ([_nobody(spec)] for spec in leaves(structure))
    joined = iter([np.concatenate(list(column)) for column in columns])
    return map_leaves(lambda _: next(joined), structure)


def _nobody(spec: tf.TensorSpec) -> np.ndarray:
    return np.zeros([0, *spec.shape], spec.dtype.as_numpy_dtype)
