"""Large tensors in weighted sums, which are left alone where no weight is 0.

A record of weight 0 must add exactly 0, whatever its numbers. The operand of a product that the weights go to is 0
there; the other, larger one may hold NaN, and 0 * NaN is NaN. To make its rows 0 takes a pass over it, which is spared
by a branch wherever all records are used, as they nearly always are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from adaclip_tf._internal import made

_WIDE = 128  # rows of at least this many floats are worth a branch to spare them a pass


class Kept(NamedTuple):
    """A tensor that a weighted sum keeps, and what makes a row of it 0 where the first argument, [n], is 0."""

    tensor: tf.Tensor
    clean: Callable[[tf.Tensor], tf.Tensor]


def to_keep(term: Any) -> list[Kept]:
    """What `term.weighted_sum` is going to keep, as far as the term says so."""
    listed = getattr(term, "to_keep", None)
    return [] if listed is None else listed()


def keep_together(kept: Sequence[Kept], weights: tf.Tensor) -> None:
    """Keeps all of these by one branch, for `keep` to find them: to trace a branch takes as long as 30 other ops."""
    wide = {each.tensor.ref(): each for each in kept if _is_wide(each.tensor)}
    if len(wide) < 2:
        return
    mask, all_used = _used(weights), _all_used(weights)
    results = tf.cond(
        all_used, lambda: [each.tensor for each in wide.values()], lambda: [each.clean(mask) for each in wide.values()]
    )
    for each, result in zip(wide.values(), results):
        made.once(_kept(each.tensor, weights), functools.partial(tf.convert_to_tensor, result))


def unless_all_used(tensor: tf.Tensor, weights: tf.Tensor, clean: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    """`clean` of a mask of the weights that are not 0. Large tensors are left alone where no weight is 0."""
    if not _is_wide(tensor):
        return clean(_used(weights))

    def make() -> tf.Tensor:
        mask = _used(weights)
        return tf.cond(_all_used(weights), lambda: tensor, lambda: clean(mask))

    return made.once(_kept(tensor, weights), make)


def _kept(tensor: tf.Tensor, weights: tf.Tensor) -> tuple:
    return ("kept", tensor.ref(), weights.ref())


def _is_wide(tensor: tf.Tensor) -> bool:
    width = tensor.shape[1:].num_elements()
    return width is None or width >= _WIDE


def _used(weights: tf.Tensor) -> tf.Tensor:
    """1 where the weight is not 0, else 0."""
    return made.once(("mask", weights.ref()), lambda: tf.cast(tf.not_equal(weights, 0.0), tf.float32))


def _all_used(weights: tf.Tensor) -> tf.Tensor:
    # Of a least number XLA makes a kernel less than of a list of answers.
    return made.once(("all used", weights.ref()), lambda: tf.reduce_min(tf.abs(weights)) > 0.0)
