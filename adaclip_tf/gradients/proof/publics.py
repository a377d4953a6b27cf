"""Along which axes the public results of ops are alike: constants, random draws, what is computed from them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.proof import memory, moved, sources
from adaclip_tf.gradients.proof.contractions import IMAGE_OPS, has_windows_of_one, letters_of
from adaclip_tf.gradients.proof.labels import DRAWN, EVERYWHERE, SECRET, Public, rank
from adaclip_tf.gradients.proof.strided import StridedSlice
from adaclip_tf.gradients.proof.table import Labels, public
from adaclip_tf.gradients.proof.walk import Walk


@public("Const")
def _constant(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    """Zeros and ones above all: where shapes are static, TensorFlow folds them."""
    del walk, labels
    tensor = op.outputs[0]
    if tensor.shape.rank == 0:
        return EVERYWHERE
    is_value = tensor.dtype.is_floating or tensor.dtype == tf.bool
    return EVERYWHERE if is_value and sources.is_one_number(tensor) else Public()


@public("Fill", sizes=[0])
@public("ZerosLike", "OnesLike")
def _alike(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    """One number everywhere."""
    del walk, op, labels
    return EVERYWHERE


@public("ReadVariableOp")
def _read(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    """A seed that the step itself moves on, as Keras 3's seed generators do, gives other numbers in every step."""
    del labels
    label = EVERYWHERE if op.outputs[0].shape.rank == 0 else Public()
    return label.but(moved=walk.memory.states(memory.root(walk, op.inputs[0]))) if moved.moves_on(op) else label


