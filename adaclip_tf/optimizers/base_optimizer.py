"""What all private Keras optimizers share: SGD on noised means, for any choice of (a, b).

The mathematics is in `adaclip_tf.core`, the gradients come from `adaclip_tf.gradients`; what is left here is Keras:
variables, the order of things in a step, configuration.

Formal guarantee. One logical step (all `accumulation_steps` batches together) looks at the data once, through
sum_k u_k, whose L2 sensitivity under adding or removing one example is `microbatch_sensitivity`; it adds N(0, z^2 I)
and everything that is kept or returned afterwards (gradients, weights, momentum, m, s, `private_metrics`) is
computed from the noised sum. The step is therefore one Gaussian mechanism of noise multiplier
z / `microbatch_sensitivity`, and `noised_steps` counts how many of them the weights have seen. That is so on any number
of replicas: each noises its own part of the sum before it sends it, see `adaclip_tf.optimizers.replicas`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from adaclip_tf import core, gradients
from adaclip_tf._internal import validate
from adaclip_tf.core import noise
from adaclip_tf.gradients import proof
from adaclip_tf.optimizers import checks, past, replicas, traced, unnoised

# What the accounting of a step hangs on.
_FIXED = ("noise_multiplier", "num_microbatches", "expected_batch_size", "accumulation_steps")


class _OwnLossScale(type(tf.keras.mixed_precision.LossScaleOptimizer)):  # type: ignore[misc]
    """Lets `DPOptimizer` be called like any other optimizer class."""

    def __call__(cls, *args, **kwargs):
        return type.__call__(cls, *args, **kwargs)


class DPOptimizer(tf.keras.optimizers.Optimizer, tf.keras.mixed_precision.LossScaleOptimizer, metaclass=_OwnLossScale):
    """SGD on private mean gradients, for any choice of (a, b). Use one of its subclasses.

    Under the `mixed_float16` policy Keras wraps every optimizer that is not a `LossScaleOptimizer` in one. That
    would multiply the loss, hence the gradients that are clipped, by a large number. This class therefore says it
    is one, and scales by 1: gradients are taken per example, never divided by the batch size, so they are far
    from float16's smallest numbers to begin with.
    """

    def __init__(
        self,
        choice: core.Choice,
        learning_rate: Any,
        momentum: float,
        nesterov: bool,
        *,
        noise_multiplier: float,
        num_microbatches: int | None,
        expected_batch_size: int | None,
        accumulation_steps: int,
        noise_terms: int = 1,
        gradient_path: str,
        nonprivate_metrics: bool,
        seed: int | None,
        name: str,
        **keras_optimizer_arguments: Any,
    ):
        keras_optimizer_arguments.pop("is_legacy_optimizer", None)  # `get_config` of Keras puts it there
        checks.keras_arguments(keras_optimizer_arguments, type(self).__name__)
        self.noise_multiplier = validate.noise_multiplier("noise_multiplier", noise_multiplier)
        self.momentum = validate.real("momentum", momentum)
        if not 0.0 <= self.momentum <= 1.0:
            raise ValueError(f"`momentum` must be between 0 and 1; got {momentum!r}.")
        self.nesterov = validate.boolean("nesterov", nesterov)
        if self.nesterov and not self.momentum:
            raise ValueError(f"`nesterov=True` needs a `momentum` above 0; got momentum={momentum!r}.")
        checks.learning_rate(learning_rate)
        self.num_microbatches = checks.optional_integer("num_microbatches", num_microbatches)
        self.expected_batch_size = checks.optional_integer("expected_batch_size", expected_batch_size)
        self.accumulation_steps = validate.positive_integer("accumulation_steps", accumulation_steps)
        self.noise_terms = validate.positive_integer("noise_terms", noise_terms)
        self.gradient_path = validate.one_of("gradient_path", gradient_path, gradients.PATHS)
        self.nonprivate_metrics_recorded = validate.boolean("nonprivate_metrics", nonprivate_metrics)
        self.seed = seed = validate.seed("seed", seed)
        if self.num_microbatches and self.expected_batch_size:
            logical = self.num_microbatches * self.accumulation_steps
            if self.expected_batch_size % logical:
                raise ValueError(
                    f"`expected_batch_size` must be a multiple of num_microbatches * accumulation_steps = {logical}; "
                    f"got {expected_batch_size!r}."
                )
        # Keras's own default of 0 subtracts 0 from every weight at every step.
        keras_optimizer_arguments.setdefault("weight_decay", None)
        super().__init__(name=name, **keras_optimizer_arguments)
        replicas.check_strategy(self._distribution_strategy, type(self).__name__)
        self._learning_rate = self._build_learning_rate(learning_rate)
        self._choice = choice
        self._first_phase = past.new_phase()
        self._noise = replicas.PerReplica(functools.partial(noise.NoiseSource, seed, terms=self.noise_terms))
        self._steps_on_data = traced.Steps()
        # A dozen passes over all parameters become one: a quarter of the time on a large model.
        fuse = tf.test.is_built_with_xla()
        self._fused_transform = tf.function(self._transform, jit_compile=fuse, autograph=False)
        self._fused_step = tf.function(self._step, jit_compile=fuse, autograph=False)
        if self.noise_multiplier == 0.0:
            logging.warning("noise_multiplier=0 adds no noise: %s trains WITHOUT any privacy.", name)
        if seed is not None:
            logging.warning("seed=%d makes the noise of %s predictable: for tests only, NOT private.", seed, name)

    # ------------------------------------------------------------------------------------------------------------
    # What the accountant needs to know.

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
        if self._one_example_each:
            return 1.0
        if self.expected_batch_size is None:
            seen = self.past_steps()
            return seen.microbatch_sensitivity if seen.steps else 2.0
        return 2.0

    @property
    def _one_example_each(self) -> bool:
        """Whether every microbatch is one example, by the constructor's arguments alone."""
        if self.num_microbatches is None:
            return True
        return self.expected_batch_size == self.num_microbatches * self.accumulation_steps

    def past_steps(self) -> past.PastSteps:
        """How many noised steps the weights have seen and what these were like, from the saved state.

        >>> DPAdaClipSGD(noise_multiplier=1.1).past_steps().steps
        0
        """
        if not getattr(self, "_built", False):
            return past.PastSteps(0, 0.0, 1.0, 0, past.phase_name(self._first_phase))
        return self._past.read()

    def start_phase(self, phase) -> None:
        """Makes what follows a phase of its own in a ledger; for `PrivacyBudget(..., new_phase=True)`."""
        self._first_phase = phase
        if getattr(self, "_built", False):
            self._past.start_phase(phase)

    @property
    def noised_steps(self) -> tf.Variable:
        """How many noised sums the weights have seen, an int64 variable saved with them."""
        self._check_built()
        return self._noised_steps

    def _check_built(self):
        if not getattr(self, "_built", False):
            raise ValueError(f"{self.name} has no state yet; train a step or call `build(variables)` first.")

    # ------------------------------------------------------------------------------------------------------------
    # State.

    def build(self, var_list):
        """Creates the state: m and s^2, momentum, the count of noised steps."""
        # All replicas move the state together, so it must be mirrored, wherever this is called.
        with replicas.scope(self._distribution_strategy):
            super().build(var_list)
            if not getattr(self, "_built", False):
                self._build(var_list)

    def _build(self, var_list):
        checks.check_variables(var_list)
        self._all_specs = [tf.TensorSpec(v.shape, tf.float32, _unique(i, var_list)) for i, v in enumerate(var_list)]
        self._trained = tuple(range(len(var_list)))
        state = self._choice.initial_state(self._all_specs)
        self._state_type = type(state)
        self._all_state_variables = [
            [self._add_like(variable, name, value) for variable, value in zip(var_list, values)]
            for name, values in (state._asdict().items() if state else ())
        ]
        self._momentums = []
        if self.momentum:
            self._momentums = [self.add_variable_from_reference(variable, "momentum") for variable in var_list]
        self._noised_steps = self.add_variable([], tf.int64, name="noised_steps")
        # The divisor B of the last step, for `private_metrics`.
        self._divisor = self.add_variable([], tf.float32, name="divisor")
        self._past = past.Past(self, self._noised_steps, self._first_phase)
        # Not private, so in neither `variables` nor checkpoints.
        self._accumulators: dict[tuple[int, ...], replicas.PerReplica] = {}
        if self.nonprivate_metrics_recorded:
            self._nonprivate = unnoised.NonprivateMetrics()
        self._built = True

    def _add_like(self, reference, name, initial_value):
        """A float32 variable in the shape of `reference`, whatever its dtype."""
        with tf.distribute.get_strategy().extended.colocate_vars_with(reference):
            variable = tf.Variable(
                initial_value, name=f"{name}/{reference._shared_name}", dtype=tf.float32, trainable=False
            )
        self._variables.append(variable)
        return variable

    # Layers may be frozen between phases of training. A step is then over those variables that are trained, `_trained`;
    # what is known of the others stands still.

    @property
    def _specs(self):
        return [self._all_specs[index] for index in self._trained]

    @property
    def _state_variables(self):
        return [[variables[index] for index in self._trained] for variables in self._all_state_variables]

    @property
    def _accumulator(self):
        if self._trained not in self._accumulators:
            specs = self._specs
            self._accumulators[self._trained] = replicas.PerReplica(
                lambda _: unnoised.Accumulator(specs, self.accumulation_steps)
            )
        return self._accumulators[self._trained]

    def _state(self):
        if not self._state_variables:
            return ()
        return self._state_type(*[[v.value() for v in variables] for variables in self._state_variables])

    # ------------------------------------------------------------------------------------------------------------
    # One step.

    def minimize(self, loss, var_list, tape=None, data=None):
        """Takes one private step.

        Args:
          loss: a tensor of shape [batch] with one entry per example, computed in the current graph; or a callable that
            returns one.
          var_list: the variables, or a callable that returns them.
          tape: the tape that recorded the loss, if it is a tensor.
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
          tape: the tape that recorded the loss, if it is a tensor.
        """
        if not callable(loss) and tape is None:
            raise ValueError("`tape` is required where `loss` is a tensor: the `tf.GradientTape` that recorded it.")
        self._check_strategy()
        loss, var_list, tape = _record(loss, var_list, tape)
        loss = checks.per_example_loss(loss, self._num_microbatches_here, replicas.count(), tape)
        with tf.init_scope():
            self.build(var_list)
        self._see_microbatches(loss)
        indices = [self._index_dict.get(self._var_key(variable)) for variable in var_list]
        checks.check_known_variables(indices, var_list, self.name)
        self._trained = tuple(indices)
        mean, complete = self._private_gradients(loss, var_list, tape)
        return [(_tag(gradient, self, complete), variable) for gradient, variable in zip(mean, var_list)]

    def _private_gradients(self, loss, var_list, tape):
        """g~ in the variables' dtypes, and whether it completes a logical batch."""
        state = self._state()
        transform = self._fused_transform(state) if state else self._transform(state)
        batch = gradients.clipped_sum(
            loss,
            var_list,
            tape,
            transform,
            path=self.gradient_path,
            num_microbatches=self._num_microbatches_here,
            raw_norms=self.nonprivate_metrics_recorded,
        )
        if self.nonprivate_metrics_recorded:
            self._nonprivate.record(batch)
        if self.accumulation_steps == 1:
            mean, complete = (
                self._publish(state, transform, batch.total, batch.num_records),
                tf.constant(True),
            )
        else:
            mean, complete = self._accumulate(state, transform, batch)
        mean = [tf.cast(gradient, variable.dtype) for gradient, variable in zip(mean, var_list)]
        proof.privatised([mean, complete])
        return mean, complete

    def _publish(self, state, transform, total, num_records):
        """Noises the sum, updates the state, and returns g~."""
        if replicas.count() > 1:
            noised_sum, num_records, _ = self._add_up(self._share(total), num_records)
            return self._learn(state, transform, noised_sum, None, num_records)
        return self._learn(state, transform, total, self._fresh_normals(), num_records)

    def _fresh_normals(self):
        return self._noise.here().fresh_normals([spec.shape for spec in self._specs])

    def _share(self, total):
        """W_r, all that a replica ever sends: its own sum with noise of variance z^2 / R."""
        share = self.noise_multiplier / math.sqrt(replicas.count())
        return [u + share * normal for u, normal in zip(total, self._fresh_normals())]

    def _add_up(self, shares, num_records, *more):
        """W, the number of records and more numbers, over all replicas."""
        # Where B is given, how many records a replica has is private, and not sent.
        counts = [] if self._expected_records else [tf.cast(num_records, tf.float32)]
        sums = iter(replicas.add_up([*shares, *counts, *more]))
        noised_sum = [next(sums) for _ in shares]
        return noised_sum, next(sums) if counts else None, list(sums)

    def _learn(self, state, transform, total, normals, num_records):
        """Updates the state from the sum, which is noised already if `normals` is None, and returns g~."""
        divisor = tf.cast(self._expected_records or num_records, tf.float32)
        # An empty batch of unknown expected size has nothing to be divided by.
        divisor = tf.maximum(divisor, 1.0)
        proof.privatised([divisor, num_records])  # the size of a batch is public where no other is given
        mean, next_state = self._fused_step(state, transform, total, normals, divisor)
        proof.privatised([mean, next_state])
        for variables, values in zip(self._state_variables, next_state):
            for variable, value in zip(variables, values):
                variable.assign(value, read_value=False)
        # Only once the data is there: a step that finds the dataset at its end must not count.
        with tf.control_dependencies(mean):
            self._divisor.assign(divisor, read_value=False)
            self._count_step(num_records)
        return mean

    def _count_step(self, num_records):
        """Notes what this step is like, for those who count epsilon, and counts it."""
        size = self.expected_batch_size
        if size is None:  # so sizes are public
            size = self._past.examples(num_records if self._expected_records is None else self._expected_records)
        self._past.see_step(self.noise_multiplier, size)
        self._noised_steps.assign_add(1, read_value=False)

    def _see_microbatches(self, loss):
        """Notes how many examples a microbatch holds, for `microbatch_sensitivity`."""
        if self._one_example_each:
            return
        # Replicas may have parts of different sizes: nothing is claimed for them.
        size = tf.shape(loss)[0] // self._num_microbatches_here if replicas.count() == 1 else 2
        self._past.see_microbatch(size)

    def _transform(self, state):
        return self._choice.transform(state, self._specs)

    def _step(self, state, transform, total, normals, divisor):
        if normals is None:
            return core.published_step(self._choice, state, transform, total, self.noise_multiplier, divisor)
        return core.private_step(self._choice, state, transform, total, normals, self.noise_multiplier, divisor)

    def _accumulate(self, state, transform, batch):
        """Adds a batch to the logical batch. Returns g~ and True if it is the last one, 0 and False otherwise.

        (a, b) only change when a step is published, so all parts of a logical batch are clipped alike.
        """
        accumulator = self._accumulator.here()
        total, records, complete = accumulator.add(batch)
        if replicas.count() == 1:
            publish = functools.partial(self._publish, state, transform, total, records)
        else:
            noised_sum, records = self._add_up_if_complete(total, records, complete)
            publish = functools.partial(self._learn, state, transform, noised_sum, None, records)

        def publish_and_reset():
            mean = publish()
            with tf.control_dependencies(mean):
                accumulator.reset()
            return mean

        return tf.cond(complete, publish_and_reset, self._zeros), complete

    def _zeros(self):
        return [tf.zeros(spec.shape) for spec in self._specs]

    def _add_up_if_complete(self, total, records, complete):
        """W and the number of records over all replicas. These can't meet inside `tf.cond`: until the logical batch is
        complete they add up zeros, so that nothing un-noised is ever sent."""
        shares = tf.cond(complete, lambda: self._share(total), self._zeros)
        noised_sum, records, (completes,) = self._add_up(shares, records, tf.cast(complete, tf.float32))
        agreement = tf.debugging.assert_equal(
            completes,
            tf.where(complete, float(replicas.count()), 0.0),  # a share that is missing is noise that is missing
            message="Replicas disagree on where a logical batch ends. Start all workers anew from one checkpoint.",
        )
        with tf.control_dependencies([agreement]):
            return [tf.identity(part) for part in noised_sum], records

    def apply_gradients(self, grads_and_vars, name=None, **kwargs):
        """Applies what `compute_gradients` returned. Other gradients are refused: they are not private."""
        grads_and_vars = list(grads_and_vars)
        complete = _completes(grads_and_vars, self)
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
        velocity = self._momentums[self._index_dict[self._var_key(variable)]]
        velocity.assign(step + velocity * momentum)
        variable.assign_add(step + velocity * momentum if self.nesterov else velocity)

    @property
    def _expected_records(self) -> int | None:
        """B as far as it is known before the batch: microbatches of the logical batch."""
        if self.num_microbatches is not None:
            return self.num_microbatches * self.accumulation_steps
        return self.expected_batch_size

    @property
    def _num_microbatches_here(self) -> int | None:
        """Microbatches of one replica's part of a batch; None where each is one example."""
        return None if self._one_example_each else self.num_microbatches // replicas.count()

    def _check_strategy(self):
        """Refuses what would not be one noised sum per step."""
        strategy, name = tf.distribute.get_strategy(), type(self).__name__
        replicas.check_strategy(strategy, name)
        if replicas.count() == 1:
            return
        if self._distribution_strategy is not strategy:
            raise ValueError(
                f"{name} was made outside the scope of the {type(strategy).__name__} that it runs under, so its state "
                "would not be the same on all replicas. Make it and the model inside `with strategy.scope():`."
            )
        if tf.distribute.in_cross_replica_context():
            raise ValueError(f"{name} takes steps on each replica: call it in a function that `strategy.run` runs.")
        if tf.executing_eagerly():
            raise NotImplementedError(
                f"{name} needs a graph on {replicas.count()} replicas: leave out `run_eagerly=True`, or call "
                "`strategy.run` inside a `tf.function`."
            )
        if self.num_microbatches and self.num_microbatches % replicas.count():
            raise ValueError(
                f"`num_microbatches` counts those of the whole batch and must be a multiple of the {replicas.count()} "
                f"replicas; got {self.num_microbatches}."
            )

    # ------------------------------------------------------------------------------------------------------------
    # What may be looked at.

    def private_metrics(self) -> dict[str, tf.Tensor]:
        """Scalars computed from privatised quantities only: safe to log. Works in graph mode.

        Returns:
          `noise_norm` z |b| / B and `scale_norm` |b|; for adaptive choices also `mean_norm` |m| and `std_mean`,
          `std_min`, `std_max` of s. B is that of the last step where `expected_batch_size` was not given.
        """
        self._check_built()
        state = self._state()
        transform = self._transform(state)
        divisor = self._expected_records or self._divisor
        return core.published_metrics(state, transform, self._specs, self.noise_multiplier, divisor)

    def private_state(self) -> dict[str, dict[str, tf.Tensor]]:
        """What is known of every variable's gradient, in its shape, by its name. Privatised, so safe to look at.

        Returns:
          {name: {"center": a, "scale": b}}, with "std": s as well for adaptive choices.
        """
        self._check_built()
        state = self._state()
        transform = self._transform(state)
        result = {}
        for index, spec in enumerate(self._specs):
            center, scale = (tf.broadcast_to(part[index], spec.shape) for part in transform)
            result[spec.name] = {"center": center, "scale": scale}
            if isinstance(state, core.Moments):
                result[spec.name]["std"] = tf.sqrt(state.variance[index])
        return result

    def nonprivate_metrics(self) -> dict[str, tf.Tensor]:
        """NOT private: how the last batch was clipped. For debugging on data that needs no protection.

        Only with `nonprivate_metrics=True` at construction.
        """
        if not self.nonprivate_metrics_recorded:
            raise ValueError(
                f"{self.name} records no un-noised quantities. Construct it with `nonprivate_metrics=True`, on data "
                "that needs no protection."
            )
        self._check_built()
        return self._nonprivate.read()

    # ------------------------------------------------------------------------------------------------------------
    # Saving and loading.

    def get_config(self):
        """All that the constructor needs; no state."""
        config = super().get_config()
        learning_rate = self._serialize_hyperparameter(self._learning_rate)
        config.update(
            learning_rate=learning_rate if isinstance(learning_rate, dict) else float(learning_rate),
            momentum=self.momentum,
            nesterov=self.nesterov,
            noise_multiplier=self.noise_multiplier,
            num_microbatches=self.num_microbatches,
            expected_batch_size=self.expected_batch_size,
            accumulation_steps=self.accumulation_steps,
            noise_terms=self.noise_terms,
            gradient_path=self.gradient_path,
            nonprivate_metrics=self.nonprivate_metrics_recorded,
            seed=self.seed,
        )
        for argument in ("clipnorm", "global_clipnorm", "clipvalue", "is_legacy_optimizer"):
            config.pop(argument, None)
        return config

    def load_own_variables(self, store):
        """Restores the state, all of it or none: a lost count of steps would be a lost privacy guarantee."""
        self._check_state([store[key] for key in sorted(store.keys(), key=int)])
        super().load_own_variables(store)

    def set_weights(self, weights):
        """Restores the state from a list of arrays, all of it or none."""
        self._check_built()
        self._check_state(weights)
        super().set_weights(weights)

    def _check_state(self, values):
        """Refuses saved values of `variables` that do not fit, or that are of steps with other noise."""
        checks.check_state(self.variables, values, self.name)
        if getattr(self, "_built", False):
            saved = self._past.pick(self.variables, [np.asarray(value) for value in values])
            past.check(saved, self.noise_multiplier, self.expected_batch_size, self.name)

    def __setattr__(self, name, value):
        if name in _FIXED and name in self.__dict__:
            raise AttributeError(
                f"`{name}` of {self.name} can't be changed, from {getattr(self, name)!r} to {value!r}: the steps taken "
                "so far are accounted by it. Make a new optimizer; `PrivacyBudget(..., ledger=path)` adds up what both "
                "cost."
            )
        super().__setattr__(name, value)

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


