"""From gradients to handles: follows the seed, then finds each variable's rule."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from adaclip_tf._internal import made
from adaclip_tf.gradients import graph
from adaclip_tf.gradients.ghost import embeddings, flow, keeping, maps, placing, rules, several, slices, terms
from adaclip_tf.gradients.ghost.labels import Context, Lead, Lost, Summed, Unknown
from adaclip_tf.gradients.ghost.rules import Found
from adaclip_tf.gradients.ghost.terms import SquaredNorms, Term
from adaclip_tf.gradients.ghost.transposed import Transposed


class Handle:
    """Per-example norms and weighted sums of one variable's gradient.

    Attributes:
      rule: the type of the op that the gradient was read off, for messages and tests; several where it is a sum.
    """

    def __init__(self, term: Term, shape: tf.TensorShape, rule: str, poison: tf.Tensor | None = None):
        self._term = term
        self._poison = poison
        self._shape = shape
        self.rule = rule

    @tf.autograph.experimental.do_not_convert
    def squared_norms(self, center: tf.Tensor, scale: tf.Tensor) -> SquaredNorms:
        """|(g_k - a) / b|^2 over this variable, for every microbatch k.

        Args:
          center: a, broadcasting against the variable.
          scale: b > 0, likewise. Scalars are cheaper.

        Returns:
          The squares and the sum of the absolute values of their terms, both float32 of shape [n]. NaN or
          infinite where the record's gradient is not finite.
        """
        center, scale = (tf.cast(value, tf.float32) for value in (center, scale))
        term = self._divided_rows(scale) if terms.is_zero(center) else None
        if term is not None:
            norms = term.squared_norms(center, tf.constant(1.0))
        else:
            norms = self._term.squared_norms(self._full(center), self._full(scale))
        return norms if self._poison is None else SquaredNorms(norms.value + self._poison, norms.magnitude)

    @tf.autograph.experimental.do_not_convert
    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        """sum_k weights_k g_k in the variable's shape, float32. Weight 0 leaves a record out, NaNs and all."""
        weights = made.reshape(tf.cast(weights, tf.float32), [-1])
        return made.reshape(self._term.weighted_sum(weights), self._shape.as_list())

    def to_keep(self) -> list[keeping.Kept]:
        """What `weighted_sum` keeps of records whose weight is not 0: see `keep_together`."""
        return keeping.to_keep(self._term)

    @tf.autograph.experimental.do_not_convert
    def row_norms(self, weights: tf.Tensor) -> tf.Tensor:
        """sum_k |weights_k g_k|, where the norm is over the variable's last axis, which is 1 in the result. Float32.

        Args:
          weights: [n]; 0 leaves a record out, NaNs and all.
        """
        weights = tf.reshape(tf.cast(weights, tf.float32), [-1])
        width = int(self._shape[-1]) if self._shape.rank else 1
        quick = getattr(self._term, "row_norms", None)
        sums = None if quick is None else quick(weights, width)
        if sums is None:
            sums = slices.sum_row_norms(self._term.examples(), weights, width, self._shape.num_elements())
        return tf.reshape(sums, [*self._shape[:-1], 1] if self._shape.rank else [])

    def _divided_rows(self, scale: tf.Tensor) -> Term | None:
        """The gradient over a scale that all coordinates along the last axis share; None where it is not such.

        It is a factor of what the gradient is made of, and norms need no more products than with one scale for all.
        """
        divided = getattr(self._term, "divided", None)
        rows = self._shape[:-1]
        if divided is None or self._shape.rank < 2 or scale.shape != [*rows, 1] or self._shape[-1] == 1:
            return None
        if self._term.shape != (rows.num_elements(), self._shape[-1]):  # type: ignore[attr-defined]
            return None
        return divided(tf.reshape(scale, [-1]))

    def _full(self, value: tf.Tensor) -> tf.Tensor:
        if value.shape.rank == 0 or value.shape == self._shape:
            return value
        if value.shape.num_elements() == 1:
            return tf.reshape(value, [])
        return tf.broadcast_to(value, self._shape)


@dataclasses.dataclass
class Plan:
    """What can be read off the backward graph, by index of the variable.

    Attributes:
      recognised: the variables that have a handle.
      unrecognised: the others, with a sentence that names the variable, the op and why there is no rule.

    Variables that the loss does not depend on (their gradient is None) are in neither.
    """

    recognised: dict[int, Handle] = dataclasses.field(default_factory=dict)
    unrecognised: dict[int, str] = dataclasses.field(default_factory=dict)


