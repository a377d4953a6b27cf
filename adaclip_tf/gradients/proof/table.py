"""The table: what is known of each type of op. `walk` reads it.

`elementwise`, `shapes`, `parts`, `contractions`, `reductions`, `calls`, `lists`, `counted` and `texts` fill it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.proof.labels import Public

if TYPE_CHECKING:
    from adaclip_tf.gradients.proof.walk import Walk

Labels = Sequence[Any]  # of `labels.Label`, or `Listed`
Entry = Callable[["Walk", tf.Operation, Labels], Any]
TABLE: dict[str, Entry] = {}
# For ops that take no data at all: which of their axes are uniform. Others are not uniform along any.
PUBLIC: dict[str, Callable[[Walk, tf.Operation, Labels], Public]] = {}
# For ops that take public arrays as long as the batch, or make them: whether N stays out of the result's entries.
COUNTED: dict[str, Callable[[Walk, tf.Operation, Labels], Any]] = {}
SHAPES = graph.SHAPES | {"VariableShape"}
# Inputs that say how large something is to be, by position.
SIZE_ARGUMENTS: dict[str, frozenset[int]] = {}


def entry(*types: str, sizes: Sequence[int] = ()) -> Callable[[Entry], Entry]:
    """Registers a function as the entry for these op types; inputs `sizes` may depend on N."""

    def register(function: Entry) -> Entry:
        for op_type in types:
            TABLE[op_type] = function
            if sizes:
                SIZE_ARGUMENTS[op_type] = frozenset(sizes)
        return function

    return register


def public(*types: str, sizes: Sequence[int] = ()) -> Callable[[Any], Any]:
    """Registers a function that tells along which axes the public result of these op types is uniform."""

    def register(function: Any) -> Any:
        for op_type in types:
            PUBLIC[op_type] = function
            if sizes:
                SIZE_ARGUMENTS[op_type] = frozenset(sizes)
        return function

    return register


def describe(op: tf.Operation) -> str:
    return f"the op {op.name!r} ({op.type})"


# Keeps a sum over examples such a sum.
LINEAR = graph.SAME_ORDER | {"Transpose", "Neg", "StridedSliceGrad"}
JOINS = frozenset({"AddN", "AddV2", "Add", "Pack", "ConcatV2"})  # of several such sums
# For ops on lists that have another entry for other tensors.
LISTS: dict[str, Entry] = {}
# For the ops of `graph.CALLS`: filled by `calls`.
CALLS: dict[str, Callable[[Walk, tf.Operation, list[Any]], Any]] = {}
# For ops that are looked at together with those that their inputs come from, whose labels may be `Lost`: filled by
# `texts`. None: nothing is known so.
WHOLE: dict[str, Callable[[Walk, tf.Operation], Any]] = {}


@dataclasses.dataclass(frozen=True)
class Listed:
    """A TensorList.

    Attributes:
      element: the label that all its elements have; None: nothing was put in yet.
      symbols: what is known of the entries of every element, where these are vectors of whole numbers.
      holes: whether there may be elements that nobody put in, which are read as zeros.
      long: the axes of such zeros that may be as long as there are examples; None: any.
      sized: the axes of such zeros of which it was said how long they are, when the list was made; None: any.
      extents: of elements that are public, as far as they are known, and if they are the same.
    """

    element: Any
    symbols: tuple[Any, ...] | None = None
    holes: bool = False
    long: frozenset[int] | None = frozenset()
    sized: frozenset[int] | None = frozenset()
    extents: tuple[Any, ...] | None = None
