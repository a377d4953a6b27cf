"""Where data enters the graph of a training step, and how one example is cut out of it.

| what enters                                    | is                                                                |
|------------------------------------------------|-------------------------------------------------------------------|
| an element of a dataset, a function's argument | data: row k of the first axis is example k                        |
| the same, ragged or sparse                     | data, cut out by its row splits or its indices                    |
| a scalar that a dataset hands out              | nobody knows what it holds, and it can't be cut: refused          |
| a scalar argument of a function                | public: a rate, a step number                                     |
| a scalar beside arrays, in one argument        | part of a batch, as a dataset hands it out: refused               |
| what the graph captures of an outer graph      | what it is there: that graph is walked too                        |
| what it captures of eager code, constants      | public. Data that was closed over would meet the examples by      |
|                                                | their place in the batch, which nothing public may                |
"""

from __future__ import annotations

import dataclasses
import itertools
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.proof import elements
from adaclip_tf.gradients.proof.elements import hands_out_examples
from adaclip_tf.gradients.proof.labels import EVERYWHERE, Lost, Public, Rows

if TYPE_CHECKING:
    from adaclip_tf.gradients.proof.walk import Walk

PASS = "pass the examples as arguments of the `tf.function` or through `fit`."
LARGE = 1_000_000  # constants beyond this size are not looked at
_COMPOSITE = ("RaggedTensorFromVariant", "DeserializeSparse")
_owners: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # by graph: which replica depends on which data


class Sources:
    """The entries of one graph, found as its ops are walked over."""

    def __init__(self, walk: Walk):
        self._walk = walk
        self._variants: set[Any] = set()

    def labels(self, op: tf.Operation) -> list[Any] | None:
        """Labels of the outputs where `op` lets something in, else None."""
        if op.type == "Placeholder":
            return [self._placeholder(op.outputs[0])]
        if hands_out_examples(op):
            others = [tensor for tensor in op.inputs if tensor.dtype not in (tf.variant, tf.resource)]  # may decide
            if all(isinstance(self._walk.label(tensor), Public) for tensor in others):
                return [self._element(tensor) for tensor in op.outputs]
            reason = f"{op.name!r} ({op.type}) hands out elements of a dataset, and gets what was computed from data"
            return [Lost(reason, mixing=True)] * len(op.outputs)
        if op.type == "IteratorGetNextAsOptional":
            reason = f"{op.name!r} hands out an element of a dataset that may be missing, and is not used as it is"
            return [Lost(f"{reason}; take it by `next(iterator)`", mixing=True)]
        if op.type == "OptionalHasValue" and elements.is_element(op.inputs[0]):
            return [EVERYWHERE]  # whether the dataset is at its end
        if op.type in _COMPOSITE and op.inputs[0].ref() in self._variants:
            kind = "ragged" if op.type.startswith("Ragged") else "sparse"
            return [Lost(f"the input {tensor.name!r} is {kind}") for tensor in op.outputs]
        return None

    def _placeholder(self, tensor: tf.Tensor) -> Any:
        external = self._walk.captured.get(tensor.ref())
        if external is None:
            for piece in _composite_arguments(self._walk):
                if any(tensor is part for part in piece.tensors):
                    return Lost(f"the input {tensor.name!r} is {piece.kind}")
            return self._element(tensor, scalar=None if _is_beside_arrays(self._walk, tensor) else EVERYWHERE)
        if tensor.dtype == tf.resource or not hasattr(external, "graph"):
            return EVERYWHERE if tensor.shape.rank == 0 else Public()
        label = self._walk.parent(external.graph).label(external)
        if isinstance(label, Lost):
            return Lost(f"outside the step's function {label.reason}", mixing=True)  # can't be run alone from here
        return label

    def _element(self, tensor: tf.Tensor, scalar: Any = None) -> Any:
        if tensor.dtype == tf.resource:
            return EVERYWHERE
        if tensor.dtype == tf.variant:
            self._variants.add(tensor.ref())
            return Lost(f"the input {tensor.name!r} is ragged or sparse")
        if tensor.shape.rank == 0:
            return scalar or Lost(
                f"the batch holds the scalar {tensor.name!r}, which belongs to no example and may hold something of "
                "all of them; make it an array with an entry for each example, a constant, or an argument by itself",
                mixing=True,
            )
        return Rows(0)


def _arguments(walk: Walk) -> list[list[tuple[Any, list[tf.Tensor]]]]:
    """What the walked function is given, argument by argument: specs, and the tensors of each."""
    entered = [tensor for tensor in getattr(walk.graph, "inputs", []) if tensor.ref() not in walk.captured]
    positional, by_name = getattr(walk.graph, "structured_input_signature", None) or ((), {})
    found = []
    for argument in [*positional, *by_name.values()]:
        parts = []
        for spec in tf.nest.flatten(argument):
            leaves = tf.nest.flatten(spec, expand_composites=True)
            count = sum(isinstance(leaf, tf.TensorSpec) for leaf in leaves)
            parts.append((spec, entered[:count]))
            entered = entered[count:]
        found.append(parts)
    return found


