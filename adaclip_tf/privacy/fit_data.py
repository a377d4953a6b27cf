"""What the running `fit` was given: arrays, a dataset, batches of a fixed size.

Keras tells its callbacks nothing of the data. It is in the local variables of `fit`, which is above a callback on the
stack; so that is where this looks. Whatever is not found is not known, and nobody is refused for it.
"""

from __future__ import annotations

import sys
import types
from typing import Any, NamedTuple

import tensorflow as tf

from adaclip_tf.data import sampling

_ARRAYS = {"TensorLikeDataAdapter", "CompositeTensorDataAdapter", "ListsOfScalarsDataAdapter"}


class Given(NamedTuple):
    """None where it could not be seen."""

    arrays: bool = False  # so shuffled batches, or batches in order
    rows: int | None = None
    batch_size: int | None = None
    drawn: sampling.Drawn | None = None


def given_to_fit(model: Any) -> Given:
    """What the `fit` of `model` that called this was given."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        names = frame.f_locals
        if frame.f_code.co_name == "fit" and names.get("self") is model and "data_handler" in names:
            return _given(model, names.get("x"), getattr(names["data_handler"], "_adapter", None))
        frame = frame.f_back
    return Given()


def _given(model: Any, x: Any, adapter: Any) -> Given:
    if _ARRAYS & {kind.__name__ for kind in type(adapter).__mro__}:
        shapes = [getattr(leaf, "shape", (None,)) for leaf in tf.nest.flatten(x)]
        rows = shapes[0][0] if shapes and len(shapes[0]) else None
        return Given(True, rows, adapter.batch_size())
    # A train step of one's own may take elements that are no batches.
    ordinary = getattr(type(model), "train_step", None) is tf.keras.Model.train_step
    static = _static_size(x) if ordinary and isinstance(x, tf.data.Dataset) else None
    return Given(False, None, static, sampling.drawn_of(x))


def _static_size(dataset: tf.data.Dataset) -> int | None:
    """The first dimension of a batch, if all its parts have the same one and it is known beforehand."""
    shapes = [getattr(spec, "shape", None) for spec in tf.nest.flatten(dataset.element_spec)]
    sizes = {shape[0] if shape is not None and shape.rank else None for shape in shapes}
    return sizes.pop() if len(sizes) == 1 else None
