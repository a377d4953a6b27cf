"""Every name of Keras 2 that is private, or that only Keras 2 has. `keras3` answers the same for Keras 3."""

from __future__ import annotations

import sys
import types
from typing import Any

import tensorflow as tf

from adaclip_tf._internal.keras_both import FitCall, decay_on_all_replicas, is_called_in, variables_in

# Keras's adapters for data that it cuts into batches itself.
_ARRAY_ADAPTERS = {"TensorLikeDataAdapter", "CompositeTensorDataAdapter", "ListsOfScalarsDataAdapter"}


# ---------------------------------------------------------------------------------------------------
# Models and layers.

saving = tf.keras.saving
BatchNormalization = tf.keras.layers.BatchNormalization.__mro__[1]  # also SyncBatchNormalization
LossScaleOptimizer = tf.keras.mixed_precision.LossScaleOptimizer
Preprocessing = tf.keras.layers.experimental.preprocessing.PreprocessingLayer


def modules_in(layer: Any) -> list[Any]:
    """The modules directly in a layer. `_flatten_modules` sees those that are no layers (lookup tables), too."""
    return list(layer._flatten_modules(recursive=False, include_self=False))


def module_name(module: Any) -> str:
    """The name of a module. A plain tf.Module has no `name` before its base class's `__init__` ran, only `_name`."""
    return getattr(module, "_name", None) or type(module).__name__


def clone(model: Any, clone_function: Any) -> Any:
    """A copy of a functional or sequential model, each layer by `clone_function`."""
    copy = tf.keras.models.clone_model(model, clone_function=clone_function)
    if not copy.built:
        copy.build(model.input_shape)
    return copy


def own_weights(layer: Any) -> list[Any]:
    """The weights that a layer itself has. The public `weights` adds those of the layers in it."""
    return layer._trainable_weights + layer._non_trainable_weights


HOLDERS = (tf.Module, tf.keras.optimizers.Optimizer)  # what holds variables: layers are modules


def held_by(part: Any) -> list[Any]:
    """The variables that a layer, an optimizer or a module has by itself, and not by a layer or a metric in it."""
    if isinstance(part, tf.keras.layers.Layer):
        own = [*getattr(part, "_trainable_weights", ()), *getattr(part, "_non_trainable_weights", ())]
        return own + variables_in(getattr(part, "_self_tracked_trackables", ()))  # lists of variables
    return variables_in(getattr(part, "__dict__", {}).values())


def unknown_seed(part: Any) -> Any:
    """The state of a seed of which nobody knows where it starts: Keras 2 keeps none in a variable of its own."""
    del part


def has_keras_train_step(model: Any) -> bool:
    """Whether one training step is Keras's own, so that its habits can be relied on."""
    return getattr(type(model), "train_step", None) is tf.keras.Model.train_step


def native(variable: Any) -> Any:
    """The TensorFlow variable: Keras 2 has no variables of its own."""
    return variable


def path_of(variable: Any) -> str:
    """The variable's name with those of the layers around it."""
    return variable.name.split(":")[0]


# ---------------------------------------------------------------------------------------------------
# A running `fit`.


def running_fit(model: Any) -> FitCall | None:
    """What the `fit` of `model` that is above on the stack was given, or None where there is none.

    Keras tells its callbacks nothing of the data, nor of each other. It is in the local variables of `fit`:
    `callbacks`, `x` and `data_handler`, whose `_adapter` is of a class for each kind of data.
    """
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        names = frame.f_locals
        if frame.f_code.co_name == "fit" and names.get("self") is model and "data_handler" in names:
            adapter = getattr(names["data_handler"], "_adapter", None)
            callbacks = tuple(getattr(names.get("callbacks"), "callbacks", None) or ())
            if adapter is not None and _ARRAY_ADAPTERS & {kind.__name__ for kind in type(adapter).__mro__}:
                return FitCall(names.get("x"), True, adapter.batch_size(), callbacks)
            return FitCall(names.get("x"), callbacks=callbacks)
        frame = frame.f_back
    return None


def is_step_function(graph: Any) -> bool:
    """Whether it is the graph of the function in which Keras calls `train_step`, with a batch as the dataset has it."""
    return is_called_in(graph, "run_step")


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
# Optimizers.


def index_of(optimizer: Any, variable: Any) -> int | None:
    """The number of the variable among those that the optimizer was built for; None where it is none of them."""
    return optimizer._index_dict.get(optimizer._var_key(variable))


def last_learning_rate(optimizer: Any) -> Any:
    """The learning rate of the last step, which Keras 2 keeps in a variable where there is a schedule."""
    return optimizer.learning_rate


