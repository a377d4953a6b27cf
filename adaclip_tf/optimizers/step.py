"""The private step that all optimizers share, in named phases. It knows variables and graphs, and no Keras.

| phase                 | does                                                                                         |
|-----------------------|----------------------------------------------------------------------------------------------|
| `clip_and_accumulate` | sum_k u_k of the batch, added to what the logical batch has so far                           |
| `add_noise`           | W = sum + N(0, z^2 I), formed in one place: each of R replicas noises its own part with      |
|                       | variance z^2 / R before it sends it (`replicas`); one replica is the trivial case            |
| `publish`             | the replicas' parts are added up                                                             |
| `learn`               | g~ = b W / B + a or the rule's direction, its next state; notes for those who count epsilon  |
| update                | the optimizer's: SGD on g~, or whatever it likes. Post-processing                            |

Formal guarantee. One logical step (all `accumulation_steps` batches together) looks at the data once, through
sum_k u_k, whose L2 sensitivity under adding or removing one example is `microbatch_sensitivity`; it adds N(0, z^2 I)
and everything that is kept or returned afterwards is computed from the noised sum. The step is therefore one Gaussian
mechanism of noise multiplier z / `microbatch_sensitivity`, and `noised_steps` counts how many of them there were.
"""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf import core, gradients
from adaclip_tf.core import noise
from adaclip_tf.gradients import proof
from adaclip_tf.optimizers import fused, past, replicas, shared_batches, unnoised
from adaclip_tf.optimizers.joined import Joined, unique_name
from adaclip_tf.optimizers.rule_state import RuleState
from adaclip_tf.optimizers.settings import Settings
from adaclip_tf.privacy import past_steps


