"""Variables that are used more than once, or with another sign: shared layers, tied tables, unrolled loops.

A microbatch's gradient is the sum of what each use adds to it. Terms of one kind join to one longer term, exactly: sums
of outer products to a sum over all their rows, look-ups to one of all positions. A table that is looked up and
multiplied has a form of its own. For all other mixtures the gradients of this one variable are formed, for one slice
of microbatches at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from adaclip_tf.gradients.ghost import cancelling, slices, terms
from adaclip_tf.gradients.ghost.embeddings import Lookup
from adaclip_tf.gradients.ghost.outer_product import OuterProduct
from adaclip_tf.gradients.ghost.products import SumOfOuterProducts
from adaclip_tf.gradients.ghost.terms import Examples, PerExample, SquaredNorms, Term
from adaclip_tf.gradients.ghost.transposed import Transposed


def join(n: tf.Tensor, parts: Sequence[Term]) -> Term:
    """The sum of terms whose coordinates are in the same order."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    if isinstance(first, Transposed) and all(_same_transpose(first, part) for part in parts):
        return Transposed(join(n, [part.term for part in parts]), first.sizes, first.permutation)  # type: ignore[attr-defined]
    kinds: dict[Any, list[Any]] = {}
    for index, part in enumerate(parts):
        part = part.as_sum() if isinstance(part, OuterProduct) else part
        kinds.setdefault(_kind(part, index), []).append(part)
    joined = [_join_alike(alike) for alike in kinds.values()]
    if len(joined) == 1:
        return joined[0]
    if len(joined) == 2:
        lookup, product = sorted(joined, key=lambda term: not isinstance(term, Lookup))
        if isinstance(lookup, Lookup) and isinstance(product, SumOfOuterProducts) and product.is_plain(lookup.shape):
            return LookedUpAndMultiplied(n, lookup, product)
    return Several(n, joined)


class Negated:
    """The negative of another term."""

    def __init__(self, term: Term):
        self._term = term

    def squared_norms(self, center: tf.Tensor, scale: tf.Tensor) -> SquaredNorms:
        return self._term.squared_norms(-center, scale)

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        return -self._term.weighted_sum(weights)

    def examples(self) -> Examples:
        inner = self._term.examples()
        return inner._replace(make=lambda arrays: -inner.make(arrays))

    def bounds(self) -> Examples | None:
        return cancelling.bounds_of(self._term)


def _same_transpose(first: Transposed, other: Term) -> bool:
    return isinstance(other, Transposed) and (first.sizes, first.permutation) == (other.sizes, other.permutation)


def _kind(part: Term, index: int) -> Any:
    """Terms of the same kind are joined; the others stay by themselves."""
    if isinstance(part, SumOfOuterProducts):
        return SumOfOuterProducts, part.shape
    return next((kind for kind in (Lookup, PerExample) if isinstance(part, kind)), index)


def _join_alike(parts: list[Any]) -> Term:
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], PerExample):
        return PerExample(tf.add_n([part.gradients for part in parts]))
    return type(parts[0]).longer(parts)


class Several:
    """The sum of terms of different kinds: gradients are formed. One use of the variable may cancel another."""

    def __init__(self, n: tf.Tensor, parts: Sequence[Term]):
        self._n, self._parts = n, parts

    def squared_norms(self, center: tf.Tensor, scale: tf.Tensor) -> SquaredNorms:
        return slices.norms_of_examples(self.examples(), self._n, center, scale, self.bounds())

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        return tf.add_n([tf.reshape(part.weighted_sum(weights), [-1]) for part in self._parts])

    def examples(self) -> Examples:
        return self._sum([part.examples() for part in self._parts])

    def bounds(self) -> Examples:
        return self._sum([cancelling.most_of(part) for part in self._parts])

    @staticmethod
    def _sum(parts: list[Examples]) -> Examples:
        def make(arrays: list[tf.Tensor]) -> tf.Tensor:
            remaining = list(arrays)
            return tf.add_n([part.make([remaining.pop(0) for _ in part.arrays]) for part in parts])

        return Examples([array for part in parts for array in part.arrays], make, sum(part.floats for part in parts))


