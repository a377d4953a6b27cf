"""From the mean over a batch, as Keras's losses are by default, back to the loss of each example.

A mean has lost nothing that the graph does not still hold: it is `Sum(v) / size of v`, and v is there. Several outputs
are a sum of such means, loss weights are factors. That is all that is taken apart here; whether v has an entry per
example, and keeps examples apart, is for `gradients.proof` to show, as for any other loss. What is not a plain mean
(a sum, a mean over unmasked entries, a regularizer) is refused: what would be clipped and divided by B there is not
what was asked for.
"""

from __future__ import annotations

import collections
import math
from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.proof.labels import Rows
from adaclip_tf.gradients.proof.walk import Walk

_FIX = (
    "Use a loss that is a plain mean over examples, as Keras's are by default, or one made with "
    '`reduction="none"`, e.g. `SparseCategoricalCrossentropy(reduction="none")`.'
)


def per_example(loss: tf.Tensor) -> tf.Tensor:
    """Entries whose mean is the scalar `loss`, times its constant factors: shape [batch]. ValueError if there are none.

    >>> @tf.function
    ... def squares(x):
    ...     return per_example(2.0 * tf.reduce_mean(x**2))
    >>> squares(tf.constant([1.0, 3.0])).numpy().tolist()
    [2.0, 18.0]
    """
    terms = [_mean(tensor, factor) for tensor, factor in _terms(loss, 1.0)]
    if not terms:
        raise ValueError(f"The loss is a constant. {_FIX}")
    return terms[0] if len(terms) == 1 else tf.add_n(_one_entry_each(terms))


def _one_entry_each(terms: list[tf.Tensor]) -> list[tf.Tensor]:
    """The terms, of which some may have several entries for each example: a layer may add any mean."""
    lengths = {term.shape[0] for term in terms}
    if len(lengths) == 1 and None not in lengths:
        return terms
    walk = Walk(terms[0].graph)
    labels = [walk.label(term) for term in terms]
    rows = [label.rows if isinstance(label, Rows) and (label.axis, label.outer) == (0, 1) else 1 for label in labels]
    single = next((term for term, label, own in zip(terms, labels, rows) if isinstance(label, Rows) and own == 1), None)
    if single is None:
        return terms
    return [term if own == 1 else _averaged(term, own, single) for term, own in zip(terms, rows)]


def _averaged(term: tf.Tensor, rows: int | None, single: tf.Tensor) -> tf.Tensor:
    """The means of `rows` entries each; of as many as there are for an entry of `single`, where only the run tells."""
    shape = [-1, rows] if rows is not None else tf.stack([tf.shape(single)[0], -1])
    return tf.reduce_mean(tf.reshape(term, shape), axis=1)


def _terms(tensor: tf.Tensor, factor: float) -> list[tuple[tf.Tensor, float]]:
    """What adds up to `factor` times the scalar `tensor`."""
    op = tensor.op
    if op.type in ("Identity", "IdentityN") or (op.type == "Cast" and op.inputs[0].dtype.is_floating):
        return _terms(op.inputs[tensor.value_index], factor)
    if op.type in ("Sum", "Mean") and op.inputs[0].shape.rank == 0:  # Keras 3 adds up what a layer added, if one number
        return _terms(op.inputs[0], factor)
    if op.type in ("AddV2", "Add", "AddN"):
        return [term for part in op.inputs for term in _terms(part, factor)]
    if op.type == "Sub":
        return [*_terms(op.inputs[0], factor), *_terms(op.inputs[1], -factor)]
    if op.type == "Neg":
        return _terms(op.inputs[0], -factor)
    if (
        op.type in ("Sum", "Mean") and graph.behind(op.inputs[0], ("Identity",)).op.type == "Pack"
    ):  # of a list of scalars
        parts = graph.behind(op.inputs[0], ("Identity",)).op.inputs
        if all(part.shape.rank == 0 for part in parts):
            share = factor / len(parts) if op.type == "Mean" else factor
            return [term for part in parts for term in _terms(part, share)]
    if op.type in ("RealDiv", "Div"):
        divisor = tf.get_static_value(op.inputs[1])
        if divisor is not None and np.ndim(divisor) == 0 and divisor != 0 and op.inputs[0].op.type != "Sum":
            return _terms(op.inputs[0], factor / float(divisor))
    if op.type == "Mul":
        for one, other in (op.inputs, reversed(op.inputs)):
            value = tf.get_static_value(one)
            if value is not None and np.ndim(value) == 0:
                return _terms(other, factor * float(value))
    value = tf.get_static_value(tensor)
    if value is not None and float(value) == 0.0:
        return []  # Python's `sum` starts at 0
    return [(tensor, factor)]


