"""Examples that are easy to find in a sum of gradients: the canaries.

Candidates are made first: rows of the data with another row's label, and the same with features ten times as large;
or, without data, random numbers in the shapes that the model takes. Then those are chosen whose clipped gradients are
long and point into directions of their own, at the weights that training starts from. The attacker may choose as he
likes: none of this looks at anything that the training releases.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf.data.structures import leaves, map_leaves

FAR_OUT = 10.0  # factor
CANDIDATES = 4  # for each canary


def from_rows(load: Any, num_rows: int, number: int, generator: np.random.Generator) -> Any:
    """`number` candidates from rows of data `(x, y)` or `(x, y, sample_weight)`: other labels, far-out features."""
    features = _some(load, num_rows, number, generator)
    labels = _some(load, num_rows, number, generator)
    far = np.arange(number) % 2 == 1

    def enlarge(leaf):
        leaf = np.asarray(leaf)
        if not np.issubdtype(leaf.dtype, np.floating):
            return leaf
        return np.where(far.reshape([-1] + [1] * (leaf.ndim - 1)), FAR_OUT * leaf, leaf).astype(leaf.dtype)

    made = map_leaves(enlarge, features[0]), map_leaves(np.asarray, labels[1])
    if len(features) == 2:
        return made
    return *made, map_leaves(lambda leaf: np.ones_like(np.asarray(leaf)), features[2])


def _some(load, num_rows, number, generator):
    """Rows that were drawn at random, in an order of their own; `load` wants ascending numbers, each once."""
    wanted = generator.integers(0, num_rows, number)
    rows, places = np.unique(wanted, return_inverse=True)
    return map_leaves(lambda leaf: np.asarray(leaf)[places], load(rows))


def from_model(model: Any, number: int, generator: np.random.Generator) -> Any:
    """`number` candidates of random numbers, in the shapes that the model and its loss take."""
    inputs = [_random_input(tensor, number, generator) for tensor in tf.nest.flatten(model.inputs or ())]
    if not inputs:
        raise ValueError(
            f"`data` is a number of examples, and {type(model).__name__} does not say what it takes. Give rows "
            "`(x, y)` of that shape, made up or public, and `num_examples`."
        )
    outputs = tf.nest.flatten(model.outputs)
    if len(outputs) != 1 or not (isinstance(model.loss, str) or callable(model.loss)):
        raise ValueError(
            "`data` is a number of examples, and labels can be made up for models of one output and one loss only. "
            "Give rows `(x, y)`, made up or public, and `num_examples`."
        )
    x = inputs[0] if len(inputs) == 1 else tuple(inputs)
    return x, _random_labels(model, outputs[0], number, generator)


def _random_input(tensor, number, generator):
    name = tensor.name.split(":")[0]
    if not tf.as_dtype(tensor.dtype).is_floating:
        raise ValueError(
            f"`data` is a number of examples, and the input {name!r} is {tf.as_dtype(tensor.dtype).name}: which values "
            "it may have is not known. Give rows `(x, y)`, made up or public, and `num_examples`."
        )
    shape = [size if size is not None else 8 for size in tensor.shape[1:]]
    values = generator.normal(size=[number, *shape])
    values[1::2] *= FAR_OUT
    return values.astype(tf.as_dtype(tensor.dtype).as_numpy_dtype)


def _random_labels(model, output, number, generator):
    loss = model.loss if isinstance(model.loss, str) else getattr(model.loss, "name", "") or model.loss.__name__
    loss = loss.lower()
    shape = [number, *[size if size is not None else 8 for size in output.shape[1:]]]
    if "sparse" in loss:
        return generator.integers(0, shape[-1], shape[:-1])
    if "categorical" in loss:
        return np.eye(shape[-1], dtype=np.float32)[generator.integers(0, shape[-1], shape[:-1])]
    if "binary" in loss or "hinge" in loss:
        return generator.integers(0, 2, shape).astype(np.float32)
    return (FAR_OUT * generator.normal(size=shape)).astype(np.float32)


def choose(gram: np.ndarray, number: int) -> np.ndarray:
    """The `number` rows whose gradients have the longest parts that those before do not span: a pivoted Cholesky."""
    residual = np.nan_to_num(np.array(np.diag(gram), np.float64))
    factor = np.zeros((len(gram), number))
    chosen: list[int] = []
    for step in range(number):
        left = residual.copy()
        left[chosen] = -1.0
        best = int(np.argmax(left))
        chosen.append(best)
        if residual[best] > 1e-6:  # else nothing new is left to be spanned
            column = (np.nan_to_num(gram[best]) - factor @ factor[best]) / np.sqrt(residual[best])
            factor[:, step] = column
            residual = np.maximum(residual - column**2, 0.0)
    return np.array(chosen)


def take(candidates: Any, chosen: np.ndarray) -> Any:
    """Those rows."""
    return map_leaves(lambda leaf: leaf[chosen], candidates)


def number_of(structure: Any) -> int:
    """How many rows there are."""
    return len(leaves(structure)[0])
