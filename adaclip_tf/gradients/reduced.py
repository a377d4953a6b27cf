"""From the mean over a batch, as Keras's losses are by default, back to the loss of each example.

A mean has lost nothing that the graph does not still hold: it is `Sum(v) / size of v`, and v is there. Several outputs
are a sum of such means; loss weights are factors, constants or public scalars, such as what a trained variance makes of
itself. That is all that is taken apart here; whether v has an entry per example, and keeps examples apart, is for
`gradients.proof` to show, as for any other loss. What is not a plain mean (a sum, a mean over unmasked entries, a
regularizer) is refused: what would be clipped and divided by B there is not what was asked for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from adaclip_tf._internal import made
from adaclip_tf.gradients import divisors, graph
from adaclip_tf.gradients.proof.labels import Lost, Public, Rows
from adaclip_tf.gradients.proof.walk import Walk

_FIX = (
    "Use a loss that is a plain mean over examples, as Keras's are by default, or one made with "
    '`reduction="none"`, e.g. `SparseCategoricalCrossentropy(reduction="none")`.'
)
_DECAY = "Instead of a regularizer use the optimizer's `weight_decay`."
_UNLIKE = (
    "The loss adds up means over unlike numbers of entries, such as one over all examples and one over a part of them, "
    "so its entries are not examples. Give each term an entry for every example: multiply by a mask of zeros and ones "
    "instead of taking a part of the batch."
)


class _Term(NamedTuple):
    """`factor` times the scalar `tensor`, over `divisor` where that is not None."""

    tensor: tf.Tensor
    factor: Any
    divisor: tf.Tensor | None


def per_example(loss: tf.Tensor, replicas: int = 1, batch_size: int | None = None) -> tf.Tensor:
    """Entries whose mean is the scalar `loss`: shape [batch]. ValueError if there are none.

    Args:
      loss: a scalar.
      replicas: how many replicas add up their losses.
      batch_size: B, by which the private step divides. A sum over it, `compute_average_loss(..., B)`, is taken for that
        of a batch of B examples, whatever the size of this one.

    >>> @tf.function
    ... def squares(x):
    ...     return per_example(2.0 * tf.reduce_mean(x**2))
    >>> squares(tf.constant([1.0, 3.0])).numpy().tolist()
    [2.0, 18.0]
    """
    return _Scalar(loss, replicas, batch_size).per_example()


class _Scalar:
    """A loss that is taken apart."""

    def __init__(self, loss: tf.Tensor, replicas: int, batch_size: int | None):
        self._loss, self._replicas, self._batch_size = loss, replicas, batch_size
        self._walk: Walk | None = None

    @property
    def walk(self) -> Walk:
        """Most losses can do without: to label a graph takes its time."""
        self._walk = self._walk or Walk(self._loss.graph)
        return self._walk

    def per_example(self) -> tf.Tensor:
        parts = self._terms(self._loss, 1.0, None)
        for_all = [part for part in parts if self._is_for_all(part, parts)]
        terms = [self._entries(part) for part in parts if not any(part is other for other in for_all)]
        if not terms:
            raise ValueError(f"The loss is a constant. {_FIX}")
        total = terms[0] if len(terms) == 1 else tf.add_n(self._one_entry_each(terms))
        for part in for_all:
            total += divisors.times(tf.cast(part.tensor, tf.float32), part.factor)
        return total

    def _terms(self, tensor: tf.Tensor, factor: Any, count: tf.Tensor | None) -> list[_Term]:
        """What adds up to `factor` times the scalar `tensor`, over `count`."""
        tensor = _unwrapped(tensor)
        op = tensor.op
        if op.type in ("AddV2", "Add", "AddN"):
            return [term for part in op.inputs for term in self._terms(part, factor, count)]
        if op.type == "Sub":
            return [*self._terms(op.inputs[0], factor, count), *self._terms(op.inputs[1], -factor, count)]
        if op.type == "Neg":
            return self._terms(op.inputs[0], -factor, count)
        packed = graph.behind(op.inputs[0], ("Identity",)).op if op.type in ("Sum", "Mean") else None
        if packed is not None and packed.type == "Pack":  # of a list of scalars
            parts = packed.inputs
            if all(part.shape.rank == 0 for part in parts):
                share = factor / len(parts) if op.type == "Mean" else factor
                return [term for part in parts for term in self._terms(part, share, count)]
        if op.type in _QUOTIENTS:
            known = self._quotient(op, factor, count)
            if known is not None:
                return known
        if op.type == "Mul":
            for find in (_number, self._public):
                for one, other in (op.inputs, reversed(op.inputs)):
                    value = find(one)
                    if value is not None:
                        return self._terms(other, factor * value, count)
        if _number(tensor) == 0.0:
            return []  # Python's `sum` starts at 0
        return [_Term(tensor, factor, count)]

    def _quotient(self, op: tf.Operation, factor: Any, count: tf.Tensor | None) -> list[_Term] | None:
        """Of a quotient: of sums over a count, or of anything over what is the same for all examples."""
        above, below = op.inputs
        if count is None:
            parts = self._terms(above, factor, below)
            if all(part.divisor is below and part.tensor.op.type == "Sum" for part in parts):
                return parts
        value = _number(below)
        if value is None and op.type != "DivNoNan":
            value = self._public(below)
        if value is None or (isinstance(value, float) and value == 0.0):
            return None
        return self._terms(above, factor / value, count)

    def _public(self, tensor: tf.Tensor) -> tf.Tensor | None:
        """A scalar that no example has a part in, the same in each step unless a variable says otherwise."""
        if tensor.shape.rank != 0 or not tensor.dtype.is_floating:
            return None
        label = self.walk.label(tensor)
        fits = isinstance(label, Public) and not label.counted and not label.drawn
        return tf.cast(tensor, tf.float32) if fits else None

    def _is_for_all(self, part: _Term, parts: list[_Term]) -> bool:
        """Whether it belongs to trained factors, as the logarithm of a variance does: the same for each example.

        What is made of other variables is a regularizer.
        """
        trained = set().union(*(_variables(other.factor) for other in parts if other is not part))
        if not trained or part.divisor is not None:
            return False
        read = _variables(part.tensor) | _variables(part.factor)
        return bool(read) and read <= trained and self._public(part.tensor) is not None

    def _entries(self, part: _Term) -> tf.Tensor:
        """`part.factor` times the entries, [batch], that the scalar is the mean of."""
        op = part.tensor.op
        if op.type != ("Mean" if part.divisor is None else "Sum"):
            raise ValueError(
                f"The loss is a scalar that is not a plain mean over examples: part of it is {op.name!r} ({op.type}), "
                f"so examples can't be told apart. {_FIX} {_DECAY}"
            )
        entries = op.inputs[0]
        if not entries.shape.rank:
            raise ValueError(
                f"The loss is a mean of {entries.name!r}, whose shape {entries.shape} has no examples. {_FIX}"
            )
        if part.divisor is None:
            return divisors.times(divisors.behind_first(entries, tf.reduce_mean), part.factor)
        found = divisors.undone(entries, part.divisor, lambda: self.walk, self._replicas, self._batch_size)
        if found is None:
            raise ValueError(
                f"The loss is a scalar, a sum that was divided by {part.divisor.name!r}, which is not known to be the "
                f"number of its entries (shape {entries.shape}), nor that of examples, nor `expected_batch_size`. "
                f"{_FIX}"
            )
        return divisors.times(found, part.factor)

    def _one_entry_each(self, terms: list[tf.Tensor]) -> list[tf.Tensor]:
        """The terms, of which some may have several entries for each example: a layer may add any mean."""
        lengths = {term.shape[0] for term in terms}
        if len(lengths) == 1 and None not in lengths:
            return terms
        labels = [self.walk.label(term) for term in terms]
        for term, label in zip(terms, labels):
            if isinstance(label, Public) and not label.counted:
                raise ValueError(
                    f"Part of the loss is a mean of {term.name!r}, in which there are no examples. {_FIX} {_DECAY}"
                )
        rows = [label.rows if _is_by_example(label) else 1 for label in labels]
        single = next((term for term, label in zip(terms, labels) if _is_by_example(label) and label.rows == 1), None)
        if single is not None:
            terms = [term if own == 1 else _averaged(term, own, single) for term, own in zip(terms, rows)]
        known = {term.shape[0] for term in terms} - {None}
        if len(known) > 1:
            raise ValueError(f"{_UNLIKE} There are {' and '.join(map(str, sorted(known)))} entries.")
        if any(isinstance(label, Lost) or getattr(label, "checks", None) for label in labels):
            return [_alike(terms, [not isinstance(label, Lost) for label in labels])]
        return terms


_QUOTIENTS = ("DivNoNan", "RealDiv", "Div")


def _unwrapped(tensor: tf.Tensor) -> tf.Tensor:
    """The same number, before it was handed on."""
    while True:
        op = tensor.op
        if op.type in ("Identity", "IdentityN"):
            tensor = op.inputs[tensor.value_index]
        elif (op.type == "Cast" and op.inputs[0].dtype.is_floating) or (
            op.type in ("Sum", "Mean") and op.inputs[0].shape.rank == 0
        ):
            tensor = op.inputs[0]
        else:
            return tensor


def _number(tensor: tf.Tensor) -> float | None:
    value = tf.get_static_value(tensor)
    return float(value) if value is not None and np.ndim(value) == 0 else None


def _variables(number: Any) -> set[Any]:
    """The handles of the variables that a number is computed from."""
    if isinstance(number, float):
        return set()
    given = (tensor for op in graph.ancestors(number.op) for tensor in op.inputs)
    return {tensor.ref() for tensor in given if tensor.dtype == tf.resource}


def _is_by_example(label: Any) -> bool:
    return isinstance(label, Rows) and (label.axis, label.outer) == (0, 1)


def _averaged(term: tf.Tensor, rows: int | None, single: tf.Tensor) -> tf.Tensor:
    """The means of `rows` entries each; of as many as there are for an entry of `single`, where only the run tells."""
    shape = [-1, rows] if rows is not None else tf.stack([tf.shape(single)[0], -1])
    return tf.reduce_mean(tf.reshape(term, shape), axis=1)


def _alike(terms: list[tf.Tensor], followed: list[bool]) -> tf.Tensor:
    """Their sum, if the run shows them to be of one length. If not, it is empty, which no loss of a batch may be.

    XLA drops assertions, and can't add up what is of other lengths: what was not `followed` is cut to fit.
    """
    first = next((term for term, is_followed in zip(terms, followed) if is_followed), terms[0])
    count = tf.convert_to_tensor(made.extent(first, 0))
    are_alike = tf.reduce_all(tf.equal(tf.stack([made.extent(term, 0) for term in terms]), count))
    rest = tf.fill([count], float("nan"))
    fitting = [
        term if is_followed or term is first else tf.concat([term, rest], 0)[:count]
        for term, is_followed in zip(terms, followed)
    ]
    with tf.control_dependencies([tf.raw_ops.Assert(condition=are_alike, data=[tf.constant(_UNLIKE)])]):
        total = tf.add_n(fitting)
    return total if all(followed) else total[: tf.where(are_alike, count, 0)]