@tf.autograph.experimental.do_not_convert
def keep_together(handles: Sequence[Any], weights: tf.Tensor) -> None:
    """What `weighted_sum(weights)` of all these shares is made at once: to be called before them, with less to trace.

    `handles` of other kinds may be among them. The sums are the same without it.
    """
    weights = made.reshape(tf.cast(weights, tf.float32), [-1])
    keeping.keep_together([kept for handle in handles for kept in keeping.to_keep(handle)], weights)


@tf.autograph.experimental.do_not_convert
def analyse(
    gradients: Sequence[Any], variables: Sequence[tf.Variable], seed: tf.Tensor, num_microbatches: Any = None
) -> Plan:
    """Reads per-example gradients off one backward pass. Call it in the graph that holds that pass.

    >>> @tf.function
    ... def squared_norms(x, kernel):
    ...     with tf.GradientTape() as tape:
    ...         loss = tf.reduce_sum(x @ kernel, axis=1)
    ...     seed = tf.identity(tf.ones_like(loss))
    ...     gradients = tape.gradient(loss, [kernel], output_gradients=seed)
    ...     plan = analyse(gradients, [kernel], seed)
    ...     return plan.recognised[0].squared_norms(0.0, 1.0).value
    >>> squared_norms(tf.constant([[3.0, 4.0], [0.0, 2.0]]), tf.Variable([[1.0], [1.0]])).numpy()
    array([25.,  4.], dtype=float32)

    Args:
      gradients: of the loss [batch] with respect to `variables`, from `tape.gradient(loss, variables,
        output_gradients=seed)`; tensors, `tf.IndexedSlices` or None.
      variables: in the same order.
      seed: a tensor [batch] that nothing else in the graph is computed from. Scaling it by 1/m makes each
        record the mean over a microbatch of m examples.
      num_microbatches: n, which must divide the batch; None for one per example.
    """
    ctx = Context(seed, num_microbatches)
    flow.propagate(ctx, seed)
    plan, found = Plan(), {}
    for index, (gradient, variable) in enumerate(zip(gradients, variables)):
        if gradient is None:
            continue
        try:
            found[index] = _find(ctx, gradient, variable.shape)
        except Unknown as unknown:
            plan.unrecognised[index] = f"{variable.name}: {unknown.reason}."
    # One for all: where a single fact is false, nobody's norm is known.
    poison = graph.poison([fact for one, _ in found.values() for fact in one.facts], ctx.n)
    for index, (one, rule) in found.items():
        plan.recognised[index] = Handle(one.term, variables[index].shape, rule, poison)
    return plan


def _find(ctx: Context, gradient: Any, shape: tf.TensorShape) -> tuple[Found, str]:
    """What a rule found, and which one."""
    parts = graph.contributions(gradient)
    if len(parts) == 1 and parts[0] is gradient:
        return _find_one(ctx, gradient, shape)
    if not isinstance(gradient, tf.IndexedSlices):
        if not gradient.shape.is_fully_defined() or gradient.shape.num_elements() != shape.num_elements():
            raise Unknown(f"{graph.describe(gradient.op)} adds up contributions of a shape that is not known")
        shape = gradient.shape
    if not parts:
        raise Unknown(f"{graph.describe(gradient.op)} does not come from the loss")
    found = [_find(ctx, part, shape) for part in parts]
    facts = [fact for part, _ in found for fact in part.facts]
    term = several.join(ctx.n, [part.term for part, _ in found])
    return Found(term, facts), " + ".join(dict.fromkeys(rule for _, rule in found))


