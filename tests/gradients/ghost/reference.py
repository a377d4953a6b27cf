"""An independent reference for the ghost rules: every example's gradient by itself, in NumPy float64."""

import numpy as np
import tensorflow as tf

from adaclip_tf.gradients import ghost


def squared_error(output):
    """A loss per example that sends a different gradient to every output."""
    output = tf.cast(output, tf.float32)
    target = tf.cos(tf.range(output.shape[1:].num_elements(), dtype=tf.float32))
    errors = tf.square(output - tf.reshape(target, output.shape[1:]))
    return tf.reduce_mean(errors, axis=list(range(1, output.shape.rank)))


class Case:
    """A loss per example and its variables, with public vectors (a, b) and weights to try.

    `run` returns what the handles say, `expected` what the examples' own gradients say.
    """

    def __init__(self, loss, variables, spec, rng, num_microbatches=None, center_size=0.1):
        self.loss, self.variables, self.spec = loss, variables, spec
        self.num_microbatches = num_microbatches
        self.centers = [rng.normal(size=v.shape, scale=center_size).astype(np.float32) for v in variables]
        self.scales = [rng.uniform(0.2, 2.0, size=v.shape).astype(np.float32) for v in variables]
        self.plan = None
        self.ghost = tf.function(self._ghost, input_signature=[spec, tf.TensorSpec([None])], autograph=False)
        self._alone = tf.function(self._gradients, input_signature=[spec], autograph=False)

    def _gradients(self, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(self.loss(x))
        return self._dense(tape.gradient(loss, self.variables))

    def _dense(self, gradients):
        return [tf.zeros(v.shape) if g is None else tf.convert_to_tensor(g) for g, v in zip(gradients, self.variables)]

    def _ghost(self, x, weights):
        with tf.GradientTape() as tape:
            loss = self.loss(x)
        size = 1
        n = tf.shape(loss)[0]
        if self.num_microbatches is not None:
            n = tf.constant(self.num_microbatches)
            size = tf.shape(loss)[0] // n
        seed = tf.identity(tf.fill(tf.shape(loss), 1.0 / tf.cast(size, tf.float32)))
        gradients = tape.gradient(loss, self.variables, output_gradients=seed)
        self.plan = ghost.analyse(gradients, self.variables, seed, num_microbatches=n)
        results = {}
        for index, handle in self.plan.recognised.items():
            results[index] = (
                handle.squared_norms(tf.constant(self.centers[index]), tf.constant(self.scales[index])),
                handle.squared_norms(tf.constant(0.0), tf.constant(0.5)),
                handle.weighted_sum(weights),
            )
        return results

    def alone(self, x):
        """Per-microbatch gradients, one list entry per variable: [n, ...], each example run by itself."""
        rows = [[np.asarray(g, np.float64) for g in self._alone(x[k : k + 1])] for k in range(len(x))]
        stacked = [np.reshape([row[i] for row in rows], [len(x), *v.shape]) for i, v in enumerate(self.variables)]
        if self.num_microbatches is None:
            return stacked
        n = self.num_microbatches
        return [g.reshape([n, len(x) // n, *g.shape[1:]]).mean(axis=1) for g in stacked]

    def jacobian(self, x):
        """Per-example gradients [n, ...] of the losses of ONE batch, for models that mix examples."""
        rows = []
        for k in range(len(x)):
            with tf.GradientTape() as tape:
                loss = self.loss(x)[k]
            rows.append([np.asarray(g, np.float64) for g in self._dense(tape.gradient(loss, self.variables))])
        return [np.stack(column) for column in zip(*rows)]

    def check(self, x, records=None, all_recognised=True):
        """Compares everything with the reference on one batch."""
        records = self.alone(x) if records is None else records
        n = len(records[0])
        weights = np.random.default_rng(n).uniform(0.1, 1.0, size=n).astype(np.float32)
        results = self.ghost(x, weights)
        if all_recognised:
            assert not self.plan.unrecognised, self.plan.unrecognised
        largest = max(np.abs(record).max(initial=0.0) for record in records)
        for index, (full, plain, total) in results.items():
            g, name = records[index], f"{self.variables[index].name} at batch {len(x)}"
            center, scale = self.centers[index], self.scales[index]
            check_norms(full, g, center, scale, name, largest=largest)
            check_norms(plain, g, 0.0, 0.5, name, largest=largest)
            assert total.shape == self.variables[index].shape
            assert total.dtype == tf.float32
            expected = np.tensordot(weights.astype(np.float64), g, 1)
            terms = np.tensordot(weights.astype(np.float64), np.abs(g), 1)
            # The reference is float32 itself, and other processors convolve in another order.
            tolerance = 1e-4 * np.abs(expected) + 5e-5 * terms + 5e-6 * terms.max(initial=0.0) + 1e-7
            assert np.all(np.abs(total - expected) <= tolerance), name


def check_norms(norms, records, center, scale, name, rtol=1e-4, largest=None):
    """value is right to `rtol`, magnitude covers it, and value + ulps * magnitude is an upper bound.

    The reference's own gradients are rounded, relative to what they are sums of, which may cancel: about 2e-6 of the
    `largest` gradient of the model. What is bounded is the square of the least that they may be.
    """
    axes = tuple(range(1, records.ndim))
    squares = np.square((records - center) / scale).sum(axis=axes)
    value, magnitude = norms.value.numpy().astype(np.float64), norms.magnitude.numpy().astype(np.float64)
    assert value.shape == magnitude.shape == (len(records),), name
    rounding = 2e-6 * (np.abs(records).max(initial=0.0) if largest is None else largest)
    least = np.square(np.maximum(np.abs(records - center) - rounding, 0.0) / scale).sum(axis=axes)
    most = np.square((np.abs(records - center) + rounding) / scale).sum(axis=axes)
    slack = rtol * squares + 1e-6 * magnitude.max(initial=0.0) + 1e-10
    assert np.all((value >= least - slack) & (value <= most + slack)), name
    assert np.all(magnitude >= value * (1 - 1e-6)), name
    assert np.all(value + 1e-5 * magnitude + 1e-10 >= least), name
