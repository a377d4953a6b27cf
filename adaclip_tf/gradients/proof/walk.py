"""The walk over a graph that gives every tensor its label, and enters the functions that the graph calls.

Each op type that is known to keep examples apart has an entry in a table (`entry`). An entry gets the op and the labels
of its inputs and returns the label of its outputs, or raises `Unproven`. It may rely on this: no input is `Lost`, at
least one is `Rows`, and none is `Summed` or `Sizes` unless the entry says that it takes them. It must establish that
part k of an output depends on parts k of the `Rows` inputs only. What is not in the table proves nothing: `Lost`.

Nor may an axis of an output be as long as there are examples, but the one that holds them: whoever adds up along it
learns N. An input that could make it so, a size that depends on N or a public array that is as long as the batch, must
be settled by the entry (`Walk.settle`); what an entry leaves unsettled proves nothing either.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.proof import elements, extents, memory, moved, sources
from adaclip_tf.gradients.proof.labels import (
    EVERYWHERE,
    Checks,
    Lost,
    NoChecks,
    Public,
    Rows,
    Sizes,
    Summed,
    Unproven,
)
from adaclip_tf.gradients.proof.repeated import as_rows, maps_sums
from adaclip_tf.gradients.proof.sizes import Evaluator
from adaclip_tf.gradients.proof.symbols import Count
from adaclip_tf.gradients.proof.table import (
    CALLS,
    COUNTED,
    JOINS,
    LINEAR,
    LISTS,
    PUBLIC,
    SHAPES,
    SIZE_ARGUMENTS,
    TABLE,
    WHOLE,
    Listed,
    describe,
)

_DRAW = "draw it in the step itself and pass it on"


class Walk:
    """The labels of one graph's tensors.

    Args:
      walked: what to walk over.
      inputs: labels of the tensors that enter it; None for the graph of a training step, where `sources` tells.
      outer: the walk of the graph that calls this one.
      told: whether data, or how many examples there are, decides if it runs, or how often.
    """

    def __init__(
        self, walked: tf.Graph, inputs: dict[Any, Any] | None = None, outer: Walk | None = None, told: bool = False
    ):
        self.graph, self.outer = walked, outer
        self.told: bool = told or (outer is not None and outer.told)
        self.checks: Checks = Checks() if outer is None else NoChecks()
        self.memory: memory.Memory = memory.Memory() if outer is None else outer.memory
        self.captured: dict[Any, Any] = {}
        self.labels: dict[Any, Any] = dict(inputs or {})
        self.handles: dict[Any, Any] = {}
        self.symbols: dict[Any, np.ndarray] = {}
        self.sizes = Evaluator(self.label, lambda tensor: self.symbols.get(tensor.ref()))
        self.sources = sources.Sources(self) if inputs is None else None
        self.entered: dict[tf.Operation, Walk] = {}  # by op that calls a function: the walk through it
        self._seen = self._looked = 0  # how many ops were labelled in turn, and looked at for what they keep
        self._early: set[tf.Operation] = set()  # labelled before their turn
        self._settled: set[Any] = set()
        self._open: set[tf.Operation] = set()  # ops whose inputs are being looked at
        self._parents: dict[int, Walk] = {}

    def label(self, tensor: tf.Tensor) -> Any:
        """The label; walks on if the op is new."""
        if self._look_up(tensor) is None:
            self.advance()
        return self._look_up(tensor) or Lost(f"{describe(tensor.op)} is not part of the step's graph")

    def _look_up(self, tensor: tf.Tensor) -> Any:
        """What was noised is public, whatever was found before somebody said so."""
        key = tensor.ref()
        return memory.known_private(self.graph).get(key) or self.labels.get(key)

    def advance(self) -> None:
        """Labels what was added to the graph since the last call."""
        operations = self.graph.get_operations()
        start, self._seen = self._seen, len(operations)
        self._see_captures()
        for op in operations[start:]:
            if op not in self._early:
                self._visit(op)

    def look_for_writes(self) -> None:
        """Has `memory` look at what was added to the graph, and labels no more of it than that needs.

        A label hangs on labels of inputs alone. Most of what comes behind a loss, our own arithmetic above all, hands
        nothing to anybody: nobody asks for its labels.
        """
        operations = self.graph.get_operations()
        start, self._looked = max(self._looked, self._seen), len(operations)
        found = [op for op in operations[start:] if memory.may_note(op)]
        if found:
            self._see_captures()
        for op in found:
            self._visit_with_inputs(op)

    def _see_captures(self) -> None:
        self.captured = {internal.ref(): external for external, internal in getattr(self.graph, "captures", [])}

    def _visit_with_inputs(self, target: tf.Operation) -> None:
        """Labels an op before its turn, each op that it is computed from first."""
        pending, opened = [target], set()
        while pending:
            op = pending[-1]
            if op not in opened:
                opened.add(op)
                pending.extend(tensor.op for tensor in op.inputs if self._look_up(tensor) is None)
                continue
            pending.pop()
            if op not in self._early:
                self._early.add(op)
                self._visit(op)

    def parent(self, outside: tf.Graph) -> Walk:
        """The walk of a graph from which this one captures tensors."""
        if id(outside) not in self._parents:
            parent = Walk(outside)
            parent.checks, parent.memory = self.checks, self.memory
            self._parents[id(outside)] = parent
        return self._parents[id(outside)]

    def _visit(self, op: tf.Operation) -> None:
        outputs = op.outputs
        if outputs and outputs[0].ref() in self.labels and len(outputs) == 1:
            return
        self._open.add(op)
        labels = [self._ready(tensor) for tensor in op.inputs]
        self._open.discard(op)
        result = self._transfer(op, labels)
        per_output = result if isinstance(result, list) else [result] * len(outputs)
        for tensor, label in zip(outputs, per_output):
            self.labels.setdefault(tensor.ref(), label)
        self.memory.visit(self, op, labels)

    def _ready(self, tensor: tf.Tensor) -> Any:
        """The label of an input.

        When a loop is differentiated it gets more arguments and results, for what its gradient needs of the rounds.
        These arguments come behind it, and are looked at first; for such results it is looked at once more.
        """
        op = tensor.op
        if self._look_up(tensor) is None and op not in self._open and self._may_tell_more(op):
            self._visit(op)
        return self._look_up(tensor) or Lost(f"{describe(op)} comes before what it needs")

    def _may_tell_more(self, op: tf.Operation) -> bool:
        return op.type in CALLS or all(self._look_up(tensor) is None for tensor in op.outputs)

    def _transfer(self, op: tf.Operation, labels: list[Any]) -> Any:
        if self.sources is not None:
            entering = self.sources.labels(op)
            if entering is not None:
                return entering
        elif elements.draws(op):
            return Lost(f"{describe(op)} draws data inside of a function, a branch or a loop; {_DRAW}", mixing=True)
        if op.type in CALLS:
            return CALLS[op.type](self, op, labels)
        whole = WHOLE[op.type](self, op) if op.type in WHOLE else None
        if whole is not None:
            return whole
        if memory.read_metric(self, op):
            return memory.read_label(op)
        if op.type in SHAPES:
            return extents.label_shapes(self, op, labels)
        for label in sorted((label for label in labels if isinstance(label, Lost)), key=lambda lost: not lost.mixing):
            return label
        try:
            return self._from_inputs(op, labels)
        except Unproven as unproven:
            return Lost(f"{describe(op)} {unproven.reason}", unproven.mixing)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            # Inputs that an entry did not reckon with, such as data where a kernel should be: nothing is shown.
            return Lost(f"{describe(op)} is not followed")

    def _from_inputs(self, op: tf.Operation, labels: list[Any]) -> Any:
        counted = [i for i, label in enumerate(labels) if isinstance(label, Sizes)]
        if op.type == "Minimum" and self.sizes.integers(op.outputs[0]) is not None:
            return EVERYWHERE  # a constant in disguise
        sizes = SIZE_ARGUMENTS.get(op.type, frozenset())
        if any(isinstance(labels[i], (Rows, Summed, Listed)) for i in sizes if i < len(labels)):
            raise Unproven("has a size that data decides")
        values = [label for i, label in enumerate(labels) if i not in sizes]
        if any(isinstance(label, Rows) for label in values):
            return self.from_rows(op, labels, values)
        if any(isinstance(label, Summed) for label in values):
            return self._from_sums(op, labels, values)
        if any(isinstance(label, Listed) for label in values):
            if op.type == "Identity":
                return labels[0]
            return LISTS[op.type](self, op, labels) if op.type in LISTS else self._entry(op, labels)
        if counted and any(isinstance(label, Sizes) for label in values):
            return extents.label_sizes(self, op, labels)
        try:
            per_output = self._from_publics(op, labels, bool(counted))
        except Unproven:
            followed = as_rows(self, op, labels, sizes)
            if followed is None:
                raise
            return followed
        if all(isinstance(label, Public) and (label.uniform is None or not label.counted) for label in per_output):
            return per_output
        return as_rows(self, op, labels, sizes) or per_output

    def _from_publics(self, op: tf.Operation, labels: list[Any], counted: bool) -> list[Any]:
        result = self._public(op, labels)
        known = [label for label in labels if isinstance(label, Public)]
        long = counted or any(label.counted for label in known)
        if long:
            if op.outputs and op.type not in COUNTED:
                raise Unproven("is not known to tell nobody how many examples there are")
            told = COUNTED[op.type](self, op, labels) if op.outputs else None
            result = result if told is None else told
        drawn, states = any(label.drawn for label in known), moved.handed_on(op, labels, self.label)
        per_output = result if isinstance(result, list) else [result] * len(op.outputs)
        return [
            label.but(counted=long and not tensor.shape.is_fully_defined(), drawn=drawn, moved=states)
            if isinstance(label, Public)
            else label
            for tensor, label in zip(op.outputs, per_output)
        ]

    def _public(self, op: tf.Operation, labels: list[Any]) -> Any:
        if op.type in PUBLIC:
            return PUBLIC[op.type](self, op, labels)
        if op.outputs and graph.has_effects(op):
            raise Unproven(f"may read anything; {sources.PASS}", mixing=True)
        return [EVERYWHERE if tensor.shape.rank == 0 else Public() for tensor in op.outputs]

    def from_rows(self, op: tf.Operation, labels: list[Any], values: list[Any]) -> Any:
        for label in values:
            if isinstance(label, Summed):
                raise Unproven(f"brings examples together: {label.reason}", mixing=True)
            # Ops that are not in the table may well want to know how large their data is: they are run alone.
            if isinstance(label, Sizes):
                raise Unproven("depends on how many examples the batch has", mixing=op.type in TABLE)
        before, self._settled = self._settled, set()
        try:
            result = self._entry(op, labels)
            for tensor, label in zip(op.inputs, labels):
                counted = isinstance(label, Sizes) or (isinstance(label, Public) and label.counted)
                if counted and tensor.ref() not in self._settled:
                    raise Unproven(f"may make something as long as there are examples, by {tensor.op.name!r}")
        finally:
            self._settled = before
        return result

    def settle(self, tensor: tf.Tensor) -> None:
        """Says that an input lets no axis of the result but that of the examples depend on their number."""
        self._settled.add(tensor.ref())

    def _entry(self, op: tf.Operation, labels: list[Any]) -> Any:
        if op.type not in TABLE:
            raise Unproven("is not known to keep examples apart")
        return TABLE[op.type](self, op, labels)

    def _from_sums(self, op: tf.Operation, labels: list[Any], values: list[Any]) -> Any:
        summed = [label for label in values if isinstance(label, Summed)]
        parts = values[:-1] if op.type == "ConcatV2" else values
        exact = op.type in LINEAR or (op.type in JOINS and len(summed) == len(parts)) or maps_sums(op, labels)
        exact = exact and all(label.exact for label in summed) and not graph.rounds(op)
        return Summed(summed[0].reason, frozenset().union(*(label.checks for label in summed)), exact)


def listed(walk: Walk, element: Any, tensor: tf.Tensor) -> Listed:
    """The label of a list of `tensor` alone."""
    symbols = walk.sizes.symbols(tensor) if tensor.dtype.is_integer else None
    extents = walk.sizes.extents(tensor) if isinstance(element, Public) else None
    if isinstance(element, Public) and element.counted:  # it may be taken for data only along its one long axis
        extents = extents or []
        long = frozenset(axis for axis, extent in enumerate(extents) if isinstance(extent, Count))
        alike = frozenset(axis for axis in long if element.is_uniform(axis))
        element = dataclasses.replace(element, uniform=alike if len(long) == 1 else frozenset())
    return Listed(
        element,
        None if symbols is None or symbols.ndim != 1 else tuple(symbols),
        extents=None if extents is None else tuple(extents),
    )
