"""`prove`: what the labels say about a loss, and what follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from adaclip_tf._internal import made
from adaclip_tf.gradients import graph
from adaclip_tf.gradients.proof import callers, memory, metrics, numbers, seeds, sources
from adaclip_tf.gradients.proof.labels import Lost, Public, Rows, Sizes, Summed
from adaclip_tf.gradients.proof.walk import Walk

_FIX = (
    "Differential privacy needs the examples of a batch to stay apart. Replace BatchNormalization by "
    "LayerNormalization or GroupNormalization (`adaclip_tf.fix_model(model)` makes such a copy), or freeze it "
    "(`layer.trainable = False`); take other statistics over the features of one example, not over the batch, or "
    "compute them before training and make them constants."
)

_LOSS_FIX = (
    "It is in the loss itself: Keras divides by a count over the batch where there is a mask or an `ignore_class`, and "
    "targets or weights of another shape than predictions are broadcast over the batch. Give the loss "
    "`reduction='none'`, which is then averaged for each example, and give targets the shape of the predictions, and "
    "weights one row for each example."
)


class Proof:
    """What is known about a loss.

    Attributes:
      pieces: the data that the loss depends on.
      unproven: why examples must be run one by one, or None if they are known to stay apart.
      walk: over the graph of the loss.
    """

    def __init__(self, loss: tf.Tensor):
        self._loss = loss
        self.walk = Walk(loss.graph)
        self.walk.advance()
        self._trivial = False
        self._checks: set[int] = set()
        ancestors = graph.ancestors(loss.op)
        _refuse_hidden_state(self.walk, ancestors)
        label = self.walk.label(loss)
        self._refuse_mixing(label)
        read = _resources(self.walk, ancestors)
        memory.check(self.walk, read)
        self.unproven = label.reason if isinstance(label, Lost) else None
        if isinstance(label, Rows):
            self._one_row_each(label)
        self.pieces = sources.pieces(self.walk, ancestors)
        if not self.pieces:
            raise ValueError(f"The loss does not depend on any data that enters this graph; {sources.PASS}")
        self._check_counts()
        memory.watch(self.walk, read)
        callers.watch(self.walk, self.data, lambda: ancestors | numbers.behind_writes(self.walk))
        seeds.warn(loss, ancestors, metrics.running_models(), self.walk.memory.known)

    @property
    def data(self) -> tuple[tf.Tensor, ...]:
        """The tensors through which the data enters."""
        return tuple(tensor for piece in self.pieces for tensor in piece.tensors)

    def _refuse_mixing(self, label: Any) -> None:
        if isinstance(label, Summed) or (isinstance(label, Lost) and label.mixing):
            fix = _LOSS_FIX if "compile_loss/" in label.reason else _FIX
            raise ValueError(f"{_sentence(label.reason)}, so that one example changes others. {fix}")
        if isinstance(label, Sizes):
            raise ValueError(f"The loss depends on how many examples the batch has. {_FIX}")

    def _one_row_each(self, label: Rows) -> None:
        if label.rows not in (None, 1) or label.outer != 1:
            raise ValueError(
                f"The loss has {(label.rows or 1) * label.outer} entries for each example of the data, so they are not "
                "examples: an example could count several times. Average the loss over all axes but the first, and "
                "keep several views of one example along an axis of their own."
            )
        self._checks |= label.checks

    def _check_counts(self) -> None:
        """All data must have as many examples as the loss has entries, where that is known before the run."""
        batch = self._loss.shape[0]
        for piece in self.pieces:
            count = piece.static_count()
            if count is not None and batch is not None and count != batch:
                raise ValueError(_mismatch(piece.tensors[0], f"{count} rows, and the loss has {batch} entries"))
            self._trivial = self._trivial or (count == 1 and batch == 1)

    def mark_seed(self, seed: tf.Tensor) -> None:
        """Says that entry k of `seed`, [batch], is example k's.

        At once: what is made of it may be labelled while a backward pass is still being made, as loops are (`memory`).
        """
        self.walk.labels[seed.ref()] = Rows(0)

    def look_back(self, seed: tf.Tensor, gradients: Sequence[Any]) -> None:
        """Labels a backward pass from `seed`, [batch], of which entry k is example k's.

        Raises:
          ValueError: if examples are known to meet on the way back, in a custom gradient say.
        """
        self.mark_seed(seed)
        for gradient in tf.nest.flatten(list(gradients), expand_composites=True):
            label = None if gradient is None or self._trivial else self.walk.label(gradient)
            if isinstance(label, Lost) and label.mixing:
                self._refuse_mixing(label)

    def summed(self, gradient: Any) -> str | None:
        """None if a variable's gradient is proven to be a sum of one term per example; else why not."""
        reason, checks = self._sum(gradient)
        self._checks |= checks
        return reason

    def keeps_apart(self, gradients: Sequence[Any]) -> bool:
        """Whether examples are proven to stay apart, forwards and backwards, with nothing left to the run."""
        sums = [self._sum(gradient) for gradient in gradients if gradient is not None]
        return self.unproven is None and not self._checks and sums == [(None, frozenset())] * len(sums)

    def is_of_fewer(self, tensor: tf.Tensor, copy: tf.Tensor, size: int, batch: int) -> bool:
        """Whether `copy` has the shape that `tensor`, of a batch of `batch` examples, has for `size` of them.

        The axis that holds the examples must be known to be so much shorter, and no other may differ. False where the
        label does not say what must be.
        """
        label = self.walk.label(tensor)
        if isinstance(label, (Public, Sizes)) or tensor.dtype == tf.resource:
            return True  # computed from public things, and from how many examples there are
        if not isinstance(label, (Rows, Summed)) or tensor.shape.rank is None or copy.shape.rank != tensor.shape.rank:
            return False
        expected = tensor.shape.as_list()
        if isinstance(label, Rows):
            extent = expected[label.axis]
            if extent is None or extent % batch or copy.shape[label.axis] is None:
                return False
            expected[label.axis] = extent // batch * size
        return all(extent is None or extent == other for extent, other in zip(expected, copy.shape))

    def _sum(self, gradient: Any) -> tuple[str | None, frozenset[int]]:
        """Why a gradient is not known to be a sum over examples, and the checks on which it hangs that it is."""
        if self._trivial:
            return None, frozenset()  # there is but one example
        sums = [self._one_sum(part) for part in graph.contributions(gradient)]
        reason = next((reason for reason, _ in sums if reason is not None), None)
        return reason, frozenset().union(*(checks for _, checks in sums))

    def _one_sum(self, gradient: Any) -> tuple[str | None, frozenset[int]]:
        """The same of what a single use of a variable adds to its gradient."""
        parts = [gradient.values, gradient.indices] if isinstance(gradient, tf.IndexedSlices) else [gradient]
        labels = [self.walk.label(part) for part in parts]
        if isinstance(gradient, tf.IndexedSlices):
            proven = all(isinstance(label, Rows) and label.axis == 0 and label.outer == 1 for label in labels)
            if proven and None in (labels[0].rows, labels[1].rows):  # texts of a length that only the run tells
                as_many = self.walk.checks.add(parts[1], 0, "rows that are looked up are as many as values", parts[0])
                labels.append(Rows(0, checks=frozenset({as_many})))
            elif proven:
                proven = labels[0].rows == labels[1].rows
            # Rows that all examples use, embeddings of places above all: which ones, the data does not say.
            for_all = isinstance(labels[1], Public) and not labels[1].counted
            proven = proven or (for_all and isinstance(labels[0], Summed) and labels[0].exact)
            # Rows that were drawn, one for each example: the embedding of a time in diffusion.
            if not proven and isinstance(labels[1], Public) and labels[1].is_uniform(0) and isinstance(labels[0], Rows):
                proven = (labels[0].axis, labels[0].outer) == (0, 1) and labels[0].rows is not None
                as_many = self.walk.checks.add(parts[1], 0, "rows that were drawn are as many as values", parts[0])
                labels.append(Rows(0, checks=frozenset({as_many})))
        else:
            proven = isinstance(labels[0], Public) or (isinstance(labels[0], Summed) and labels[0].exact)
        if proven:
            return None, frozenset().union(*(getattr(label, "checks", frozenset()) for label in labels))
        reason = next(
            (label.reason for label in labels if isinstance(label, (Lost, Summed))), "its rows are no examples"
        )
        return f"nothing proves that it is a sum over examples: {reason}", frozenset()

    def poison(self) -> tf.Tensor:
        """0 if all that the proof left to the run holds, else NaN (and an error, where assertions are not dropped).

        XLA drops assertions. NaN in every example's norm leaves all of them out, and the optimizer makes the weights
        NaN: training is over there, too.
        """
        count = tf.convert_to_tensor(made.extent(self._loss, 0))
        facts: list[graph.Fact] = []
        others: list[tuple[tf.Tensor, str]] = []
        for piece in self.pieces:
            if piece.static_count() is None or self._loss.shape[0] is None:
                message = _mismatch(piece.tensors[0], "another number of rows than the loss has entries")
                if piece.kind == "dense" and piece.tensors[0].shape.rank is not None:
                    facts.append(graph.Fact(piece.tensors[0], 0, message, rows=1))
                else:
                    others.append((tf.equal(piece.count(), count), message))
        facts += [self.walk.checks.fact(index) for index in sorted(self._checks)]
        poison = graph.poison(facts, count, others)
        return tf.constant(0.0) if poison is None else poison


