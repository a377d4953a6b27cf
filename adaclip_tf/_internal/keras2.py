"""Every name of Keras 2 that is private, or that only Keras 2 has, and that the library reads outside its optimizers.

One function for each question, so that what another generation of Keras answers can be put beside this file.
"""

from __future__ import annotations

import sys
import types
from typing import Any, NamedTuple

import tensorflow as tf

# Keras's adapters for data that it cuts into batches itself.
_ARRAY_ADAPTERS = {"TensorLikeDataAdapter", "CompositeTensorDataAdapter", "ListsOfScalarsDataAdapter"}


# ---------------------------------------------------------------------------------------------------
# Models and layers.


def layers_of(model: Any) -> list[Any]:
    """All layers, those nested in layers too. `_flatten_layers` sees lists and dicts of layers; `layers` does not."""
    return list(model._flatten_layers(include_self=False))


def modules_in(layer: Any) -> list[Any]:
    """The modules directly in a layer. `_flatten_modules` sees those that are no layers (lookup tables), too."""
    return list(layer._flatten_modules(recursive=False, include_self=False))


def module_name(module: Any) -> str:
    """The name of a module. A plain tf.Module has no `name` before its base class's `__init__` ran, only `_name`."""
    return getattr(module, "_name", None) or type(module).__name__


def own_weights(layer: Any) -> list[Any]:
    """The weights that a layer itself has. The public `weights` adds those of the layers in it."""
    return layer._trainable_weights + layer._non_trainable_weights


def has_keras_train_step(model: Any) -> bool:
    """Whether one training step is Keras's own, so that its habits can be relied on."""
    return getattr(type(model), "train_step", None) is tf.keras.Model.train_step


def index_of(optimizer: Any, variable: Any) -> int | None:
    """The number of the variable among those that the optimizer was built for; None where it is none of them."""
    return optimizer._index_dict.get(optimizer._var_key(variable))


# ---------------------------------------------------------------------------------------------------
# A running `fit`.


class FitCall(NamedTuple):
    """What a running `fit` was given.

    Attributes:
      x: its argument.
      cut: whether Keras cuts `x` into batches; otherwise it comes in batches.
      batch_size: of the batches that are cut.
    """

    x: Any
    cut: bool = False
    batch_size: int | None = None


def running_fit(model: Any) -> FitCall | None:
    """What the `fit` of `model` that is above on the stack was given, or None where there is none.

    Keras tells its callbacks nothing of the data. It is in the local variables of `fit`: `x` and `data_handler`, whose
    `_adapter` is of a class for each kind of data.
    """
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        names = frame.f_locals
        if frame.f_code.co_name == "fit" and names.get("self") is model and "data_handler" in names:
            adapter = getattr(names["data_handler"], "_adapter", None)
            if adapter is not None and _ARRAY_ADAPTERS & {kind.__name__ for kind in type(adapter).__mro__}:
                return FitCall(names.get("x"), True, adapter.batch_size())
            return FitCall(names.get("x"))
        frame = frame.f_back
    return None


def steps_per_execution(model: Any) -> int | None:
    """Batches of one call of the train function, which Keras keeps in a variable; None where it tunes their number."""
    if getattr(model, "autotune_steps_per_execution", False):
        return None
    batches = getattr(model, "_steps_per_execution", None)
    return 1 if batches is None else int(tf.convert_to_tensor(batches))


def takes_tensors_as_logs(callback: Any) -> None:
    """Has Keras turn a batch's logs into numbers only when the callback looks at them."""
    callback._supports_tf_logs = True


# ---------------------------------------------------------------------------------------------------
# Processes.


def is_chief(model: Any) -> bool:
    """Whether this process writes files: of several workers only one does."""
    return bool(model.distribute_strategy.extended.should_checkpoint)


def has_several_workers(model: Any) -> bool:
    """Whether the training is one of several processes."""
    return bool(model.distribute_strategy.extended._in_multi_worker_mode())
