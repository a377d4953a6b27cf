"""What an optimizer must remember from one batch to the next BEFORE noise is added, kept where nobody looks.

These variables hold functions of the data that are not private. They live in plain Python objects, which neither
Keras nor `tf.train.Checkpoint` follows, so that no saved model, checkpoint or `optimizer.variables` contains them. The
price: a run that is killed between two parts of a logical batch starts that logical batch anew.
"""

from __future__ import annotations

import tensorflow as tf

from adaclip_tf import gradients


class Accumulator:
    """The clipped sum of the batches seen so far of a logical batch."""

    def __init__(self, specs, accumulation_steps: int):
        self._accumulation_steps = accumulation_steps
        self._totals = [tf.Variable(tf.zeros(spec.shape), trainable=False) for spec in specs]
        self._records = tf.Variable(0, trainable=False, dtype=tf.int64)
        self._batches = tf.Variable(0, trainable=False, dtype=tf.int64)

    def add(self, batch: gradients.ClippedSum) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        """Adds a batch. Returns the sums, the number of records, and whether the logical batch is complete."""
        totals = [variable.assign_add(total) for variable, total in zip(self._totals, batch.total)]
        records = self._records.assign_add(tf.cast(batch.num_records, tf.int64))
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


class NonprivateMetrics:
    """How the last batch was clipped, for debugging on data that needs no protection.

    Examples without a finite gradient are counted, and left out of the mean norms |w_k| and |g_k|.
    """

    def __init__(self):
        names = ("clip_fraction", "nonfinite_examples", "transformed_norm_mean", "gradient_norm_mean")
        self._values = {name: tf.Variable(0.0, trainable=False) for name in names}

    def record(self, batch: gradients.ClippedSum) -> None:
        """Notes a batch."""
        count = tf.maximum(tf.cast(batch.num_records, tf.float32), 1.0)
        finite = tf.math.is_finite(batch.squared_norms)
        norms, raw_norms = (
            tf.sqrt(tf.maximum(tf.where(finite, squares, 0.0), 0.0))
            for squares in (batch.squared_norms, batch.raw_squared_norms)
        )
        clipped = tf.cast(batch.weights < 1.0, tf.float32)
        self._values["clip_fraction"].assign(tf.reduce_sum(clipped) / count)
        self._values["nonfinite_examples"].assign(tf.reduce_sum(tf.cast(~finite, tf.float32)))
        self._values["transformed_norm_mean"].assign(tf.reduce_sum(norms) / count)
        self._values["gradient_norm_mean"].assign(tf.reduce_sum(raw_norms) / count)

    def read(self) -> dict[str, tf.Tensor]:
        """The last batch's values, tagged `nonprivate/`."""
        return {f"nonprivate/{name}": tf.identity(value) for name, value in self._values.items()}
