"""Arithmetic of sizes: integers, multiples of the number of examples, and what is not known."""

import numpy as np
import pytest

from adaclip_tf.gradients.proof import symbols
from adaclip_tf.gradients.proof.symbols import BINARY, Count

N, TWICE, SOME = Count(1), Count(2), Count(None)


@pytest.mark.parametrize(
    ("op", "a", "b", "result"),
    [
        ("Mul", 3, 4, 12),
        ("Mul", N, 3, Count(3)),
        ("Mul", 3, N, Count(3)),
        ("Mul", N, None, SOME),
        ("Mul", N, N, SOME),
        ("Mul", 0, N, 0),
        ("Mul", None, 3, None),
        ("FloorDiv", 7, 2, 3),
        ("FloorDiv", 7, 0, None),
        ("FloorDiv", Count(4), TWICE, 2),
        ("FloorDiv", Count(3), TWICE, SOME),
        ("FloorDiv", SOME, N, SOME),
        ("FloorDiv", N, SOME, SOME),
        ("FloorDiv", Count(6), 3, TWICE),
        ("FloorDiv", Count(6), 4, SOME),
        ("FloorDiv", SOME, 2, SOME),
        ("FloorDiv", Count(6), 0, SOME),
        ("FloorDiv", 6, N, SOME),
        ("FloorDiv", None, 2, None),
        ("RealDiv", Count(4), TWICE, 2),
        ("RealDiv", 4, 2, None),
        ("AddV2", N, 0, N),
        ("AddV2", 0, N, N),
        ("AddV2", N, 1, SOME),
        ("AddV2", 2, 1, 3),
        ("Sub", N, 0, SOME),
        ("Maximum", N, 1, N),
        ("Maximum", N, 2, SOME),
        ("Minimum", N, 5, SOME),
        ("FloorMod", 7, 4, 3),
        ("FloorMod", 7, 0, None),
    ],
)
def test_arithmetic(op, a, b, result):
    assert BINARY[op](a, b) == result


def test_products():
    assert symbols.product([2, N, 3]) == Count(6)
    assert symbols.known_product([2, None, 3]) == (6, True)
    assert symbols.known_product([2, 3]) == (6, False)


def test_what_could_not_be_evaluated_may_depend_on_the_number_of_examples():
    assert symbols.depends_on_count(None)
    assert symbols.depends_on_count(np.array([1, N], object))
    assert not symbols.depends_on_count(np.array([1, None], object))