def _find_one(ctx: Context, gradient: Any, shape: tf.TensorShape) -> tuple[Found, str]:
    """The same where the gradient is not known to be a sum."""
    if isinstance(gradient, tf.IndexedSlices):
        if isinstance(ctx.label(gradient.values), Summed):
            return _looked_up_for_all(ctx, gradient, shape)
        return rules.REGISTRY[rules.SPARSE](ctx, gradient, shape), rules.SPARSE
    label = ctx.label(gradient)
    if label is None:
        raise Unknown(f"its gradient, {graph.describe(gradient.op)}, does not come from the loss")
    if isinstance(label, Lost):
        raise Unknown(label.reason)
    op = gradient.op
    if op.type in graph.SAME_ORDER and isinstance(label, Summed):
        if graph.rounds(op):
            raise Unknown(f"{graph.describe(op)} rounds a sum over examples to whole numbers")
        return _find(ctx, op.inputs[0], shape)
    if op.type == "Neg" and isinstance(label, Summed):
        found, rule = _find(ctx, op.inputs[0], shape)
        return found._replace(term=several.Negated(found.term)), rule
    if op.type == "Transpose" and isinstance(label, Summed):
        return _transposed(ctx, op)
    if op.type in placing.SOURCES and isinstance(label, Summed):
        return _placed(ctx, op)
    if maps.takes(ctx, op):
        return _mapped(ctx, op)
    if isinstance(label, Lead) and ctx.static_n == 1:  # there is but one record
        return Found(terms.PerExample(tf.cast(gradient, tf.float32)[tf.newaxis]), []), op.type
    if op.type not in rules.REGISTRY or gradient.value_index != 0:
        raise Unknown(f"{graph.describe(op)} has no rule for a variable's gradient")
    if isinstance(label, Lead):
        raise Unknown(f"{graph.describe(op)} does not sum over the examples")
    try:
        return rules.REGISTRY[op.type](ctx, gradient, shape), op.type
    except Unknown as unknown:
        raise Unknown(f"{graph.describe(op)} {unknown.reason}") from unknown


def _looked_up_for_all(ctx: Context, gradient: tf.IndexedSlices, shape: tf.TensorShape) -> tuple[Found, str]:
    """Rows that were looked up once and used by all examples, as embeddings of places are: x + table(range(length))."""
    if ctx.label(gradient.indices) is not None or not shape.is_fully_defined() or shape.rank < 1:
        raise Unknown("looks up rows in a way that is only known at run time")
    found, rule = _find(ctx, gradient.values, gradient.values.shape)
    if not isinstance(found.term, terms.PerExample):
        raise Unknown("looks up rows that all examples use, in a way that has no rule")
    term = embeddings.looked_up_for_all(ctx.n, shape, gradient.indices, found.term.gradients)
    return found._replace(term=term), f"{rules.SPARSE} of {rule}"


def _mapped(ctx: Context, op: tf.Operation) -> tuple[Found, str]:
    """A variable that something else was made of, by numbers that do not come from the loss."""
    parts = _Parts(ctx)
    try:
        term = maps.mapped(ctx, op, parts.find)
    except Unknown as unknown:
        raise Unknown(f"{graph.describe(op)} {unknown.reason}") from unknown
    return parts.made_into(term)


def _transposed(ctx: Context, op: tf.Operation) -> tuple[Found, str]:
    inner = op.inputs[0]
    permutation = graph.constant(op.inputs[1])
    if permutation is None or not inner.shape.is_fully_defined():
        raise Unknown(f"{graph.describe(op)} moves axes in a way that is only known at run time")
    found, rule = _find(ctx, inner, inner.shape)
    moved = Transposed(found.term, inner.shape.as_list(), [int(axis) for axis in permutation])
    return found._replace(term=moved), rule


def _placed(ctx: Context, op: tf.Operation) -> tuple[Found, str]:
    """A variable of which parts were used: their gradients lie in its own."""
    result = op.outputs[0].shape
    sources = list(op.inputs)[placing.SOURCES[op.type]]
    if not result.is_fully_defined() or not all(tensor.shape.is_fully_defined() for tensor in sources):
        raise Unknown(f"{graph.describe(op)} puts gradients into places that are only known at run time")
    parts = _Parts(ctx)
    placed = [(parts.find(tensor), tensor.shape.as_list()) for tensor in sources]
    return parts.made_into(several.Rearranged(ctx.n, placed, placing.place(op), result.num_elements()))


class _Parts:
    """Gradients that a variable's own is made of, and what their rules took for granted."""

    def __init__(self, ctx: Context):
        self._ctx = ctx
        self._facts: list[graph.Fact] = []
        self._rules: list[str] = []

    def find(self, tensor: tf.Tensor) -> Term:
        if self._ctx.is_zero(tensor) and self._ctx.label(tensor) is None:
            return terms.PerExample(tf.zeros([self._ctx.n, tensor.shape.num_elements()]))
        found, rule = _find(self._ctx, tensor, tensor.shape)
        self._facts += found.facts
        self._rules.append(rule)
        return found.term

    def made_into(self, term: Term) -> tuple[Found, str]:
        return Found(term, self._facts), " + ".join(dict.fromkeys(self._rules))
