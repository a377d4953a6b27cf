"""The registry of rules: which op types produce a variable's gradient, and the term each one stands for.

A rule gets the gradient (after `plan` has peeled reshapes and the like), the first output of an op, and the variable's
shape. It returns a term with the coordinates in the order of that output and the facts that only the run can
establish, or raises `Unknown`. The argument is always the same: the op is linear in its one seed-dependent input, a
`Lead` tensor, and sums over that tensor's rows; so the rows of chunk k alone give microbatch k's gradient, whatever the
other input holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from adaclip_tf._internal import made
from adaclip_tf.gradients import graph
from adaclip_tf.gradients.ghost import products
from adaclip_tf.gradients.ghost.flow_linear import parse_einsum, reduced_axes
from adaclip_tf.gradients.ghost.labels import Context, Lead, Lost, Unknown
from adaclip_tf.gradients.ghost.outer_product import OuterProduct
from adaclip_tf.gradients.ghost.terms import Bias, PerExample, Rows, Term
from adaclip_tf.gradients.ghost.transposed import Transposed


class Found(NamedTuple):
    """What a rule found, and what must hold in the run for it to be right."""

    term: Term
    facts: list[graph.Fact]


Rule = Callable[[Context, Any, tf.TensorShape], Found]
SPARSE = "IndexedSlices"  # in place of an op type, for gradients that are no tensors
REGISTRY: dict[str, Rule] = {}


def rule(*types: str) -> Callable[[Rule], Rule]:
    """Registers a function as the rule for gradients that ops of these types compute, or for `SPARSE` ones."""

    def register(function: Rule) -> Rule:
        for op_type in types:
            REGISTRY[op_type] = function
        return function

    return register


def lead(ctx: Context, tensor: tf.Tensor) -> Lead:
    """The label of a tensor that must be seed-dependent, with the examples along axis 0."""
    label = ctx.label(tensor)
    if isinstance(label, Lost):
        raise Unknown(label.reason)
    if not isinstance(label, Lead):
        raise Unknown("does not take the gradient of the loss at the expected input")
    if label.axis != 0:
        raise Unknown("needs the examples along axis 0")
    return label


def one_lead(ctx: Context, op: tf.Operation, candidates: tuple[int, int]) -> int:
    """Which of two inputs is the seed-dependent one. Exactly one must be."""
    dependent = [index for index in candidates if ctx.label(op.inputs[index]) is not None]
    if len(dependent) != 1:
        raise Unknown("is not linear in the gradient that flows into it")
    lead(ctx, op.inputs[dependent[0]])
    return dependent[0]


def facts_about(ctx: Context, label: Lead, tensor: tf.Tensor, rows: Rows) -> list[graph.Fact]:
    """What must hold in the run for `label` to be right, and for `tensor` to have as many rows as were counted."""
    facts = ctx.facts(label)
    if rows.per_microbatch is None:
        return facts
    static = tensor.shape[0]
    if static is None or ctx.static_n is None:
        message = f"{tensor.op.name!r} does not have {rows.per_microbatch} rows per microbatch."
        return [*facts, graph.Fact(tensor, 0, message, rows=rows.per_microbatch)]
    if static != ctx.static_n * rows.per_microbatch:
        raise Unknown(f"has {static} rows for {ctx.static_n} microbatches")
    return facts


def matrix_term(ctx: Context, label: Lead, x: tf.Tensor, dy: tf.Tensor, lead_first: bool) -> Found:
    """The term for x^T dy, both [rows, features], where one of them is the labelled tensor."""
    rows = Rows(ctx, label)
    facts = facts_about(ctx, label, x if lead_first else dy, rows)
    if x.shape[1] is None or dy.shape[1] is None:
        raise Unknown("has a number of features that is only known at run time")
    if rows.per_microbatch == 1:
        return Found(OuterProduct(rows, x, dy), facts)
    x, dy = (rows.split(tf.cast(tensor, tf.float32)) for tensor in (x, dy))
    return Found(products.of_arrays(ctx.n, x, dy, rows.per_microbatch), facts)


@rule("MatMul")
def _matmul(ctx: Context, gradient: tf.Tensor, shape: tf.TensorShape) -> Found:
    """Dense layers: x^T dy, or dy^T x where the kernel is stored transposed."""
    op, size = gradient.op, shape.num_elements()
    index = one_lead(ctx, op, (0, 1))
    label = lead(ctx, op.inputs[index])
    x, dy = op.inputs
    if op.get_attr("transpose_a") is False:
        if index == 0:
            raise Unknown("does not sum over the examples")
        x = tf.transpose(x)
    if op.get_attr("transpose_b") is True:
        if index == 1:
            raise Unknown("does not sum over the examples")
        dy = tf.transpose(dy)
    x, dy = _with_width(x, size, dy.shape[1]), _with_width(dy, size, x.shape[1])
    return matrix_term(ctx, label, x, dy, index == 0)


def _with_width(matrix: tf.Tensor, size: int, other: int | None) -> tf.Tensor:
    """Where a reshape hides the number of features, the variable's size tells it."""
    if matrix.shape[1] is None and other:
        return tf.ensure_shape(matrix, [None, size // other])
    return matrix


@rule("BiasAddGrad")
def _bias(ctx: Context, gradient: tf.Tensor, shape: tf.TensorShape) -> Found:
    del shape
    label = lead(ctx, gradient.op.inputs[0])
    rows = Rows(ctx, label)
    dy = gradient.op.inputs[0]
    facts = facts_about(ctx, label, dy, rows)
    if dy.shape.rank == 2 and rows.per_microbatch == 1:
        return Found(Bias(tf.cast(dy, tf.float32)), facts)  # the very tensor that the kernel's term works on
    examples = rows.split(dy)
    channel = 2 if gradient.op.get_attr("data_format") == b"NCHW" else examples.shape.rank - 1
    return Found(PerExample(_reduce(examples, [a for a in range(1, examples.shape.rank) if a != channel])), facts)


@rule("Sum")
def _sum(ctx: Context, gradient: tf.Tensor, shape: tf.TensorShape) -> Found:
    """Biases, scales and other variables that were broadcast over the examples."""
    op, tensor = gradient.op, gradient.op.inputs[0]
    certain, possible = reduced_axes(op)
    label = ctx.label(tensor)
    if isinstance(label, Lead) and 0 < label.axis in certain and not possible:  # in front are axes of extent 1
        front = label.axis
        tensor = made.reshape(tensor, made.extents(tensor, front))
        certain = {axis - front for axis in certain if axis >= front}
        label = dataclasses.replace(label, axis=0)
    else:
        label = lead(ctx, tensor)
        if 0 not in certain or (possible and not op.get_attr("keep_dims")):
            raise Unknown("sums over axes that are only known at run time")
        batched = _sum_of_batch_matmul(ctx, op, certain)
        if batched is not None:
            return batched
    rows = Rows(ctx, label)
    facts = facts_about(ctx, label, tensor, rows)
    if possible:  # the same sum of each example's rows, over the axes that the run finds
        behind = op.inputs[1] + tf.constant(1, op.inputs[1].dtype)
        sums = tf.raw_ops.Sum(input=tf.cast(rows.split(tensor), tf.float32), axis=behind, keep_dims=True)
        return Found(PerExample(sums, shape.num_elements()), facts)
    axes = [1, *(axis + 1 for axis in sorted(certain) if axis > 0)]
    return Found(PerExample(_reduce(rows.split(tensor), axes), shape.num_elements()), facts)


def _reduce(examples: tf.Tensor, axes: list[int]) -> tf.Tensor:
    axes = [axis for axis in axes if examples.shape[axis] != 1]
    squeezed = tf.cast(examples, tf.float32)
    return tf.reduce_sum(squeezed, axis=axes, keepdims=True) if axes else squeezed


def _sum_of_batch_matmul(ctx: Context, op: tf.Operation, axes: set[int]) -> Found | None:
    """matmul(x [batch, time, features], kernel): TensorFlow forms x^T dy per example and sums. We need not."""
    product = op.inputs[0].op
    if product.type not in graph.BATCH_PRODUCTS or axes != {0}:
        return None
    x, dy = product.inputs
    if x.shape.rank != 3 or dy.shape.rank != 3 or not product.get_attr("adj_x") or product.get_attr("adj_y"):
        return None
    index = one_lead(ctx, product, (0, 1))
    label = lead(ctx, product.inputs[index])
    if any(tensor.shape[axis] is None for tensor in (x, dy) for axis in (1, 2)) or label.rows is None:
        return None
    if product.inputs[1 - index].shape[0] == 1:
        return None  # broadcast against the examples
    length = x.shape[1]
    label = Lead(rows=label.rows * length, checks=label.checks)
    x, dy = (made.reshape(tensor, [-1, tensor.shape[2]]) for tensor in (x, dy))
    return matrix_term(ctx, label, x, dy, index == 0)


@rule("Einsum")
def _einsum(ctx: Context, gradient: tf.Tensor, shape: tf.TensorShape) -> Found:
    """EinsumDense and attention projections: brought to the form x^T dy by moving axes."""
    del shape
    op = gradient.op
    if len(op.inputs) != 2:
        raise Unknown("has one operand")
    index = one_lead(ctx, op, (0, 1))
    label = lead(ctx, op.inputs[index])
    (first, second), output = parse_einsum(op)
    letter = (first, second)[index][0]
    contracted = [c for c in first if c in second and c not in output]
    rows_first = [c for c in first if c in output]
    rows_second = [c for c in second if c in output]
    if letter not in contracted:
        raise Unknown("does not sum over the examples of both operands")
    if (
        sorted(rows_first + rows_second) != sorted(output)
        or sorted(contracted + rows_first) != sorted(first)
        or sorted(contracted + rows_second) != sorted(second)
    ):
        raise Unknown("is not a plain contraction of two operands")
    contracted.sort(key=lambda c: c != letter)
    x = _matricise(op.inputs[0], first, contracted, rows_first)
    dy = _matricise(op.inputs[1], second, contracted, rows_second)
    length = graph.size([op.inputs[index].shape[(first, second)[index].index(c)] for c in contracted[1:]])
    rows = None if label.rows is None or length is None else label.rows * length
    found = matrix_term(ctx, Lead(rows=rows, checks=label.checks), x, dy, index == 0)
    sizes = {c: op.inputs[i].shape[s.index(c)] for i, s in enumerate((first, second)) for c in s}
    source = rows_first + rows_second
    moved = Transposed(found.term, [sizes[c] for c in source], [source.index(c) for c in output])
    return Found(moved, found.facts)


def _matricise(tensor: tf.Tensor, letters: str, rows: list[str], columns: list[str]) -> tf.Tensor:
    """[..] as a matrix with the axes `rows` along the first and `columns` along the second dimension."""
    order = [letters.index(c) for c in rows + columns]
    width = graph.size([tensor.shape[letters.index(c)] for c in columns])
    if width is None:
        raise Unknown("has a number of features that is only known at run time")
    if order != list(range(len(order))):
        tensor = tf.transpose(tensor, order)
    if width:
        return made.reshape(tensor, [-1, width])
    return tf.reshape(tensor, [tf.reduce_prod(tf.shape(tensor)[: len(rows)]), width])
