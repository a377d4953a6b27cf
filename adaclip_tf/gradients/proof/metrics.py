"""Which variables are those of Keras metrics, and which models are at work. Nothing in a graph says so."""

from __future__ import annotations

import gc
import itertools
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from adaclip_tf._internal import keras


class Handles:
    """The handles of a variable's copies, by their ids, which nothing else can have as long as these are there."""

    def __init__(self, variable: Any):
        self.ids = {id(handle): handle for handle in _handles(variable)}


def _handles(variable: Any) -> list[Any]:
    return [part.handle for part in getattr(variable, "values", None) or [variable]]


def handles_of(metrics: Iterable[Any]) -> dict[int, Any]:
    """The handles of the metrics' variables, by their ids. Nothing in a graph tells them apart from a layer's.

    With the handles themselves: a metric of a model that is gone may be found as well, and once it is collected,
    another variable, such as one of an optimizer that the step makes, could have the id of its handle.
    """
    found: dict[int, Any] = {}
    # A loop and no `union(*...)`: `gc.get_objects` would hold on to the tuple of arguments while it is being made.
    for metric in metrics:
        for variable in getattr(metric, "variables", ()):
            found |= Handles(keras.native(variable)).ids
    return found


def in_a_metric() -> bool:
    """Whether a method of a Keras metric is being run."""
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        candidates = [frame.f_locals.get(name) for name in ("self", "metric_obj")]
        if any(issubclass(type(candidate), tf.keras.metrics.Metric) for candidate in candidates):
            return True
        frame = frame.f_back
    return False


def of_running_models() -> Iterator[Any]:
    """The metrics of those: found at once."""
    for model in running_models():
        yield from (metric for metric in model.metrics if issubclass(type(metric), tf.keras.metrics.Metric))


def running_models() -> Iterator[Any]:
    """The models whose methods are being run, as in `fit`."""
    frame: types.FrameType | None = sys._getframe()
    seen: set[int] = set()
    while frame is not None:
        model: Any = frame.f_locals.get("self")
        if id(model) not in seen and issubclass(type(model), tf.keras.Model):
            seen.add(id(model))
            yield model
        frame = frame.f_back


def all_there_are() -> Iterator[Any]:
    """All Keras metrics that there are."""
    candidates = gc.get_objects()  # half a million: no line of Python for each
    # By their types, and not by `isinstance`, which would wake up proxies and lazy modules.
    return itertools.compress(candidates, map(_AreMetrics().__getitem__, map(type, candidates)))


class _AreMetrics(dict):
    """Whether instances of a type are Keras metrics; asked once for each, since an abstract class answers slowly."""

    def __missing__(self, kind: type) -> bool:
        self[kind] = issubclass(kind, tf.keras.metrics.Metric)
        return self[kind]
