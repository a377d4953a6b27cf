"""What the running `fit` was given: arrays, a dataset, batches of a fixed size.

Whatever is not found is not known, and nobody is refused for it.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from adaclip_tf._internal import keras
from adaclip_tf.privacy.claims import Given
from adaclip_tf.privacy.drawn import drawn_within
from adaclip_tf.privacy.formed import formed


def given_to_fit(model: Any) -> Given:
    """What the `fit` of `model` that called this was given."""
    call = keras.running_fit(model)
    if call is None:
        return Given()
    if call.cut:
        shapes = [getattr(leaf, "shape", (None,)) for leaf in tf.nest.flatten(call.x)]
        rows = shapes[0][0] if shapes and len(shapes[0]) else None
        return Given(True, rows, call.batch_size, found=True)
    drawn = drawn_within(call.x, keras.made_of)
    check = getattr(model.optimizer, "check_batches", None)
    if check is not None:
        check(call.x)
    # A train step of one's own may take elements that are no batches.
    batches = keras.has_keras_train_step(model) and isinstance(call.x, tf.data.Dataset)
    if not batches:
        return Given(drawn=drawn, found=True)
    num_batches = int(call.x.cardinality())  # negative: without an end, or not known
    given = Given(False, None, _static_size(call.x), drawn, num_batches if num_batches > 0 else None, found=True)
    cut = formed(call.x)
    if cut is None:
        return given
    size = cut.batch_size if given.batch_size is None else given.batch_size
    mapped = cut.mapped and given.batch_size is None
    return given._replace(rows=cut.rows, batch_size=size, mapped=mapped, passes_meet=cut.passes_meet)


def _static_size(dataset: tf.data.Dataset) -> int | None:
    """The first dimension of a batch, if all its parts have the same one and it is known beforehand."""
    shapes = [getattr(spec, "shape", None) for spec in tf.nest.flatten(dataset.element_spec)]
    sizes = {shape[0] if shape is not None and shape.rank else None for shape in shapes}
    return sizes.pop() if len(sizes) == 1 else None
