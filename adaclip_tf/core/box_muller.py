"""From random words to standard normal numbers: Box and Muller's two from one radius and one angle.

    u = (w + 1/2) / 2^64,    r = sqrt(-2 ln u),    t = 2 pi a / 2^32,    (r cos t, r sin t)

with a word w of 64 bits, 0 <= w < 2^64, and an angle a of 32 bits, -2^31 <= a < 2^31.

Why 64 bits in the radius. With n bits the smallest u is 2^-(n+1), and no number lies beyond sqrt(2 (n + 1) ln 2):
6.8 for n = 32, 9.49 for n = 64, where a Gaussian has a probability of 2e-21 left. TensorFlow's own normal numbers
have 23 bits, cut off at 1e-7: they end at 5.68, which is too early for a delta of 1e-5 (docs/floating_point.md).

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

`quick_pairs` gives the same numbers, to float32's last bits, by operations that XLA turns into one loop over vectors:
no calls of library functions, nothing in float64. It takes the logarithm from the nearer of u's ends. With v = min(u,
1 - u), which is made of whole words and so exact to a relative 2^-23 however small it is, and at most 1/2,

    ln u = ln v = e ln 2 + ln(1 + x)        u < 1/2:  v = 2^e (1 + x), 1 + x between sqrt(1/2) and sqrt(2)
    ln u = ln(1 - v)                        u > 1/2:  the same with e = 0, x = -v, or e = -1, x = 1 - 2 v

so that its edges are finer: close to u = 1 the radius has no steps, and the smallest is 2^-32 = 2.3e-10. A quarter of
the circle is told from the first bits of an angle, exactly, and what is left, at most pi / 4, takes short
polynomials.
"""

from __future__ import annotations

import math

import tensorflow as tf

from adaclip_tf._internal import made

# (1 - 2^-53) / 2^64: words that float64 rounds up to 2^64 would give u = 1, whose logarithm must not come out above 0.
_TO_U = math.ldexp(1.0 - 2.0**-53, -64)
_HALF = 2.0**-65
_TO_ANGLE = math.ldexp(math.pi, -31)

# Of Cephes (Moshier), for single precision: (ln(1 + x) - x + x^2 / 2) / x^3, (sin t - t) / t^3 and
# (cos t - 1 + t^2 / 2) / t^4 as polynomials in x and t^2.
_LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
_SINE = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COSINE = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
_LN_2 = (0.693359375, -2.12194440e-4)
_ROOT_OF_HALF = 0x3F3504F3  # the bits of sqrt(1/2)
_NEAR = 1.0 - math.sqrt(0.5)


def normals(words: tf.Tensor, angles: tf.Tensor) -> tf.Tensor:
    """Twice as many independent N(0, 1) numbers as there are words, in float32.

    Args:
      words: [n], uint64, uniform.
      angles: [n], int32, uniform, independent of `words`.

    Returns:
      [n, 2], float32: the cosine and the sine of each.

    >>> cosine, sine = normals(tf.constant([0], tf.uint64), tf.constant([0]))[0]
    >>> print(f"{cosine:.4f} {sine:.4f}")
    9.4926 0.0000
    """
    u = tf.cast(words, tf.float64) * _TO_U + _HALF
    radius = tf.sqrt(-2.0 * tf.cast(tf.math.log(u), tf.float32))
    angle = tf.cast(angles, tf.float32) * _TO_ANGLE
    return radius[:, tf.newaxis] * tf.stack([tf.cos(angle), tf.sin(angle)], axis=1)


def quick_pairs(low: tf.Tensor, high: tf.Tensor, angles: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The cosines and the sines of `normals`, [n] each, for words whose halves are given, uint32."""
    radius = tf.sqrt(-2.0 * _log_of_uniform(low, high))
    cosine, sine = _cosine_and_sine(angles)
    return radius * cosine, radius * sine


def _log_of_uniform(low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    """ln u."""
    beyond = tf.bitcast(high, tf.int32) < 0  # u > 1/2
    low, high = (tf.where(beyond, tf.bitwise.invert(half), half) for half in (low, high))
    below = tf.cast(low, tf.float32) * 2.0**-64 + _HALF
    v = tf.cast(tf.bitcast(high, tf.int32), tf.float32) * 2.0**-32 + below
    bits = tf.bitcast(v, tf.int32)
    exponent = tf.bitwise.right_shift(bits - _ROOT_OF_HALF, 23)
    fraction = tf.bitcast(bits - tf.bitwise.left_shift(exponent, 23), tf.float32) - 1.0
    near = v < _NEAR
    x = tf.where(beyond, tf.where(near, -v, 1.0 - 2.0 * v), fraction)
    e = tf.where(beyond, tf.where(near, 0.0, -1.0), tf.cast(exponent, tf.float32))
    square = x * x
    # ln 2 in two parts, of which the first is exact in a few bits: so is its product with e.
    return x + (_polynomial(_LOG, x) * x * square + e * _LN_2[1] - 0.5 * square) + e * _LN_2[0]


def _cosine_and_sine(angles: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Of 2 pi a / 2^32: those of the rest after whole quarters of the circle, exchanged and negated as these say."""
    quarters = tf.bitwise.right_shift(angles + 2**29, 30)
    rest = tf.cast(angles - tf.bitwise.left_shift(quarters, 30), tf.float32) * _TO_ANGLE
    square = rest * rest
    sine = _polynomial(_SINE, square) * square * rest + rest
    cosine = _polynomial(_COSINE, square) * square * square - 0.5 * square + 1.0
    exchanged = tf.equal(quarters & 1, 1)
    return (
        _negated(tf.where(exchanged, sine, cosine), quarters + 1 & 2),
        _negated(tf.where(exchanged, cosine, sine), quarters & 2),
    )


def _negated(values: tf.Tensor, two: tf.Tensor) -> tf.Tensor:
    """-values where `two` is 2, values where it is 0."""
    sign = tf.bitwise.left_shift(two, 30)
    return tf.bitcast(tf.bitcast(values, tf.int32) ^ sign, tf.float32)


def _polynomial(coefficients: tuple[float, ...], x: tf.Tensor) -> tf.Tensor:
    result = tf.constant(coefficients[0])
    for coefficient in coefficients[1:]:
        result = made.op("AddV2", made.op("Mul", result, x), tf.constant(coefficient))
    return result