def _mean(tensor: tf.Tensor, factor: float) -> tf.Tensor:
    """`factor` times the entries, [batch], that the scalar `tensor` is the mean of."""
    op = tensor.op
    if op.type == "Mean":
        entries = op.inputs[0]
    elif op.type in ("DivNoNan", "RealDiv", "Div") and op.inputs[0].op.type == "Sum":
        entries = op.inputs[0].op.inputs[0]
        if entries.shape.rank == 0 and entries.op.type == "Sum":  # Keras 2 adds up the sum once more
            entries = entries.op.inputs[0]
        if not _is_size(op.inputs[1], entries):
            raise ValueError(
                f"The loss is a scalar, a sum that was divided by {op.inputs[1].name!r}, which is not known to be the "
                f"number of its entries (shape {entries.shape}). {_FIX}"
            )
    else:
        raise ValueError(
            f"The loss is a scalar that is not a plain mean over examples: part of it is {op.name!r} ({op.type}), so "
            f"examples can't be told apart. {_FIX} Instead of a regularizer use the optimizer's `weight_decay`."
        )
    if not entries.shape.rank:
        raise ValueError(f"The loss is a mean of {entries.name!r}, whose shape {entries.shape} has no examples. {_FIX}")
    entries = tf.cast(entries, tf.float32) * factor
    return tf.reduce_mean(entries, axis=list(range(1, entries.shape.rank))) if entries.shape.rank > 1 else entries


def _is_size(divisor: tf.Tensor, entries: tf.Tensor) -> bool:
    """Whether `divisor` is how many `entries` there are, as the graph tells."""
    value = tf.get_static_value(divisor)
    if value is not None and entries.shape.is_fully_defined():
        return math.isclose(float(value), entries.shape.num_elements())
    extents = _product(divisor, entries)
    return extents is not None and collections.Counter(extents) == collections.Counter(_extents(entries))


def _extents(entries: tf.Tensor) -> list[Any]:
    """The extents of its axes other than 1: numbers, or ("extent", axis) where the run decides."""
    shape = [("extent", axis) if extent is None else extent for axis, extent in enumerate(entries.shape)]
    return [extent for extent in shape if extent != 1]


def _product(tensor: tf.Tensor, entries: tf.Tensor) -> list[Any] | None:
    """The extents of `entries` that the scalar `tensor` is the product of; None where that is not known."""
    tensor = graph.behind(tensor, ("Identity", "Cast"))
    op = tensor.op
    if op.type == "Size":
        return _extents(entries) if op.inputs[0] is entries else None
    if op.type == "Prod":
        return _listed(op.inputs[0], entries)
    return None


def _listed(shape: tf.Tensor, entries: tf.Tensor) -> list[Any] | None:
    """The extents in the vector `shape`."""
    shape = graph.behind(shape, ("Identity", "Cast"))
    op, value = shape.op, tf.get_static_value(shape)
    if value is not None:
        return [int(extent) for extent in value if extent != 1]
    if op.type == "Shape":
        return _extents(entries) if op.inputs[0] is entries else None
    if op.type != "Pack":
        return None
    found: list[Any] = []
    for part in op.inputs:
        part = graph.behind(part, ("Identity", "Cast"))
        value = tf.get_static_value(part)
        if value is not None:
            found.append(int(value))
        elif part.op.type == "StridedSlice" and _listed(part.op.inputs[0], entries) is not None:
            begin = tf.get_static_value(part.op.inputs[1])
            if begin is None or part.op.get_attr("shrink_axis_mask") != 1:
                return None
            found.append(("extent", int(begin[0])))
        else:
            return None
    return [extent for extent in found if extent != 1]
