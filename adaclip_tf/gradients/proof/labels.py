"""Labels: what is known about how a tensor depends on the examples of a batch.

N is the number of examples, which itself is private under Poisson sampling. The labels, from what is harmless to what
is not:

| label    | the tensor                                                                                            |
|----------|-------------------------------------------------------------------------------------------------------|
| `Public` | does not depend on the data, nor on N                                                                  |
| `Rows`   | falls into N equal parts along one axis, and part k depends on the data of example k only              |
| `Summed` | is a sum over k of functions of example k only, as the gradient of a variable is, or computed from such  |
| `Sizes`  | depends on N, and on nothing else of the data: a shape or something computed from one                   |
| `Lost`   | nothing is proven; `mixing` if it is known that examples meet                                          |

`Rows`, `Summed` and `Lost` may draw on public random numbers and on variables besides.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Union

import tensorflow as tf

from adaclip_tf.gradients import graph


@dataclasses.dataclass(frozen=True)
class Public:
    """Independent of the data.

    Attributes:
      uniform: the axes along which entries are all equal, or independent draws of one distribution; None: all axes.
        Along these the tensor may meet the examples, since it does not matter which place an example has. Along any
        other axis it would say something else to the first example than to the second, and who is the second changes
        when the first one leaves.
      counted: whether its extents may depend on N. Only the axis that meets the examples may.
      drawn: whether it holds random numbers that are drawn anew in every step.
      moved: the states that its whole numbers come from, which are others in every step, as a seed should be; empty
        where they are not. `SECRET` is among them if nobody knows where they start. See `moved`.
    """

    uniform: frozenset[int] | None = frozenset()
    counted: bool = False
    drawn: bool = False
    moved: frozenset[Any] = frozenset()

    def is_uniform(self, axis: int) -> bool:
        return self.uniform is None or axis in self.uniform

    def but(self, *, counted: bool = False, drawn: bool = False, moved: frozenset[Any] = frozenset()) -> Public:
        """The same, with what its inputs add."""
        if not counted and not drawn and not moved:
            return self
        return dataclasses.replace(
            self, counted=self.counted or counted, drawn=self.drawn or drawn, moved=self.moved | moved
        )


@dataclasses.dataclass(frozen=True)
class Rows:
    """Along `axis` there are `outer` blocks of N runs of `rows` entries each; run k of each block is example k's.

    Attributes:
      rows: None where only the run tells.
      outer: 1 but between SpaceToBatchND and BatchToSpaceND.
      checks: the run-time facts that this rests on, see `Checks`.
    """

    axis: int
    rows: int | None = 1
    outer: int = 1
    checks: frozenset[int] = frozenset()


@dataclasses.dataclass(frozen=True)
class Summed:
    """A sum over the examples, or something computed from one.

    Attributes:
      reason: where it was made, for who must not see one.
      exact: whether it is still a sum of one term per example.
    """

    reason: str
    checks: frozenset[int]
    exact: bool


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Computed from the number of examples.

    Attributes:
      places: the only entries of a vector that may be; None: any.
    """

    places: frozenset[int] | None = None


@dataclasses.dataclass(frozen=True)
class Lost:
    """Nothing is proven. `reason` names the op where the trail ends."""

    reason: str
    mixing: bool = False


Label = Union[Public, Rows, Summed, Sizes, Lost]
EVERYWHERE = Public(None)  # scalars, zeros, ones
DRAWN = Public(None, drawn=True)  # independent random numbers
SECRET = "secret"  # stands among the states of `moved`


class Unproven(Exception):
    """Raised by a table entry that can't establish its condition."""

    def __init__(self, reason: str, mixing: bool = False):
        super().__init__(reason)
        self.reason, self.mixing = reason, mixing


class Check(NamedTuple):
    """A fact that only a run can establish about the extent of an axis."""

    tensor: tf.Tensor
    axis: int
    equals: tf.Tensor | None  # compared along the same axis; None: must be a multiple of N
    what: str


class Checks:
    """The facts that labels rest on. A run in which one is false gets NaN for its norms, so that nothing is used."""

    def __init__(self) -> None:
        self.all: list[Check] = []
        self._indices: dict[Any, int] = {}

    def add(self, tensor: tf.Tensor, axis: int, what: str, equals: tf.Tensor | None = None) -> int:
        """Registers a check and returns its number."""
        for part in (tensor, equals):
            if part is not None:
                rank(part)
        key = (tensor.ref(), axis, None if equals is None else equals.ref())
        if key not in self._indices:
            self._indices[key] = len(self.all)
            self.all.append(Check(tensor, axis, equals, what))
        return self._indices[key]

    def fact(self, index: int) -> graph.Fact:
        """What must hold in a run, with as many examples as `graph.poison` is told."""
        check = self.all[index]
        return graph.Fact(check.tensor, check.axis, f"{check.what[:1].upper()}{check.what[1:]}.", check.equals)


class NoChecks(Checks):
    """Inside of a function: its tensors can't be asked from outside, so nothing may rest on them."""

    def add(self, tensor: tf.Tensor, axis: int, what: str, equals: tf.Tensor | None = None) -> int:
        raise Unproven("needs a fact that is only known at run time, inside of a function")


def rank(tensor: tf.Tensor) -> int:
    if tensor.shape.rank is None:
        raise Unproven("works on a tensor of unknown rank")
    return tensor.shape.rank