def optimizer_called(name: str) -> Any:
    """One of Keras's optimizers with default arguments, such as "adam"; never a legacy one."""
    kind = {key.lower(): value for key, value in vars(tf.keras.optimizers).items()}.get(name.lower())
    if isinstance(kind, type) and issubclass(kind, tf.keras.optimizers.Optimizer):
        return kind()  # Keras does not know all of its own by their names
    return tf.keras.optimizers.get(name, use_legacy_optimizer=False)


def optimizer_from(config: dict[str, Any], custom_objects: Any = None) -> Any:
    """An optimizer from what `saving.serialize_keras_object` made of it."""
    kind = getattr(tf.keras.optimizers, config["class_name"], None)
    if kind is not None and config.get("registered_name") is None:  # while it reads an .h5 file, Keras forgets its own
        return kind.from_config(dict(config["config"]))
    return saving.deserialize_keras_object(config, custom_objects=custom_objects)


def has_state(optimizer: Any) -> bool:
    """Whether the optimizer has been built."""
    return bool(getattr(optimizer, "_built", False))


def update_by(optimizer: Any, grads_and_vars: Any, name: str | None = None) -> None:
    """One update by an optimizer of Keras, with gradients that are the same on all replicas."""
    optimizer.apply_gradients(grads_and_vars, name=name, skip_gradients_aggregation=True)


class _PlainCall(type(tf.keras.mixed_precision.LossScaleOptimizer)):  # type: ignore[misc]
    """Lets a class that is a `LossScaleOptimizer` be called like any other."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return type.__call__(cls, *args, **kwargs)


class OptimizerBase(tf.keras.optimizers.Optimizer, tf.keras.mixed_precision.LossScaleOptimizer, metaclass=_PlainCall):
    """Keras 2's optimizer, with public names for what a private optimizer needs of it. See `optimizers.shell`."""

    ARGUMENTS = ("weight_decay", "use_ema", "ema_momentum", "ema_overwrite_frequency", "jit_compile")

    def __init__(self, learning_rate: Any, name: str, arguments: dict[str, Any]):
        # Keras's own default of 0 subtracts 0 from every weight at every step.
        super().__init__(name=name, **{"weight_decay": None, **arguments})
        self._learning_rate = self._build_learning_rate(learning_rate)

    @property
    def strategy(self) -> tf.distribute.Strategy:
        """The one under which the optimizer was made."""
        return self._distribution_strategy

    def build(self, var_list: Any) -> None:
        super().build(var_list)
        if not getattr(self, "_built", False):
            self.build_state(list(var_list))
            self._built = True

    def add_state(self, initial_value: Any, name: str, like: Any = None) -> tf.Variable:
        """A variable that is saved with the optimizer; in the shape and on the device of `like`, if it is given."""
        dtype = tf.as_dtype(initial_value.dtype)
        if like is None:
            variable = self.add_variable(
                initial_value.shape, dtype, initializer=lambda shape, dtype: tf.cast(initial_value, dtype), name=name
            )
            setattr(self, f"_private_{name}", variable)  # so that checkpoints have its name
            return variable
        with tf.distribute.get_strategy().extended.colocate_vars_with(like):
            name = f"{name}/{like._shared_name}"
            variable = tf.Variable(initial_value, name=name, dtype=dtype, trainable=False)
        self._variables.append(variable)
        return variable

    def update(self, grads_and_vars: Any, name: str | None = None) -> None:
        """Keras's own update, by gradients that are the same on all replicas."""
        self.check_applying()  # Keras compiles `update_step`, and does not ask it again
        super().apply_gradients(grads_and_vars, name=name, skip_gradients_aggregation=True)

    def update_step(self, gradient: Any, variable: Any) -> None:
        self.move(gradient, variable, self.learning_rate)

    def _internal_apply_gradients(self, grads_and_vars: Any) -> Any:
        if tf.distribute.in_cross_replica_context():
            return self._distributed_apply_gradients_fn(self._distribution_strategy, grads_and_vars)
        return super()._internal_apply_gradients(grads_and_vars)

    def _apply_weight_decay(self, variables: Any) -> None:
        if self.weight_decay is None or not tf.distribute.in_cross_replica_context():
            super()._apply_weight_decay(variables)
            return
        decay_on_all_replicas(self, filter(self._use_weight_decay, variables))

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        learning_rate = self._serialize_hyperparameter(self._learning_rate)
        config["learning_rate"] = learning_rate if isinstance(learning_rate, dict) else float(learning_rate)
        return {argument: config[argument] for argument in ("name", "learning_rate", *self.ARGUMENTS)}

    # What Keras asks of a loss-scaling optimizer: see `optimizers.shell`.

    def get_scaled_loss(self, loss: Any) -> Any:
        """The loss itself."""
        return loss

    def get_unscaled_gradients(self, grads: Any) -> Any:
        """The gradients themselves."""
        return grads
