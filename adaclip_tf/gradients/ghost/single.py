"""Norms of g_k = x_k dy_k^T, one row of x and of dy per example: no g is formed."""

from __future__ import annotations

import tensorflow as tf

from adaclip_tf._internal import made
from adaclip_tf.gradients.ghost import inverses, terms
from adaclip_tf.gradients.ghost.terms import SquaredNorms

_MANY = 2**20  # parameters: so many are not copied to spare a pass over activations


def squared_norms(x: tf.Tensor, dy: tf.Tensor, center: tf.Tensor, scale: tf.Tensor) -> SquaredNorms:
    """For g_k = x_k dy_k^T, one row of x [n, I] and of dy [n, J] per example: no g is formed.

        sum g^2 p = ((x*x) @ p) . (dy*dy)        sum g a p = (x @ (a*p)) . dy

    contracted first over the longer of I and J. Squares may underflow where the other factor is large, so the
    most they can be short of is added.
    """
    shape = [x.shape[1], dy.shape[1]]
    size = shape[0] * shape[1]
    if inverses.formed_in_one_loop(scale, size):
        formed = made.op("Mul", tf.expand_dims(x, 2), tf.expand_dims(dy, 1))
        value = terms.direct_norms(formed, center, scale)
        return SquaredNorms(value, value)
    p, short = inverses.over_square(scale), inverses.short_of(scale, size)
    center, scale, p = (value if terms.is_scalar(value) else made.reshape(value, shape) for value in (center, scale, p))
    if terms.is_scalar(p):
        lengths = terms.squared_lengths(x), terms.squared_lengths(dy)
        quadratic, sum_of_squares = lengths[0] * lengths[1] * p, lengths[0] + lengths[1]
    else:
        quadratic, sum_of_squares = weighted_squares(terms.squares_of(x), p, terms.squares_of(dy))
    quadratic += (short + made.constant(terms.TINY * sum(shape), tf.float32)) * sum_of_squares
    if terms.is_zero(center):
        return SquaredNorms(quadratic, quadratic)
    # One after the other where p is large: then a p takes p's place, and copies of it are not made side by side.
    with tf.control_dependencies([quadratic] if size > _MANY else []):
        linear = bilinear(x, center * p, dy)
    with tf.control_dependencies([linear] if size > _MANY else []):
        constant = terms.constant_part(center, scale, size)
    return terms.expanded(quadratic, linear, constant)


def weighted_squares(xx: tf.Tensor, p: tf.Tensor, yy: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """xx_k^T p yy_k, and the sum of all entries of xx_k and yy_k, for every row k."""
    if terms.is_scalar(p):
        sums = terms.row_sums(xx), terms.row_sums(yy)
        return sums[0] * sums[1] * p, sums[0] + sums[1]
    if p.shape.num_elements() > _MANY:  # as many as the entries of the rows, or more
        return bilinear(xx, p, yy), terms.row_sums(xx) + terms.row_sums(yy)
    # Ones in the product add up the longer rows: one pass over them less.
    flip = xx.shape[1] <= yy.shape[1]
    if flip:
        xx, yy = yy, xx
    inner, outer = xx.shape[1], yy.shape[1]
    ones_shape = [1, inner] if flip else [inner, 1]
    ones = made.once(("ones", *ones_shape), lambda: tf.ones(ones_shape))
    longer = tf.concat([p, ones], made.constant(0 if flip else 1))
    product, sums = tf.split(tf.matmul(xx, longer, transpose_b=flip), made.constant([outer, 1]), 1)
    return terms.row_sums(product * yy), made.reshape(sums, [-1]) + terms.row_sums(yy)


def bilinear(x: tf.Tensor, matrix: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """x_k^T M y_k for every row k. A scalar stands for a matrix full of it."""
    if terms.is_scalar(matrix):
        return terms.row_sums(x) * terms.row_sums(y) * matrix
    if x.shape[1] <= y.shape[1]:
        return terms.row_sums(made.op("Mul", made.op("MatMul", y, matrix, transpose_b=True), x))
    return terms.row_sums(made.op("Mul", made.op("MatMul", x, matrix), y))
