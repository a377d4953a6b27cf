"""How labels pass through backward ops: one table, keyed by op type.

An entry gets the op and the labels of its inputs (None: does not depend on the seed) and returns the
label of the outputs, or raises `Unknown`. It may rely on this: no input is `Lost` or `Summed`, and at least
one is `Lead`. It must establish two things, from the graph alone or by a registered run-time check: the
op is LINEAR in its seed-dependent inputs, and row r of an output depends on rows r of those inputs only.

Why broadcasting is safe. A labelled axis has an extent divisible by n. If n >= 2 the extent is 0 or at least 2, so
that axis is never stretched against another operand; if n is 1 there is one chunk and nothing to mix.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.ghost.labels import Context, Inner, Label, Lead, Lost, Summed, Unknown

Labels = Sequence[Any]
Entry = Callable[[Context, tf.Operation, Labels], Any]
TABLE: dict[str, Entry] = {}
# For loops, and for ops that get `Inner` or `Listed` besides `Lead`: no entry of `TABLE` ever does.
LAYERED: dict[str, Entry] = {}

# Outputs that depend on the shapes of inputs only.
SHAPE_ONLY = graph.SHAPES | {"ZerosLike", "OnesLike", "TensorListLength", "TensorListElementShape"}
# Outputs as large as the seed-dependent input.
_KEEPS_SIZE = graph.SAME_ORDER | {"AddN", "Neg", "Transpose", *graph.BATCH_NORM_GRADIENTS}


def entry(*types: str) -> Callable[[Entry], Entry]:
    """Registers a function as the table's entry for these op types."""

    def register(function: Entry) -> Entry:
        for op_type in types:
            TABLE[op_type] = function
        return function

    return register


def layered(*types: str) -> Callable[[Entry], Entry]:
    """The same for `LAYERED`. What such an entry gets may be any label but `Lost` and `Summed`."""

    def register(function: Entry) -> Entry:
        for op_type in types:
            LAYERED[op_type] = function
        return function

    return register


def propagate(ctx: Context, seed: tf.Tensor) -> None:
    """Labels every tensor of the graph that depends on `seed`."""
    ctx.labels[seed.ref()] = _seed_label(ctx, seed)
    propagate_through(ctx, seed.graph)


def propagate_through(ctx: Context, walked: tf.Graph) -> None:
    """Labels every tensor of a graph that depends on one that has a label."""
    for op in walked.get_operations():
        if op.type in SHAPE_ONLY or not op.inputs:
            continue
        labels = [ctx.label(tensor) for tensor in op.inputs]
        if all(label is None for label in labels):
            continue
        result = _transfer(ctx, op, labels)
        per_output = result if isinstance(result, list) else [result] * len(op.outputs)
        for tensor, label in zip(op.outputs, per_output):
            ctx.labels.setdefault(tensor.ref(), _sized(op, tensor, label) if isinstance(label, Lead) else label)


def _seed_label(ctx: Context, seed: tf.Tensor) -> Label:
    divides = ctx.divides(seed.shape[0])
    if divides is False:
        return Lost(f"{seed.shape[0]} examples do not split evenly into {ctx.static_n} microbatches")
    known = divides or ctx.microbatch_size is not None
    return Lead(checks=frozenset() if known else frozenset({ctx.check(seed, 0, seed.op)}))


