"""Data whose targets are in deviations from their private mean (`scale_targets`), and back.

Everything in here is arithmetic with a mean and a deviation that are private already (`data.targets`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dp_accounting
import numpy as np
import tensorflow as tf

from adaclip_tf.data import sampling
from adaclip_tf.data.targets import PrivateTargetScaling
from adaclip_tf.privacy import events
from adaclip_tf.scales.private_scales import PrivateScales

Load = Callable[[np.ndarray], Any]


def columns(example: Any, losses: list[str]) -> int:
    """How many targets an example has; refuses what is no regression."""
    classes = [
        name for name in losses if any(word in name.lower() for word in ("crossentropy", "cross_entropy", "hinge"))
    ]
    if classes:
        raise ValueError(
            f"`scale_targets` is for regression, and the loss {classes[0]!r} is for classes: leave it out."
        )
    y = example[1]
    if not isinstance(y, tf.Tensor) or y.shape.rank not in (1, 2) or not (y.dtype.is_floating or y.dtype.is_integer):
        raise ValueError(
            "`scale_targets` needs targets in one array of numbers, of shape [examples] or [examples, columns]. Scale "
            "others by numbers that you know without the data."
        )
    return 1 if y.shape.rank == 1 else int(y.shape[1])


def targets(load: Load, num_examples: int, slice_size: int) -> np.ndarray:
    """Those of all examples, each once. Private: for `PrivateTargetScaling.fit` alone."""
    found = []
    for start in range(0, num_examples, slice_size):
        stop = min(start + slice_size, num_examples)
        found.append(sampling.checked(load(np.arange(start, stop)), stop - start)[1])
    return np.concatenate(found)


def scaled(data: Any, scaling: PrivateTargetScaling | None) -> Any:
    """`data` as for `poisson_batches`, or for `fit`, with its targets scaled."""
    if scaling is None:
        return data

    def row(x: Any, y: Any, *weights: Any) -> Any:
        return (x, scaling.transform(y), *weights)

    if isinstance(data, tf.data.Dataset):
        mean, std = _numbers(scaling)

        def element(x: Any, y: Any, *weights: Any) -> Any:
            return (x, tf.cast((tf.cast(y, tf.float64) - mean) / std, tf.float32), *weights)

        return data.map(element)
    if isinstance(data, (tuple, list)):
        return row(*data)
    if callable(data):
        return lambda rows: row(*data(rows))
    return _Source(data, row)


class _Source:
    """A data source on disk: single examples by their numbers."""

    def __init__(self, source: Any, row: Callable[..., Any]):
        self._source, self._row = source, row

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> Any:
        return self._row(*self._source[index])


def predictor(model: Any, scaling: PrivateTargetScaling, spec: Any) -> Any:
    """`model` with a fixed layer on top that gives targets in their own units. Shares the model's weights.

    Args:
      spec: of the model's inputs, as `element_spec` has it.
    """
    mean, std = _numbers(scaling)
    units = tf.keras.layers.Rescaling(std, offset=mean, dtype="float32")
    if getattr(model, "inputs", None):
        return tf.keras.Model(model.inputs, units(model.outputs[0]))
    both = tf.keras.Sequential([model, units])
    both(tf.nest.map_structure(lambda part: tf.zeros([1, *part.shape[1:]], part.dtype), spec))  # builds it
    return both


def _numbers(scaling: PrivateTargetScaling) -> tuple[Any, Any]:
    """Mean and deviation: a number each for one column, else lists."""
    mean, std = (value.tolist() for value in scaling.parameters)
    return (mean[0], std[0]) if len(mean) == 1 else (mean, std)


def asked_event(scales: PrivateScales, scaling: PrivateTargetScaling | None) -> dp_accounting.DpEvent:
    """The event of all that was asked before training."""
    return events.composed([each.event for each in (scaling, scales) if each is not None])
