"""From random words to standard normal numbers: Box and Muller's two from one radius and one angle.

    u = (w + 1/2) / 2^64,    r = sqrt(-2 ln u),    t = 2 pi a / 2^32,    (r cos t, r sin t)

with a word w of 64 bits, 0 <= w < 2^64, and an angle a of 32 bits, -2^31 <= a < 2^31.

Why 64 bits in the radius. With n bits the smallest u is 2^-(n+1), and no number lies beyond sqrt(2 (n + 1) ln 2):
6.8 for n = 32, 9.49 for n = 64, where a Gaussian has a probability of 2e-21 left. TensorFlow's own normal numbers
have 23 bits, cut off at 1e-7: they end at 5.68, which is too early for a delta of 1e-5 (docs/privacy.md).

Edges.

| word                  | u in float64                          | radius                                             |
|-----------------------|---------------------------------------|----------------------------------------------------|
| 0                     | 2^-65                                 | 9.4926, the largest                                |
| small                 | exact to a relative 2^-53             | right to float32's last bits                       |
| close to 2^64         | 1 - k 2^-53 for whole k >= 1          | sqrt(2 k) 2^-26.5: in steps below 1e-6 or so, which |
|                       |                                       | has a probability of 5e-13                         |
| 2^64 - 1 and its like | 1 - 2^-53, by a factor, never 1       | 1.49e-8, the smallest: no 0, no NaN, no infinity   |

u is made in float64, since in float32 it would be 1 for one word in 2^25 and 1 - 6e-8 next: radii of 0 and 3.5e-4.
Radius and angle are then rounded to float32, and so are sine, cosine and product, as all of the noise is.
"""

from __future__ import annotations

import math

import tensorflow as tf

# (1 - 2^-53) / 2^64: words that float64 rounds up to 2^64 would give u = 1, whose logarithm must not come out above 0.
_TO_U = math.ldexp(1.0 - 2.0**-53, -64)
_HALF = 2.0**-65
_TO_ANGLE = math.ldexp(math.pi, -31)


def normals(words: tf.Tensor, angles: tf.Tensor) -> tf.Tensor:
    """Twice as many independent N(0, 1) numbers as there are words, in float32.

    Args:
      words: [n], uint64, uniform.
      angles: [n], int32, uniform, independent of `words`.

    Returns:
      [2 n], float32: the n cosines, then the n sines.

    >>> cosine, sine = normals(tf.constant([0], tf.uint64), tf.constant([0]))
    >>> print(f"{cosine:.4f} {sine:.4f}")
    9.4926 0.0000
    """
    u = tf.cast(words, tf.float64) * _TO_U + _HALF
    radius = tf.sqrt(-2.0 * tf.cast(tf.math.log(u), tf.float32))
    angle = tf.cast(angles, tf.float32) * _TO_ANGLE
    # One product of the two rows, not two: XLA then keeps the radius instead of computing it for each.
    return tf.reshape(radius * tf.stack([tf.cos(angle), tf.sin(angle)]), [-1])
