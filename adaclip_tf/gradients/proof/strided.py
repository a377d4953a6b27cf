"""What a strided slice does to each axis."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from adaclip_tf.gradients.proof.symbols import same


class StridedSlice:
    """Which axis of the input becomes which one of the output, which are taken whole, and which entry says so."""

    def __init__(self, op: tf.Operation, begin: Any, end: Any, strides: Any, shape: Any, extents: Any = None):
        masks = {n: op.get_attr(f"{n}_mask") for n in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
        total, count = shape.rank, len(strides)
        bit = lambda name, i: bool(masks[name] >> i & 1)  # noqa: E731
        named = sum(not bit("new_axis", i) and not bit("ellipsis", i) for i in range(count))
        self.output: dict[int, Any] = {}  # None: the axis is dropped
        self.whole: dict[int, bool] = {}
        self.entry: dict[int, int] = {}  # not for those that an ellipsis, or nothing at all, stands for
        axis = result = 0
        for i in range(count):
            if bit("ellipsis", i):
                for _ in range(total - named):
                    self.output[axis], self.whole[axis] = result, True
                    axis, result = axis + 1, result + 1
            elif bit("new_axis", i):
                result += 1
            elif bit("shrink_axis", i):
                self.output[axis], self.whole[axis], self.entry[axis] = None, False, i
                axis += 1
            else:
                starts = bit("begin", i) or (begin is not None and begin[i] == 0)
                ends = bit("end", i)
                if not ends and end is not None and shape[axis] is not None and isinstance(end[i], int):
                    ends = end[i] >= shape[axis]
                if not ends and end is not None and extents is not None:
                    ends = same(end[i], extents[axis])
                self.output[axis], self.whole[axis] = result, bool(starts and ends and strides[i] == 1)
                self.entry[axis] = i
                axis, result = axis + 1, result + 1
        while axis < total:
            self.output[axis], self.whole[axis] = result, True
            axis, result = axis + 1, result + 1
