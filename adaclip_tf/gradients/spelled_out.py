"""A backward pass without calls, and without sums inside of loops: what recurrent layers need to be read like others.

TensorFlow adds up the gradient of a recurrent layer's kernel step by step, in a loop: acc + x_t^T dy_t. Here the loop
is built anew without the sum; it keeps x_t and dy_t in lists instead, and the sum over steps and examples is taken
behind it, as one product. Functions that are called are put in the caller's place, and so are products in the place of
what adds up the gradient of a gather (`gathers`). The result is the same sum, in
another order, and the ops that computed it before are left without a reader, so that TensorFlow drops them.

Nothing about privacy rests on this module: the proof and the ghost rules look at the new ops as at any others. A loop
or a call that is not of the known form is left as it is, and so is everything behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import control_flow_util, list_ops

from adaclip_tf.gradients import gathers, graph, proof
from adaclip_tf.gradients.backward import Backward
from adaclip_tf.gradients.leaves import Leaf, leaf

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_LOOPS = frozenset({"While", "StatelessWhile"})
# Linear in their first input, or in all, with others that may be computed anywhere.
_MOVES = frozenset({"Identity", "Reshape", "StridedSliceGrad", "Neg", "Transpose", "Pack", "ConcatV2", "AddN"})


def spelled_out(backward: Backward, walk: proof.Walk) -> Backward:
    """`backward` with its calls and loops taken apart; itself where there are none.

    Args:
      backward: a backward pass in the current graph.
      walk: of the proof, over this graph. It knows axes that are computed in the run, from shapes.
    """
    operations = _between(backward)
    if not any(op.type in _CALLS | _LOOPS | {"UnsortedSegmentSum", "ScatterNd"} for op in operations):
        return backward
    copies = _Copies(walk)
    copies.add_all(operations, only_changed=True)
    return backward._replace(gradients=tf.nest.map_structure(copies.of, backward.gradients, expand_composites=True))


def _between(backward: Backward) -> list[tf.Operation]:
    """The ops on the way from the seed to the gradients, in order."""
    tensors = [t for t in tf.nest.flatten(backward.gradients, expand_composites=True) if t is not None]
    needed = set().union(*(graph.ancestors(tensor.op) for tensor in tensors)) if tensors else set()
    reached = {backward.seed.op}
    ordered = []
    for op in backward.seed.graph.get_operations():
        if op in needed and op not in reached and any(tensor.op in reached for tensor in op.inputs):
            reached.add(op)
            ordered.append(op)
    return ordered


class _Copies:
    """Tensors of a graph, or of the functions that it calls, and what stands for them in the current graph."""

    def __init__(self, walk: proof.Walk | None):
        self._walk = walk  # over the graph whose tensors are copied
        self._known: dict[Any, tf.Tensor] = {}

    def of(self, tensor: Any) -> Any:
        return None if tensor is None else self._known.get(tensor.ref(), tensor)

    def set(self, tensor: tf.Tensor, copy: tf.Tensor) -> None:
        self._known[tensor.ref()] = copy

    def add_all(self, operations: Sequence[tf.Operation], only_changed: bool = False) -> None:
        for op in operations:
            if op.type in _CALLS and _is_pure(op):
                self._inline(op)
            elif op.type in _LOOPS and _is_pure(op):
                self._rebuild(op)
            elif (found := gathers.gathered(op)) is not None:
                own = [self.of(tensor) for tensor in found]
                self.set(op.outputs[0], gathers.gradient(gathers.Gathered(*own)))
            elif (found := gathers.sorted_out(op)) is not None:
                own = [self.of(tensor) for tensor in found]
                self.set(op.outputs[0], gathers.gradient_of_sorted(gathers.Gathered(*own)))
            elif not only_changed or any(tensor.ref() in self._known for tensor in op.inputs):
                self._copy(op)

    def _copy(self, op: tf.Operation) -> None:
        inputs = [self.of(tensor) for tensor in op.inputs]
        if proof.changes_nothing(self._walk, op):  # inside of a loop, rules could not ask the run
            self.set(op.outputs[0], inputs[0])
            return
        if op.type == "Sum" and tf.get_static_value(inputs[1]) is None:
            known = proof.reduced_axes(self._walk, op)
            if known is not None:
                inputs[1] = tf.constant(known, op.inputs[1].dtype)
        part = proof.whole_slice(self._walk, op)
        if part is not None:
            inputs[1:] = [tf.constant(numbers, op.inputs[1].dtype) for numbers in part]
        copy = tf.compat.v1.get_default_graph().create_op(
            op.type,
            inputs,
            [tensor.dtype for tensor in op.outputs],
            attrs={key: value for key, value in op.node_def.attr.items() if key != "_class"},
            name=op.name,
        )
        for tensor, copied in zip(op.outputs, copy.outputs):
            if copied.dtype != tf.variant and not copied.shape.is_fully_defined():
                copied.set_shape(tensor.shape)
            self.set(tensor, copied)

    def _inline(self, op: tf.Operation) -> None:
        (body,) = graph.bodies(op)
        inside = _Copies(self._entered(op))
        for inner, outer in zip(body.inputs, op.inputs):
            value = _constant_result(outer) if outer.dtype.is_integer else None
            inside.set(inner, self.of(outer) if value is None else tf.constant(value, outer.dtype))
        inside.add_all(_needed(body, body.outputs))
        for tensor, result in zip(op.outputs, body.outputs):
            self.set(tensor, inside.of(result))

    def _entered(self, op: tf.Operation) -> proof.Walk | None:
        return None if self._walk is None else self._walk.entered.get(op)

    # -----------------------------------------------------------------------------------------------
    # Loops.

    def _rebuild(self, op: tf.Operation) -> None:
        body, condition = graph.bodies(op)
        constant = {i for i, pair in enumerate(zip(body.inputs, body.outputs)) if _hands_on(*pair)}
        sums = {}
        for i in set(range(len(op.inputs))) - constant:
            terms = _accumulated(body, i, self._entered(op))
            if terms is not None:
                sums[i] = terms
        carried = [i for i in range(len(op.inputs)) if i not in constant and i not in sums]
        recorded = list({t.ref(): t for terms in sums.values() for t in _operands(terms)}.values())
        given = [self.of(tensor) for tensor in op.inputs]

        def inside(function: tf.Graph, values: Sequence[tf.Tensor]) -> _Copies:
            inner = _Copies(self._entered(op) if function is body else None)
            for i, tensor in enumerate(function.inputs):
                inner.set(tensor, values[carried.index(i)] if i in carried else given[i])
            return inner

        def goes_on(*values: tf.Tensor) -> tf.Tensor:
            inner = inside(condition, values)
            inner.add_all(_needed(condition, condition.outputs))
            return tf.reshape(inner.of(condition.outputs[0]), [])

        def step(*values: tf.Tensor) -> list[tf.Tensor]:
            inner = inside(body, values)
            results = [body.outputs[i] for i in carried]
            inner.add_all(_needed(body, [*results, *recorded]))
            lists = [
                list_ops.tensor_list_push_back(so_far, inner.of(tensor))
                for so_far, tensor in zip(values[len(carried) :], recorded)
            ]
            return [*(inner.of(result) for result in results), *lists]

        most = _most_steps(op, given)
        lists = [list_ops.empty_tensor_list(t.shape, t.dtype, max_num_elements=most) for t in recorded]
        start = [given[i] for i in carried] + lists
        shapes = [body.inputs[i].shape for i in carried] + [tf.TensorShape([])] * len(lists)
        results = tf.while_loop(
            goes_on, step, start, shape_invariants=shapes, parallel_iterations=op.get_attr("parallel_iterations")
        )
        for i, result in zip(carried, results):
            self.set(op.outputs[i], result)
        for i in constant:
            self.set(op.outputs[i], given[i])
        stacks = {}
        for tensor, elements in zip(recorded, results[len(carried) :]):
            stack = list_ops.tensor_list_stack(elements, tensor.dtype, element_shape=tensor.shape)
            stacks[tensor.ref()] = tf.transpose(stack, [1, 0, *range(2, stack.shape.rank)])
        for i, terms in sums.items():
            self.set(op.outputs[i], _sum_behind(given[i], terms, stacks))


def _sum_behind(start: tf.Tensor, terms: list[Any], stacks: dict[Any, tf.Tensor]) -> tf.Tensor:
    results = [] if graph.is_zero(start) else [start]
    results += [_take_outside(_Copies(None), term, stacks) for term in terms]
    return results[0] if len(results) == 1 else tf.add_n(results)


def _is_pure(op: tf.Operation) -> bool:
    """Whether all that the op calls is known, and may be run another time."""
    try:
        return all(
            not graph.is_stateful(inner) or inner.type in graph.READS | set(graph.CALLS) for inner in graph.inside(op)
        )
    except (AttributeError, ValueError, KeyError):
        return False


def _constant_result(tensor: tf.Tensor) -> Any:
    """What a function always returns in this place, if it does: forward functions hand on axes and the like."""
    if tensor.op.type not in _CALLS:
        return None
    try:
        (body,) = graph.bodies(tensor.op)
    except (AttributeError, ValueError, KeyError):
        return None
    result = graph.behind(body.outputs[tensor.value_index], ("Identity",))
    return graph.constant(result)


def _needed(body: tf.Graph, outputs: Sequence[tf.Tensor]) -> list[tf.Operation]:
    """The ops of a function that `outputs` need, in order, without its arguments."""
    needed = set().union(*(graph.ancestors(tensor.op) for tensor in outputs))
    arguments = {tensor.op for tensor in body.inputs}
    return [op for op in body.get_operations() if op in needed and op not in arguments]


def _hands_on(start: tf.Tensor, end: tf.Tensor) -> bool:
    return graph.behind(end, ("Identity",)) is start


def _most_steps(op: tf.Operation, given: list[tf.Tensor]) -> Any:
    """How many steps a list must have room for: XLA asks. It is the second argument of a gradient's loop."""
    if not control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        return None
    return given[1] if len(given) > 1 and given[1].dtype == tf.int32 and given[1].shape.rank == 0 else None


