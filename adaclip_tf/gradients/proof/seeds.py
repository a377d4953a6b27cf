"""Random numbers of a step, Dropout's say, that somebody may know.

Why random numbers do no harm. A batch gets numbers by place: the k-th example those of row k. When an example leaves,
those behind it get others. But rows are independent and alike, and nobody knows them. So give the examples that
stay, with and without the one that leaves, the same numbers: both worlds are as likely as before, each is a mixture
over these numbers, and for every value of them the sums differ by 1 at most. Divergences are jointly convex, so the
mixtures are no further apart than the pairs.

Why that fails for who knows the seed. Then the numbers are constants, values by place: an example that leaves moves
the others, as far as their masks tell (3 was measured). The library can't see all seeds; where it sees one, the log
says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf
from absl import logging

from adaclip_tf._internal import keras
from adaclip_tf.gradients import graph

_NEWS = (
    "The loss draws random numbers (Dropout, augmentation), and %s. They go to examples by their place in the batch. "
    "For whoever knows the seed one example changes what others add, so that epsilon does not hold. Train without "
    "seeds, or keep them as secret as the data."
)


def warn(loss: tf.Tensor, ancestors: Iterable[tf.Operation], models: Iterable[Any], known: set[tf.Operation]) -> None:
    """Says, once, that `loss` draws numbers of a seed that was set; `known` draw from states with a known start."""
    draws = [inner for op in ancestors for inner in (op, *graph.inside(op)) if inner.type in graph.RANDOM]
    if draws:
        why = _why(loss, draws, models, known)
        if why is not None:
            logging.log_first_n(logging.WARNING, _NEWS, 1, why)


def _why(loss: tf.Tensor, draws: list[tf.Operation], models: Iterable[Any], known: set[tf.Operation]) -> str | None:
    if loss.graph.seed is not None:
        return "a global seed is set (`tf.random.set_seed`, `keras.utils.set_random_seed`)"
    if any("seed" in op.node_def.attr and (op.get_attr("seed") or op.get_attr("seed2")) for op in draws):
        return "an op has a seed"
    if any(op.type in graph.DRAWS_OF_A_STATE for op in draws):
        return "a `tf.random.Generator`, whose seed and state tell them, draws some"
    for layer in (layer for model in models for layer in keras.layers_of(model)):
        if getattr(layer, "seed", None) is not None:
            return f"the layer {layer.name!r} has a seed"
    if not known.isdisjoint(draws):
        return "some come from a count, or from a `SeedGenerator` with a seed, so that they start where anybody knows"
    return None
