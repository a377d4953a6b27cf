"""Every name of Keras 3 that is private, or that only Keras 3 has. `keras2` answers the same for Keras 2."""

from __future__ import annotations

import inspect
import sys
import types
from typing import Any

import keras
import tensorflow as tf

from adaclip_tf._internal import keras3_workers, versions
from adaclip_tf._internal.keras_both import FitCall, decay_on_all_replicas, is_called_in, variables_in

if keras.config.backend() != "tensorflow":  # by a configuration file: `versions` has looked at the environment
    raise ImportError(versions.other_backend(keras.config.backend()))

# Keras's adapter for data that it cuts into batches itself.
_ARRAY_ADAPTER = "ArrayDataAdapter"


# ---------------------------------------------------------------------------------------------------
# Models and layers.

saving = keras.saving
BatchNormalization = keras.layers.BatchNormalization
LossScaleOptimizer = keras.optimizers.LossScaleOptimizer
# Layers whose state was computed from data before training, by `adapt`.
Preprocessing = tuple(
    kind for kind in vars(keras.layers).values() if isinstance(kind, type) and callable(getattr(kind, "adapt", None))
)


def modules_in(layer: Any) -> list[Any]:
    """The modules directly in a layer: its layers, and the lookup tables of preprocessing layers."""
    tables = [part for part in vars(layer).values() if isinstance(part, tf.Module) and not is_layer(part)]
    return [*layer._flatten_layers(include_self=False, recursive=False), *tables]


def is_layer(part: Any) -> bool:
    return isinstance(part, keras.layers.Layer)


def module_name(module: Any) -> str:
    """The name of a module. A plain tf.Module has no `name` before its base class's `__init__` ran, only `_name`."""
    return getattr(module, "name", None) or getattr(module, "_name", None) or type(module).__name__


def clone(model: Any, clone_function: Any) -> Any:
    """A copy of a functional or sequential model, each layer by `clone_function`."""

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("mask", 0) is None and "mask" not in inspect.signature(layer.call).parameters:
            kwargs.pop("mask")  # the layer that this one takes the place of had one
        return layer(*args, **kwargs)

    options = {} if isinstance(model, keras.Sequential) else {"call_function": call}
    return keras.models.clone_model(model, clone_function=clone_function, **options)


def own_weights(layer: Any) -> list[Any]:
    """The weights that a layer itself has. The public `weights` adds those of the layers in it."""
    return [*layer._trainable_variables, *layer._non_trainable_variables]


HOLDERS = (keras.layers.Layer, keras.optimizers.Optimizer, keras.random.SeedGenerator, tf.Module)  # of variables


def held_by(part: Any) -> list[Any]:
    """The variables that a layer, an optimizer or a module has by itself, and not by a layer or a metric in it."""
    if is_layer(part):
        return [*getattr(part, "_trainable_variables", ()), *getattr(part, "_non_trainable_variables", ())]
    return variables_in(getattr(part, "__dict__", {}).values())


def unknown_seed(part: Any) -> Any:
    """The state of a seed of which nobody knows where it starts, since Keras drew it itself; None for anything else."""
    is_drawn = isinstance(part, keras.random.SeedGenerator) and getattr(part, "_initial_seed", None) is None
    return getattr(part, "state", None) if is_drawn else None


def has_keras_train_step(model: Any) -> bool:
    """Whether one training step is Keras's own, so that its habits can be relied on."""
    return getattr(type(model), "train_step", None) is keras.Model.train_step


def _is_of_keras(variable: Any) -> bool:
    """Whether it is one of Keras's own variables; what `keras.Variable` is has changed."""
    return hasattr(variable, "_value") and hasattr(variable, "path")


def native(variable: Any) -> Any:
    """The TensorFlow variable in one of Keras. `value` would cast it under a policy of mixed precision."""
    return variable._value if _is_of_keras(variable) else variable


def path_of(variable: Any) -> str:
    """The variable's name with those of the layers around it."""
    return variable.path if _is_of_keras(variable) else variable.name.split(":")[0]


# ---------------------------------------------------------------------------------------------------
# A running `fit`.