def _accumulated(body: tf.Graph, index: int, walk: proof.Walk | None) -> list[Any] | None:
    """What a loop adds to its argument `index` in every round, as trees of `Leaf`s; None if it does anything else."""
    start, end = body.inputs[index], graph.behind(body.outputs[index], ("Identity",))
    if not start.dtype.is_floating or end.op.type not in ("AddN", "AddV2"):
        return None
    parts = [graph.behind(tensor, ("Identity",)) for tensor in end.op.inputs]
    if sum(part is start for part in parts) != 1 or not _read_once(start, end.op):
        return None
    terms = [_tree(part, walk) for part in parts if part is not start]
    return None if not terms or any(term is None for term in terms) else terms


def _read_once(start: tf.Tensor, adds: tf.Operation) -> bool:
    """Whether nothing but the sum looks at what was added up so far."""
    readers = start.consumers()
    while len(readers) == 1 and readers[0].type == "Identity":
        readers = readers[0].outputs[0].consumers()
    return readers == [adds]


def _tree(tensor: tf.Tensor, walk: proof.Walk | None) -> Any:
    """A `Leaf`, or (op, what its inputs are: trees or constants); None if there is something else in it."""
    op = tensor.op
    found = leaf(op, walk)
    if found is not None:
        return found
    if op.type not in _MOVES:
        return None
    inputs = [_tree(part, walk) if part.dtype.is_floating else _fixed(part, walk) for part in op.inputs]
    return None if any(part is None for part in inputs) else (op, inputs)


def _fixed(tensor: tf.Tensor, walk: proof.Walk | None) -> Any:
    """The value of a tensor of whole numbers that is the same in every run."""
    value = graph.constant(tensor)
    if value is not None or walk is None or tensor.shape.rank != 1:
        return value
    return walk.sizes.integers(tensor)


def _operands(terms: Sequence[Any]) -> list[tf.Tensor]:
    found = []
    for term in terms:
        if isinstance(term, Leaf):
            found += term.operands
        elif isinstance(term, tuple):
            found += _operands(term[1])
    return found


def _take_outside(copies: _Copies, term: Any, stacks: dict[Any, tf.Tensor]) -> tf.Tensor:
    """The sum over all rounds of what `term` is in one."""
    if isinstance(term, Leaf):
        return term.again([stacks[tensor.ref()] for tensor in term.operands])
    op, inputs = term
    for tensor, part in zip(op.inputs, inputs):
        is_tree = isinstance(part, tuple)
        copies.set(tensor, _take_outside(copies, part, stacks) if is_tree else tf.constant(part, tensor.dtype))
    copies._copy(op)
    return copies.of(op.outputs[0])
