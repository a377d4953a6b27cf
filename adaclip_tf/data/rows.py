"""Rows by their numbers, from data as people have it: what `poisson_batches` draws from.

| data                                        | rows                                                               |
|---------------------------------------------|--------------------------------------------------------------------|
| arrays, memory maps, h5py data sets         | held, not copied; only the rows that are asked for are read         |
| a pandas DataFrame, all columns of numbers  | one array, a row of it for each row of the frame                    |
| a Series, `dict(frame)`                     | an array for each column; text becomes strings                     |
| an object array of strings                  | strings; it must hold nothing else, and no missing values           |
| an object with `__len__` and `__getitem__`  | (a data source on disk) the records, stacked                       |
| a function of row numbers                   | what it returns; `num_examples` says how many rows there are        |
| a `tf.data.Dataset` of single examples      | passes over it, see `streaming`; `num_examples` if it does not say  |

pandas is not needed: whatever has `to_numpy` is asked for it. Row numbers are positions, not labels of an index.
"""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import tensorflow as tf

from adaclip_tf._internal import validate
from adaclip_tf.data.streaming import Stream
from adaclip_tf.data.structures import leaves, map_leaves

Load = Callable[[np.ndarray], Any]


def loader(data: Any, num_examples: int | None) -> tuple[Load, int]:
    """A function from row numbers to rows, and how many rows there are; `data` as for `poisson_batches`."""
    if _hands_out_batches(data):
        raise ValueError(
            f"`arrays` is a {type(data).__name__}, a Keras `Sequence` or `PyDataset`, whose items are batches: they "
            "would be drawn, clipped and counted as single examples. Give an object whose items are examples, or a "
            "function from row numbers to rows."
        )
    if isinstance(data, tf.data.Dataset):
        stream = Stream(data, num_examples)
        return stream, stream.num_examples
    if callable(data):
        if num_examples is None:
            raise ValueError("`num_examples` is needed where `arrays` is a function of row numbers.")
        n = validate.positive_integer("num_examples", num_examples)
        _check_loader(data, n)
        return data, n
    if _is_source(data):
        load, n = _of_source(data), len(data)
    else:
        held = map_leaves(_as_array, data)
        lengths = {array.shape[0] for array in leaves(held)}
        if len(lengths) != 1 or 0 in lengths:
            raise ValueError(f"`arrays` must all hold the same number of examples, 1 or more; got {sorted(lengths)}.")
        (n,) = lengths

        def load(indices):
            return map_leaves(lambda array: array[indices], held)

    if num_examples is not None and validate.positive_integer("num_examples", num_examples) != n:
        raise ValueError(f"`num_examples` must be {n}, the length of `arrays`, or None; got {num_examples!r}.")
    return load, n


def _hands_out_batches(data: Any) -> bool:
    """Whether it is one of Keras's own, whose items are batches."""
    kinds = type(data).__mro__
    return any(
        kind.__name__ in ("Sequence", "PyDataset") and kind.__module__.startswith(("keras.", "tf_keras."))
        for kind in kinds
    )


def checked(rows: Any, count: int) -> Any:
    """The rows as numpy arrays, or an error if a loader gave another number of them than it was asked for."""
    rows = map_leaves(np.asarray, rows)
    for leaf in leaves(rows):
        if leaf.ndim == 0:
            raise ValueError(f"The loader was asked for {count} rows and returned no array.")
        if len(leaf) != count:
            raise ValueError(f"The loader was asked for {count} rows and returned {len(leaf)}.")
    return rows


def spec_of(rows: Any) -> Any:
    """What `tf.data` is told of batches of such rows."""
    return map_leaves(lambda leaf: tf.TensorSpec([None, *leaf.shape[1:]], _dtype_of(leaf)), rows)


def _dtype_of(array: np.ndarray) -> Any:
    return tf.string if array.dtype == object else array.dtype


def _check_loader(load: Load, n: int) -> None:
    """Asks for the last row, so that a wrong `num_examples` is told now and not in the middle of training."""
    try:
        checked(load(np.array([n - 1])), 1)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"`arrays` is a function that cannot load row {n - 1}, the last of `num_examples`={n}: {error}. It gets a "
            "vector of row numbers, and returns an array, or a tuple or dict of arrays, with that many rows."
        ) from error


def _is_source(data: Any) -> bool:
    """Whether single records are asked for by their numbers, as of a data source on disk."""
    if isinstance(data, (list, tuple, dict, str, bytes)) or hasattr(data, "shape") or hasattr(data, "to_numpy"):
        return False
    return hasattr(data, "__len__") and hasattr(data, "__getitem__")


def _of_source(source: Any) -> Load:
    def load(indices):
        records = [source[int(index)] for index in indices]
        flat = [leaves(record) for record in records]
        stacked = iter([np.stack([np.asarray(value) for value in values]) for values in zip(*flat)])
        return map_leaves(lambda _: next(stacked), records[0])

    return load


def _as_array(leaf: Any) -> Any:
    """`leaf` itself if it can be indexed by a vector and knows its shape; else a numpy view or array of it."""
    frame = _is_frame(leaf)
    if hasattr(leaf, "to_numpy"):  # a pandas column is indexed by label
        leaf = leaf.to_numpy()
    if isinstance(leaf, tf.Tensor) or not all(hasattr(leaf, name) for name in ("shape", "dtype", "__getitem__")):
        try:
            leaf = np.asarray(leaf)
        except ValueError as error:
            raise ValueError(
                "`arrays` must be an array, or a tuple or dict of arrays, e.g. `(x, y)`; got a list that is not one "
                "array. Several inputs are a tuple or a dict, not a list: `((a, b), y)`. Sequences need one length."
            ) from error
    if len(leaf.shape) == 0:
        raise ValueError(
            "`arrays` must hold arrays whose first dimension runs over examples; got a scalar, such as None, "
            f"dtype {leaf.dtype}."
        )
    kind = getattr(leaf.dtype, "kind", None)
    if kind == "O" or kind == "T":
        return _words(leaf, frame)
    if kind in ("M", "m"):
        raise ValueError(
            f"`arrays` must hold numbers, booleans or strings; got times, dtype {leaf.dtype}. Make numbers of them, "
            'e.g. `column.to_numpy().astype("datetime64[s]").astype("int64")`.'
        )
    return leaf


def _is_frame(leaf: Any) -> bool:
    """Whether it is a table with named columns."""
    return hasattr(leaf, "to_numpy") and hasattr(leaf, "columns")


def _words(array: Any, frame: bool) -> np.ndarray:
    """An object array that holds strings and nothing else."""
    array = np.asarray(array, object)
    wrong = next((type(value).__name__ for value in array.ravel() if not isinstance(value, (str, bytes))), None)
    if wrong is None:
        return array
    if frame:
        raise ValueError(
            "`arrays` must hold numbers, booleans or strings; got a DataFrame whose columns are not all of numbers. "
            "Use `dict(frame)`, an input for each column, or choose the columns of numbers."
        )
    raise ValueError(
        "`arrays` must hold numbers, booleans or strings; got an array of Python objects, among them "
        f"{wrong!r}. Missing values need one that says so, e.g. `column.fillna('')`; numbers a dtype of "
        "their own, e.g. `column.astype('float32')`."
    )