def running_fit(model: Any) -> FitCall | None:
    """What the `fit` of `model` that is above on the stack was given, or None where there is none.

    Keras tells its callbacks nothing of the data, nor of each other. It is in the local variables of `fit`:
    `callbacks`, `x` and `epoch_iterator`, whose `data_adapter` is of a class for each kind of data.
    """
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        names = frame.f_locals
        if frame.f_code.co_name == "fit" and names.get("self") is model and "epoch_iterator" in names:
            adapter = getattr(names["epoch_iterator"], "data_adapter", None)
            callbacks = tuple(getattr(names.get("callbacks"), "callbacks", None) or ())
            if adapter is not None and type(adapter).__name__ == _ARRAY_ADAPTER:
                return FitCall(names.get("x"), True, adapter.batch_size, callbacks)
            return FitCall(names.get("x"), callbacks=callbacks)
        frame = frame.f_back
    return None


def is_step_function(graph: Any) -> bool:
    """Whether it is the graph of the function in which Keras calls `train_step`, with a batch as the dataset has it."""
    return is_called_in(graph, "one_step_on_data")


def steps_per_execution(model: Any) -> int | None:
    """Batches of one call of the train function; None where Keras tunes their number."""
    batches = getattr(model, "steps_per_execution", 1)
    return batches if isinstance(batches, int) else None


def takes_tensors_as_logs(callback: Any) -> None:
    """Nothing to do: Keras 3 makes numbers of a batch's logs for all callbacks, but those that run in a thread."""
    del callback


# ---------------------------------------------------------------------------------------------------
# Optimizers.


def index_of(optimizer: Any, variable: Any) -> int | None:
    """The number of the variable among those that the optimizer was built for; None where it is none of them."""
    return optimizer._trainable_variables_indices.get(optimizer._var_key(variable))


def last_learning_rate(optimizer: Any) -> Any:
    """The learning rate of the last step. Where there is a schedule, `learning_rate` is the next step's."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    schedule = optimizer._learning_rate
    if isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
        return schedule(tf.maximum(native(optimizer.iterations) - 1, 0))
    return native(optimizer.learning_rate)


def optimizer_called(name: str) -> Any:
    """One of Keras's optimizers with default arguments, such as "adam"."""
    return keras.optimizers.get(name)


def optimizer_from(config: dict[str, Any], custom_objects: Any = None) -> Any:
    """An optimizer from what `saving.serialize_keras_object` made of it."""
    return keras.saving.deserialize_keras_object(config, custom_objects=custom_objects)


def has_state(optimizer: Any) -> bool:
    """Whether the optimizer has been built."""
    return bool(optimizer.built)


def update_by(optimizer: Any, grads_and_vars: Any, name: str | None = None) -> None:
    """One update by an optimizer of Keras, with gradients that are the same on all replicas."""
    del name
    # Keras 2 has an argument for this: they are the sum over all replicas already.
    optimizer._all_reduce_sum_gradients = _as_they_are
    gradients, variables = zip(*grads_and_vars)
    optimizer.apply(list(gradients), list(variables))


def _as_they_are(grads_and_vars: Any) -> Any:
    return grads_and_vars


_look_at_first_batch = getattr(keras.Model, "_maybe_symbolic_build", None)  # not in the first ones


def _look_at_one_part(model: Any, iterator: Any = None, data_batch: Any = None) -> None:
    """What Keras's `fit` does under a strategy to see shapes, with one replica's part of the first batch.

    Keras averages the parts of all replicas, which fails where these are of different sizes, as those of Poisson
    batches are, and where some are in other processes. It wants to know their shape only.
    """
    if iterator is not None and model._distribute_strategy is not None:
        parts = model.distribute_strategy.experimental_local_results
        for _, _, batches in iterator:
            data_batch, iterator = keras.tree.map_structure(lambda part: parts(part)[0], next(batches)), None
            break
    _look_at_first_batch(model, iterator=iterator, data_batch=data_batch)  # type: ignore[misc]


_Optimizer, _LossScale = keras.optimizers.Optimizer, keras.optimizers.LossScaleOptimizer


