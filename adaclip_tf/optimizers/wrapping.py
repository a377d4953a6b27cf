"""A private optimizer around any other of Keras's, which gets the private mean gradient.

g~ is private, and so is whatever is computed from g~, the learning rate and the weights before: the inner optimizer's
moments, its schedules, weight decay, averages of weights. That costs nothing, whatever the inner optimizer does, as
long as it has seen nothing else of the data. So one that has state already, of steps that may have had no noise, is
refused.

Noise, clipping, accounting and what is saved of them are `DPOptimizer`'s. The update is the inner optimizer's, and so
are `learning_rate`, `iterations` and weight averages.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from adaclip_tf import core
from adaclip_tf._internal import keras
from adaclip_tf.optimizers.dp_optimizer import DPOptimizer
from adaclip_tf.privacy import private_optimizer

_OF_SGD = ("learning_rate", "momentum", "nesterov", "clipnorm", "clipvalue", "global_clipnorm")


class WrappingOptimizer(DPOptimizer):
    """`inner_optimizer` on private mean gradients, for any clipping rule.

    >>> optimizer = WrappingOptimizer(core.FixedClip(1.0), "adam", noise_multiplier=1.1)
    >>> float(optimizer.learning_rate)    # Keras's default for Adam
    0.001...

    Args:
      rule: a `core.ClippingRule`.
      inner_optimizer: an optimizer of Keras that has not trained yet, or its name.
      The rest: as for `DPOptimizer`, short of what is the inner optimizer's.
    """

    def __init__(self, rule: core.ClippingRule, inner_optimizer: Any, *, name: str, **arguments: Any):
        who = type(self).__name__
        inner = _checked(inner_optimizer, who)
        for argument in (*_OF_SGD, *self.ARGUMENTS):
            if argument in arguments:
                raise TypeError(
                    f"{who} has no argument `{argument}`: the update is the inner optimizer's. Give it to that, as in "
                    f"`{who}(tf.keras.optimizers.{type(inner).__name__}({argument}=...), ...)`."
                )
        super().__init__(rule, 0.0, name=name, **arguments)
        if keras.strategy_of(inner) is not self.strategy:
            raise ValueError(
                f"`inner_optimizer` was made under {type(keras.strategy_of(inner)).__name__} and {who} under "
                f"{type(self.strategy).__name__}. Make both inside the same `with strategy.scope():`."
            )
        self._inner = inner

    @property
    def inner_optimizer(self) -> Any:
        """The optimizer that gets the private gradients."""
        return self._inner

    # ------------------------------------------------------------------------------------------------------------
    # The update.

    def build(self, variables):
        """Creates the state, that of the inner optimizer too."""
        variables = list(variables)
        if not self.private_step.built:
            _check_is_new(self._inner, type(self).__name__)
        super().build(variables)

    def build_state(self, variables):
        super().build_state(variables)
        self._inner.build(variables)

    def update(self, grads_and_vars, name=None):
        """The inner optimizer's update by g~. Post-processing."""
        self.check_applying()
        gradients, variables = zip(*grads_and_vars)

        def apply(*gradients):
            keras.update_by(self._inner, list(zip(gradients, variables)), name)

        if tf.distribute.in_cross_replica_context():
            # All replicas together, where a logical batch may end: optimizers of Keras are called on each.
            apply = tf.autograph.experimental.do_not_convert(apply)
            self.strategy.extended.call_for_each_replica(apply, args=gradients)
        else:
            apply(*gradients)

    @property
    def learning_rate(self):
        """The inner optimizer's. Callbacks may set it."""
        return self._inner.learning_rate

    @learning_rate.setter
    def learning_rate(self, value):
        self._inner.learning_rate = value

    @property
    def iterations(self):
        """The inner optimizer's: how often it has updated the weights."""
        return self._inner.iterations

    def exclude_from_weight_decay(self, *args, **kwargs):
        """The inner optimizer's."""
        self._inner.exclude_from_weight_decay(*args, **kwargs)

    def finalize_variable_values(self, var_list):
        """The inner optimizer's: puts averages of the weights in their place."""
        self._inner.finalize_variable_values(var_list)

    # ------------------------------------------------------------------------------------------------------------
    # Saving and loading.

    @property
    def variables(self):
        """All that is saved: the private state, then that of the inner optimizer."""
        return type(super().variables)([*self._own_variables, *self._inner.variables])

    @property
    def _own_variables(self):
        # The base class has a count and a learning rate of its own, which nothing uses.
        unused = (self._iterations, self._learning_rate)
        return [variable for variable in super().variables if not any(variable is other for other in unused)]

    def save_own_variables(self, store):
        """Saves the private state. Keras goes on to the inner optimizer by itself."""
        for index, variable in enumerate(self._own_variables):
            store[str(index)] = variable.numpy()

    def load_own_variables(self, store):
        """Restores the private state, all of it or none; Keras goes on to the inner optimizer by itself."""
        values = [store[key] for key in sorted(store.keys(), key=int)]
        if not values:  # saved before there was any state
            return
        self.check_saved(values, self._own_variables)
        for variable, value in zip(self._own_variables, values):
            variable.assign(value)

    def set_weights(self, weights):
        """Restores all `variables` from a list of arrays, all of them or none."""
        self._check_built()
        self.check_saved(weights)
        for variable, value in zip(self.variables, weights):
            variable.assign(value)

    def get_config(self):
        config = super().get_config()
        for argument in (*_OF_SGD, *self.ARGUMENTS):
            config.pop(argument, None)
        return {**config, "inner_optimizer": keras.saving.serialize_keras_object(self._inner)}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        inner = keras.optimizer_from(config["inner_optimizer"], custom_objects)
        return cls(**{**config, "inner_optimizer": inner})


