"""What both generations of Keras answer alike. `keras2` and `keras3` have the rest."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable
from typing import Any, NamedTuple

import tensorflow as tf


class FitCall(NamedTuple):
    """What a running `fit` was given.

    Attributes:
      x: its argument.
      cut: whether Keras cuts `x` into batches; otherwise it comes in batches.
      batch_size: of the batches that are cut.
      callbacks: all of them, Keras's own too.
    """

    x: Any
    cut: bool = False
    batch_size: int | None = None
    callbacks: tuple[Any, ...] = ()


def is_called_in(graph: Any, name: str) -> bool:
    """Whether `graph` is that of Keras's own function of this name, which is being run.

    By any thread: replicas of a `MirroredStrategy` have threads of their own, while the one that runs Keras waits.
    """
    if getattr(graph, "name", None) != name:
        return False
    return any(_runs(thread, name) for thread in sys._current_frames().values())


def _runs(frame: types.FrameType | None, name: str) -> bool:
    names = (name, f"tf__{name}")  # the latter as AutoGraph has written it anew
    while frame is not None:
        if frame.f_code.co_name in names and frame.f_globals.get("__name__", "").startswith(("keras.", "tf_keras.")):
            return True
        frame = frame.f_back
    return False


def layers_of(model: Any) -> list[Any]:
    """All layers, those nested in layers too. `_flatten_layers` sees lists and dicts of layers; `layers` does not."""
    # An operation on arrays, such as x + 1 in a functional model of Keras 3, stands where a layer could and holds none.
    return list(model._flatten_layers(include_self=False)) if hasattr(model, "_flatten_layers") else []


def variables_in(values: Iterable[Any]) -> list[Any]:
    """The variables among `values`, and in lists and dictionaries of these."""
    found, pending, seen = [], list(values), set()
    while pending:
        value = pending.pop()
        if isinstance(value, (list, tuple, dict)):
            if id(value) not in seen:
                seen.add(id(value))
                pending.extend(value.values() if isinstance(value, dict) else value)
        elif isinstance(value, tf.Variable) or hasattr(type(value), "assign"):  # the latter of Keras 3
            found.append(value)
    return found


def is_functional(model: Any) -> bool:
    """Whether it is a model that Keras can copy: functional or sequential, without a `call` of its own."""
    names = {kind.__name__ for kind in type(model).__mro__ if kind.__module__.startswith("keras.")}
    own_call = "call" in vars(type(model)) and not type(model).__module__.startswith("keras.")
    return bool(names & {"Functional", "Sequential"}) and not own_call


def strategy_of(optimizer: Any) -> tf.distribute.Strategy:
    """The one under which an optimizer of Keras was made."""
    return optimizer._distribution_strategy


def decay_on_all_replicas(optimizer: Any, variables: Iterable[tf.Variable]) -> None:
    """Weight decay in cross-replica context, which Keras's own expects to be called outside of."""

    def shrink(variable: Any) -> None:
        rate, decay = (tf.cast(value, variable.dtype) for value in (optimizer.learning_rate, optimizer.weight_decay))
        variable.assign_sub(variable * decay * rate)

    for variable in variables:
        optimizer.strategy.extended.update(variable, shrink, group=False)


def is_chief(model: Any) -> bool:
    """Whether this process writes files: of several workers only one does."""
    return bool(model.distribute_strategy.extended.should_checkpoint)


def has_several_workers(model: Any) -> bool:
    """Whether the training is one of several processes."""
    return bool(model.distribute_strategy.extended._in_multi_worker_mode())


def made_of(dataset: Any) -> list[Any]:
    """The datasets that a `tf.data.Dataset`, an iterator over one, or one that a strategy hands out, was made of."""
    if isinstance(dataset, tf.data.Dataset):
        return dataset._inputs()
    within = getattr(
        dataset, "_original_dataset" if isinstance(dataset, tf.distribute.DistributedDataset) else "_dataset", None
    )
    return [within] if isinstance(within, tf.data.Dataset) else []


def size_of_batches(batched: Any) -> int | None:
    """How many elements `dataset.batch` puts into a batch, if the dataset that it made tells."""
    size = tf.get_static_value(batched._batch_size)
    return None if size is None else int(size)


def repeats_once(repeated: Any) -> bool:
    """Whether `dataset.repeat` has made a dataset that is handed out just once."""
    return tf.get_static_value(repeated._count) == 1


def mapped_graph(mapped: Any) -> Any:
    """The graph of the function that `dataset.map` was given; None for other datasets."""
    return _graph_of(mapped, "_map_func")


def predicate_graph(chosen: Any) -> Any:
    """The graph of the function that `dataset.filter` or `take_while` was given; None for other datasets."""
    return _graph_of(chosen, "_predicate")


def _graph_of(dataset: Any, name: str) -> Any:
    function = getattr(getattr(dataset, name, None), "function", None)
    return None if function is None else function.graph
