"""Finds what a training step keeps of a batch in a variable, a table or another resource.

Nothing of a batch may stay behind but what was noised: what an example leaves in a variable is in the saved model, and
reaches the gradients of all batches to come. So every op that hands something computed from the data to a resource is
refused, whatever its name; how many examples there are is such a thing, too. So is an op that gets data and is not
known to forget them (a file, a staging area, a sampler that counts), and one that hands data to Python, since Python
may write anywhere. (A Keras metric may be computed in Python, behind the optimizer's call. What it does with the batch
is for the program to answer for, as in a callback.) Exempt are

 - the state of Keras metrics. It is not part of the model's weights, but it IS in saved files: `adaclip_tf.release`
   leaves it out. What is read from it counts as data, whoever reads it: the loss, a weight, a learning rate, a
   constraint. So it stays among metrics;
 - what the optimizers themselves keep between the parts of a logical batch (`exempt`), in no saved file;
 - values that were noised (`privatised`).
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.proof import metrics, moved
from adaclip_tf.gradients.proof.labels import EVERYWHERE, SECRET, Lost, Public, Sizes

if TYPE_CHECKING:
    from adaclip_tf.gradients.proof.walk import Walk

_exempt: weakref.WeakSet = weakref.WeakSet()
_NONE: dict[Any, Public] = {}


def exempt(variable: tf.Variable) -> tf.Variable:
    """Lets a step write data into `variable`, for the optimizers' own bookkeeping. Returns it."""
    variable._adaclip_handles = metrics.Handles(variable)
    _exempt.add(variable._adaclip_handles)
    return variable


def privatised(tensors: Any) -> None:
    """Notes that these graph tensors were computed from noised sums alone."""
    for tensor in tf.nest.flatten(tensors):
        if hasattr(tensor, "graph"):
            # With the graph itself, and not in a table of graphs: tensors hold on to their graph, so none would go.
            if not hasattr(tensor.graph, "_adaclip_private"):
                tensor.graph._adaclip_private = {}
            tensor.graph._adaclip_private[tensor.ref()] = EVERYWHERE if tensor.shape.rank == 0 else Public()


def known_private(walked: tf.Graph) -> dict[Any, Public]:
    return getattr(walked, "_adaclip_private", _NONE)


class Write(NamedTuple):
    """An op that hands data to a resource."""

    op: tf.Operation
    handle: Any  # which resource, see `root`; None: Python, a file, a kernel's own


class Memory:
    """What the walked graphs keep of the data."""

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.metrics = metrics.Known()
        self.is_watching = False  # whether the loss is there already
        self.reads: dict[Any, list[tuple[Walk, tf.Operation]]] = {}  # of what is no metric, by handle
        self.known: set[tf.Operation] = set()  # draws from states of which anybody may know where they start
        self._relied: set[Any] = set()  # states that random numbers come from
        self._set_back: dict[Any, tf.Operation] = {}  # by handle: what may write a number that was there before

    def states(self, handle: Any) -> frozenset[Any]:
        """What to say of numbers that are read from a state that the step moves on."""
        return frozenset({handle, SECRET} if handle in self.metrics.unknown_seeds else {handle})

    def relies_on(self, op: tf.Operation, states: frozenset[Any]) -> None:
        """Notes that random numbers come from states, which nothing may set back: not behind the loss either."""
        if not self.is_watching:  # what the optimizer itself draws comes behind the loss
            self._relied |= states - {SECRET}
            if SECRET not in states:
                self.known.add(op)

    def check_states(self) -> None:
        for handle in self._relied & self._set_back.keys():
            op = self._set_back[handle]
            raise ValueError(
                f"The op {op.name!r} ({op.type}) sets back the state from which the loss draws random numbers. So they "
                "are the same in each step, values by place in the batch, and one example changes others. Let the "
                "state go on."
            )

    def is_metric(self, handle: Any) -> bool:
        """Whether this is the handle of a Keras metric's variable."""
        if handle not in self.metrics and handle not in self.reads:
            if self.metrics.has_looked:
                self.metrics.look_at_running_models()
            else:
                self.metrics.look_everywhere()
        return handle in self.metrics

    def is_metric_by_now(self, handle: Any) -> bool:
        """The same, also for one that Keras made while it traced the step."""
        if handle not in self.metrics and self.metrics.has_looked:
            self.metrics.look_at_running_models()
        if handle not in self.metrics:
            self.metrics.look_everywhere()
        self.look_again()
        return handle in self.metrics

    def look_again(self) -> None:
        """Keras makes metrics while it traces a step. What was read of such, before it was known as one, is data."""
        for handle in [handle for handle in self.reads if handle in self.metrics]:
            for walk, op in self.reads.pop(handle):
                pending = list(op.outputs)
                while pending:
                    tensor = pending.pop()
                    if not isinstance(walk.labels.get(tensor.ref()), Lost):
                        walk.labels[tensor.ref()] = read_label(op)
                        for reader in tensor.consumers():
                            pending.extend(reader.outputs)
                            self.visit(walk, reader, [walk.label(part) for part in reader.inputs])

    def visit(self, walk: Walk, op: tf.Operation, labels: list[Any]) -> None:
        """Notes `op` if it writes data, or how many examples there are."""
        by_itself, remembers = graph.may_write(op), graph.may_remember(op)
        is_python = op.type in graph.PYTHON
        if op.type not in graph.CALLS and graph.has_functions(op):  # a dataset's, which are not walked through
            inside = list(graph.inside(op))
            by_itself = by_itself or any(map(graph.has_effects, inside))
            remembers = not op.outputs or remembers or any(map(graph.may_remember, inside))
            is_python = any(inner.type in graph.PYTHON for inner in inside)
        if moved.sets_back(op):
            for tensor in op.inputs:
                if tensor.dtype == tf.resource:
                    self._set_back.setdefault(root(walk, tensor), op)
        leaves_out = op.type == "Switch" and tells(labels[1:])  # what is behind its dead side does not run: writes, too
        if leaves_out or (is_python and tells(labels) and not (self.is_watching and metrics.in_a_metric())):
            self.writes.append(Write(op, None))
        elif by_itself or (op.type in graph.RANDOM and _decided(labels)):
            handles = [tensor for tensor in op.inputs if tensor.dtype == tf.resource]
            if (handles or remembers) and (walk.told or tells(labels)):  # a write tells of who decided it, too
                self.writes.append(Write(op, root(walk, handles[0]) if handles else None))


