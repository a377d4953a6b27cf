"""1 / b and p = 1 / b^2, made once for each b; and what squares that underflow are short of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from adaclip_tf._internal import made

TINY = 1.1754944e-38  # the smallest normal float32: what a square that underflows is short of, at most
FEW = 1024  # coordinates: as few are formed for every example where XLA makes one loop of all that is done with them


def is_scalar(tensor: tf.Tensor) -> bool:
    return tensor.shape.rank == 0


def formed_in_one_loop(scale: tf.Tensor, size: int) -> bool:
    """Whether gradients of `size` coordinates are best formed one by one, whatever they are made of.

    XLA makes one loop of that, of what is done with them and of their sum. Each product in its place is a kernel, and
    more with what goes into it: to compile these takes longer than all steps take to run through so few numbers.
    """
    return made.in_xla() and not is_scalar(scale) and size <= FEW


def reciprocal(scale: tf.Tensor) -> tf.Tensor:
    """1 / b; once for the same b."""
    return made.once(("1 / b", scale.ref()), lambda: made.op("Reciprocal", scale))


def over_square(scale: tf.Tensor) -> tf.Tensor:
    """p = 1 / b^2; once for the same b."""
    return made.once(("p", scale.ref()), lambda: made.op("Square", reciprocal(scale)))


def know_reciprocals(
    scales: Sequence[tf.Tensor], whole: tf.Tensor, part: Callable[[tf.Tensor], list[tf.Tensor]]
) -> None:
    """Has what is made of `scales`, which are the parts of `whole`, made of all of it at once."""
    if tf.executing_eagerly():
        return
    # XLA squares where it reads, so it needs one array; else each square is an op.
    name, known = ("1 / b", reciprocal(whole)) if made.in_xla() else ("p", over_square(whole))
    short = short_of(whole, whole.shape.num_elements())  # too much for a part, by next to nothing
    for scale, its in zip(scales, part(known)):
        _know(name, scale, its)
        _know("short of", scale, short)


def transposed(scale: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
    """b, of this shape, transposed; and with it what is made of b."""

    def turn(value: tf.Tensor) -> tf.Tensor:
        return tf.transpose(made.reshape(value, shape))

    turned = turn(scale)
    know_reciprocals([turned], scale, lambda known: [turn(known)])
    return turned


def _know(name: str, scale: tf.Tensor, value: tf.Tensor) -> None:
    made.once((name, scale.ref()), lambda: value)


def short_of(scale: tf.Tensor, size: int) -> tf.Tensor:
    """How much sum_i square_i p_i over `size` coordinates may be too small by squares that underflow, at most."""
    if is_scalar(scale):
        return made.constant(TINY * size, tf.float32) * over_square(scale)
    key = ("short of", scale.ref())
    return made.once(key, lambda: made.constant(TINY, tf.float32) * tf.reduce_sum(over_square(scale)))
