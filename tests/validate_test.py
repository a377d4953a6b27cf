"""Tests of `adaclip_tf._validate`: what passes, what does not, and what the sentence says."""

import math

import numpy as np
import pytest

from adaclip_tf import _validate

PASSES = [
    (_validate.real, -1, -1.0),
    (_validate.real, np.float32(0.5), 0.5),
    (_validate.positive, 1e-300, 1e-300),
    (_validate.positive_float32, 1e-37, 1e-37),
    (_validate.non_negative, 0, 0.0),
    (_validate.fraction, 0.0, 0.0),
    (_validate.fraction, 0.999, 0.999),
    (_validate.positive_integer, np.int64(3), 3),
]
FAILS = [
    (_validate.real, "1"),
    (_validate.real, None),
    (_validate.real, True),
    (_validate.real, math.nan),
    (_validate.real, math.inf),
    (_validate.real, 1j),
    (_validate.positive, 0.0),
    (_validate.positive, -1),
    (_validate.positive_float32, 0.0),
    (_validate.positive_float32, 1e-39),
    (_validate.positive_float32, 1e39),
    (_validate.non_negative, -1e-9),
    (_validate.fraction, 1.0),
    (_validate.fraction, -0.1),
    (_validate.positive_integer, 0),
    (_validate.positive_integer, 1.0),
    (_validate.positive_integer, True),
]


@pytest.mark.parametrize(("check", "value", "expected"), PASSES)
def test_good_values_pass(check, value, expected):
    result = check("knob", value)
    assert result == pytest.approx(expected, rel=1e-12)
    assert type(result) in (int, float)


@pytest.mark.parametrize(("check", "value"), FAILS)
def test_bad_values_name_the_argument_and_the_value(check, value):
    with pytest.raises(ValueError, match="`knob` must") as error:
        check("knob", value)
    assert repr(value) in str(error.value)


def test_one_of_lists_the_choices():
    assert _validate.one_of("mode", "a", ("a", "b")) == "a"
    with pytest.raises(ValueError, match=r"`mode` must be one of 'a', 'b'; got 'c'\."):
        _validate.one_of("mode", "c", ("a", "b"))
    with pytest.raises(ValueError, match="got 1"):
        _validate.one_of("mode", 1, ("a", "b"))


def test_the_float32_range_is_numpys():
    info = np.finfo(np.float32)
    assert float(info.tiny) == _validate.FLOAT32_TINY
    assert float(info.max) == _validate.FLOAT32_MAX