class PrivateStep:
    """One private step over a list of variables, its state and its noise."""

    def __init__(self, rule: core.ClippingRule, settings: Settings):
        self.rule, self.settings = rule, settings
        self.built = False
        self._first_phase = past_steps.new_phase()
        self.noise_sources = replicas.PerReplica(
            functools.partial(noise.NoiseSource, settings.seed, terms=settings.noise_terms)
        )
        self._alike = replicas.Alike()
        self._met: weakref.WeakSet[PrivateStep] = weakref.WeakSet()
        self._fused_learn = fused.if_large(self._published_step, lambda: self.specs)
        self._fused_private_step = fused.if_large(self._private_step, lambda: self.specs)

    # ------------------------------------------------------------------------------------------------------------
    # State.

    def build(self, variables: Sequence[Any], names: Sequence[str], add: Callable[..., tf.Variable]) -> None:
        """Makes the state by `add(initial value, name, variable to be like or None)`, which has it saved."""
        self._all_specs = [tf.TensorSpec(v.shape, tf.float32, unique_name(i, names)) for i, v in enumerate(variables)]
        self._trained = tuple(range(len(variables)))
        self._rule_state = RuleState(self.rule, self._all_specs, variables, add)
        self.noised_steps = add(np.int64(0), "noised_steps")
        self.divisor = add(np.float32(0.0), "divisor")  # B of the last step, for `metrics`
        self.past = past.Past(add, self.noised_steps, self._first_phase, variables)
        # Not private, so in neither the saved state nor checkpoints.
        self._accumulators = unnoised.Accumulators(self.settings.accumulation_steps)
        if self.settings.nonprivate_metrics:
            self.nonprivate = unnoised.NonprivateMetrics()
        self.built = True

    def train_only(self, indices: Sequence[int]) -> None:
        """The variables, by number, that the coming steps are over: others are frozen."""
        self._trained = tuple(indices)

    @property
    def specs(self) -> list[tf.TensorSpec]:
        """Shapes and names of the variables that are trained."""
        return [self._all_specs[index] for index in self._trained]

    def state(self) -> Any:
        """The rule's state, of the variables that are trained."""
        return self._rule_state.read(self._trained)

    def positive_variables(self) -> list[tf.Variable]:
        """Those of the rule's state that are above 0 in any state that can be gone on from."""
        return self._rule_state.variables_named(self.rule.positive_state) if self.built else []

    def meet(self, other: PrivateStep | None) -> None:
        """Both know of each other from now on: they train on the same batches."""
        if other is not None and other is not self:
            self._met.add(other)
            other._met.add(self)

    def other_past_steps(self) -> list[past_steps.PastSteps]:
        """What optimizers did that trained some of these variables before, or train on the same batches, here."""
        if not self.built:
            return []
        known = self.past.others()
        met = [seen for seen in (other.past_steps() for other in self._met) if seen.steps]
        return [*known, *(seen for seen in met if all(seen.phase != other.phase for other in known))]

    def past_steps(self) -> past_steps.PastSteps:
        """How many noised steps there were and what they were like, from the saved state."""
        if not self.built:
            return past_steps.PastSteps(0, 0.0, 1.0, 0, past_steps.phase_name(self._first_phase))
        return self.past.read()

    def start_phase(self, phase: np.ndarray) -> None:
        """Makes what follows a phase of its own in a ledger."""
        self._first_phase = phase
        if self.built:
            self.past.start_phase(phase)

    @property
    def microbatch_sensitivity(self) -> float:
        """How far sum_k u_k can move when one example is added or removed: see `DPOptimizer`."""
        if self.settings.one_example_each:
            return 1.0
        if self.settings.expected_batch_size is None:
            seen = self.past_steps()
            return seen.microbatch_sensitivity if seen.steps else 2.0
        return 2.0

    @property
    def accumulator(self) -> unnoised.Accumulator:
        """This replica's un-noised sum."""
        return self._accumulators.here(self._trained, [spec.shape for spec in self._sum_specs()])

    def drop_unfinished(self) -> None:
        """Forgets the parts of a logical batch that was not completed: what follows is of another draw."""
        for accumulator in self._accumulators.all() if self.built else ():
            accumulator.reset()

    def _sum_specs(self) -> list[tf.TensorSpec]:
        """What a batch is summed into: gradients, then the rule's statistics."""
        return [*self.specs, *([tf.TensorSpec([self.rule.num_statistics])] if self.rule.num_statistics else [])]

    # ------------------------------------------------------------------------------------------------------------
    # One step.

    def take(self, loss: tf.Tensor, variables: Sequence[tf.Variable], tape: Any) -> tuple[list[tf.Tensor], tf.Tensor]:
        """All phases but the update: g~ in the variables' dtypes, and whether it completes a logical batch.

        (a, b) only change when a step is published, so all parts of a logical batch are clipped alike. Until it is
        complete, g~ is 0.
        """
        self._see_microbatches(loss)
        joined, state = self._rule_state.read_joined(self._trained)
        transform = self.rule.transform(state, joined.specs)
        batch, records, complete = self.clip_and_accumulate(loss, variables, tape, joined.part_transform(transform))
        if replicas.count() == 1:  # nobody to add up with: noise and what follows in one pass over the parameters
            learn = functools.partial(self._noise_and_learn, joined, state, transform, batch, records)
        else:
            shares = _when(complete, lambda: self.add_noise(batch.total), self._sum_specs())
            noised_sum, records = self.publish(shares, records, complete)
            learn = functools.partial(self.learn, joined, state, transform, noised_sum, records)
        mean = _when(complete, learn, self.specs)
        mean = [tf.cast(gradient, variable.dtype) for gradient, variable in zip(mean, variables)]
        complete = tf.convert_to_tensor(complete)
        proof.privatised([mean, complete])
        return mean, complete

    def clip_and_accumulate(self, loss, variables, tape, transform):
        """Returns the batch with sum_k u_k of the logical batch so far, its records, and whether it is complete."""
        clip, alone = self.rule.clip(self.specs), self.settings.accumulation_steps == replicas.count() == 1
        batch = gradients.clipped_sum(
            loss,
            variables,
            tape,
            transform,
            path=self.settings.gradient_path,
            num_microbatches=self.settings.num_microbatches_of(replicas.count()),
            clip=clip,
            raw_norms=self.settings.nonprivate_metrics,
            may_leave_transform=alone,
        )
        self._alike.check(batch)
        self._together = [self, *shared_batches.note(self, batch.data)]
        if self.settings.nonprivate_metrics:
            self.nonprivate.record(batch)
        total = [*batch.total, *core.statistics_sum(self.rule, clip, batch.squared_norms)]
        # Where no error stops a batch that must be refused, as in XLA, weights become NaN: noise alone would tell it
        # from the same batch without an example, which may be a right one.
        self._poison = batch.poison if alone else 0.0
        if self._poison is not batch.poison:
            total = [part + batch.poison for part in total]
        records, complete = batch.num_records, True
        if self.settings.accumulation_steps > 1:
            total, records, complete = self.accumulator.add(total, records)
        return batch._replace(total=total), records, complete

    def add_noise(self, total):
        """W_r, all that a replica ever sends: its own sum with noise of variance z^2 / R."""
        return core.add_noise(total, self._normals(), self._share)

    def _normals(self):
        return self.noise_sources.here().fresh_normals([spec.shape for spec in self._sum_specs()])

    @property
    def _share(self) -> float:
        """The standard deviation of one replica's noise: R of them add up to z."""
        return self.settings.noise_multiplier / math.sqrt(replicas.count())

    def publish(self, shares, records, complete):
        """W and the number of records, over all replicas.

        These can't meet inside `tf.cond`: until the logical batch is complete they add up zeros, so that nothing
        un-noised is ever sent.
        """
        counts = [] if self.settings.expected_records else [tf.cast(records, tf.float32)]  # private where B is given
        agreed = [] if complete is True else [tf.cast(complete, tf.float32)]
        sums = replicas.add_up([*shares, *counts, *agreed])
        noised_sum, records = sums[: len(shares)], sums[len(shares)] if counts else None
        if not agreed:
            return noised_sum, records
        agreement = tf.debugging.assert_equal(
            sums[-1],
            tf.where(complete, float(replicas.count()), 0.0),  # a share that is missing is noise that is missing
            message="Replicas disagree on where a logical batch ends. Start all workers again from one checkpoint.",
        )
        with tf.control_dependencies([agreement]):
            return [tf.identity(part) for part in noised_sum], records

    def learn(self, joined, state, transform, noised_sum, records):
        """Updates the state from W, counts the step, and returns g~."""
        return self._keep(joined, records, self._fused_learn, state, transform, joined.join(noised_sum))

    def _noise_and_learn(self, joined, state, transform, batch, records):
        """`learn` from W = `add_noise(total)`, compiled together."""
        with fused.after(batch.weights, batch.total, self.specs):
            sums = joined.join(batch.total), batch.weight, joined.join(self._normals())
        # Without a state (a, b) are constants, and XLA divides by a constant faster: where it compiles it makes them.
        made_there = not tf.nest.flatten(state) and fused.is_large(self.specs)
        known = None if made_there else transform.without_zeros()
        return self._keep(joined, records, self._fused_private_step, state, self._trained, known, *sums)

    def _keep(self, joined, records, release, *arguments):
        """Keeps what `release(*arguments, divisor)` makes known, g~ and the next state; counts the step."""
        # An empty batch of unknown expected size has nothing to be divided by.
        divisor = tf.maximum(tf.cast(self.settings.expected_records or records, tf.float32), 1.0) + self._poison
        proof.privatised([divisor, records])  # the size of a batch is public where no other is given
        mean, next_state = release(*arguments, divisor)
        proof.privatised([mean, next_state])
        mean = joined.part(mean)
        self._rule_state.assign(self._trained, joined, next_state)
        # Only once the data is there: a step that finds the dataset at its end must not count.
        with tf.control_dependencies(mean):
            self.divisor.assign(divisor, read_value=False)
            self._count(records)
            if self.settings.accumulation_steps > 1:
                self.accumulator.reset()
        return mean

    def _published_step(self, state, transform, noised_sum, divisor):
        """The direction of the update, g~ or what the rule makes of it, and the next state."""
        mean, next_state = core.published_step(
            self.rule, state, transform, noised_sum, self.settings.noise_multiplier, divisor
        )
        return self.rule.direction(next_state, mean), next_state

    def _private_step(self, state, trained, transform, total, weight, normals, divisor):
        if transform is None:  # `trained` is traced for: no state says which variables it is of
            transform = self.rule.transform(state, Joined(self.rule, [self._all_specs[i] for i in trained]).specs)
        transform = transform.with_zeros()
        if weight is not None:  # sum_k u_k from sum_k c_k g_k, here in one pass with all else
            total = transform.apply_to_sums(total, weight)
        return self._published_step(state, transform, core.add_noise(total, normals, self._share), divisor)

    def _count(self, records):
        """Notes what this step is like, for those who count epsilon, and counts it."""
        size, expected = self.settings.expected_batch_size, self.settings.expected_records
        if size is None:  # so sizes are public
            size = self.past.examples(records if expected is None else expected)
        shared_batches.see_step(self._together, size)
        self.noised_steps.assign_add(1, read_value=False)

    def _see_microbatches(self, loss):
        """Notes how many examples a microbatch holds, for `microbatch_sensitivity`."""
        if self.settings.one_example_each:
            return
        # Replicas may have parts of different sizes: nothing is claimed for them.
        size = tf.shape(loss)[0] // self.settings.num_microbatches_of(1) if replicas.count() == 1 else 2
        self.past.see_microbatch(size)

    # ------------------------------------------------------------------------------------------------------------
    # What may be looked at.

    def metrics(self) -> dict[str, tf.Tensor]:
        """Scalars computed from privatised quantities only."""
        divisor = self.settings.expected_records or self.divisor
        return core.published_metrics(self.rule, self.state(), self.specs, self.settings.noise_multiplier, divisor)

    def details(self) -> dict[str, dict[str, tf.Tensor]]:
        """{variable's name: {"center": a, "scale": b, ...}}, in its shape. Privatised."""
        return core.published_details(self.rule, self.state(), self.specs)


def _when(complete: Any, then: Callable[[], Any], specs: Sequence[tf.TensorSpec]) -> Any:
    """`then()` where the logical batch is complete, else zeros."""
    return then() if complete is True else tf.cond(complete, then, lambda: [tf.zeros(spec.shape) for spec in specs])
