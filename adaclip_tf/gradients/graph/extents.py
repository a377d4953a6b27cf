"""Facts about extents that only a run can establish, asked all together: a dozen ops for any number of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from adaclip_tf._internal.made import constant


class Fact(NamedTuple):
    """That an extent is `rows` times n, or that of another tensor along the same axis; or else a multiple of n."""

    tensor: tf.Tensor
    axis: int
    message: str  # what to say where it is not
    equals: tf.Tensor | None = None
    rows: int | None = None

    def key(self) -> Any:
        """The same for the same fact."""
        return self.tensor.ref(), self.axis, None if self.equals is None else self.equals.ref(), self.rows


def poison(facts: Sequence[Fact], n: tf.Tensor, others: Sequence[tuple[tf.Tensor, str]] = ()) -> tf.Tensor | None:
    """0 if all of them hold, else NaN, and an error where assertions are not dropped; None if there are none.

    XLA drops assertions: it must not go on with wrong norms. Whatever NaN is added to waits for the assertion, too.

    Args:
      facts: about extents.
      n: what they are about, a scalar of int32.
      others: (whether it holds, message) of facts of other kinds.
    """
    if not facts and not others:
        return None
    answers, messages = _answers(list({fact.key(): fact for fact in facts}.values()), n) if facts else ([], [])
    answers += [tf.reshape(holds, constant([-1])) for holds, _ in others]
    messages += [message for _, message in others]
    holds = tf.concat(answers, 0) if len(answers) > 1 else answers[0]
    all_hold = tf.reduce_all(holds, constant([0]))
    data = [tf.constant(messages[0])]
    if len(messages) > 1:
        which = tf.argmin(tf.cast(holds, tf.int32))
        data = [tf.constant("Of these, counted from 0, something is not so, first of all number"), which]
        data.append(tf.constant([f"({i}) {message}" for i, message in enumerate(messages)]))
    assertion = tf.raw_ops.Assert(condition=all_hold, data=data, summarize=len(messages))
    with tf.control_dependencies([assertion]):
        return tf.where(all_hold, constant(0.0, tf.float32), constant(float("nan"), tf.float32))


def _answers(facts: list[Fact], n: tf.Tensor) -> tuple[list[tf.Tensor], list[str]]:
    """Whether they hold, as vectors, and their messages in that order."""
    extents = _Extents([tensor for fact in facts for tensor in (fact.tensor, fact.equals) if tensor is not None])
    counted = [fact for fact in facts if fact.equals is None and fact.rows is not None]
    alike = [fact for fact in facts if fact.equals is not None]
    multiples = [fact for fact in facts if fact.equals is None and fact.rows is None]
    answers = []
    if counted:
        answers.append(tf.equal(extents.of(counted), n * constant([fact.rows for fact in counted])))
    if alike:
        answers.append(tf.equal(extents.of(alike), extents.of([f._replace(tensor=f.equals) for f in alike])))
    if multiples:
        rest = tf.math.floormod(extents.of(multiples), tf.maximum(n, constant(1)))
        answers.append(tf.equal(rest, constant(0)))
    return answers, [fact.message for fact in (*counted, *alike, *multiples)]


class _Extents:
    """All extents of some tensors in one vector."""

    def __init__(self, tensors: Sequence[tf.Tensor]):
        different = list({tensor.ref(): tensor for tensor in tensors}.values())
        by_dtype: dict[tf.DType, list[tf.Tensor]] = {}
        for tensor in different:
            by_dtype.setdefault(tensor.dtype, []).append(tensor)
        self._starts, shapes, start = {}, [], 0
        for alike in by_dtype.values():
            shapes += tf.raw_ops.ShapeN(input=alike)
            for tensor in alike:
                self._starts[tensor.ref()] = start
                start += tensor.shape.rank
        self._all = tf.concat(shapes, 0) if len(shapes) > 1 else shapes[0]

    def of(self, facts: Sequence[Fact]) -> tf.Tensor:
        """Those that the facts are about."""
        places = [self._starts[fact.tensor.ref()] + fact.axis % fact.tensor.shape.rank for fact in facts]
        return tf.gather(self._all, constant(places))