def _undone() -> dict[str, Any]:
    """What a `LossScaleOptimizer` does otherwise than any optimizer, undone."""
    names = [name for name in vars(_LossScale) if hasattr(_Optimizer, name) and not name.startswith("__")]
    # As they stand in the class: `getattr` would bind `from_config` to Keras's own class.
    return {name: inspect.getattr_static(_Optimizer, name) for name in [*names, "__init__"]}


# By `type`, not by a `class` statement: its methods are plain copies of the other class's.
_InName: Any = type("_InName", (_LossScale,), _undone())


class OptimizerBase(_InName):
    """Keras 3's optimizer, with public names for what a private optimizer needs of it. See `optimizers.shell`.

    A `LossScaleOptimizer` in name only: everything that class does is undone.
    """

    # `jit_compile` is Keras 2's, for the update alone, which a private step compiles anyway.
    ARGUMENTS = ("weight_decay", "use_ema", "ema_momentum", "ema_overwrite_frequency", "jit_compile")

    def __init__(self, learning_rate: Any, name: str, arguments: dict[str, Any]):
        if isinstance(learning_rate, (tf.Variable, tf.Tensor)) or _is_of_keras(learning_rate):
            learning_rate = float(learning_rate.numpy())
        elif not callable(learning_rate):
            learning_rate = float(learning_rate)
        arguments = {key: value for key, value in arguments.items() if key != "jit_compile"}
        super().__init__(learning_rate, name=name, **arguments)
        if self.strategy.num_replicas_in_sync > 1 and _look_at_first_batch:
            keras.Model._maybe_symbolic_build = _look_at_one_part
        if isinstance(self.strategy, tf.distribute.MultiWorkerMirroredStrategy):
            keras3_workers.average_single_numbers()

    @property
    def strategy(self) -> tf.distribute.Strategy:
        """The one under which the optimizer was made."""
        return self._distribution_strategy

    def build(self, variables: Any) -> None:
        if not self.built:
            super().build(list(variables))
            self.build_state(list(variables))

    def add_state(self, initial_value: Any, name: str, like: Any = None) -> tf.Variable:
        """A variable that is saved with the optimizer; on the device of `like`, if it is given."""
        full_name = name.replace("/", "_") if like is None else f"{path_of(like)}/{name}".replace("/", "_")
        options = {
            "shape": tuple(initial_value.shape),
            "initializer": lambda shape, dtype: tf.cast(initial_value, dtype),
            "dtype": tf.as_dtype(initial_value.dtype).name,
            "name": full_name,
        }
        if like is None:
            variable = self.add_variable(**options)
        else:
            with self._distribution_strategy.extended.colocate_vars_with(native(like)):
                variable = self.add_variable(**options)
        setattr(self, f"_private_{full_name}", variable)  # so that checkpoints have its name
        return native(variable)

    def update(self, grads_and_vars: Any, name: str | None = None) -> None:
        """Keras's own update, by gradients that are the same on all replicas."""
        del name
        self.check_applying()
        gradients, variables = zip(*grads_and_vars)
        super().apply(list(gradients), list(variables))

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """As `apply_gradients`."""
        variables = self._trainable_variables if trainable_variables is None else trainable_variables
        self.apply_gradients(list(zip(grads, variables)))

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        self.move(gradient, variable, learning_rate)

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> Any:
        return grads_and_vars  # they are the sum over all replicas already

    def _backend_update_step(self, grads: Any, trainable_variables: Any, learning_rate: Any) -> None:
        if not tf.distribute.in_cross_replica_context():
            super()._backend_update_step(grads, trainable_variables, learning_rate)
            return
        pairs = list(zip(grads, [native(variable) for variable in trainable_variables]))
        self._distributed_tf_update_step(self._distribution_strategy, pairs, learning_rate)

    def _apply_weight_decay(self, variables: Any) -> None:
        if self.weight_decay is None or not tf.distribute.in_cross_replica_context():
            super()._apply_weight_decay(variables)
            return
        decay_on_all_replicas(self, map(native, filter(self._use_weight_decay, variables)))

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        return {argument: config[argument] for argument in ("name", "learning_rate", *self.ARGUMENTS[:-1])}
