"""How far the private gradient g~ is from the batch's own g. NOT private: for experiments on public data."""

from __future__ import annotations

import tensorflow as tf

NAME = "gradient_error"


class MeasuringModel(tf.keras.Model):
    """A model that trains as ever and reports the mean of |g - g~|, with g = sum_k g_k / B."""

    @classmethod
    def around(cls, model: tf.keras.Model) -> MeasuringModel:
        """A measuring model of the same layers."""
        return cls(model.inputs, model.outputs)

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.gradient_error = tf.keras.metrics.Mean(name=NAME)

    @property
    def metrics(self):
        return [*super().metrics, self.gradient_error]

    def train_step(self, batch):
        """Differentiates twice: once for the optimizer, once for the truth."""
        x, y = batch
        variables = self.trainable_variables
        with tf.GradientTape() as truth, tf.GradientTape() as tape:
            prediction = self(x, training=True)
            loss = self.compute_loss(x, y, prediction)
        divisor = float(self.optimizer.expected_batch_size)
        exact = truth.gradient(loss, variables, output_gradients=tf.ones_like(loss) / divisor)
        private = self.optimizer.compute_gradients(loss, variables, tape)
        difference = [g - noised for g, (noised, _) in zip(exact, private)]
        self.gradient_error.update_state(tf.linalg.global_norm(difference))
        self.optimizer.apply_gradients(private)
        return self.compute_metrics(x, y, prediction, None)
