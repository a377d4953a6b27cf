"""Checks of user-supplied numbers: the argument, its value and the fix, in one sentence."""

import math
import numbers
import os
from collections.abc import Callable, Sequence
from typing import Any, Optional

import numpy as np

FLOAT32_TINY = 2.0**-126  # the smallest normal number; TensorFlow may flush smaller ones to zero
FLOAT32_MAX = (2.0 - 2.0**-23) * 2.0**127
LARGEST_INTEGER = 2**63 - 1
_FEW = 3  # entries of a list that an error shows
MAX_NOISE_MULTIPLIER = 1e6  # with more there is no signal left, and squares of noised gradients could overflow float32


def plain(value: Any) -> Any:
    """One number of NumPy, TensorFlow or Keras as Python's, whose arithmetic never wraps; all else as it is.

    >>> -np.uint8(10) // 3, -plain(np.uint8(10)) // 3
    (82, -4)
    """
    if getattr(value, "shape", None) != () or isinstance(value, (bool, np.bool_)):
        return value
    numpy = getattr(value, "numpy", None)
    try:
        return np.asarray(numpy() if callable(numpy) else value).item()
    except (AttributeError, NotImplementedError, TypeError, ValueError):  # within a graph it has no value yet
        return value


def fields(instance: Any, **checks: Callable[[str, Any], Any]) -> None:
    """Checks fields of a frozen dataclass by functions of name and value, and keeps what these return."""
    for name, check in checks.items():
        object.__setattr__(instance, name, check(name, getattr(instance, name)))


def optional(check: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    """The same check, for what may be None."""
    return lambda name, value: None if value is None else check(name, value)


def real(name: str, value: Any) -> float:
    """Returns `value` as a float, or says that it is not a finite number."""
    number = plain(value)
    try:
        number = math.nan if isinstance(number, bool) or not isinstance(number, numbers.Real) else float(number)
    except OverflowError:  # a whole number beyond float64
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"`{name}` must be a finite number; got {shown(value)}.")
    return number


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


def noise_multiplier(name: str, value: Any) -> float:
    """Returns `value` as a float of zero or more, neither so small that it rounds to no noise nor absurdly large."""
    number = non_negative(name, value)
    if number and not FLOAT32_TINY <= number <= MAX_NOISE_MULTIPLIER:
        raise ValueError(
            f"`{name}` must be 0 (no noise) or lie between {FLOAT32_TINY:.3g} and {MAX_NOISE_MULTIPLIER:g}; "
            f"got {value!r}. It is the standard deviation of the noise, divided by the sensitivity of the sum, usually "
            "between 0.5 and 10."
        )
    return number


def fraction(name: str, value: Any) -> float:
    """Returns `value` as a float in [0, 1)."""
    number = real(name, value)
    if not 0.0 <= number < 1.0:
        raise ValueError(f"`{name}` must be at least 0 and below 1; got {value!r}.")
    return number


def positive_integer(name: str, value: Any) -> int:
    """Returns `value` as an int of one or more."""
    number = plain(value)
    if isinstance(number, bool) or not isinstance(number, numbers.Integral) or number < 1:
        raise ValueError(f"`{name}` must be a whole number of 1 or more; got {shown(value)}.")
    whole = int(number)
    if whole > LARGEST_INTEGER:
        raise ValueError(f"`{name}` must be at most {LARGEST_INTEGER:.3g}, what 63 bits hold; got {shown(value)}.")
    return whole


def boolean(name: str, value: Any) -> bool:
    """Returns `value` if it is True or False: a string such as "no" would count as True."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"`{name}` must be True or False; got {shown(value)}.")
    return bool(value)


def seed(name: str, value: Any) -> Optional[int]:
    """Returns `value` as an int of zero or more, or None."""
    if value is None:
        return None
    number = plain(value)
    if isinstance(number, bool) or not isinstance(number, numbers.Integral) or number < 0:
        raise ValueError(f"`{name}` must be None or a whole number of 0 or more; got {shown(value)}.")
    return int(number)


def path(name: str, value: Any) -> str:
    """Returns `value` as the path that it is."""
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value) or not isinstance(os.fspath(value), str):
        raise ValueError(f"`{name}` must be a path, as a string or `pathlib.Path`; got {shown(value)}.")
    return os.fspath(value)


def shown(value: Any) -> str:
    """How an error shows a value: never pages of it, and never an array, which may hold somebody's data.

    >>> shown(-1.5), shown(np.zeros([3, 2])), shown([0.1, 0.2, 0.3, 0.4])
    ('-1.5', 'ndarray of shape (3, 2)', 'list of 4')
    """
    shape = getattr(value, "shape", ())
    if not isinstance(value, type) and shape != ():
        return f"{type(value).__name__} of shape {shape}"
    inside = list(value.values()) if isinstance(value, dict) else value
    if isinstance(inside, (list, tuple, set)) and (len(inside) > _FEW or any(map(_holds_several, inside))):
        return f"{type(value).__name__} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _holds_several(value: Any) -> bool:
    return hasattr(value, "shape") or isinstance(value, (list, tuple, set, dict))


def one_of(name: str, value: Any, choices: Sequence[str]) -> str:
    """Returns `value` if it is among `choices`."""
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"`{name}` must be one of {listed}; got {shown(value)}.")
    return value
