"""Per-microbatch gradients, each from a run of the model on that microbatch alone.

This is the reference path ("jacobian"): safe for every function of one example that a graph can express, whatever its
layers, and the fallback for what `adaclip_tf.gradients.proof` or the ghost rules do not know.

Why not `tape.jacobian`. There the gradient of example k is taken through the whole batch, with zeros
for the upstream gradient of all other examples. One example with an infinite input then spoils every
other one (0 * inf = NaN), all of them would have to be dropped, and adding that single example would
move the sum by up to B instead of 1. Here the part of the graph between the data and the gradients, forwards and
backwards, is copied into a loop and run on one microbatch at a time, so that record k is a function of microbatch k
alone, and nothing that any other example holds can reach it.

Why the backward pass is copied too, and not made anew from the copied loss: a custom gradient is a Python function that
holds on to tensors of the forward pass, those of the whole batch.

That all data is cut into examples is what `proof.Proof.pieces` promises: dense, ragged and sparse inputs are, anything
else that may hold data is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.util import object_identity

from adaclip_tf.gradients import graph, proof
from adaclip_tf.gradients.backward import Backward

_FIXED = (
    "that was made for batches of one fixed size, so that examples can't be run alone. Keep them apart, or leave the "
    "size open: `batch` without `drop_remainder=True`, `tf.TensorSpec([None, ...])`."
)
_GOLDEN = 0x9E3779B97F4A7C15  # an odd number: its multiples are 2^64 different keys
_ROUNDING = 1e-3  # by how much two runs of one computation may differ, relative to its result


def for_each_microbatch(
    backward: Backward,
    proven: proof.Proof,
    num_microbatches: tf.Tensor,
    consume: Callable[[tf.Tensor, list[tf.Tensor], Any], Any],
    state: Any,
) -> Any:
    """Folds `consume(k, gradients of microbatch k, state) -> state` over all microbatches.

    Args:
      backward: the loss and its gradients, tensors of the current graph. A variable the loss does not depend on has
        gradient 0.
      proven: what is known about the loss, `proof.prove(loss)`.
      num_microbatches: how many microbatches of consecutive examples there are.
      consume: gets dense float32 gradients of the microbatch's mean loss.
      state: a structure of tensors, what `consume` gets first.

    Returns:
      The last state.
    """
    apart = proven.keeps_apart(backward.gradients)
    batch_size = tf.shape(backward.loss)[0]
    microbatch_size = tf.math.floordiv(batch_size, tf.maximum(num_microbatches, 1))
    whole_batches = not _runs_on_less(backward, proven, num_microbatches, apart)

    def body(k, state):
        rows = k * microbatch_size + tf.range(microbatch_size)
        if whole_batches:
            repeated = tf.tile(rows, [num_microbatches])
            gradients = _among_copies(backward, proven, repeated, microbatch_size, num_microbatches, apart)
        else:
            gradients = _gradients_of(backward, _Copy(backward, proven, rows), microbatch_size, microbatch_size)
        return k + 1, consume(k, gradients, state)

    _, state = tf.while_loop(lambda k, _: k < num_microbatches, body, (0, state), parallel_iterations=8)
    return state


def _gradients_of(backward: Backward, copy: _Copy, count: Any, microbatch_size: Any) -> list[tf.Tensor]:
    """Dense gradients of the mean loss of the first `microbatch_size` of the `count` examples that `copy` sees."""
    dtype = backward.loss.dtype
    loss = copy(backward.loss)
    poison = _poison(loss, count)
    first = tf.cast(tf.range(tf.size(loss)) < microbatch_size, dtype)  # repetitions do not count
    seed = first / tf.cast(tf.maximum(microbatch_size, 1), dtype) + tf.cast(poison, dtype)
    copy = copy.fork()  # the forward pass is shared with other seeds
    copy.replace(backward.seed, seed)
    gradients = tf.nest.map_structure(copy, backward.gradients, expand_composites=True)
    return [_dense(gradient, v.shape) + poison for gradient, v in zip(gradients, backward.variables)]


def _among_copies(
    backward: Backward, proven: proof.Proof, rows: tf.Tensor, microbatch_size: Any, times: Any, apart: bool
) -> list[tf.Tensor]:
    """The gradients of a microbatch in a batch that is full of it, `times` times.

    No other example is in there. But how often it is repeated is the size of the batch, and where examples meet, all
    gradients would hang on that. Where they are not proven to stay `apart`, the run must show that they do: with zeros
    instead of repetitions around it, a microbatch must have the same gradients.
    """
    copy = _Copy(backward, proven, rows)
    gradients, added = (_gradients_of(backward, copy, tf.size(rows), size) for size in (microbatch_size, 0))
    more = 1.0 - 1.0 / tf.cast(tf.maximum(times, 1), tf.float32)
    # A custom gradient may add something that has nothing to do with the loss. It did so once per repetition.
    result = [gradient - more * repeated for gradient, repeated in zip(gradients, added)]
    draws = _draws(backward)
    if apart or draws is None:
        return result
    alone = _Copy(backward, proven, rows, microbatch_size)
    for tensor in draws:
        alone.replace(tensor, copy(tensor))
    among_zeros, unrelated = (_gradients_of(backward, alone, tf.size(rows), size) for size in (microbatch_size, 0))
    ours = [gradient - repeated for gradient, repeated in zip(gradients, added)]
    theirs = [gradient - other for gradient, other in zip(among_zeros, unrelated)]
    poison = _poison_unless_equal(ours, theirs)
    return [gradient + poison for gradient in result]


def _draws(backward: Backward) -> list[tf.Tensor] | None:
    """The random numbers of the step; None where they are drawn in functions, out of reach."""
    tensors = [backward.loss, *tf.nest.flatten(backward.gradients, expand_composites=True)]
    operations = set().union(*(graph.ancestors(tensor.op) for tensor in tensors if tensor is not None))
    if any(inner.type in graph.RANDOM for op in operations for inner in graph.inside(op)):
        return None
    return [tensor for op in operations if op.type in graph.RANDOM for tensor in op.outputs]


def _poison_unless_equal(ours: list[tf.Tensor], theirs: list[tf.Tensor]) -> tf.Tensor:
    """0 if the two are equal but for rounding, else NaN. Where one is not finite, nothing can be told."""
    apart = tf.add_n([tf.reduce_sum(tf.math.squared_difference(a, b)) for a, b in zip(ours, theirs)])
    size = tf.add_n([tf.reduce_sum(tf.square(a) + tf.square(b)) for a, b in zip(ours, theirs)])
    holds = tf.logical_not(tf.math.is_finite(apart)) | (apart <= _ROUNDING**2 * size)
    message = (
        "The gradient of an example depends on how many examples the batch has: they meet in an op that is not known, "
        f"in a graph {_FIXED}"
    )
    with tf.control_dependencies([tf.raw_ops.Assert(condition=holds, data=[tf.constant(message)])]):
        return tf.where(holds, 0.0, float("nan"))


def _runs_on_less(backward: Backward, proven: proof.Proof, num_microbatches: Any, apart: bool) -> bool:
    """Whether the graph can be run on one microbatch, where it was made for batches of a fixed size.

    That size may be baked into it as a constant: in shapes, which may fail, or spread one example over a batch of
    copies without a word; in the gradient of a mean. What it gave would then hang on the size of the batch. So examples
    must be proven to stay apart, and in a trial, in a graph of its own, every tensor must get the extents that its
    label promises to so few examples. Then each op sees just the part of its inputs that is the microbatch's, and gives
    that part of its result. Any other graph gets the microbatch repeated until the batch is full.
    """
    batch, count = backward.loss.shape[0], tf.get_static_value(num_microbatches)
    if all(piece.static_count() is None for piece in proven.pieces):
        return True
    if batch is None or not count:
        return False
    size = batch // int(count)
    if size == batch:
        return True
    if not apart:
        return False
    with FuncGraph("trial").as_default():
        try:
            copy = _Copy(backward, proven, tf.range(size))
            copy.replace(backward.seed, tf.ones([size], backward.loss.dtype))
            tf.nest.map_structure(copy, [backward.loss, backward.gradients], expand_composites=True)
        except (ValueError, TypeError, tf.errors.OpError):
            return False
        return all(proven.is_of_fewer(tensor, copied, size, batch) for tensor, copied in copy.tensors())


def _dense(gradient: Any, shape: tf.TensorShape) -> tf.Tensor:
    if gradient is None:
        return tf.zeros(shape)
    # A loop's gradient may have forgotten its shape.
    return tf.ensure_shape(tf.cast(tf.convert_to_tensor(gradient), tf.float32), shape)


def _poison(copied_loss: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """0 if the loss has an entry for each of its `count` examples, else NaN: then its entries are no examples."""
    holds = tf.equal(tf.size(copied_loss), count)
    message = (
        "The loss of one example by itself does not have one entry, so its entries are not examples. Average it over "
        "all axes but the first, and use no op that joins, drops or repeats examples."
    )
    with tf.control_dependencies([tf.raw_ops.Assert(condition=holds, data=[tf.constant(message)])]):
        return tf.where(holds, 0.0, float("nan"))


class _Copy:
    """Copies tensors, with all that they need, into the current graph, where they see the examples `rows` alone.

    With `first`, they see the first so many of `rows`, and other things for the rest (`proof.Piece.take`).
    """

    def __init__(self, backward: Backward, proven: proof.Proof, rows: tf.Tensor, first: Any = None):
        self._graph = tf.compat.v1.get_default_graph()
        self._copies = object_identity.ObjectIdentityDictionary()
        self._walk = proven.walk
        self._longer = object_identity.ObjectIdentitySet()  # than one example is, and of no known part for each
        for external, internal in getattr(backward.loss.graph, "captures", []):
            along = proof.has_examples(self._walk, internal)
            if along is None:
                self._longer.add(internal)
            else:  # variables above all: captured anew, under the handle they are known by
                self.replace(internal, tf.gather(external, rows) if along else external)
        self._entries = {tensor.op for piece in proven.pieces for tensor in piece.tensors}  # are not copied themselves
        self._batch, self._place = backward.loss.shape[0], tf.reduce_sum(rows[:1])  # 0 where there are none
        for piece in proven.pieces:
            for tensor, taken in zip(piece.tensors, piece.take(rows, first)):
                self.replace(tensor, taken)

    def fork(self) -> _Copy:
        """Another one, with the same copies so far."""
        fork = object.__new__(type(self))
        fork._graph, fork._entries, fork._walk = self._graph, self._entries, self._walk
        fork._batch, fork._place, fork._longer = self._batch, self._place, self._longer
        fork._copies = object_identity.ObjectIdentityDictionary()
        fork._copies.update(self._copies)
        return fork

    def tensors(self) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """All that was copied or replaced, with what stands for it."""
        return [(tensor, copied) for tensor, copied in self._copies.items() if isinstance(tensor, tf.Tensor)]

    def replace(self, tensor: tf.Tensor, copy: tf.Tensor) -> None:
        """Whoever needs `tensor` gets `copy`."""
        self._copies[tensor] = copy

    def __call__(self, tensor: tf.Tensor | None) -> tf.Tensor | None:
        if tensor is None:
            return None
        if tensor not in self._copies:
            for operation in graph.in_order(tensor.op, self._is_known):
                self._copy(operation)
        return self._copied(tensor)

    def _is_known(self, needed: Any) -> bool:
        return needed in self._copies or (isinstance(needed, tf.Operation) and needed in self._entries)

    def _copy(self, operation: tf.Operation) -> None:
        if operation.type == "Placeholder":
            return
        if operation.type == "ReadVariableOp":  # what the loss was computed with: it may have been changed since
            self.replace(operation.outputs[0], operation.outputs[0])
            return
        if operation.type == "RngReadAndSkip" and isinstance(self._walk.label(operation.outputs[0]), proof.Public):
            self.replace(operation.outputs[0], operation.outputs[0])  # moves on once, however many examples there are
            return
        if graph.may_write(operation) and not operation.outputs:
            return  # something public, which is written once, whatever the number of examples
        if any(map(graph.has_effects, graph.inside(operation))):
            raise ValueError(
                f"The op {operation.name!r} ({operation.type}) calls a function that writes to a variable, on the way "
                "to a loss, and it is not known that examples stay apart in that loss. Run for each example alone, it "
                "would write once for each example. Write outside of the function, or leave it out."
            )
        waits = [self._copies[op] for op in operation.control_inputs if op in self._copies]
        with tf.control_dependencies(waits), tf.device(operation.device):
            copy = self._graph.create_op(
                operation.type,
                self._inputs(operation),
                [tensor.dtype for tensor in operation.outputs],
                attrs={key: value for key, value in operation.node_def.attr.items() if key != "_class"},
                name=operation.name,
            )
        self._copies[operation] = copy
        for tensor, copied in zip(operation.outputs, copy.outputs):
            self._copies[tensor] = copied

    def _inputs(self, operation: tf.Operation) -> list[tf.Tensor]:
        inputs = [self._copied(tensor) for tensor in operation.inputs]
        if operation.type in graph.DRAWS_FROM_A_KEY and self._draws_for_each(*operation.inputs[:2]):
            # One example after the other would get the same ones.
            inputs[1] += tf.cast(self._place, tf.uint64) * tf.constant(_GOLDEN, tf.uint64)
        return inputs

    def _draws_for_each(self, shape: tf.Tensor, key: tf.Tensor) -> bool:
        """Whether as many numbers are drawn as the batch has examples, and others in every step.

        What a fixed seed gives to a place must not be an example's: it has another place when one before it leaves.
        """
        label = self._walk.label(key)
        if not (isinstance(label, proof.Public) and label.moved):
            return False
        value = self._walk.sizes.integers(shape)
        if value is not None:
            return len(value) > 0 and self._batch is not None and value[0] == self._batch
        return not self._entries.isdisjoint(graph.ancestors(shape.op))

    def _copied(self, tensor: tf.Tensor) -> tf.Tensor:
        if tensor in self._copies:
            return self._copies[tensor]
        if tensor in self._longer:
            raise ValueError(
                f"The loss depends on {tensor.name!r}, of shape {tensor.shape}, which was made outside of the step's "
                "function and is as long as the batch, and examples must be run alone: each would see how many there "
                "are. Make it inside of the function that takes the step."
            )
        if tensor.op.type == "Placeholder":
            return tensor  # a scalar argument, the same for all examples
        raise ValueError(f"The op {tensor.op.name!r} ({tensor.op.type}) can't be run on one example at a time.")
