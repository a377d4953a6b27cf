"""The two things that the warm-up asks of the data, over all of it, at the weights that the model has now.

| query     | sums over the examples k                      | moved by one example, at most              |
|-----------|-----------------------------------------------|--------------------------------------------|
| `count`   | 1[|g_k / h| <= C] - 1/2                       | 1/2                                        |
| `rows`    | |u_k,row i| for all rows i, where             | 1, in L2 norm over all rows together       |
|           | u_k = g_k / (C h) clipped to norm 1           | (`gradients.row_norms` has the proof)      |

An example whose gradient is not finite answers -1/2 and 0. (1[.] - 1/2 and not 1[.]: half of n, which is public, is
taken off, and what is left has half the sensitivity.)

The norms |g_k / h| of all examples do not depend on C, so one pass over the data serves all counts with one h. They
stay in this object. `count` and `rows` return sums without noise: whoever calls them adds it before anything else
looks at them.

Examples are kept apart as in training: the same proof, the same refusals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf import gradients
from adaclip_tf._internal import keras, regularizers
from adaclip_tf.data import sampling
from adaclip_tf.optimizers import checks
from adaclip_tf.scales.rows import row_shape


class Queries:
    """Asks `data` about the gradients of a model's loss.

    Args:
      model: a built Keras model.
      loss: a `tf.keras.losses.Loss`, or None for the loss that the model was compiled with.
      data: `(x, y)` or `(x, y, sample_weight)`, as for `poisson_batches`.
      num_examples: n, where `data` is a function.
      slice_size: how many examples are looked at together.
      gradient_path: as for `DPAdaClipSGD`.
    """

    def __init__(self, model: Any, loss: Any, data: Any, num_examples: int | None, slice_size: int, gradient_path: str):
        self._load, self.num_examples = sampling.loader(data, num_examples)
        self._slice_size = slice_size
        first = self._slice(0, 1)
        check_model(model, loss, first)
        self.variables = [keras.native(variable) for variable in model.trainable_variables]
        checks.check_variables(self.variables)
        self.row_shapes = [row_shape(variable.shape) for variable in self.variables]
        self.widths = [int(variable.shape[-1]) if variable.shape.rank else 1 for variable in self.variables]
        batch = tf.nest.map_structure(lambda leaf: tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype), first)
        scale = [tf.TensorSpec(shape, tf.float32) for shape in self.row_shapes]
        losses = _losses_of(model, loss)

        def ask(batch: Any, scale: list[tf.Tensor], sums: bool) -> gradients.ClippedRowNorms:
            with tf.GradientTape() as tape:
                values = losses(batch)
            values = checks.per_example_loss(values, None, 1, tape)
            return gradients.clipped_row_norms(values, self.variables, tape, scale, path=gradient_path, sums=sums)

        def traced(sums: bool) -> Callable[..., gradients.ClippedRowNorms]:
            return tf.function(lambda b, s: ask(b, s, sums), input_signature=[batch, scale], autograph=False)

        self._norms_of, self._rows_of = traced(False), traced(True)
        self._norms: np.ndarray | None = None

    def look_at_norms(self, shapes: Sequence[np.ndarray]) -> None:
        """|g_k / h| of all examples, for the counts that follow."""
        scale = _tensors(shapes)
        found = [self._norms_of(batch, scale).squared_norms.numpy() for batch in self._slices()]
        self._norms = np.sqrt(np.concatenate(found).astype(np.float64))

    def count(self, clip: float) -> float:
        """sum_k (1[|g_k / h| <= C] - 1/2), with h of the last `look_at_norms`. No noise yet."""
        if self._norms is None:
            raise ValueError("`look_at_norms` comes before `count`.")
        within = np.less_equal(self._norms, clip)  # False for what is no number
        return float(np.sum(within)) - 0.5 * len(within)

    def rows(self, clip: float, shapes: Sequence[np.ndarray]) -> list[np.ndarray]:
        """M: sum_k |u_k,row i| for all rows. No noise yet."""
        scale = _tensors([clip * shape for shape in shapes])
        total = [np.zeros(shape) for shape in self.row_shapes]
        for batch in self._slices():
            for whole, part in zip(total, self._rows_of(batch, scale).total):
                whole += part.numpy()
        return total

    def _slices(self) -> Iterator[Any]:
        """Every example once."""
        for start in range(0, self.num_examples, self._slice_size):
            yield self._slice(start, min(start + self._slice_size, self.num_examples))

    def _slice(self, start: int, stop: int) -> Any:
        found = sampling.checked(self._load(np.arange(start, stop)), stop - start)
        return tf.nest.map_structure(tf.convert_to_tensor, found)


def check_model(model: Any, loss: Any, example: Any) -> None:
    """Builds the model if it is not, and refuses what can't be asked."""
    if keras.has_several_workers(model):
        raise NotImplementedError(
            "PrivateScales looks at the data in one process; several workers would each add noise of their own. Fit it "
            "in a program of one process, `save` it, and `load` it on all workers."
        )
    if not keras.has_keras_train_step(model):
        raise ValueError(
            f"{type(model).__name__} has a `train_step` of its own, so the loss that it trains on is not known. Make "
            "the scales with `core.Scales`, or use a model with Keras's `train_step`."
        )
    if loss is None:
        if keras.GENERATION == 2 and model.distribute_strategy.num_replicas_in_sync > 1:
            raise NotImplementedError(
                "Keras 2 can't compute a compiled loss outside of its replicas: give `loss` as a "
                "`tf.keras.losses.Loss`, or fit the scales on the same model outside of the strategy."
            )
        if getattr(model, "loss", None) is None:
            raise ValueError("`loss` is None and the model is not compiled with one: give it, or compile first.")
    elif not isinstance(loss, tf.keras.losses.Loss):
        raise ValueError(
            "`loss` must be a `tf.keras.losses.Loss`, e.g. `tf.keras.losses.MeanSquaredError()`, or None for the loss "
            f"that the model is compiled with; got {loss!r}."
        )
    if not model.built:
        model(tf.keras.utils.unpack_x_y_sample_weight(example)[0])
    regularizers.check(model)


def _losses_of(model: Any, loss: Any) -> Callable[[Any], tf.Tensor]:
    """A function from a batch to what training would differentiate."""

    def losses(batch: Any) -> tf.Tensor:
        x, y, weights = tf.keras.utils.unpack_x_y_sample_weight(batch)
        outputs = model(x, training=True)
        if loss is None:
            return model.compute_loss(x=x, y=y, y_pred=outputs, sample_weight=weights)
        if len(tf.nest.flatten(outputs)) != 1 or model.losses:
            raise ValueError(
                "A model of several outputs, or with `add_loss`, has more than one loss: compile it with all of them "
                "and give `loss=None`."
            )
        return loss(y, outputs, sample_weight=weights)

    return losses


def _tensors(arrays: Sequence[np.ndarray]) -> list[tf.Tensor]:
    return [tf.constant(array, tf.float32) for array in arrays]
