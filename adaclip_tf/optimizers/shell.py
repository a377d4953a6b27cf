"""What a private optimizer is to Keras, of whichever generation: variables that are saved, an update, a configuration.

It knows nothing of clipping and noise; `dp_optimizer` does. Keras's private names are in `_internal.keras2` and
`_internal.keras3`, whose `OptimizerBase` is the class below this one.

Under the `mixed_float16` policy Keras wraps every optimizer that is not a `LossScaleOptimizer` in one. That would
multiply the loss, hence the gradients that are clipped, by a large number. `OptimizerBase` therefore says it is one,
and scales by 1: gradients are taken per example, never divided by the batch size, so they are far from float16's
smallest numbers to begin with.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from adaclip_tf._internal import keras, validate
from adaclip_tf.optimizers import checks, handed_over, replicas, tags


class Shell(keras.OptimizerBase):
    """SGD with momentum on gradients that are private already."""

    def __init__(self, learning_rate: Any, momentum: float, nesterov: bool, name: str, keras_arguments: dict[str, Any]):
        checks.keras_arguments(keras_arguments, type(self).__name__, self.ARGUMENTS)
        momentum = checks.momentum(momentum)
        nesterov = validate.boolean("nesterov", nesterov)
        if nesterov and not momentum:
            raise ValueError(f"`nesterov=True` needs a `momentum` above 0; got momentum={momentum!r}.")
        checks.learning_rate(learning_rate)
        super().__init__(learning_rate, name, keras_arguments)
        self.momentum, self.nesterov = momentum, nesterov
        self._handed_over = handed_over.Losses()
        self._applying = 0
        replicas.check_strategy(self.strategy, type(self).__name__)

    # ------------------------------------------------------------------------------------------------------------
    # Variables.

    def build_private(self, variables, names):
        """Makes the private state, by `add_state`; once, and under the strategy's scope."""
        raise NotImplementedError

    def check_saved(self, values, variables=None):
        """Raises ValueError where saved values of `variables`, or of some of them, can't be gone on from."""
        raise NotImplementedError

    def build(self, variables):
        """Creates the state: that of the clipping rule, momentum, the count of noised steps."""
        # All replicas move the state together, so it must be mirrored, wherever this is called.
        variables = list(variables)
        checks.check_variables([keras.native(variable) for variable in variables])
        checks.check_overwritten(variables)
        with replicas.scope(self.strategy):
            super().build(variables)

    def build_state(self, variables):
        """Creates what Keras itself does not; called by `build`, once."""
        self._momentums = []
        if self.momentum:
            self._momentums = [self.add_variable_from_reference(variable, "momentum") for variable in variables]
        self.build_private(variables, [keras.path_of(variable) for variable in variables])

    def index_of(self, variable) -> Any:
        """The number of a variable among those that the optimizer was built for; None where it is none of them."""
        return keras.index_of(self, variable)

    # ------------------------------------------------------------------------------------------------------------
    # The update.

    @tf.autograph.experimental.do_not_convert
    def scale_loss(self, loss):
        """Takes over the loss of a training step: for `train_step`s that differentiate it themselves.

        Keras 3's own calls it inside its tape, and a loop of one's own may do so too:

            with tf.GradientTape() as tape:
                loss = optimizer.scale_loss(loss_function(labels, model(inputs, training=True)))
            gradients = tape.gradient(loss, variables)
            optimizer.apply_gradients(zip(gradients, variables))

        The tape finds no gradients at all. `apply_gradients` takes private ones, of the loss that it was given here.
        """
        return self._handed_over.take(loss, self.name)

    @tf.autograph.experimental.do_not_convert  # as Keras's own are
    def apply_gradients(self, grads_and_vars, name=None, **kwargs):
        """Applies what `compute_gradients` returned, or trains on the loss that `scale_loss` got.

        Other gradients are refused: they are not private.
        """
        del kwargs  # whether to aggregate over replicas: these gradients are the same on all of them
        grads_and_vars = list(grads_and_vars)
        if all(gradient is None for gradient, _ in grads_and_vars):
            loss = self._handed_over.give(self.name)
            grads_and_vars = self.compute_gradients(loss, [variable for _, variable in grads_and_vars])
        complete = tags.completes(grads_and_vars, self)

        def update(grads_and_vars):
            self._applying += 1
            try:
                self.update(grads_and_vars, name=name)
            finally:
                self._applying -= 1

        def apply():
            # `iterations` and weight decay wait for the data, too.
            with tf.control_dependencies([gradient for gradient, _ in grads_and_vars]):
                update(grads_and_vars)
            return complete

        # Weights, momentum and `iterations` stand still until the logical batch is complete.
        if self.accumulation_steps == 1:
            apply()
        elif not replicas.meet():
            tf.cond(complete, apply, lambda: complete)
        else:
            # Replicas can't meet inside `tf.cond`, so they enter it together; a single one of a strategy, too.
            replicas.together(functools.partial(_update_if, update), complete, grads_and_vars)
        return self.iterations

    def check_applying(self) -> None:
        """Raises ValueError where an update was not asked for by `apply_gradients`, which knows private gradients."""
        if not self._applying:
            raise ValueError(
                f"{self.name} updates weights by `apply_gradients` only, which refuses gradients that are not private; "
                "`update_step` and the like are called by it. Call `minimize(loss, variables, tape)`."
            )

    def move(self, gradient, variable, learning_rate):
        """Plain SGD with momentum, as in `tf.keras.optimizers.SGD`. Post-processing."""
        self.check_applying()
        variable = keras.native(variable)
        rate = tf.cast(learning_rate, variable.dtype)
        if not self.momentum:
            # One pass, where `assign_sub` of a product is two; it is not for variables that are several.
            if isinstance(variable, resource_variable_ops.BaseResourceVariable):
                tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=gradient)
            else:
                variable.assign_sub(gradient * rate)
            return
        step = -gradient * rate
        momentum = tf.cast(self.momentum, variable.dtype)
        velocity = keras.native(self._momentums[self.index_of(variable)])
        velocity.assign(step + velocity * momentum)
        variable.assign_add(step + velocity * momentum if self.nesterov else velocity)

    # ------------------------------------------------------------------------------------------------------------
    # Saving and loading.

    def get_config(self):
        """What Keras and SGD need."""
        return {**super().get_config(), "momentum": self.momentum, "nesterov": self.nesterov}

    def load_own_variables(self, store):
        """Restores the state, all of it or none: a lost count of steps would be a lost privacy guarantee."""
        values = [store[key] for key in sorted(store.keys(), key=int)]
        if not checks.is_of_new_optimizer(values):
            self.check_saved(values)
            super().load_own_variables(store)

    def set_weights(self, weights):
        """Restores the state from a list of arrays, all of it or none."""
        self.check_saved(weights)
        super().set_weights(weights)

    def __reduce__(self):
        """For `copy` and `pickle`: one of the same configuration, where there is no state yet."""
        if keras.has_state(self):
            raise ValueError(
                f"{self.name} has state, which can't be copied or pickled without the weights that it is of: copy or "
                "save the model that it trains. `from_config(optimizer.get_config())` makes a new optimizer."
            )
        return type(self).from_config, (self.get_config(),)


def _update_if(update, strategy, complete, grads_and_vars):
    """Applies the gradients of all replicas, in cross-replica context, if they complete a logical batch."""
    del strategy
    complete = replicas.first(complete)

    def apply():
        update(grads_and_vars)
        return complete

    tf.cond(complete, apply, lambda: complete)