def prove(loss: tf.Tensor) -> Proof:
    """Labels the graph of `loss`, a tensor [batch]. Raises ValueError where training must be refused."""
    return Proof(loss)


def _mismatch(tensor: tf.Tensor, what: str) -> str:
    return (
        f"The loss depends on the input {tensor.name!r}, whose first axis is not the batch axis of the loss: it has "
        f"{what}. Give every input the examples along its first axis, and the loss one entry per example."
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _resources(walk: Walk, ancestors: set[tf.Operation]) -> set[Any]:
    """The resources that the ops `ancestors` are given."""
    return {memory.root(walk, tensor) for op in ancestors for tensor in op.inputs if tensor.dtype == tf.resource}


def _joins_what_is_public(walk: Walk, op: tf.Operation) -> bool:
    """Whether nothing of a batch goes into a collective op: what the other replicas hold can't be left out of it.

    TensorFlow itself asks on several workers whether their datasets are at an end, before it hands out a batch.
    """
    return all(isinstance(walk.label(tensor), Public) for tensor in op.inputs)


def _refuse_hidden_state(walk: Walk, ancestors: set[tf.Operation]) -> None:
    for op in ancestors:
        for inner in (op, *graph.inside(op)):
            if inner.type in graph.PYTHON:
                raise ValueError(
                    f"The loss depends on the op {inner.name!r} ({inner.type}): Python code in the middle of a graph, "
                    "which may remember examples. Write it with TensorFlow ops, or apply it to the data beforehand."
                )
            if inner.type in graph.COLLECTIVE and not (inner is op and _joins_what_is_public(walk, op)):
                raise ValueError(
                    f"The loss depends on the op {inner.name!r} ({inner.type}), which joins the examples of several "
                    f"replicas. {_FIX}"
                )
        if op.type in graph.OLD_LOOPS:
            raise ValueError(
                f"The loss depends on a loop of TensorFlow 1 ({op.name!r}); use `tf.while_loop` of TensorFlow 2."
            )
