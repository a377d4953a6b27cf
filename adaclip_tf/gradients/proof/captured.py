"""Public arrays that a step's function captures, and that are as long as the batch further out: masks, ones, noise."""

from __future__ import annotations

import tensorflow as tf

from adaclip_tf.gradients.proof.labels import Public
from adaclip_tf.gradients.proof.symbols import Count
from adaclip_tf.gradients.proof.walk import Walk


def has_examples(walk: Walk, internal: tf.Tensor) -> bool | None:
    """Whether a captured public array has a row for each example; None where it is longer with each, in another way.

    Whoever runs one example alone must not hand it the whole of such an array: its length is the number of examples.
    A row of it will do, since all rows are alike, or independent draws of one distribution.

    Args:
      walk: over the graph of the step.
      internal: what the array is in that graph.
    """
    label, external = walk.label(internal), walk.captured[internal.ref()]
    if not isinstance(label, Public) or not label.counted or not hasattr(external, "graph"):
        return False
    extents = walk.parent(external.graph).sizes.extents(external)
    if not extents or any(isinstance(extent, Count) for extent in extents[1:]):
        return None
    return True if extents[0] == Count(1) and label.is_uniform(0) else None
