"""A clipping rule's state in variables, for all trainable variables or for those that are trained now.

Layers may be frozen between phases of training. A step is then over the variables that are trained; what is known of
the others stands still. A list in a rule's state runs over the variables (`core.ClippingRule`): it is cut to those.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import tensorflow as tf

from adaclip_tf import core

Path = tuple[str, ...]  # the names that lead to a part of a state


class RuleState:
    """The variables, made by `add(initial value, name, variable to be like or None)`, which has them saved."""

    def __init__(
        self, rule: core.ClippingRule, specs: Sequence[Any], like: Sequence[Any], add: Callable[..., tf.Variable]
    ):
        self._size = len(specs)
        self._variables = self._walk(rule.initial_state(specs), (), lambda v, path, i: _make(add, like, v, path, i))

    def read(self, trained: Sequence[int]) -> Any:
        """The values, of the variables numbered `trained`."""
        return self._walk(self._variables, (), lambda variable, *_: variable.value(), trained)

    def assign(self, trained: Sequence[int], state: Any) -> None:
        """Replaces them."""
        variables = self._walk(self._variables, (), lambda variable, *_: variable, trained)
        for variable, value in zip(tf.nest.flatten(variables), tf.nest.flatten(state)):
            variable.assign(value, read_value=False)

    def variables_named(self, names: Collection[str]) -> list[tf.Variable]:
        """Those below one of these names of the state."""
        found: list[tf.Variable] = []
        self._walk(
            self._variables,
            (),
            lambda variable, path, _: found.append(variable) if path[:1] and path[0] in names else None,
        )
        return found

    def _walk(
        self, state: Any, path: Path, visit: Callable, trained: Sequence[int] | None = None, index: int | None = None
    ) -> Any:
        """`visit(leaf, path, index of the variable that it is of or None)` in the place of every leaf."""

        def walk(part: Any, *names: str, index: int | None = index) -> Any:
            return self._walk(part, (*path, *names), visit, trained, index)

        if isinstance(state, list):
            if len(state) != self._size or index is not None:
                raise ValueError(
                    f"A list in a rule's state has an entry for each variable, {self._size} here; got {len(state)} in "
                    f"{'/'.join(path) or 'the state'}. For other sequences use a tuple."
                )
            return [walk(state[i], index=i) for i in (range(self._size) if trained is None else trained)]
        if isinstance(state, dict):
            return {key: walk(state[key], str(key)) for key in sorted(state)}
        if hasattr(state, "_asdict"):
            return type(state)(*[walk(part, name) for name, part in state._asdict().items()])
        if isinstance(state, tuple):
            return tuple(walk(part, str(i)) for i, part in enumerate(state))
        return visit(state, path, index)


def _make(add: Callable[..., tf.Variable], like: Sequence[Any], value: Any, path: Path, index: int | None):
    return add(value, "/".join(path) or "state", None if index is None else like[index])
