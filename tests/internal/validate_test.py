"""Tests of `adaclip_tf._internal.validate`: what passes, what does not, and what the sentence says."""

import math
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf._internal import validate

PASSES = [
    (validate.real, -1, -1.0),
    (validate.real, np.float32(0.5), 0.5),
    (validate.positive, 1e-300, 1e-300),
    (validate.positive_float32, 1e-37, 1e-37),
    (validate.non_negative, 0, 0.0),
    (validate.fraction, 0.0, 0.0),
    (validate.fraction, 0.999, 0.999),
    (validate.positive_integer, np.int64(3), 3),
    (validate.positive_integer, np.uint8(200), 200),
    (validate.positive_integer, np.array(3), 3),
    (validate.positive_integer, tf.constant(3, tf.int64), 3),
    (validate.positive_integer, tf.Variable(3), 3),
    (validate.positive_integer, tf.data.Dataset.range(3).cardinality(), 3),
    (validate.seed, tf.constant(3), 3),
    (validate.real, tf.constant(0.5), 0.5),
    (validate.real, np.array(2), 2.0),
    (validate.noise_multiplier, tf.Variable(1.5), 1.5),
]
ARRAYS = (np.full([3, 2], 0.25), tf.constant([0.25]), [0.25] * 4, [[0.25]], (np.full([2], 0.25),), {"a": [0.25]})
FAILS = [
    (validate.real, "1"),
    (validate.real, None),
    (validate.real, True),
    (validate.real, math.nan),
    (validate.real, math.inf),
    (validate.real, 1j),
    (validate.positive, 0.0),
    (validate.positive, -1),
    (validate.positive_float32, 0.0),
    (validate.positive_float32, 1e-39),
    (validate.positive_float32, 1e39),
    (validate.non_negative, -1e-9),
    (validate.fraction, 1.0),
    (validate.fraction, -0.1),
    (validate.positive_integer, 0),
    (validate.positive_integer, 1.0),
    (validate.positive_integer, True),
    (validate.positive_integer, np.bool_(True)),
    (validate.positive_integer, np.array([3])),
    (validate.positive_integer, np.float32(3.0)),
    (validate.positive_integer, 2**63),
    (validate.positive_integer, tf.constant(True)),
    (validate.positive_integer, tf.data.Dataset.range(3).repeat().cardinality()),
    (validate.real, tf.constant("1")),
    (validate.real, np.array([1.0])),
    (validate.seed, -1),
    (validate.seed, True),
    (validate.seed, 0.0),
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
    shown = f"ndarray of shape {value.shape}" if np.ndim(value) else repr(value)  # an array may be somebody's data
    assert shown in str(error.value)


def test_one_of_lists_the_choices():
    assert validate.one_of("mode", "a", ("a", "b")) == "a"
    with pytest.raises(ValueError, match=r"`mode` must be one of 'a', 'b'; got 'c'\."):
        validate.one_of("mode", "c", ("a", "b"))
    with pytest.raises(ValueError, match="got 1"):
        validate.one_of("mode", 1, ("a", "b"))


def test_the_float32_range_is_numpys():
    info = np.finfo(np.float32)
    assert float(info.tiny) == validate.FLOAT32_TINY
    assert float(info.max) == validate.FLOAT32_MAX


def test_seeds_start_at_zero():
    assert validate.seed("knob", 0) == 0
    assert validate.seed("knob", None) is None


def test_a_long_value_is_cut():
    """What is shown of it ends at 200 characters; a value of exactly 200 is shown whole."""
    for length, shown in ((200, "a" * 198), (300, "a" * 199 + "...")):
        with pytest.raises(ValueError, match="knob") as error:
            validate.positive("knob", "a" * (length - 2))
        assert shown in str(error.value)
        assert ("..." in str(error.value)) == (length > 200)


def test_a_value_within_a_graph_is_none():
    """Nothing is known of it when the graph is made."""

    @tf.function
    def trace(value):
        with pytest.raises(ValueError, match="`knob` must be a whole number"):
            validate.positive_integer("knob", value)
        return value

    trace(tf.constant(3))


@pytest.mark.parametrize("value", [np.array(["a", "b"]), ["a"], {"a"}, None, 1])
def test_one_of_refuses_what_is_no_word(value):
    with pytest.raises(ValueError, match="`mode` must be one of 'a', 'b'; got"):
        validate.one_of("mode", value, ("a", "b"))


@pytest.mark.parametrize("value", ARRAYS, ids=str)
@pytest.mark.parametrize("check", [validate.real, validate.positive_integer, validate.seed, validate.path])
def test_no_error_shows_what_is_in_an_array(check, value):
    """It may be somebody's data, and errors end up in logs."""
    with pytest.raises(ValueError, match="`name` must") as caught:
        check("name", value)
    assert "0.25" not in str(caught.value)


def test_paths_are_texts():
    assert validate.path("knob", "a/b") == validate.path("knob", pathlib.PurePosixPath("a/b")) == "a/b"
    for bad in ("", b"a/b", 3):
        with pytest.raises(ValueError, match="`knob` must be a path"):
            validate.path("knob", bad)