class LookedUpAndMultiplied(Several):
    """A table [vocabulary, width] that is looked up, and a factor of a product: tied embeddings.

    With L = the gradient of the look-ups and P = sum_t x_t dy_t^T, x_t of the vocabulary's size,

        |(L + P - a) / b|^2 = |(L - a) / b|^2 + |(P - a) / b|^2 - |a / b|^2 + 2 sum_l (v_l p[i_l]) . P[i_l]

    where row i of P is sum_t x_t[i] dy_t: only the rows that were looked up are formed. The last sum is in absolute
    value at most 2 |L / b| |P / b| (Cauchy and Schwarz), and so are its terms' absolute values.
    """

    def __init__(self, n: tf.Tensor, lookup: Lookup, product: SumOfOuterProducts):
        super().__init__(n, [lookup, product])
        self._lookup, self._product = lookup, product

    def squared_norms(self, center: tf.Tensor, scale: tf.Tensor) -> SquaredNorms:
        looked_up = self._lookup.squared_norms(center, scale)
        multiplied = self._product.squared_norms(center, scale)
        constant = terms.constant_part(center, scale, self._lookup.shape[0] * self._lookup.shape[1])
        crossed, size = self._crossed(scale)
        # |L / b| <= |(L - a) / b| + |a / b|, where the square was not expanded.
        bounds = [tf.sqrt(norms.magnitude) + tf.sqrt(constant) for norms in (looked_up, multiplied)]
        value = looked_up.value + multiplied.value - constant + 2.0 * crossed
        magnitude = looked_up.magnitude + multiplied.magnitude + constant + 2.0 * bounds[0] * bounds[1]
        return SquaredNorms(value, magnitude + 2.0 * size)

    def _crossed(self, scale: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """sum_l (v_l p[i_l]) . P[i_l], and the sum of the absolute values of what is added up last."""
        indices, values = self._lookup.by_example()
        x, dy = self._product.arrays
        chosen = tf.gather(tf.transpose(x, [0, 2, 1]), indices, batch_dims=1)  # [n, positions, T]
        rows = tf.matmul(chosen, dy)
        inverse = self._lookup.look_up(tf.math.reciprocal(scale))
        if not terms.is_scalar(inverse):
            inverse = tf.reshape(inverse, tf.shape(values))
        products = tf.reshape((rows * inverse) * (values * inverse), [self._n, -1])
        return tf.reduce_sum(products, axis=1), tf.reduce_sum(tf.abs(products), axis=1)


class Rearranged:
    """Other terms' gradients in some places of a larger array, with zeros elsewhere: parts of a kernel or a bias.

    Args:
      n: how many microbatches there are.
      parts: the terms, each with the shape of its gradient.
      place: from arrays [s, *shape] of all parts to [s, *shape of the whole].
      size: of the whole.
    """

    def __init__(
        self,
        n: tf.Tensor,
        parts: Sequence[tuple[Term, list[int]]],
        place: Callable[[list[tf.Tensor]], tf.Tensor],
        size: int,
    ):
        self._n, self._parts, self._place, self._size = n, parts, place, size

    def squared_norms(self, center: tf.Tensor, scale: tf.Tensor) -> SquaredNorms:
        return slices.norms_of_examples(self.examples(), self._n, center, scale, self.bounds())

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        return self._place([tf.reshape(term.weighted_sum(weights), [1, *shape]) for term, shape in self._parts])[0]

    def examples(self) -> Examples:
        return self._placed([term.examples() for term, _ in self._parts], self._place)

    def bounds(self) -> Examples | None:
        if all(cancelling.bounds_of(term) is None for term, _ in self._parts):
            return None
        return self._placed([cancelling.most_of(term) for term, _ in self._parts], self._place)

    def _placed(self, found: list[Examples], place: Callable[[list[tf.Tensor]], tf.Tensor]) -> Examples:
        parts = [(examples, shape) for examples, (_, shape) in zip(found, self._parts)]

        def make(arrays: list[tf.Tensor]) -> tf.Tensor:
            remaining, placed = list(arrays), []
            for part, shape in parts:
                gradients = part.make([remaining.pop(0) for _ in part.arrays])
                placed.append(tf.reshape(gradients, [tf.shape(gradients)[0], *shape]))
            return tf.reshape(place(placed), [tf.shape(placed[0])[0], self._size])

        floats = 2 * self._size + sum(part.floats for part, _ in parts)
        return Examples([array for part, _ in parts for array in part.arrays], make, floats)


class Mapped(Rearranged):
    """A linear map of other terms' gradients, such as a product with a mask.

    Args:
      bound: from absolute values of the parts to no less than the sum of the absolute values of what is added up.
    """

    def __init__(
        self,
        n: tf.Tensor,
        parts: Sequence[tuple[Term, list[int]]],
        place: Callable[[list[tf.Tensor]], tf.Tensor],
        size: int,
        bound: Callable[[list[tf.Tensor]], tf.Tensor],
    ):
        super().__init__(n, parts, place, size)
        self._bound = bound

    def bounds(self) -> Examples:
        return self._placed([cancelling.most_of(term) for term, _ in self._parts], self._bound)
