"""Private steps that share a batch: what they cost together.

Accounting takes each noised step for a draw of its own. Several releases of one batch are not: who is in it is in all
of them, and sampling hides that once. Gaussian releases of noise multipliers z_1, z_2, ... of one batch are together
one of

    z = 1 / sqrt(1 / z_1^2 + 1 / z_2^2 + ...)

(their differences, over their noise, are parts of one vector). So where two optimizers train on one batch, as in a GAN
whose two losses see it, the steps of both are noted as having had that z: epsilon of either is that of both. One
optimizer that takes several steps on one batch is refused: each would count as a draw.

It is seen within one graph. A batch that a program hands to several functions, or to several calls, is not.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

_users: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # by graph: the steps on each tensor of a batch


def note(step: Any, data: Sequence[tf.Tensor]) -> list[Any]:
    """The other steps of this graph on some of the same `data`. Raises ValueError if `step` is among them."""
    found: list[Any] = []
    for tensor in data:
        users = _users.setdefault(tensor.graph, {}).setdefault(tensor.ref(), [])
        for user in users:
            if user() is step:
                raise ValueError(
                    f"One optimizer takes two steps on the same batch, {tensor.name!r}. Accounting takes each step for "
                    "a draw of its own, so epsilon would be too small. Add up the losses and take one step, or draw a "
                    "batch for each, as two parts of what a dataset hands out."
                )
            if user() is not None and not any(user() is other for other in found):
                found.append(user())
        users.append(weakref.ref(step))
    return found


def see_step(steps: Sequence[Any], size: Any) -> None:
    """Notes the step of the first on a batch of `size`, and on all what they had in noise, in the graph."""
    noise = noise_together(steps)
    steps[0].past.see_step(noise, size)
    for other in steps[1:]:
        other.past.see_noise(noise)


def noise_together(steps: Sequence[Any]) -> float:
    """z of one batch's releases, all together."""
    if len(steps) == 1:
        return steps[0].settings.noise_multiplier
    multipliers = [step.settings.noise_multiplier for step in steps]
    if 0.0 in multipliers:
        return 0.0
    return 1.0 / math.sqrt(sum(multiplier**-2 for multiplier in multipliers))
