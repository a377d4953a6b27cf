"""A clipping rule's state in variables, for all trainable variables or for those that are trained now.

Layers may be frozen between phases of training. A step is then over the variables that are trained; what is known of
the others stands still. A list in a rule's state runs over the variables (`core.ClippingRule`): it is cut to those.

Small variables that a rule treats as one (`joined`) are one in its state, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import tensorflow as tf

from adaclip_tf import core
from adaclip_tf.optimizers.joined import Joined, in_lists

Path = tuple[str, ...]  # the names that lead to a part of a state


class RuleState:
    """The variables, made by `add(initial value, name, variable to be like or None)`, which has them saved."""

    def __init__(
        self, rule: core.ClippingRule, specs: Sequence[Any], like: Sequence[Any], add: Callable[..., tf.Variable]
    ):
        self._rule, self._specs = rule, list(specs)
        self._kept = Joined(rule, specs)
        like = self._kept.alone(like)
        initial = rule.initial_state(self._kept.specs)
        self._variables = self._walk(initial, (), lambda value, path, i: _make(add, like, value, path, i))

    def read(self, trained: Sequence[int]) -> Any:
        """The values, of the variables numbered `trained`."""
        return in_lists(lambda entries: [entries[i] for i in trained], self._kept.part(self._values()))

    def read_joined(self, trained: Sequence[int]) -> tuple[Joined, Any]:
        """The same over parts, and what these are of."""
        if self._are_all(trained):
            return self._kept, self._values()
        joined = Joined(self._rule, [self._specs[i] for i in trained])
        return joined, joined.join(self.read(trained))

    def assign(self, trained: Sequence[int], joined: Joined, state: Any) -> None:
        """Replaces them by a state over the parts of `joined`."""
        before: Any = None
        if not self._are_all(trained):

            def put(new: list[Any], old: list[Any]) -> list[Any]:
                changed = dict(zip(trained, new))
                return [changed.get(i, value) for i, value in enumerate(old)]

            before = self._values()
            state = self._kept.join(in_lists(put, joined.part(state), self._kept.part(before)))
        still = {id(value) for value in tf.nest.flatten(before)}  # a frozen variable's own
        for variable, value in zip(tf.nest.flatten(self._variables), tf.nest.flatten(state)):
            if id(value) not in still:
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

    def _are_all(self, trained: Sequence[int]) -> bool:
        return list(trained) == list(range(len(self._specs)))

    def _values(self) -> Any:
        return self._walk(self._variables, (), lambda variable, *_: variable.value())

    def _walk(self, state: Any, path: Path, visit: Callable, index: int | None = None) -> Any:
        """`visit(leaf, path, number of the part that it is of or None)` in the place of every leaf."""

        def walk(part: Any, *names: str, index: int | None = index) -> Any:
            return self._walk(part, (*path, *names), visit, index)

        if isinstance(state, list):
            size = len(self._kept.specs)
            if len(state) != size or index is not None:
                raise ValueError(
                    f"A list in a rule's state has an entry for each variable, {size} here; got {len(state)} in "
                    f"{'/'.join(path) or 'the state'}. For other sequences use a tuple."
                )
            return [walk(part, index=i) for i, part in enumerate(state)]
        if isinstance(state, dict):
            return {key: walk(state[key], str(key)) for key in sorted(state)}
        if hasattr(state, "_asdict"):
            return type(state)(*[walk(part, name) for name, part in state._asdict().items()])
        if isinstance(state, tuple):
            return tuple(walk(part, str(i)) for i, part in enumerate(state))
        return visit(state, path, index)


def _make(add: Callable[..., tf.Variable], like: Sequence[Any], value: Any, path: Path, index: int | None):
    name = "/".join(path) or "state"
    if index is None or like[index] is None:
        return add(value, name if index is None else f"{name}/small", None)
    return add(value, name, like[index])
