"""Keras 2: every private name of its optimizers that the library touches is touched here.

`Shell` is what a private optimizer needs of Keras: variables that are saved, an update, a configuration. It knows
nothing of clipping and noise; `dp_optimizer` does, and knows nothing of Keras's insides.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from adaclip_tf._internal import keras2, validate
from adaclip_tf.optimizers import checks, replicas, tags


class _OwnLossScale(type(tf.keras.mixed_precision.LossScaleOptimizer)):  # type: ignore[misc]
    """Lets `DPOptimizer` be called like any other optimizer class."""

    def __call__(cls, *args, **kwargs):
        return type.__call__(cls, *args, **kwargs)


class Shell(tf.keras.optimizers.Optimizer, tf.keras.mixed_precision.LossScaleOptimizer, metaclass=_OwnLossScale):
    """SGD with momentum on gradients that are private already.

    Under the `mixed_float16` policy Keras wraps every optimizer that is not a `LossScaleOptimizer` in one. That
    would multiply the loss, hence the gradients that are clipped, by a large number. This class therefore says it
    is one, and scales by 1: gradients are taken per example, never divided by the batch size, so they are far
    from float16's smallest numbers to begin with.
    """

    def __init__(self, learning_rate: Any, momentum: float, nesterov: bool, name: str, keras_arguments: dict[str, Any]):
        keras_arguments.pop("is_legacy_optimizer", None)  # `get_config` of Keras puts it there
        checks.keras_arguments(keras_arguments, type(self).__name__)
        self.momentum = checks.momentum(momentum)
        self.nesterov = validate.boolean("nesterov", nesterov)
        if self.nesterov and not self.momentum:
            raise ValueError(f"`nesterov=True` needs a `momentum` above 0; got momentum={momentum!r}.")
        checks.learning_rate(learning_rate)
        # Keras's own default of 0 subtracts 0 from every weight at every step.
        keras_arguments.setdefault("weight_decay", None)
        super().__init__(name=name, **keras_arguments)
        replicas.check_strategy(self._distribution_strategy, type(self).__name__)
        self._learning_rate = self._build_learning_rate(learning_rate)

    # ------------------------------------------------------------------------------------------------------------
    # Variables.

    def build_private(self, variables):
        """Makes the private state, by `add_state`; once, and under the strategy's scope."""
        raise NotImplementedError

    def check_saved(self, values):
        """Raises ValueError where saved values of `variables` can't be gone on from."""
        raise NotImplementedError

    def build(self, var_list):
        """Creates the state: that of the clipping rule, momentum, the count of noised steps."""
        # All replicas move the state together, so it must be mirrored, wherever this is called.
        with replicas.scope(self._distribution_strategy):
            super().build(var_list)
            if not getattr(self, "_built", False):
                checks.check_variables(var_list)
                self._momentums = []
                if self.momentum:
                    self._momentums = [self.add_variable_from_reference(variable, "momentum") for variable in var_list]
                self.build_private(var_list)
                self._built = True

    def add_state(self, initial_value, name, like=None):
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

    def indices_of(self, variables):
        """Their numbers among those that the optimizer was built for; None where unknown."""
        return [keras2.index_of(self, variable) for variable in variables]

    @property
    def strategy(self) -> tf.distribute.Strategy:
        """The one under which the optimizer was made."""
        return self._distribution_strategy

    # ------------------------------------------------------------------------------------------------------------
    # The update.

    def apply_gradients(self, grads_and_vars, name=None, **kwargs):
        """Applies what `compute_gradients` returned. Other gradients are refused: they are not private."""
        grads_and_vars = list(grads_and_vars)
        complete = tags.completes(grads_and_vars, self)
        del kwargs  # whether to aggregate over replicas: these gradients are the same on all of them
        keras_apply = super().apply_gradients

        def apply():
            # As above: `iterations` and weight decay wait for the data.
            with tf.control_dependencies([gradient for gradient, _ in grads_and_vars]):
                keras_apply(grads_and_vars, name=name, skip_gradients_aggregation=True)
            return complete

        # Weights, momentum and `iterations` stand still until the logical batch is complete.
        if self.accumulation_steps == 1:
            apply()
        elif replicas.count() == 1:
            tf.cond(complete, apply, lambda: complete)
        else:
            # Replicas can't meet inside `tf.cond`, so they enter it together.
            replicas.together(functools.partial(_apply_if, keras_apply, name), complete, grads_and_vars)
        return self.iterations

    def _internal_apply_gradients(self, grads_and_vars):
        if tf.distribute.in_cross_replica_context():
            return self._distributed_apply_gradients_fn(self._distribution_strategy, grads_and_vars)
        return super()._internal_apply_gradients(grads_and_vars)

    def _apply_weight_decay(self, variables):
        if self.weight_decay is None or not tf.distribute.in_cross_replica_context():
            super()._apply_weight_decay(variables)
            return

        def shrink(variable):
            rate, decay = (tf.cast(value, variable.dtype) for value in (self.learning_rate, self.weight_decay))
            variable.assign_sub(variable * decay * rate)

        for variable in filter(self._use_weight_decay, variables):
            self._distribution_strategy.extended.update(variable, shrink, group=False)

    def update_step(self, gradient, variable):
        """Plain SGD with momentum, as in `tf.keras.optimizers.SGD`. Post-processing."""
        step = -gradient * tf.cast(self.learning_rate, variable.dtype)
        if not self.momentum:
            variable.assign_add(step)
            return
        momentum = tf.cast(self.momentum, variable.dtype)
        velocity = self._momentums[self.indices_of([variable])[0]]
        velocity.assign(step + velocity * momentum)
        variable.assign_add(step + velocity * momentum if self.nesterov else velocity)

    # ------------------------------------------------------------------------------------------------------------
    # Saving and loading.

    def get_config(self):
        """What Keras and SGD need."""
        config = super().get_config()
        learning_rate = self._serialize_hyperparameter(self._learning_rate)
        config.update(
            learning_rate=learning_rate if isinstance(learning_rate, dict) else float(learning_rate),
            momentum=self.momentum,
            nesterov=self.nesterov,
        )
        for argument in ("clipnorm", "global_clipnorm", "clipvalue", "is_legacy_optimizer"):
            config.pop(argument, None)
        return config

    def load_own_variables(self, store):
        """Restores the state, all of it or none: a lost count of steps would be a lost privacy guarantee."""
        self.check_saved([store[key] for key in sorted(store.keys(), key=int)])
        super().load_own_variables(store)

    def set_weights(self, weights):
        """Restores the state from a list of arrays, all of it or none."""
        self.check_saved(weights)
        super().set_weights(weights)

    # What Keras asks of a loss-scaling optimizer: see the class docstring.

    def get_scaled_loss(self, loss):
        """The loss itself."""
        return loss

    def get_unscaled_gradients(self, grads):
        """The gradients themselves."""
        return grads


def _apply_if(keras_apply, name, strategy, complete, grads_and_vars):
    """Applies the gradients of all replicas, in cross-replica context, if they complete a logical batch."""
    del strategy
    complete = replicas.first(complete)

    def apply():
        keras_apply(grads_and_vars, name=name, skip_gradients_aggregation=True)
        return complete

    tf.cond(complete, apply, lambda: complete)