def _unique(index, var_list) -> str:
    """The variable's name, numbered where another one has the same."""
    name = var_list[index].name.split(":")[0]
    earlier = sum(variable.name.split(":")[0] == name for variable in var_list[:index])
    return f"{name}_{earlier}" if earlier else name


def _record(loss, var_list, tape):
    """Turns a callable loss into a tensor and its tape."""
    if callable(loss):
        tape = tape or tf.GradientTape()
        with tape:
            loss = loss()
    var_list = list(var_list() if callable(var_list) else var_list)
    return tf.convert_to_tensor(loss), var_list, tape


def _tag(gradient, optimizer, complete):
    """Marks a gradient as private, for `apply_gradients`."""
    gradient._adaclip_from = (id(optimizer), complete)
    return gradient


def _completes(grads_and_vars, optimizer):
    """Whether the gradients complete a logical batch, after a check that `optimizer` made them."""
    complete = None
    for gradient, variable in grads_and_vars:
        maker, complete = getattr(gradient, "_adaclip_from", (None, None))
        if maker != id(optimizer):
            raise ValueError(
                f"The gradient of {variable.name!r} was not made by this optimizer, so it is not private. Call "
                "`minimize(loss, variables, tape)`, or pass on what `compute_gradients` returned, unchanged."
            )
    return complete