def _is_beside_arrays(walk: Walk, tensor: tf.Tensor) -> bool:
    """Whether a function gets a scalar in one structure with arrays, as Keras hands a batch to a compiled step."""
    for argument in _arguments(walk):
        together = [part for _, parts in argument for part in parts]
        if any(tensor is other for other in together):
            return any(other.shape.rank != 0 for other in together)
    return False


def _composite_arguments(walk: Walk) -> list[Piece]:
    """Ragged and sparse arguments: to the function they are several dense ones, none with a row for each example."""
    found = []
    for spec, parts in itertools.chain(*_arguments(walk)):
        if isinstance(spec, tf.RaggedTensorSpec):
            found.append(Piece(tuple(reversed(parts)), "ragged"))  # given from the values to the outermost splits
        elif isinstance(spec, tf.SparseTensorSpec):
            found.append(Piece(tuple(parts), "sparse"))
    return found


# Ops whose constants may be shapes, axes, permutations or seeds.
# fmt: off
_TAKES_STRUCTURE = frozenset({
    "Reshape", "Transpose", "Sum", "Mean", "Max", "Min", "Prod", "All", "Any", "StridedSlice", "Slice", "Tile", "Pad",
    "PadV2", "MirrorPad", "ExpandDims", "ConcatV2", "BroadcastTo", "Fill", "GatherV2", "ReverseV2", "Cumsum", "Split",
    "SplitV", "ArgMax", "Conv2DBackpropInput", "Pack", "ResizeBilinear", "ResizeNearestNeighbor", "StridedSliceGrad",
    "StatelessRandomGetKeyCounter", "BroadcastGradientArgs", "ConcatOffset", "DynamicStitch", "InvertPermutation",
    "Squeeze", "SpaceToBatchND", "BatchToSpaceND", "Conv2DBackpropFilter", "AvgPoolGrad", "TensorListGetItem",
    "TensorListStack", "TensorListReserve", *graph.DRAWS,
})
# fmt: on


def closed_over(walk: Walk, tensor: tf.Tensor) -> tf.Tensor | None:
    """An array that Python code left in the graph and that something public was computed from: it may hold examples."""
    seen, pending = set(), [tensor]
    while pending:
        current = pending.pop()
        if current.ref() in seen:
            continue
        seen.add(current.ref())
        external = walk.captured.get(current.ref())
        is_left = current.op.type == "Const" or (external is not None and not hasattr(external, "graph"))
        is_array = bool(current.shape.rank) and current.dtype not in (tf.resource, tf.variant) and current.shape[0] != 1
        if (
            is_left
            and is_array
            and current.shape.num_elements() != 0
            and not _is_structural(current)
            and not is_one_number(current)
        ):
            return current
        pending.extend(_differ_by_place(walk, current.op))
    return None


def _differ_by_place(walk: Walk, op: tf.Operation) -> list[tf.Tensor]:
    """The inputs that may make an output of `op` another one in another place."""
    if op.type != "Range" and op.type not in graph.ENTRYWISE:
        return list(op.inputs)
    labels = [walk.label(tensor) for tensor in op.inputs]
    alike = [isinstance(label, Public) and label.uniform is None for label in labels]
    return [tensor for tensor, same in zip(op.inputs, alike) if not same]  # those say the same everywhere


def _is_structural(tensor: tf.Tensor) -> bool:
    """Whether a constant is only used as a shape, an axis or the like."""
    if not tensor.dtype.is_integer or tensor.shape.rank != 1:
        return False
    return all(op.type in _TAKES_STRUCTURE or _widens_structure(op) for op in tensor.consumers())


def _widens_structure(op: tf.Operation) -> bool:
    """Whether `op` makes 64 bits of a shape, of which extents are taken, as the gradients of `top_k` and sorts do."""
    readers = op.outputs[0].consumers() if op.type == "Cast" and op.outputs[0].dtype.is_integer else []
    return bool(readers) and all(reader.type in _TAKES_STRUCTURE for reader in readers)


def is_one_number(tensor: tf.Tensor) -> bool:
    """Whether a constant is one number everywhere, as zeros are."""
    if tensor.op.type != "Const" or not 0 < (tensor.shape.num_elements() or 0) <= LARGE:
        return False
    value = np.asarray(tf.get_static_value(tensor)).ravel()
    return bool(np.all(value == value[0]))


