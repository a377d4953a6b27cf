"""Philox4x32-10 (Salmon et al. 2011) in operations on whole tensors, for XLA to compile into one loop.

TensorFlow's own op for the same words takes 17 ns per block on a CPU, since it works on one block at a time; a loop
over these operations takes 2 ns, since a processor does 8 or 16 blocks at once. Word for word it is the same
generator (tests/core/philox_test.py): whichever makes the noise, a key and a counter have one meaning.
"""

from __future__ import annotations

import tensorflow as tf

from adaclip_tf._internal import made

_ROUNDS = 10
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85


def blocks(number: int, key: tf.Tensor, counter: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """The four words, uint32 of shape [number] each, of the blocks at `counter`, `counter` + 1, ...

    Args:
      number: how many blocks.
      key: [1], uint64.
      counter: [2], uint64, the lower half first; it is moved on in 128 bits.
    """
    low = counter[0] + tf.cast(tf.range(number, dtype=tf.int64), tf.uint64)
    high = counter[1] + tf.cast(low < counter[0], tf.uint64)  # with carry
    half = tf.constant(32, tf.uint64)
    x = *halves(low, half), *halves(high, half)
    multipliers = [tf.constant(multiplier, tf.uint64) for multiplier in _MULTIPLIERS]
    k = halves(key[0], half)
    for turn in range(_ROUNDS):
        wide = [made.op("Cast", x[2 * i], DstT=tf.uint64) for i in (0, 1)]
        (one, two), (three, four) = (halves(made.op("Mul", wide[i], multipliers[i]), half) for i in (0, 1))
        # The same for all blocks, each a number of its own: cut out of one list they would be read again in every turn.
        k0, k1 = (made.op("AddV2", k[i], tf.constant(turn * _WEYL[i] & 0xFFFFFFFF, tf.uint32)) for i in (0, 1))
        x = _xor(four, _xor(x[1], k0)), three, _xor(two, _xor(x[3], k1)), one
    return x


def _xor(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    return made.op("BitwiseXor", one, other)


def halves(words: tf.Tensor, half: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The lower and the upper 32 bits of 64; `half` is 32."""
    return made.op("Cast", words, DstT=tf.uint32), made.op("Cast", made.op("RightShift", words, half), DstT=tf.uint32)
