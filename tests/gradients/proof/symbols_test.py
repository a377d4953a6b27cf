"""Arithmetic of sizes: integers, multiples of the number of examples, and what is not known."""

import numpy as np
import pytest
import tensorflow as tf

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
        ("FloorMod", N, 4, SOME),
        ("FloorDiv", Count(4096), N, 4096),
        ("FloorDiv", Count(4097), N, SOME),
        ("FloorDiv", Count(-4097), N, SOME),
        ("RealDiv", Count(4097), N, SOME),
        ("Sub", N, N, 0),
        ("Sub", N, TWICE, SOME),
        ("Sub", SOME, SOME, SOME),
        ("Sub", Count(4096), Count(4096), 0),
        ("Sub", Count(4097), Count(4097), SOME),
        ("Maximum", Count(-1), 1, SOME),
        ("Maximum", SOME, 1, SOME),
        ("Maximum", N, None, SOME),
        ("AddV2", N, N, SOME),
        ("AddV2", N, None, SOME),
        ("Sub", 5, 3, 2),
    ],
)
def test_arithmetic(op, a, b, result):
    assert BINARY[op](a, b) == result


@pytest.mark.parametrize(
    ("number", "dtype", "result"),
    [
        (2**31 - 1, tf.int32, 2**31 - 1),
        (2**31, tf.int32, None),
        (-(2**31) - 1, tf.int32, None),
        (2**31, tf.int64, 2**31),
        (255, tf.uint8, 255),
        (256, tf.uint8, None),
        (-1, tf.uint8, None),
        (2**24, tf.float32, 2**24),
        (2**24 + 1, tf.float32, None),
        (-(2**24) - 1, tf.float32, None),
        (2**53, tf.float64, 2**53),
        (2**53 + 1, tf.float64, None),
        (0, tf.float16, 0),
        (1, tf.float16, None),
        (2, tf.bfloat16, None),
        (None, tf.int32, None),
        (Count(2**30), tf.int32, Count(2**30)),
        (Count(2**30), tf.int64, Count(2**30)),
        (Count(32), tf.float32, Count(32)),
        (Count(33), tf.float32, SOME),
        (Count(-33), tf.float32, SOME),
        (Count(2**30), tf.float64, Count(2**30)),
        (Count(2**30 + 1), tf.float64, SOME),
        (N, tf.float16, SOME),
        (N, tf.int8, SOME),
        (SOME, tf.float32, SOME),
    ],
)
def test_what_a_type_leaves_of_a_number(number, dtype, result):
    assert symbols.fitting(number, dtype) == result
    assert symbols.all_fitting(np.array([[number]], object), dtype).tolist() == [[result]]


def test_products():
    assert symbols.product([2, N, 3]) == Count(6)
    assert symbols.known_product([2, None, 3]) == (6, True)
    assert symbols.known_product([2, 3]) == (6, False)


def test_what_could_not_be_evaluated_may_depend_on_the_number_of_examples():
    assert symbols.depends_on_count(None)
    assert symbols.depends_on_count(np.array([1, N], object))
    assert not symbols.depends_on_count(np.array([1, None], object))