def may_note(op: tf.Operation) -> bool:
    """Whether `Memory.visit` could note the op, or one inside of it, whatever the labels."""
    if op.type in graph.CALLS:
        return any(map(_may_note_itself, graph.inside(op)))
    return _may_note_itself(op)


def _may_note_itself(op: tf.Operation) -> bool:
    if op.type in graph.CALLS:  # what it calls is asked by itself
        return False
    known = op.type == "Switch" or op.type in graph.PYTHON or op.type in graph.RANDOM
    return known or graph.may_write(op) or graph.has_functions(op)


def _decided(labels: list[Any]) -> bool:
    """Whether data decides something; not how many numbers are drawn for them, which does not show in the numbers."""
    return not all(isinstance(label, (Public, Sizes)) for label in labels)


def tells(labels: list[Any]) -> bool:
    """Whether there is something of the data, or how many examples there are, in tensors with these labels."""
    return not all(isinstance(label, Public) and not label.counted for label in labels)


def read_metric(walk: Walk, op: tf.Operation) -> bool:
    """Whether the op reads the state of a Keras metric."""
    if not op.outputs or op.type not in graph.READS:
        return False
    handles = [root(walk, tensor) for tensor in op.inputs if tensor.dtype == tf.resource]
    if any(walk.memory.is_metric(handle) for handle in handles):
        return True
    for handle in handles:
        walk.memory.reads.setdefault(handle, []).append((walk, op))
    return False


def read_label(op: tf.Operation) -> Lost:
    """The label of what was read from a metric."""
    what = "reads a Keras metric, in which something of every example is kept"
    return Lost(f"the op {op.name!r} ({op.type}) {what}", mixing=True)


def root(walk: Walk, tensor: tf.Tensor) -> Any:
    """What tells one resource from another: the eager handle where there is one, however often it was handed on."""
    tensor = graph.behind(tensor, ("Identity", "Switch"))
    if tensor.ref() in walk.handles:
        return walk.handles[tensor.ref()]
    external = walk.captured.get(tensor.ref())
    if external is None:
        return tensor.ref()
    return root(walk.parent(external.graph), external) if hasattr(external, "graph") else id(external)


def check(walk: Walk, read: set[Any]) -> None:
    """Raises ValueError if the walked graphs keep data; `read` are the resources on which the loss depends."""
    found = walk.memory
    found.check_states()
    while found.writes:
        write = found.writes.pop(0)
        if write.handle is None:
            is_python = any(op.type in graph.PYTHON for op in (write.op, *graph.inside(write.op)))
            raise ValueError(_python_message(write) if is_python else _message(write, False))
        if any(write.handle in handles.ids for handles in _exempt):
            continue
        if not found.is_metric_by_now(write.handle) or write.handle in read:
            raise ValueError(_message(write, write.handle in found.metrics))


def watch(walk: Walk, read: set[Any]) -> None:
    """Checks what is added to the walked graph from now on, too: a `train_step` may write after the optimizer's call.

    Nothing tells when a graph is complete. So each op is looked at when it is made, as Python makes it.
    """
    walk.memory.is_watching = True
    create = walk.graph._create_op_internal

    def create_and_check(*arguments: Any, **options: Any) -> tf.Operation:
        op = create(*arguments, **options)
        may_keep = graph.has_effects(op) or op.type in graph.RANDOM
        may_keep = may_keep and (graph.may_remember(op) or any(tensor.dtype == tf.resource for tensor in op.inputs))
        if may_keep or op.type in graph.PYTHON or graph.has_functions(op):
            walk.look_for_writes()
            check(walk, read)
        return op

    walk.graph._create_op_internal = create_and_check


def _python_message(write: Write) -> str:
    return (
        f"The op {write.op.name!r} ({write.op.type}) hands what it saw of a batch to Python code in the middle of a "
        "graph, which may remember examples. Write it with TensorFlow ops, apply it to the data before training, or "
        "make it a Keras metric."
    )


def _message(write: Write, is_metric: bool) -> str:
    text = f"The op {write.op.name!r} ({write.op.type}) keeps what it saw of a batch"
    if is_metric:
        return (
            f"{text} in a Keras metric on which the loss depends, so that an example changes the gradients of others. "
            "Keep metrics out of the loss."
        )
    if write.handle is None:
        return (
            f"{text} in a file or a state of its own, or may do so, where no noise protects it. Take it out of the "
            "training step, or apply it to the data before training; instead of a sampler that learns, use one whose "
            "table is fixed, such as `tf.random.log_uniform_candidate_sampler`."
        )
    return (
        f"{text} in a variable or another resource, where no noise protects it: it is saved with the model, and may "
        "change the gradients of later batches. Replace BatchNormalization by LayerNormalization or "
        "GroupNormalization, or freeze it (`layer.trainable = False`); use stateful=False in recurrent layers, and no "
        "layer that remembers examples. What you only want to watch belongs into a Keras metric, in "
        "a variable of its own."
    )