@public(*graph.DRAWS, sizes=[0])
@public(*graph.DRAWS_OF_A_STATE, sizes=[2])
def _drawn(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    """Independent draws of one distribution; numbers that a fixed seed gives to places are none."""
    if op.type.startswith("Stateless") and not labels[1].moved:
        return EVERYWHERE if op.outputs[0].shape.rank == 0 else Public()
    if op.type.startswith("Stateless"):
        states = labels[1].moved
    elif op.type in graph.DRAWS_OF_A_STATE:
        states = frozenset({memory.root(walk, op.inputs[0])})
    else:
        states = frozenset({SECRET})
    walk.memory.relies_on(op, states)
    return DRAWN.but(moved=states if moved.of_many(op) else frozenset())


@public(*(graph.ENTRYWISE - {"ZerosLike", "OnesLike"}))
def _public_elementwise(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    """Uniform along an axis where all operands are, or have extent 1 there, or do not reach it."""
    del walk
    if all(isinstance(label, Public) and label.uniform is None for label in labels):
        return EVERYWHERE
    result = op.outputs[0]
    if result.shape.rank is None or any(tensor.shape.rank is None for tensor in op.inputs):
        return Public()
    axes = set(range(result.shape.rank))
    for tensor, label in zip(op.inputs, labels):
        offset = result.shape.rank - tensor.shape.rank
        for axis in range(tensor.shape.rank):
            if not label.is_uniform(axis) and tensor.shape[axis] != 1:
                axes.discard(axis + offset)
    return Public(frozenset(axes))


@public("BroadcastTo", "Tile", sizes=[1])
def _stretched(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    """Uniform along the axes that had extent 1, or were not there."""
    del walk
    if labels[0].uniform is None:
        return EVERYWHERE
    before, after = op.inputs[0].shape.rank, op.outputs[0].shape.rank
    if before is None or after is None:
        return Public()
    offset = after - before
    stretched = {axis + offset for axis in range(before) if op.inputs[0].shape[axis] == 1 or labels[0].is_uniform(axis)}
    return Public(frozenset(set(range(offset)) | stretched))


@public("IdentityN")
def _handed_on(walk: Walk, op: tf.Operation, labels: Labels) -> list[Any]:
    """How functions with a gradient of their own hand on what they got."""
    del walk, op
    return list(labels)


@public("Split", "SplitV")
def _public_split(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    """Uniform along the axes that are left whole, as before."""
    value, along = (1, 0) if op.type == "Split" else (0, 2)
    total, axes = rank(op.inputs[value]), walk.sizes.integers(op.inputs[along])
    if labels[value].uniform is None or axes is None:
        return EVERYWHERE if labels[value].uniform is None else Public()
    return Public(frozenset(labels[value].uniform - {axes[0] % total}))


@public("StridedSlice")
def _public_slice(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    """The same: an axis that is taken whole stays as it is."""
    if labels[0].uniform is None or op.outputs[0].shape.rank == 0:
        return EVERYWHERE
    strides = walk.sizes.integers(op.inputs[3])
    if strides is None or op.inputs[0].shape.rank is None:
        return Public()
    begin, end = walk.sizes.symbols(op.inputs[1]), walk.sizes.symbols(op.inputs[2])
    taken = StridedSlice(op, begin, end, strides, op.inputs[0].shape)
    return Public(frozenset(taken.output[axis] for axis in labels[0].uniform if taken.whole[axis]))


@public("Reshape", sizes=[1])
@public("Transpose", "Slice", "ReverseV2", "Roll")
@public("Unpack", "Sum", "Mean", "Max", "Min", "Prod")
def _rearranged(walk: Walk, op: tf.Operation, labels: Labels) -> Any:
    """Zeros, or independent draws, stay such however they are rearranged. So do their sums."""
    del walk
    alike = labels[0].uniform is None
    return [EVERYWHERE if alike or result.shape.rank == 0 else Public() for result in op.outputs]


@public("ConcatV2", "Pack")
def _side_by_side(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    """Uniform along the other axes, where all parts are."""
    total = rank(op.outputs[0])
    is_pack = op.type == "Pack"
    parts = labels if is_pack else labels[:-1]
    along = [op.get_attr("axis")] if is_pack else walk.sizes.integers(op.inputs[-1])
    if along is None:
        return Public()
    new = along[0] % total
    inner = range(total - 1) if is_pack else range(total)
    axes = {a for a in inner if all(p.is_uniform(a) or t.shape[a] == 1 for p, t in zip(parts, op.inputs))}
    return Public(frozenset(a + (a >= new) for a in axes) if is_pack else frozenset(axes - {new}))


@public("BiasAdd")
def _public_bias(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    del walk
    total = rank(op.outputs[0])
    channel = 1 if op.get_attr("data_format") == b"NCHW" else total - 1
    alike = {axis for axis in range(total) if labels[0].is_uniform(axis)}
    return Public(frozenset(alike if labels[1].is_uniform(0) else alike - {channel}))


@public("MatMul", "Einsum", *graph.BATCH_PRODUCTS)
def _public_product(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    """Equal rows of the operands, a state that starts as zeros, give equal rows."""
    del walk
    letters, output = letters_of(op)
    axes = set()
    for axis, letter in enumerate(output):
        having = [
            label.is_uniform(own.index(letter)) or tensor.shape[own.index(letter)] == 1
            for tensor, own, label in zip(op.inputs, letters, labels)
            if letter in own
        ]
        if all(having):
            axes.add(axis)
    return Public(frozenset(axes))


@public(*IMAGE_OPS)
def _public_images(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    """Equal pictures stay equal, and independent ones independent, where no two of them meet in a window."""
    del walk
    return Public(frozenset({0} if labels[0].is_uniform(0) and has_windows_of_one(op) else ()))


@public("TopKV2", "TopK", "Softmax", "LogSoftmax")
def _within_rows(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    """What is done to each row by itself: rows stay alike, or independent."""
    del walk
    last = rank(op.inputs[0]) - 1
    return Public(frozenset(axis for axis in range(last) if labels[0].is_uniform(axis)))


@public("GatherV2", "ResourceGather", "OneHot")
def _looked_up(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    """Uniform where the places are that are looked up, as those are that were drawn; and where the table is, behind."""
    if op.type == "OneHot":
        total, new = rank(op.outputs[0]), op.get_attr("axis") % rank(op.outputs[0])
        places = [axis for axis in range(total) if axis != new]
        return Public(frozenset(axis for own, axis in enumerate(places) if labels[0].is_uniform(own)))
    if op.get_attr("batch_dims"):
        return Public()
    axes = [0] if op.type == "ResourceGather" else walk.sizes.axes(op.inputs[2], rank(op.inputs[0]))
    if axes is None:
        return Public()
    axis, count = axes[0], rank(op.inputs[1])
    found = {axis + own for own in range(count) if labels[1].is_uniform(own)}
    if op.type == "GatherV2":  # a variable's handle has no axes
        rest = (own for own in range(rank(op.inputs[0])) if own != axis and labels[0].is_uniform(own))
        found |= {own if own < axis else own + count - 1 for own in rest}
    return Public(frozenset(found))


@public("Squeeze")
def _squeezed(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    del walk
    if labels[0].uniform is None:
        return EVERYWHERE
    total = rank(op.inputs[0])
    dropped = {axis % total for axis in op.get_attr("squeeze_dims")}
    if not dropped:
        return Public()
    kept = [axis for axis in range(total) if axis not in dropped]
    return Public(frozenset(new for new, axis in enumerate(kept) if labels[0].is_uniform(axis)))


@public("ExpandDims")
def _expand_public(walk: Walk, op: tf.Operation, labels: Labels) -> Public:
    total = op.outputs[0].shape.rank
    dims = walk.sizes.integers(op.inputs[1])
    if labels[0].uniform is None or total is None or dims is None:
        return labels[0] if labels[0].uniform is None else Public()
    new = dims[0] % total
    return Public(frozenset({axis + (axis >= new) for axis in labels[0].uniform} | {new}))
