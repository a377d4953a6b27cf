"""Which ops hand out elements of a dataset, as they are."""

from __future__ import annotations

import tensorflow as tf

from adaclip_tf.gradients import graph

_ITERATION = ("IteratorGetNext", "IteratorGetNextSync")


def hands_out_examples(operation: tf.Operation) -> bool:
    """Whether the op hands out elements of a dataset, as they are."""
    if operation.type == "OptionalGetValue":
        return is_element(operation.inputs[0])
    if operation.type in ("If", "StatelessIf"):
        # On several replicas, where the dataset may be at its end for some of them: an element or an empty one.
        optionals = [tensor for tensor in operation.inputs if tensor.dtype == tf.variant]
        return bool(optionals) and all(map(is_element, optionals)) and _only_unpacks(operation)
    return operation.type in _ITERATION


def draws(operation: tf.Operation) -> bool:
    """Whether the op takes something out of a dataset."""
    return operation.type in (*_ITERATION, "IteratorGetNextAsOptional")


def is_element(tensor: tf.Tensor) -> bool:
    """Whether a dataset filled this optional: a step may fill one too, with what it likes."""
    return graph.behind(tensor, ("Identity",)).op.type == "IteratorGetNextAsOptional"


def _only_unpacks(operation: tf.Operation) -> bool:
    """Whether branches return what they take out of optionals and iterators, or what no data went into."""
    results = [graph.behind(t, ("Identity",)).op for body in graph.bodies(operation) for t in body.outputs]
    computed = [op for op in results if not _takes_out(op)]
    nested = [op for op in computed if op.type in ("If", "StatelessIf") and _only_unpacks(op)]
    others = [op for op in computed if op not in nested]
    return not any(op.type == "Placeholder" for other in others for op in graph.ancestors(other))


def _takes_out(operation: tf.Operation) -> bool:
    """Whether the op, in a branch, hands out an element of what the branch is given; it may fill an optional itself."""
    source = (*_ITERATION, "OptionalGetValue")
    return operation.type in source and graph.behind(operation.inputs[0], ("Identity",)).op.type == "Placeholder"
