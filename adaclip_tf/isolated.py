"""Per-microbatch gradients, each from a run of the model on that microbatch alone.

This is the reference path ("jacobian"): exact for every model that a graph can express, whatever its
layers, and the fallback for weights the ghost rules do not recognise.

Why not `tape.jacobian`. There the gradient of example k is taken through the whole batch, with zeros
for the upstream gradient of all other examples. One example with an infinite input then spoils every
other one (0 * inf = NaN), all of them would have to be dropped, and adding that single example would
move the sum by up to B instead of 1. Here the part of the graph between the data and the loss is
copied into a loop and run on one microbatch at a time, so that record k is a function of microbatch k
alone, and nothing that any other example holds can reach it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.util import object_identity


def computed_elsewhere(loss: tf.Tensor) -> bool:
    """Whether `loss` comes from outside the current graph (an eager tensor), so that there is nothing to copy."""
    graph = tf.compat.v1.get_default_graph()
    return not hasattr(loss, "graph") or loss.graph is not graph or loss.op.type == "Placeholder"


def for_each_microbatch(
    loss: tf.Tensor,
    variables: Sequence[tf.Variable],
    num_microbatches: tf.Tensor,
    consume: Callable[[tf.Tensor, list[tf.Tensor], Any], Any],
    state: Any,
) -> Any:
    """Folds `consume(k, gradients of microbatch k, state) -> state` over all microbatches.

    Args:
      loss: shape [batch], a tensor of the current graph, one entry per example.
      variables: what to differentiate by. A variable the loss does not depend on has gradient 0.
      num_microbatches: how many microbatches of consecutive examples there are.
      consume: gets dense float32 gradients of the microbatch's mean loss.
      state: a structure of tensors, what `consume` gets first.

    Returns:
      The last state.
    """
    sources = _data_sources(loss)
    if not sources:
        raise ValueError(f"The loss does not depend on any data that enters this graph; {_PASS}")
    batch_size = tf.shape(loss)[0]
    microbatch_size = tf.math.floordiv(batch_size, tf.maximum(num_microbatches, 1))
    # Shapes that were fixed when the graph was made may be baked into it as constants; such a graph runs on
    # whole batches only, so it gets the microbatch repeated until the batch is full.
    whole_batches = any(source.shape.rank is not None and source.shape[0] is not None for source in sources)
    checks = [
        tf.debugging.assert_equal(
            tf.shape(source)[0],
            batch_size,
            message=f"The loss depends on the input {source.name!r}, whose first axis is not the batch axis of "
            "the loss. Give every input the examples along its first axis.",
        )
        for source in sources
    ]
    with tf.control_dependencies([check for check in checks if check is not None]):
        sources_checked = [tf.identity(source) for source in sources]

    def body(k, state):
        rows = k * microbatch_size + tf.range(microbatch_size)
        if whole_batches:
            rows = tf.tile(rows, [num_microbatches])
        slices = [tf.gather(source, rows) for source in sources_checked]
        copied_loss = _copy(loss, sources, slices)
        mean_loss = tf.reduce_mean(tf.cast(copied_loss, tf.float32)[:microbatch_size])
        handles = [tf.compat.v1.get_default_graph().capture(variable.handle) for variable in variables]
        gradients = [
            tf.zeros(variable.shape) if gradient is None else tf.cast(tf.convert_to_tensor(gradient), tf.float32)
            for gradient, variable in zip(tf.gradients(mean_loss, handles), variables)
        ]
        return k + 1, consume(k, gradients, state)

    _, state = tf.while_loop(lambda k, _: k < num_microbatches, body, (0, state), parallel_iterations=8)
    return state


def hands_out_examples(operation: tf.Operation) -> bool:
    """Whether the op hands out elements of a dataset."""
    if operation.type in ("If", "StatelessIf"):
        # On several replicas, where the dataset may be at its end for some of them: an element or an empty one.
        return any(tensor.op.type == "IteratorGetNextAsOptional" for tensor in operation.inputs)
    return operation.type in _ITERATION


def _data_sources(loss: tf.Tensor) -> list[tf.Tensor]:
    """The tensors through which data enters the graph on its way to the loss."""
    captured = {internal.ref() for _, internal in getattr(loss.graph, "captures", [])}
    entering: list[tf.Tensor] = []
    closed_over: list[tf.Tensor] = []
    seen, pending = set(), [loss]
    while pending:
        tensor = pending.pop()
        if tensor.ref() in seen:
            continue
        seen.add(tensor.ref())
        kind = tensor.op.type
        if kind == "Placeholder" or hands_out_examples(tensor.op):
            if _is_array(tensor):
                (closed_over if tensor.ref() in captured else entering).append(tensor)
            continue  # whether there is an element is no business of the loss
        if kind == "Const":
            if _is_array(tensor) and not _is_structural(tensor):
                closed_over.append(tensor)
        elif not tensor.op.inputs and not kind.startswith(("Random", "VarHandle")):
            raise ValueError(f"Can't tell whether the op {tensor.op.name!r} ({kind}) reads examples; {_PASS}")
        pending.extend(tensor.op.inputs)
    if loss.shape[0] in (None, 1):
        # Constants know nothing of a batch size that is not fixed; and a batch of one is a microbatch already.
        return entering
    for constant in closed_over:
        if constant.shape[0] == loss.shape[0]:
            raise ValueError(
                f"The loss depends on the constant {constant.name!r} of shape {constant.shape}, as long as the batch: "
                f"it can't be told whether it holds examples. If it does, {_PASS} If not, choose another batch size."
            )
    return entering


# The ops that hand out elements of a dataset, and those where constants are shapes, axes or permutations.
_ITERATION = ("IteratorGetNext", "IteratorGetNextSync", "OptionalGetValue")
# fmt: off
_TAKES_STRUCTURE = (
    "Reshape", "Transpose", "Sum", "Mean", "Max", "Min", "Prod", "All", "Any", "StridedSlice", "Slice",
    "Tile", "Pad", "PadV2", "MirrorPad", "ExpandDims", "ConcatV2", "BroadcastTo", "Fill", "GatherV2",
    "ReverseV2", "Cumsum", "Split", "SplitV", "ArgMax", "RandomUniform", "RandomStandardNormal",
    "TruncatedNormal", "Conv2DBackpropInput", "ResizeBilinear", "ResizeNearestNeighbor",
)
# fmt: on
_PASS = "pass the examples as arguments of the `tf.function` or through `fit`."


def _is_array(tensor) -> bool:
    """Whether the tensor may hold one entry per example: no scalar, no handle."""
    dtype = tensor.dtype
    return tensor.shape.rank != 0 and (dtype.is_floating or dtype.is_integer or dtype in (tf.bool, tf.string))


def _is_structural(tensor) -> bool:
    """Whether a constant is only used as a shape, an axis or the like."""
    if not tensor.dtype.is_integer or tensor.shape.rank != 1:
        return False
    # Conv2DBackpropInput (Conv2DTranspose) and the random ops take their shape first, all others later.
    return all(op.type in _TAKES_STRUCTURE for op in tensor.consumers())


def _copy(loss: tf.Tensor, sources: Sequence[tf.Tensor], slices: Sequence[tf.Tensor]) -> tf.Tensor:
    """Copies the ops that lead from `sources` to `loss` into the current graph, fed with `slices` instead."""
    graph = tf.compat.v1.get_default_graph()
    copies = object_identity.ObjectIdentityDictionary()
    for external, internal in getattr(loss.graph, "captures", []):
        copies[internal] = external  # variables above all: captured anew, under the handle they are known by
    for source, piece in zip(sources, slices):
        copies[source] = piece
    needed = _ancestors(loss.op, stop={source.op for source in sources})
    # A graph lists its ops in the order they were made, inputs first.
    for operation in [op for op in loss.graph.get_operations() if op in needed]:
        if operation.type == "Placeholder":
            continue
        waits = [copies[op] for op in operation.control_inputs if op in copies]
        with tf.control_dependencies(waits), tf.device(operation.device):
            copy = graph.create_op(
                operation.type,
                [copies.get(tensor, tensor) for tensor in operation.inputs],
                [tensor.dtype for tensor in operation.outputs],
                attrs={key: value for key, value in operation.node_def.attr.items() if key != "_class"},
                name=operation.name,
            )
        # Calls of functions (Keras's LSTM is one) carry their gradient with them.
        copy._gradient_function = operation._gradient_function
        copies[operation] = copy
        for tensor, copied in zip(operation.outputs, copy.outputs):
            copies[tensor] = copied
    return copies[loss]


def _ancestors(operation: tf.Operation, stop: set[tf.Operation]) -> set[tf.Operation]:
    """`operation` and all that it needs, short of the ops in `stop`."""
    found, pending = set(), [operation]
    while pending:
        op = pending.pop()
        if op in found or op in stop:
            continue
        found.add(op)
        pending.extend(tensor.op for tensor in op.inputs)
        pending.extend(op.control_inputs)
    return found
