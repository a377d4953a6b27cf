"""Where the gradients of a variable's parts lie in its own."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.ghost.labels import Unknown

# By op: which inputs are put in place.
SOURCES = {"StridedSliceGrad": slice(4, 5), "Pack": slice(None), "ConcatV2": slice(-1)}


def place(op: tf.Operation) -> Callable[[list[tf.Tensor]], tf.Tensor]:
    """What the op does, for arrays with one more axis in front."""
    if op.type == "Pack":
        axis = op.get_attr("axis") % op.outputs[0].shape.rank
        return lambda parts: tf.stack(parts, axis=axis + 1)
    if op.type == "ConcatV2":
        along = graph.axes(op.inputs[-1], op.outputs[0].shape.rank)
        if along is None:
            raise Unknown(f"{graph.describe(op)} puts gradients into places that are only known at run time")
        return lambda parts: tf.concat(parts, axis=along[0] + 1)
    shape, begin, end, strides = (graph.constant(tensor) for tensor in op.inputs[:4])
    if shape is None or begin is None or end is None or strides is None:
        raise Unknown(f"{graph.describe(op)} puts gradients into places that are only known at run time")
    masks = {f"{name}_mask": op.get_attr(f"{name}_mask") << 1 for name in ("ellipsis", "new_axis", "shrink_axis")}
    masks |= {f"{name}_mask": op.get_attr(f"{name}_mask") << 1 | 1 for name in ("begin", "end")}

    def placed(parts: list[tf.Tensor]) -> tf.Tensor:
        return tf.raw_ops.StridedSliceGrad(
            shape=tf.stack([tf.shape(parts[0])[0], *(int(extent) for extent in shape)]),
            begin=[0, *(int(i) for i in begin)],
            end=[0, *(int(i) for i in end)],
            strides=[1, *(int(i) for i in strides)],
            dy=parts[0],
            **masks,
        )

    return placed
