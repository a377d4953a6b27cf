"""Which variables are those of Keras metrics, and which models are at work. Nothing in a graph says so."""

from __future__ import annotations

import gc
import itertools
import sys
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

from adaclip_tf._internal import keras


class Handles:
    """The handles of a variable's copies, by their ids, which nothing else can have as long as these are there."""

    def __init__(self, variable: Any):
        self.ids = {id(handle): handle for handle in _handles(variable)}


def _handles(variable: Any) -> list[Any]:
    parts = getattr(variable, "values", None) or [variable]
    # A layer's may have none: before it is made, or where it is a shard.
    return [part.handle for part in parts if hasattr(part, "handle")]


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


class Known:
    """The handles of Keras metrics' own variables, as far as they were looked for.

    A metric tracks what it is handed, too: a variable of a layer, to show it. That is the layer's: it is in the model's
    weights and in saved files. So what a layer, an optimizer or a module holds is no metric's.
    """

    def __init__(self) -> None:
        self._found: dict[int, Any] = {}
        self._holders: list[Any] = []  # weak: a step must not keep all models alive
        self.has_looked = False
        self.unknown_seeds: dict[int, Any] = {}  # handles of seeds' states that Keras drew: nobody knows their start

    def __contains__(self, handle: Any) -> bool:
        return handle in self._found

    def look_at_running_models(self) -> None:
        """Finds those of metrics that Keras made while it traced a step: at once."""
        layers = [layer for model in running_models() for layer in (model, *keras.layers_of(model))]
        self._add(of_running_models(), itertools.chain(layers, self._alive()))

    def look_everywhere(self) -> None:
        found = all_there_are()
        self._holders = [weakref.ref(part) for part in found if not _is_metric(part)]
        self.has_looked = True
        self._add(filter(_is_metric, found), self._alive())
        for state in filter(None.__ne__, map(keras.unknown_seed, self._alive())):
            self.unknown_seeds |= Handles(keras.native(state)).ids

    def _alive(self) -> Iterator[Any]:
        parts = (part() for part in self._holders)
        return (part for part in parts if part is not None)

    def _add(self, metrics: Iterable[Any], holders: Iterable[Any]) -> None:
        found = {number: handle for number, handle in handles_of(metrics).items() if number not in self._found}
        for part in holders if found else ():
            for variable in keras.held_by(part):
                for number in Handles(keras.native(variable)).ids:
                    found.pop(number, None)
        self._found |= found


def _is_metric(part: Any) -> bool:
    return issubclass(type(part), tf.keras.metrics.Metric)


def all_there_are() -> list[Any]:
    """All Keras metrics that there are, and all else that holds variables."""
    candidates = gc.get_objects()  # half a million: no line of Python for each
    # By their types, and not by `isinstance`, which would wake up proxies and lazy modules.
    return list(itertools.compress(candidates, map(_HoldVariables().__getitem__, map(type, candidates))))


class _HoldVariables(dict):
    """Whether instances of a type hold variables; asked once for each, since an abstract class answers slowly."""

    def __missing__(self, kind: type) -> bool:
        self[kind] = issubclass(kind, (tf.keras.metrics.Metric, *keras.HOLDERS))
        return self[kind]
