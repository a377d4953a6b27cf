"""What is added up to the gradient of one example, in absolute values: of what cancels there, rounding leaves more.

In the gradient of one example it cancels as it is formed. In the weighted sum it may do so only after it was added up
over all examples. So clipping reckons with these bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from adaclip_tf.gradients.ghost.terms import Examples


def bounds_of(term: Any) -> Examples | None:
    """For every coordinate of g_k, no less than the sum of the absolute values of what is added up to it.

    None where nothing is added up: where the gradients are there by themselves, for norms and for the weighted sum.
    """
    listed = getattr(term, "bounds", None)
    return None if listed is None else listed()


def most_of(term: Any) -> Examples:
    """The same; absolute values where nothing is added up."""
    found = bounds_of(term)
    if found is not None:
        return found
    inner = term.examples()
    return inner._replace(make=lambda arrays: tf.abs(inner.make(arrays)))


def of_absolutes(inner: Examples) -> Examples:
    """The bounds where gradients are sums of products of entries of the arrays."""
    return inner._replace(make=lambda arrays: inner.make([_absolute(array) for array in arrays]))


def _absolute(array: tf.Tensor) -> tf.Tensor:
    return tf.abs(array) if array.dtype.is_floating else array
