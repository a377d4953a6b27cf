"""Labels: what is known about how a backward tensor depends on the examples' seeds."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Union

import tensorflow as tf

from adaclip_tf.gradients import graph


class Check(NamedTuple):
    """A fact that only a run can establish: a dimension is a multiple of n, or equals another one."""

    tensor: tf.Tensor
    axis: int
    equals: tf.Tensor | None  # compared along the same axis; None: must be a multiple of n
    op: tf.Operation


@dataclasses.dataclass(frozen=True)
class Lead:
    """Chunk k of the tensor depends on microbatch k's seeds only.

    Axes before `axis` have extent 1. Along `axis` there are `outer` equal blocks, and each block is n
    equal runs of rows, run k belonging to microbatch k. `outer` is 1 except between SpaceToBatchND and
    BatchToSpaceND (how TensorFlow lowers dilated convolutions).

    Attributes:
      axis: the axis that holds the chunks.
      rows: the extent of `axis` over (outer x length of the seed) where that is known statically.
      elements: the size of the tensor over the length of the seed, where known. Reshapes keep it, so that
        `rows` can be told again after a detour through shapes that are not static.
      outer: see above.
      checks: indices into `Context.checks`, the run-time facts that the label rests on.
    """

    axis: int = 0
    rows: int | None = 1
    elements: int | None = 1
    outer: int = 1
    checks: frozenset[int] = frozenset()


@dataclasses.dataclass(frozen=True)
class Inner:
    """The same along an axis with others in front of it, as in [time, examples, ...].

    Few ops take such tensors (`flow.LAYERED`).
    """

    axis: int
    rows: int | None = 1
    checks: frozenset[int] = frozenset()


@dataclasses.dataclass(frozen=True)
class Listed:
    """A TensorList. Each of its elements has the label `element`, or is 0."""

    element: Lead


@dataclasses.dataclass(frozen=True)
class Summed:
    """A sum over examples: a variable's gradient, or something computed from one."""


@dataclasses.dataclass(frozen=True)
class Lost:
    """Nothing is known; `reason` names the op where the trail ends."""

    reason: str


Label = Union[Lead, Inner, Listed, Summed, Lost]


class Unknown(Exception):
    """Raised by a table entry or a rule that cannot establish its condition."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


_ZERO_FROM_ZERO = graph.SAME_ORDER | {"Transpose", "Neg", "Sum", "ReverseV2", "TensorListGetItem", "TensorListPopBack"}


class Context:
    """What one analysis knows: n, the labels of tensors, and the run-time checks."""

    def __init__(self, seed: tf.Tensor, num_microbatches: Any):
        batch = seed.shape[0]
        if num_microbatches is None:
            num_microbatches = tf.shape(seed)[0] if batch is None else batch
        self.n = tf.convert_to_tensor(num_microbatches, tf.int32)
        static = graph.constant(self.n)
        self.static_n: int | None = None if static is None else int(static)
        self.microbatch_size = _microbatch_size(self.n, self.static_n, seed)
        self.labels: dict[Any, Label] = {}
        self.zeros: set[Any] = set()  # arguments of a loop that are 0 in every round
        self.checks: list[Check] = []
        self._indices: dict[Any, int] = {}

    def label(self, tensor: tf.Tensor) -> Label | None:
        """The label, or None for a tensor that does not depend on the seed."""
        return self.labels.get(tensor.ref())

    def is_zero(self, tensor: tf.Tensor) -> bool:
        """Whether a tensor, or every element of a list, is certainly 0. Elements that nobody put in are."""
        op = tensor.op
        if tensor.ref() in self.zeros or op.type in ("EmptyTensorList", "TensorListReserve") or graph.is_zero(tensor):
            return True
        if op.type in ("Select", "SelectV2"):
            return all(self.is_zero(part) for part in op.inputs[1:])
        if op.type in ("AddN", "AddV2"):
            return all(self.is_zero(part) for part in op.inputs)
        if op.type == "StridedSliceGrad":
            return self.is_zero(op.inputs[4])
        if op.type == "TensorListSetItem":
            return self.is_zero(op.inputs[0]) and self.is_zero(op.inputs[2])
        return op.type in _ZERO_FROM_ZERO and self.is_zero(op.inputs[0])

    def check(self, tensor: tf.Tensor, axis: int, op: tf.Operation, equals: tf.Tensor | None = None) -> int:
        """Registers a run-time check and returns its index."""
        if any(part is not None and part.shape.rank is None for part in (tensor, equals)):
            raise Unknown("has a rank that is only known at run time")
        key = (tensor.ref(), axis, None if equals is None else equals.ref())
        if key not in self._indices:
            self._indices[key] = len(self.checks)
            self.checks.append(Check(tensor, axis, equals, op))
        return self._indices[key]

    def divides(self, dimension: int | None) -> bool | None:
        """Whether n divides `dimension`; None if that is not known before the run."""
        if dimension is None or self.static_n is None:
            return None
        return dimension % max(self.static_n, 1) == 0

    def facts(self, label: Lead) -> list[graph.Fact]:
        """What must hold in the run for `label` to be right."""
        return [self._fact(index) for index in sorted(label.checks)]

    def _fact(self, index: int) -> graph.Fact:
        check = self.checks[index]
        problem = "does not split evenly among the microbatches"
        if check.equals is not None:
            problem = "changes along the axis that holds the examples"
        message = (
            f"The gradient at {graph.describe(check.op)} {problem}, so per-example gradients cannot be "
            "read off the backward graph. Use gradient_path='jacobian'."
        )
        return graph.Fact(check.tensor, check.axis, message, check.equals)


def _microbatch_size(n: tf.Tensor, static_n: int | None, seed: tf.Tensor) -> int | None:
    """Examples per microbatch where the graph tells: static sizes, or n read off the batch's own shape."""
    batch = seed.shape[0]
    if static_n is not None and batch is not None:
        return batch // max(static_n, 1) if batch else 1
    return 1 if _is_length_of(n, seed) else None


def _is_length_of(n: tf.Tensor, seed: tf.Tensor) -> bool:
    """Whether n is computed as the length of the seed, or of the loss whose shape the seed was filled with."""
    n = graph.behind(n, ("Identity", "Cast", "Squeeze", "Reshape"))
    if n.op.type == "StridedSlice" and n.op.inputs[0].op.type == "Shape":
        begin, strides = (graph.constant(n.op.inputs[i]) for i in (1, 3))
        if n.op.get_attr("shrink_axis_mask") != 1 or begin is None or strides is None:
            return False
        if len(begin) != 1 or begin[0] != 0:
            return False
        measured = n.op.inputs[0].op.inputs[0]
    elif n.op.type == "Size":
        measured = n.op.inputs[0]
    else:
        return False
    tensor = seed
    while tensor.op.type in ("Identity", "Cast"):
        if tensor is measured:
            return True
        tensor = tensor.op.inputs[0]
    if tensor is measured:
        return True
    # tf.fill(tf.shape(loss), ...): the loss has the same length.
    if tensor.op.type == "Fill" and tensor.op.inputs[0].op.type == "Shape":
        return tensor.op.inputs[0].op.inputs[0] is measured and measured.shape.rank == 1
    return tensor.op.type in ("OnesLike", "ZerosLike") and tensor.op.inputs[0] is measured
