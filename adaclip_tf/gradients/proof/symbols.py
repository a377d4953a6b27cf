"""Arithmetic of symbols, each of which stands for one integer.

A symbol is a Python int; `Count(m)`, which is m times N, the number of examples (m is None where it depends on N in
another way); or None, a number that is not known but has nothing to do with N.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Count:
    """`multiple` times N."""

    multiple: int | None


# What divides must not have overflown: `EXACT` times N fits into 32 bits for batches of half a million.
EXACT = 2**12
_LARGEST = {"float32": 2**24, "float64": 2**53}  # above, not all whole numbers are there
_MULTIPLES = {"int32": None, "int64": None, "float32": 2**5, "float64": 2**30}


def fitting(symbol: Any, dtype: Any) -> Any:
    """What is known of a number once it is of this type, which cuts it, rounds it, or lets it overflow."""
    name = dtype.base_dtype.name
    if isinstance(symbol, Count):
        most = _MULTIPLES.get(name, 0)
        return symbol if symbol.multiple is None or most is None or abs(symbol.multiple) <= most else Count(None)
    if not isinstance(symbol, int):
        return symbol
    if dtype.is_integer:
        return symbol if dtype.min <= symbol <= dtype.max else None
    return symbol if abs(symbol) <= _LARGEST.get(name, 0) else None


def all_fitting(symbols: np.ndarray, dtype: Any) -> np.ndarray:
    """The same of an array of them."""
    result = np.empty(symbols.shape, object)
    for index in np.ndindex(*symbols.shape):
        result[index] = fitting(symbols[index], dtype)
    return result


def multiply(a: Any, b: Any) -> Any:
    if isinstance(a, Count) and isinstance(b, Count):
        return Count(None)
    if isinstance(b, Count):
        a, b = b, a
    if isinstance(a, Count):
        if isinstance(b, int) and b == 0:
            return 0
        return Count(None if a.multiple is None or b is None else a.multiple * b)
    return None if a is None or b is None else a * b


def _floordiv(a: Any, b: Any) -> Any:
    if isinstance(a, Count) and abs(a.multiple or 0) > EXACT:
        return Count(None)
    if isinstance(a, Count) and isinstance(b, Count):
        # m N / (l N), N cancels where l divides m; with N = 0 TensorFlow has no answer either.
        if a.multiple and b.multiple and a.multiple % b.multiple == 0:
            return a.multiple // b.multiple
        return Count(None)
    if isinstance(a, Count) and isinstance(b, int) and a.multiple is not None and b and a.multiple % b == 0:
        return Count(a.multiple // b)
    return _plain(lambda x, y: x // y if y else None)(a, b)


def add(a: Any, b: Any) -> Any:
    if isinstance(a, Count) and b == 0:
        return a
    if isinstance(b, Count) and a == 0:
        return b
    return _plain(lambda x, y: x + y)(a, b)


def _subtract(a: Any, b: Any) -> Any:
    if isinstance(a, Count) and a == b and a.multiple is not None and abs(a.multiple) <= EXACT:
        return 0  # how far a slice's gradient is padded along the examples
    return _plain(lambda x, y: x - y)(a, b)


def _maximum(a: Any, b: Any) -> Any:
    if isinstance(a, Count) and isinstance(b, int) and b <= 1 and (a.multiple or 0) > 0:
        return a  # but for N = 0, where there is nobody to protect
    return _plain(max)(a, b)


def _plain(function: Callable[[int, int], Any]) -> Callable[[Any, Any], Any]:
    def apply(a: Any, b: Any) -> Any:
        if isinstance(a, Count) or isinstance(b, Count):
            return Count(None)
        return None if a is None or b is None else function(a, b)

    return apply


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Mul": multiply,
    "FloorDiv": _floordiv,
    "RealDiv": lambda a, b: _floordiv(a, b) if isinstance(a, Count) or isinstance(b, Count) else None,
    "Add": add,
    "AddV2": add,
    "Sub": _subtract,
    "Maximum": _maximum,
    "Minimum": _plain(min),
    "FloorMod": _plain(lambda a, b: a % b if b else None),
}


def product(symbols: Sequence[Any]) -> Any:
    total: Any = 1
    for symbol in symbols:
        total = multiply(total, symbol)
    return total


def same(first: Any, second: Any) -> bool:
    """Whether two symbols are known to be one number. Two that depend on N, who knows how, are not."""
    if isinstance(first, Count) and first.multiple is None:
        return False
    return first is not None and first == second


def depends_on_count(symbols: np.ndarray | None) -> bool:
    """Whether a symbol depends on N. What could not be evaluated does."""
    return symbols is None or any(isinstance(symbol, Count) for symbol in symbols.ravel())


def known_product(symbols: Sequence[Any]) -> tuple[int, bool]:
    """The product of the integers among `symbols`, and whether there are others."""
    integers = [symbol for symbol in symbols if isinstance(symbol, int)]
    return math.prod(integers), len(integers) != len(symbols)
