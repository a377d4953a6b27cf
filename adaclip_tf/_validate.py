"""Checks of user-supplied numbers: the argument, its value and the fix, in one sentence."""

import math
import numbers
from collections.abc import Sequence
from typing import Any

FLOAT32_TINY = 2.0**-126  # the smallest normal number; TensorFlow may flush smaller ones to zero
FLOAT32_MAX = (2.0 - 2.0**-23) * 2.0**127


def real(name: str, value: Any) -> float:
    """Returns `value` as a float, or says that it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise ValueError(f"`{name}` must be a finite number; got {value!r}.")
    return float(value)


def positive(name: str, value: Any) -> float:
    """Returns `value` as a float above zero."""
    number = real(name, value)
    if number <= 0.0:
        raise ValueError(f"`{name}` must be greater than 0; got {value!r}.")
    return number


def positive_float32(name: str, value: Any) -> float:
    """Returns `value` as a float above zero that float32 does not round to zero or to infinity."""
    number = positive(name, value)
    if not FLOAT32_TINY <= number <= FLOAT32_MAX:
        raise ValueError(
            f"`{name}` must lie between {FLOAT32_TINY:.3g} and {FLOAT32_MAX:.3g}, the range of float32; got {value!r}."
        )
    return number


def non_negative(name: str, value: Any) -> float:
    """Returns `value` as a float of zero or more."""
    number = real(name, value)
    if number < 0.0:
        raise ValueError(f"`{name}` must be 0 or more; got {value!r}.")
    return number


def fraction(name: str, value: Any) -> float:
    """Returns `value` as a float in [0, 1)."""
    number = real(name, value)
    if not 0.0 <= number < 1.0:
        raise ValueError(f"`{name}` must be at least 0 and below 1; got {value!r}.")
    return number


def positive_integer(name: str, value: Any) -> int:
    """Returns `value` as an int of one or more."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(f"`{name}` must be a whole number of 1 or more; got {value!r}.")
    return int(value)


def one_of(name: str, value: Any, choices: Sequence[str]) -> str:
    """Returns `value` if it is among `choices`."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"`{name}` must be one of {listed}; got {value!r}.")
    return value