def _sized(op: tf.Operation, tensor: tf.Tensor, label: Lead) -> Lead:
    """`label` with `rows` and `elements` as far as the static shape tells them."""
    dims = graph.dimensions(tensor)
    inner = None if dims is None else graph.size(dims[label.axis + 1 :])
    elements = label.elements if op.type in _KEEPS_SIZE else None
    if label.rows is not None and inner is not None:
        return dataclasses.replace(label, elements=label.rows * inner * label.outer)
    if elements is not None and inner and elements % (inner * label.outer) == 0:
        return dataclasses.replace(label, rows=elements // (inner * label.outer), elements=elements)
    return dataclasses.replace(label, elements=elements)


def _transfer(ctx: Context, op: tf.Operation, labels: Labels) -> Any:
    dependent = [label for label in labels if label is not None]
    for label in dependent:
        if isinstance(label, Lost):
            return label
    if all(isinstance(label, Summed) for label in dependent):
        return Summed()
    if any(isinstance(label, Summed) for label in dependent):
        return Lost(f"{graph.describe(op)} combines one example's gradient with a sum over examples")
    plain = all(isinstance(label, Lead) for label in dependent)
    table = TABLE if plain and op.type in TABLE else LAYERED
    if op.type not in table:
        return Lost(f"{graph.describe(op)} has no entry in the table of backward ops")
    try:
        return table[op.type](ctx, op, labels)
    except Unknown as unknown:
        return Lost(f"{graph.describe(op)} {unknown.reason}")


# ---------------------------------------------------------------------------------------------------
# Helpers.


def only(labels: Labels, index: int) -> Lead:
    """The label of input `index`, which must be the one seed-dependent input."""
    if any((label is not None) != (position == index) for position, label in enumerate(labels)):
        raise Unknown("is not linear in the gradient that flows into it, or takes it at another input")
    return labels[index]


def axis_zero(label: Lead) -> Lead:
    if label.axis != 0:
        raise Unknown("needs the examples along axis 0")
    return label


def single_block(label: Lead) -> Lead:
    if label.outer != 1:
        raise Unknown("is not followed between SpaceToBatchND and BatchToSpaceND")
    return label


def rank(tensor: tf.Tensor) -> int:
    if tensor.shape.rank is None:
        raise Unknown("works on a tensor of unknown rank")
    return tensor.shape.rank


def joined(labels: Sequence[Lead]) -> Lead:
    """One label for tensors of the same shape that are combined row by row."""
    first = labels[0]
    if any((label.axis, label.outer) != (first.axis, first.outer) for label in labels):
        raise Unknown("combines gradients with different layouts")
    rows = next((label.rows for label in labels if label.rows is not None), None)
    checks = frozenset().union(*(label.checks for label in labels))
    elements = next((label.elements for label in labels if label.elements is not None), None)
    return dataclasses.replace(first, rows=rows, elements=elements, checks=checks)


def same_extent(ctx: Context, op: tf.Operation, label: Lead, source: tf.Tensor, result: tf.Tensor) -> Lead:
    """`label`, if `result` is as long as `source` along the labelled axis: checked in the run if need be."""
    if rank(source) != rank(result):
        raise Unknown("changes the rank")
    before, after = source.shape[label.axis], result.shape[label.axis]
    if before is not None and after is not None:
        if before != after:
            raise Unknown("changes the extent of the axis that holds the examples")
        return label
    check = ctx.check(result, label.axis, op, equals=source)
    return dataclasses.replace(label, checks=label.checks | {check})


# ---------------------------------------------------------------------------------------------------
# Elementwise ops.


def _elementwise(op: tf.Operation, labels: Labels) -> Any:
    """For ops that broadcast: no operand may add axes in front of the labelled ones."""
    result_rank = rank(op.outputs[0])
    if any(isinstance(label, Inner) for label in labels):
        return _elementwise_inner(op, labels, result_rank)
    label = joined([label for label in labels if label is not None])
    for tensor, own in zip(op.inputs, labels):
        if own is not None and rank(tensor) != result_rank:
            raise Unknown("broadcasts new axes in front of the examples")
        offset = result_rank - rank(tensor)
        for axis in range(offset, label.axis):
            if tensor.shape[axis - offset] != 1:
                raise Unknown("broadcasts in front of the examples")
    return label


def _elementwise_inner(op: tf.Operation, labels: Labels, result_rank: int) -> Inner:
    """The same for [time, examples, ...]: axes in front of the examples may be stretched, but none may be added."""
    found = [label for label in labels if label is not None]
    if any(not isinstance(label, Inner) or label.axis != found[0].axis for label in found):
        raise Unknown("combines gradients with different layouts")
    if any(own is not None and rank(tensor) != result_rank for tensor, own in zip(op.inputs, labels)):
        raise Unknown("broadcasts new axes in front of the examples")
    rows = next((label.rows for label in found if label.rows is not None), None)
    return Inner(found[0].axis, rows, frozenset().union(*(label.checks for label in found)))


@entry("Identity", "Snapshot", "StopGradient", "PreventGradient", "CheckNumerics", "Neg", "EnsureShape")
def _unary(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    del ctx, op
    return only(labels, 0)


@entry("IdentityN")
def _identity_n(ctx: Context, op: tf.Operation, labels: Labels) -> list[Label | None]:
    del ctx, op
    return list(labels)


@entry("Cast")
def _cast(ctx: Context, op: tf.Operation, labels: Labels) -> Lead:
    del ctx
    if not op.outputs[0].dtype.is_floating:
        raise Unknown("is not linear")
    return only(labels, 0)


@layered("Mul")
@entry("Mul")
def _mul(ctx: Context, op: tf.Operation, labels: Labels) -> Any:
    del ctx
    only(labels, 0 if labels[0] is not None else 1)
    return _elementwise(op, labels)


_LINEAR_IN_THE_FIRST = (
    *("RealDiv", "DivNoNan", "Xdivy", "MulNoNan", "ReluGrad", "Relu6Grad", "LeakyReluGrad"),
    *("EluGrad", "SeluGrad", "SoftplusGrad", "SoftsignGrad"),
)
_LINEAR_IN_THE_SECOND = ("TanhGrad", "SigmoidGrad", "RsqrtGrad", "SqrtGrad", "ReciprocalGrad", "InvGrad")


@layered(*_LINEAR_IN_THE_FIRST)
@entry(*_LINEAR_IN_THE_FIRST)
def _first_operand(ctx: Context, op: tf.Operation, labels: Labels) -> Any:
    del ctx
    only(labels, 0)
    return _elementwise(op, labels)


@layered(*_LINEAR_IN_THE_SECOND)
@entry(*_LINEAR_IN_THE_SECOND)
def _second_operand(ctx: Context, op: tf.Operation, labels: Labels) -> Any:
    del ctx
    only(labels, 1)
    return _elementwise(op, labels)


@entry("AddN", "AddV2", "Add", "Sub")
def _add(ctx: Context, op: tf.Operation, labels: Labels) -> Any:
    others_are_zero(ctx, op.inputs, labels)
    return _elementwise(op, labels)


def others_are_zero(ctx: Context, tensors: Sequence[tf.Tensor], labels: Labels) -> None:
    """Adding something that does not depend on the seed would not be linear."""
    for tensor, label in zip(tensors, labels):
        if label is None and not ctx.is_zero(tensor):
            raise Unknown(f"adds {tensor.op.name!r}, which is not part of the gradient of the loss")


@entry("Select", "SelectV2")
def _select(ctx: Context, op: tf.Operation, labels: Labels) -> Any:
    if labels[0] is not None:
        raise Unknown("is not linear")
    others_are_zero(ctx, op.inputs[1:], labels[1:])
    if op.type == "SelectV2":
        return _elementwise(op, labels)
    return joined([label for label in labels if label is not None])  # Select does not broadcast
