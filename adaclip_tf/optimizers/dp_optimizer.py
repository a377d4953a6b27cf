"""`DPOptimizer`: what all private optimizers share, for any clipping rule.

The step is `optimizers.step`, the mathematics `adaclip_tf.core`, the gradients `adaclip_tf.gradients`; Keras's side is
`shell`. Here is what users see: arguments, `minimize`, what may be looked at, what is saved.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from adaclip_tf import core
from adaclip_tf._internal import keras, signatures, variables
from adaclip_tf._internal.prior import Prior
from adaclip_tf.optimizers import checks, given, replicas, tags, traced
from adaclip_tf.optimizers.settings import Settings
from adaclip_tf.optimizers.shell import Shell
from adaclip_tf.optimizers.step import PrivateStep
from adaclip_tf.privacy import past_steps

_NEEDS_NOISE = signatures.requires("noise_multiplier", checks.CHOOSE_NOISE)
_SETTINGS = tuple(field.name for field in dataclasses.fields(Settings))


class DPOptimizer(Shell):
    """SGD on private mean gradients, for any clipping rule.

    >>> optimizer = DPOptimizer(core.FixedClip(1.0), learning_rate=0.1, noise_multiplier=1.1)

    Args:
      rule: a `core.ClippingRule`. An optimizer that is saved as a part of a model needs its own class, with
        `get_config`: see `DPFixedClipSGD`, which is short.
      The rest: as for `DPAdaClipSGD`.
    """

    @_NEEDS_NOISE
    def __init__(
        self,
        rule: core.ClippingRule,
        learning_rate: Any = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        *,
        noise_multiplier: float,
        num_microbatches: int | None = None,
        expected_batch_size: int | None = None,
        accumulation_steps: int = 1,
        noise_terms: int = 1,
        gradient_path: str = "auto",
        nonprivate_metrics: bool = False,
        seed: int | None = None,
        name: str = "DPOptimizer",
        **keras_optimizer_arguments: Any,
    ):
        if not isinstance(rule, core.ClippingRule):
            raise ValueError(f"`rule` must be a `core.ClippingRule`, such as `core.FixedClip(1.0)`; got {rule!r}.")
        accumulation_steps = checks.accumulation_steps(accumulation_steps, keras_optimizer_arguments)
        settings = Settings(
            noise_multiplier=noise_multiplier,
            num_microbatches=num_microbatches,
            expected_batch_size=expected_batch_size,
            accumulation_steps=accumulation_steps,
            noise_terms=noise_terms,
            gradient_path=gradient_path,
            nonprivate_metrics=nonprivate_metrics,
            seed=seed,
        )
        super().__init__(learning_rate, momentum, nesterov, name, keras_optimizer_arguments)
        self.private_step = PrivateStep(rule, settings)
        self._steps_on_data = traced.Steps()
        if settings.noise_multiplier == 0.0:
            logging.warning("noise_multiplier=0 adds no noise: %s trains WITHOUT any privacy.", name)
        if seed is not None:
            logging.warning("seed=%d makes the noise of %s predictable: for tests only, NOT private.", seed, name)

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = _NEEDS_NOISE(cls.__init__)  # type: ignore[method-assign]
        # Keras's metaclass, and `**arguments` of our own, would hide what a class takes.
        cls.__signature__ = signatures.of_constructor(cls.__init__, DPOptimizer.__init__)

    # ------------------------------------------------------------------------------------------------------------
    # What the accountant needs to know. The settings are read only: the steps taken so far are accounted by them.

    noise_multiplier = property(lambda self: self.private_step.settings.noise_multiplier)
    num_microbatches = property(lambda self: self.private_step.settings.num_microbatches)
    expected_batch_size = property(lambda self: self.private_step.settings.expected_batch_size)
    accumulation_steps = property(lambda self: self.private_step.settings.accumulation_steps)
    noise_terms = property(lambda self: self.private_step.settings.noise_terms)
    gradient_path = property(lambda self: self.private_step.settings.gradient_path)
    nonprivate_metrics_recorded = property(lambda self: self.private_step.settings.nonprivate_metrics)
    seed = property(lambda self: self.private_step.settings.seed)

    @property
    def rule(self) -> Any:
        """The `core.ClippingRule` that says how gradients are clipped."""
        return self.private_step.rule

    @property
    def microbatch_sensitivity(self) -> float:
        """How far sum_k u_k can move when one example is added or removed.

        1 where every microbatch is one example. Where microbatches are shared, one example can turn its
        microbatch's u_k into any other vector of the unit ball: 2. That takes for granted that no other
        example changes its microbatch, so batches and microbatches must be of fixed size.

        `num_microbatches` equal to the batch size is one example each. Where `expected_batch_size` says that it is,
        every example gets its own gradient, whatever the size of the batch. Without `expected_batch_size` the state
        says what the batches were like, and before the first step nobody knows: 2.
        """
        return self.private_step.microbatch_sensitivity

    @property
    def prior(self) -> Prior | None:
        """What the data was asked before training, as for `scales=`."""
        return self.rule.prior

    def other_past_steps(self) -> list[past_steps.PastSteps]:
        """What other private optimizers did that trained some of these weights before, in this program."""
        return self.private_step.other_past_steps()

    def past_steps(self) -> past_steps.PastSteps:
        """How many noised steps the weights have seen and what these were like, from the saved state.

        >>> DPOptimizer(core.FixedClip(1.0), noise_multiplier=1.1).past_steps().steps
        0
        """
        return self.private_step.past_steps()

    def start_phase(self, phase) -> None:
        """Makes what follows a phase of its own in a ledger; for `PrivacyBudget(..., new_phase=True)`."""
        self.private_step.start_phase(phase)

    def drop_unfinished(self) -> None:
        """Forgets the parts of a logical batch that was not completed. `PrivacyBudget` does so when a `fit` begins.

        Parts of another draw must not complete it: an example that is in both would be in one sum twice.
        """
        self.private_step.drop_unfinished()

    @property
    def noised_steps(self) -> tf.Variable:
        """How many noised sums the weights have seen, an int64 variable saved with them. To be read, as by `int`."""
        self._check_built()
        # `int` can't read one that is mirrored; all replicas have the same.
        return self.strategy.experimental_local_results(self.private_step.noised_steps)[0]

    def _check_built(self):
        if not self.private_step.built:
            raise ValueError(f"{self.name} has no state yet; train a step or call `build(variables)` first.")

    # ------------------------------------------------------------------------------------------------------------
    # One step.

    def minimize(self, loss, var_list, tape=None, data=None):
        """Takes one private step.

        Args:
          loss: a tensor of shape [batch] with one entry per example, computed in the current graph; or a callable that
            returns one.
          var_list: the variables, or a callable that returns them.
          tape: the tape that recorded the loss, if there is one.
          data: the examples: a tuple of arrays that `loss` is called with. With it the step works in eager code too: it
            is traced once for each `loss` function, so define that function outside of the loop.

        """
        if data is None:
            self.apply_gradients(self.compute_gradients(loss, var_list, tape))
        elif tf.executing_eagerly():
            self._steps_on_data.take(self, loss, var_list, data)
        else:
            self.minimize(lambda: loss(*data), var_list)

    def compute_gradients(self, loss, var_list, tape=None):
        """Returns (private mean gradient, variable) pairs and moves the private state.

        What comes back is already noised. Each call is one look at the data: it counts in `noised_steps`
        (the last of `accumulation_steps` calls does), whether or not the gradients are applied.

        Args:
          loss: a tensor of shape [batch] with one entry per example, or a callable that returns one.
          var_list: the variables, or a callable that returns them.
          tape: the tape that recorded the loss, if there is one. Without it the graph is differentiated.
        """
        replicas.check_step(self.strategy, self.num_microbatches, type(self).__name__)
        loss = tf.convert_to_tensor(loss() if callable(loss) else loss)
        return self._private_gradients(loss, list(var_list() if callable(var_list) else var_list), tape)

    # In a `tf.function` AutoGraph would rewrite the library below, which has nothing for it to do: seconds for a first
    # step, in each program. What the caller wrote, such as a `loss` with a Python `if`, is called above, and is its.
    @tf.autograph.experimental.do_not_convert
    def _private_gradients(self, loss, var_list, tape):
        for batches in given.to_running_fits():
            self.check_batches(batches)
        count = replicas.count()
        microbatches = self.private_step.settings.num_microbatches_of(count)
        loss = checks.per_example_loss(loss, microbatches, count, tape, self.expected_batch_size)
        with variables.made_at_once():
            self.build(var_list)
        indices = [self.index_of(variable) for variable in var_list]
        checks.check_known_variables(indices, var_list, self.name)
        self.private_step.train_only(indices)
        mean, complete = self.private_step.take(loss, [keras.native(variable) for variable in var_list], tape)
        return [(tags.tag(gradient, self, complete), variable) for gradient, variable in zip(mean, var_list)]

    def check_batches(self, batches: Any) -> None:
        """Raises ValueError if a function that is mapped over `batches`, a dataset, is known to mix examples."""
        given.check(batches)

    def build_private(self, variables, names):
        self.private_step.build(variables, names, self.add_state)

    # ------------------------------------------------------------------------------------------------------------
    # What may be looked at.

    def private_metrics(self) -> dict[str, Any]:
        """Numbers computed from private quantities only: safe to log. Tensors where it is called in a graph.

        Returns:
          `noise_norm` z |b| / B and `scale_norm` |b|, and what the clipping rule adds: for AdaCliP `mean_norm` |m| and
          `std_mean`, `std_min`, `std_max` of s. B is that of the last step where `expected_batch_size` was not given.
        """
        self._check_built()
        return _plain(self.private_step.metrics())

    def private_state(self) -> dict[str, dict[str, tf.Tensor]]:
        """What is known about every variable's gradient, in its shape, by its name. Private, so safe to look at.

        Returns:
          {name: {"center": a, "scale": b}}, and what the clipping rule adds: for AdaCliP "std", s.
        """
        self._check_built()
        return self.private_step.details()

    def nonprivate_metrics(self) -> dict[str, Any]:
        """NOT private: how the last batch was clipped. For debugging on data that needs no protection.

        Only with `nonprivate_metrics=True` at construction.
        """
        if not self.nonprivate_metrics_recorded:
            raise ValueError(
                f"{self.name} records no un-noised quantities. Construct it with `nonprivate_metrics=True`, on data "
                "that needs no protection."
            )
        self._check_built()
        return _plain(self.private_step.nonprivate.read())

    # ------------------------------------------------------------------------------------------------------------
    # Saving and loading.

    def get_config(self):
        """All that the constructor needs but the rule, whose arguments are the subclasses' to add; no state."""
        return {**super().get_config(), **dataclasses.asdict(self.private_step.settings)}

    def check_saved(self, values, variables=None):
        """Refuses saved values of `variables` that do not fit, or that are of steps with other noise."""
        variables = [keras.native(variable) for variable in (self.variables if variables is None else variables)]
        checks.check_state(variables, values, self.name, self.private_step.positive_variables())
        if self.private_step.built:
            saved = self.private_step.past.pick(variables, [np.asarray(value) for value in values])
            past_steps.check(saved, self.noise_multiplier, self.expected_batch_size, self.name)

    def set_weights(self, weights):
        """Restores the state from a list of arrays, all of it or none."""
        self._check_built()
        super().set_weights(weights)

    def __setattr__(self, name, value):
        if name in _SETTINGS and hasattr(self, "private_step"):
            raise AttributeError(
                f"`{name}` of {self.name} can't be changed, from {getattr(self, name)!r} to {value!r}: the steps taken "
                "so far are accounted by it. Make a new optimizer; `PrivacyBudget(..., ledger=path)` adds up what both "
                "cost."
            )
        super().__setattr__(name, value)


def _plain(metrics: dict[str, tf.Tensor]) -> dict[str, Any]:
    """Numbers that print as such, the shortest that are the same in float32; in a graph the tensors."""
    if not tf.executing_eagerly():
        return metrics
    return {name: float(str(np.float32(value))) for name, value in metrics.items()}


DPOptimizer.__signature__ = signatures.of_constructor(DPOptimizer.__init__, DPOptimizer.__init__)
