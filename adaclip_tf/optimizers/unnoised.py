"""What an optimizer must remember from one batch to the next BEFORE noise is added, kept where nobody looks.

These variables hold functions of the data that are not private. They live in plain Python objects, which neither
Keras nor `tf.train.Checkpoint` follows, so that no saved model, checkpoint or `optimizer.variables` contains them. The
price: a run that is killed between two parts of a logical batch starts that logical batch anew.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from adaclip_tf import gradients
from adaclip_tf._internal import variables
from adaclip_tf.gradients import proof
from adaclip_tf.optimizers import replicas


class Accumulator:
    """The clipped sum of the batches seen so far of a logical batch. One replica's: others never see it."""

    def __init__(self, shapes, accumulation_steps: int):
        self._accumulation_steps = accumulation_steps
        zeros = [np.zeros(shape, np.float32) for shape in shapes]
        self._totals = [proof.exempt(variables.local_variable(zero, tf.float32)) for zero in zeros]
        self._records = proof.exempt(variables.local_variable(0, tf.int64))
        self._batches = proof.exempt(variables.local_variable(0, tf.int64))

    def add(self, total: list[tf.Tensor], num_records: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        """Adds a batch. Returns the sums, the number of records, and whether the logical batch is complete."""
        totals = [variable.assign_add(part) for variable, part in zip(self._totals, total)]
        # Only once the data is there: a step that finds the dataset at its end must not count.
        with tf.control_dependencies(total):
            records = self._records.assign_add(tf.cast(num_records, tf.int64))
            batches = self._batches.assign_add(1)
        return (
            [tf.identity(total) for total in totals],
            tf.identity(records),
            batches >= self._accumulation_steps,
        )

    def reset(self) -> None:
        """Starts a new logical batch."""
        for variable in [*self._totals, self._records, self._batches]:
            variable.assign(tf.zeros_like(variable))


class Accumulators:
    """An `Accumulator` for each replica, and for each set of variables that is trained."""

    def __init__(self, accumulation_steps: int):
        self._accumulation_steps = accumulation_steps
        self._made: dict[tuple[int, ...], replicas.PerReplica[Accumulator]] = {}

    def here(self, trained: tuple[int, ...], shapes: list[tf.TensorShape]) -> Accumulator:
        """The calling replica's, for the variables of these numbers, whose sums have these shapes."""
        if trained not in self._made:
            self._made[trained] = replicas.PerReplica(lambda _: Accumulator(shapes, self._accumulation_steps))
        return self._made[trained].here()

    def all(self) -> list[Accumulator]:
        """All that this process has."""
        return [accumulator for made in self._made.values() for accumulator in made.all()]


class NonprivateMetrics:
    """How the last batch was clipped, on all replicas together, for debugging on data that needs no protection.

    Examples without a finite gradient are counted, and left out of the mean norms |w_k| and |g_k|.
    """

    def __init__(self):
        names = ("clip_fraction", "nonfinite_examples", "transformed_norm_mean", "gradient_norm_mean")
        self._values = {name: proof.exempt(tf.Variable(0.0, trainable=False)) for name in names}

    def record(self, batch: gradients.ClippedSum) -> None:
        """Notes a batch."""
        finite = tf.math.is_finite(batch.squared_norms)
        norms, raw_norms = (
            tf.sqrt(tf.maximum(tf.where(finite, squares, 0.0), 0.0))
            for squares in (batch.squared_norms, batch.raw_squared_norms)
        )
        clipped, nonfinite = tf.cast(batch.weights < 1.0, tf.float32), tf.cast(~finite, tf.float32)
        sums = [tf.reduce_sum(values) for values in (clipped, nonfinite, norms, raw_norms)]
        count, clipped, nonfinite, norms, raw_norms = replicas.add_up([tf.cast(batch.num_records, tf.float32), *sums])
        count = tf.maximum(count, 1.0)
        self._values["clip_fraction"].assign(clipped / count)
        self._values["nonfinite_examples"].assign(nonfinite)
        self._values["transformed_norm_mean"].assign(norms / count)
        self._values["gradient_norm_mean"].assign(raw_norms / count)

    def read(self) -> dict[str, tf.Tensor]:
        """The last batch's values, tagged `nonprivate/`."""
        return {f"nonprivate/{name}": tf.identity(value) for name, value in self._values.items()}
