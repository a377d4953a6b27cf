"""Training steps for eager loops: traced once, remembered, and run on every batch after that.

Without a graph nothing can be proven about a loss. So eager code hands over a function and its data, and gets the same
step as a `tf.function` of its own would be.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

_REMEMBERED = 16  # loss functions; a loop that makes a new one for every batch must not fill the memory


class Steps:
    """The steps that one optimizer has traced, by loss function, variables and the layout of the data."""

    def __init__(self) -> None:
        self._steps: collections.OrderedDict[Any, Callable[..., None]] = collections.OrderedDict()

    def take(self, optimizer: Any, loss: Callable[..., tf.Tensor], variables: Any, data: Sequence[Any]) -> None:
        """One step of `optimizer` on the losses `loss(*data)`."""
        if not callable(loss) or not isinstance(data, (tuple, list)):
            raise ValueError(
                "With `data`, `loss` must be a function and `data` a tuple of the arrays that it is called with, e.g. "
                f"`minimize(loss_function, variables, data=(x, y))`; got "
                f"{type(loss).__name__} and {type(data).__name__}."
            )
        variables = list(variables() if callable(variables) else variables)
        optimizer.build(variables)
        data = tf.nest.map_structure(_tensor, tuple(data))
        _check_numbers(data)
        specs = tf.nest.map_structure(_spec, data)
        key = (loss, tuple(id(variable) for variable in variables), str(specs))
        if key not in self._steps:
            step = tf.function(
                lambda *batch: optimizer.minimize(lambda: loss(*batch), variables),
                input_signature=specs,
                autograph=False,
            )
            _check_closure(step.get_concrete_function(), data)
            self._steps[key] = step
            while len(self._steps) > _REMEMBERED:
                self._steps.popitem(last=False)
        self._steps[key](*data)


def _check_numbers(data: Any) -> None:
    """Refuses single numbers: they are no examples, and may have been computed from all of them."""
    for place, part in enumerate(data):
        if any(getattr(leaf.shape, "rank", None) == 0 for leaf in tf.nest.flatten(part)):
            raise ValueError(
                f"`data` holds a single number at place {place}. All of it are examples, one for each entry "
                "of the first axis. What is the same for all of them, and computed from none, is for the loss to take "
                "from a `tf.Variable` or a constant."
            )


def _check_closure(step: Any, data: Any) -> None:
    """Refuses arrays that the loss closes over and that look like the batch: they are not cut into examples."""
    alike = {(leaf.dtype, tuple(leaf.shape)) for leaf in tf.nest.flatten(data) if isinstance(leaf, tf.Tensor)}
    alike = {(dtype, shape) for dtype, shape in alike if shape and shape[0] > 1}
    closed_over = [tensor for tensor in step.captured_inputs if tensor.dtype not in (tf.resource, tf.variant)]
    closed_over += [op.outputs[0] for op in step.graph.get_operations() if op.type == "Const"]
    for tensor in closed_over:
        if tensor.shape.is_fully_defined() and (tensor.dtype, tuple(tensor.shape)) in alike and _differs(tensor):
            raise ValueError(
                f"The loss function uses an array of shape {tensor.shape} that it does not get as an argument, and "
                "`data` has one of the same shape and type. If it is a batch, it would not be cut into examples: add "
                "it to `data`, and to the arguments of the function."
            )


def _differs(tensor: Any) -> bool:
    """Whether its entries are not all the same, as those of zeros are."""
    value = tf.get_static_value(tensor)
    return value is None or bool(np.any(value != np.ravel(value)[0]))


def _tensor(value: Any) -> Any:
    return value if isinstance(value, (tf.RaggedTensor, tf.SparseTensor)) else tf.convert_to_tensor(value)


def _spec(tensor: Any) -> Any:
    """The type of the data, for batches of any size."""
    if isinstance(tensor, (tf.RaggedTensor, tf.SparseTensor)):
        return tf.type_spec_from_value(tensor)
    return tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype)
