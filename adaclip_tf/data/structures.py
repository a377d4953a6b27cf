"""Nested tuples and dicts of arrays, as `fit` takes them. Lists are leaves, as in tf.data."""

from __future__ import annotations

from typing import Any, Callable


def map_leaves(function: Callable[[Any], Any], structure: Any) -> Any:
    """Applies `function` to the leaves of nested tuples and dicts."""
    if isinstance(structure, dict):
        return {key: map_leaves(function, value) for key, value in structure.items()}
    if isinstance(structure, tuple):
        return tuple(map_leaves(function, value) for value in structure)
    return function(structure)


def leaves(structure: Any) -> list[Any]:
    """The leaves, in the order of `map_leaves`."""
    found: list[Any] = []
    map_leaves(found.append, structure)
    return found