@dataclasses.dataclass(frozen=True)
class Piece:
    """Tensors through which some data enters, and how to cut examples out of them."""

    tensors: tuple[tf.Tensor, ...]
    kind: str  # "dense", "ragged", "sparse"

    def count(self) -> tf.Tensor:
        """How many examples it holds."""
        if self.kind == "ragged":
            return tf.shape(self.tensors[0], out_type=tf.int32)[0] - 1
        if self.kind == "sparse":
            return tf.cast(self.tensors[2][0], tf.int32)
        return tf.shape(self.tensors[0])[0]

    def static_count(self) -> int | None:
        if self.kind != "dense" or self.tensors[0].shape.rank is None:
            return None
        return self.tensors[0].shape[0]

    def take(self, rows: tf.Tensor, first: Any = None) -> list[tf.Tensor]:
        """The same tensors for the examples `rows` alone; behind the `first` of them zeros.

        Those zeros are more numbers if ragged, and fewer if sparse, for some op may count them.
        """
        if self.kind == "ragged":
            *splits, values = self.tensors
            whole = tf.RaggedTensor.from_nested_row_splits(values, splits, validate=False)
            ragged = tf.gather(whole, rows)
            if first is not None:
                longer = tf.concat([ragged, ragged[:, :1]], axis=1)
                nothing = longer.with_flat_values(tf.zeros_like(longer.flat_values))
                ragged = tf.concat([ragged[:first], nothing[first:]], axis=0)
            return [*ragged.nested_row_splits, ragged.flat_values]
        if self.kind == "sparse":
            return _take_sparse(self.tensors, rows, first)
        taken = tf.gather(self.tensors[0], rows)
        return [taken if first is None else _only(tf.range(tf.shape(rows)[0]) < first, taken)]


def _only(chosen: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """The rows that are chosen, and zeros for the others."""
    chosen = tf.reshape(chosen, [-1] + [1] * (values.shape.rank - 1))
    return tf.where(chosen, values, tf.zeros_like(values))


def _take_sparse(tensors: tuple[tf.Tensor, ...], rows: tf.Tensor, first: Any) -> list[tf.Tensor]:
    indices, values, shape = tensors
    found = tf.where(tf.equal(tf.cast(rows, tf.int64)[:, tf.newaxis], indices[tf.newaxis, :, 0]))  # [row, entry]
    if first is not None:  # of those behind, every other example loses its entries
        own = tf.cast(first, tf.int64)
        found = tf.boolean_mask(found, (found[:, 0] < own) | ((found[:, 0] - own) % 2 == 1))
    entries = found[:, 1]
    taken = tf.concat([found[:, :1], tf.gather(indices[:, 1:], entries)], axis=1)
    values = tf.gather(values, entries)
    if first is not None:
        values = _only(found[:, 0] < own, values)
    return [taken, values, tf.concat([tf.shape(rows, tf.int64), shape[1:]], axis=0)]


def pieces(walk: Walk, ancestors: set[tf.Operation]) -> list[Piece]:
    """The data that the ops `ancestors` get. Raises ValueError for what can't be cut into examples."""
    found = [piece for piece in _composite_arguments(walk) if any(part.op in ancestors for part in piece.tensors)]
    seen: set[Any] = {part.ref() for piece in found for part in piece.tensors}
    for op in ancestors:
        if op.type in _COMPOSITE and op.inputs and _enters(walk, op.inputs[0]):
            found.append(Piece(tuple(op.outputs), "ragged" if op.type.startswith("Ragged") else "sparse"))
            seen.add(op.inputs[0].ref())
    for op in ancestors:
        if op.type != "Placeholder" and not hands_out_examples(op):
            continue
        for tensor in op.outputs:
            label = walk.label(tensor)
            if tensor.ref() in seen or not graph.is_used(tensor, ancestors) or isinstance(label, Public):
                continue
            if not isinstance(label, Rows) or label.axis != 0 or label.rows != 1:
                raise ValueError(
                    f"The loss depends on the input {tensor.name!r} (dtype {tensor.dtype.name}, shape {tensor.shape}), "
                    f"out of which no example can be cut; {PASS}"
                )
            found.append(Piece((tensor,), "dense"))
    _one_replica(found)
    return found


def _one_replica(found: list[Piece]) -> None:
    """Raises ValueError if another replica's loss depends on the same data: an example would count in both."""
    replica = tf.distribute.get_replica_context()
    if replica is None or replica.num_replicas_in_sync == 1:
        return
    number = tf.get_static_value(replica.replica_id_in_sync_group)
    for tensor in (tensor for piece in found for tensor in piece.tensors):
        if _owners.setdefault(tensor.graph, {}).setdefault(tensor.ref(), number) != number:
            raise ValueError(
                f"The losses of two replicas depend on the input {tensor.name!r}, so that one example changes the sums "
                "of both. Let each replica's loss depend on its own part of the batch."
            )


def _enters(walk: Walk, tensor: tf.Tensor) -> bool:
    is_own = tensor.dtype == tf.variant and tensor.ref() not in walk.captured
    return is_own and (tensor.op.type == "Placeholder" or hands_out_examples(tensor.op))