def _checked(inner: Any, who: str) -> Any:
    """An optimizer of Keras that has seen nothing yet, or a ValueError."""
    example = f'`{who}(tf.keras.optimizers.Adam(1e-3), ...)` or `{who}("adam", ...)`'
    if isinstance(inner, str):
        try:
            inner = keras.optimizer_called(inner)
        except ValueError as error:
            raise ValueError(f"`inner_optimizer`={inner!r} is no optimizer of Keras; use {example}.") from error
    if isinstance(inner, type):
        raise ValueError(f"`inner_optimizer` must be an optimizer, not its class {inner.__name__}: {example}.")
    if private_optimizer.is_private(inner):
        raise ValueError(
            f"`inner_optimizer` is a {type(inner).__name__}, which adds noise already. Use it by itself, or give {who} "
            f"a plain one: {example}."
        )
    if isinstance(inner, keras.LossScaleOptimizer):
        raise ValueError(
            f"`inner_optimizer` is a {type(inner).__name__}. Gradients are taken per example and need no scaling, "
            f"under a policy of mixed precision too; give {who} what is inside: {example}."
        )
    if not isinstance(inner, tf.keras.optimizers.Optimizer):
        raise ValueError(
            f"`inner_optimizer` must be an optimizer of this Keras (`tf.keras.optimizers`, no legacy one), as in "
            f"{example}; got a {type(inner).__module__}.{type(inner).__name__}."
        )
    if getattr(inner, "loss_scale_factor", None) is not None:
        raise ValueError(
            f"`loss_scale_factor`={inner.loss_scale_factor!r} of the inner optimizer would divide gradients that are "
            "not multiplied by it. Leave it out: gradients are taken per example and need no scaling."
        )
    if getattr(inner, "gradient_accumulation_steps", None):
        raise ValueError(
            f"`gradient_accumulation_steps`={inner.gradient_accumulation_steps!r} of the inner optimizer would add "
            f"noise to each of the batches. Leave it out, and give `accumulation_steps` to {who}: noise is added once."
        )
    if type(inner).__name__ == "MultiOptimizer":
        raise ValueError(f"`inner_optimizer` is a MultiOptimizer, which {who} can't take: give it one optimizer.")
    _check_is_new(inner, who)
    return inner


def _check_is_new(inner: Any, who: str) -> None:
    if keras.has_state(inner):
        raise ValueError(
            f"`inner_optimizer` ({inner.name}) has state already, of steps that {who} did not see: they may have had "
            "no noise. Make a new one. To go on with a saved model, load it with its private optimizer."
        )
