"""Private steps that share a batch: what they cost together.

Accounting takes each noised step for a draw of its own. Several releases of one batch are not: who is in it is in all
of them, and sampling hides that once. Gaussian releases of noise multipliers z_1, z_2, ... of one batch are together
one of

    z = 1 / sqrt(1 / z_1^2 + 1 / z_2^2 + ...)

(their differences, over their noise, are parts of one vector). So where two optimizers train on one batch, as in a GAN
whose two losses see it, the steps of both are noted as having had that z: epsilon of either is that of both. One
optimizer that takes several steps on one batch is refused: each would count as a draw.

What one element of a dataset hands out, and all that a function is called with, is one batch here: inputs and labels
are of the same examples, and nothing in a graph tells them from two draws that are handed out together.

They need not step equally often, as where one does at every second batch: each knows those that it met (`meet`), and
whoever counts epsilon counts what these have taken beyond its own steps.

It is seen within one graph, and where a graph calls the functions in which steps are. A batch that a program hands to
several calls of its own is not seen, nor a function that was traced before.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from adaclip_tf.gradients import graph, proof
from adaclip_tf.optimizers import replicas

_users: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # by graph: the steps on each batch, and by which op


def note(step: Any, data: Sequence[tf.Tensor]) -> list[Any]:
    """The other steps of this graph on the same batch as `data`. Raises ValueError if `step` is among them."""
    for inner in {tensor.graph for tensor in data}:
        proof.follow(inner, data, lambda op, handed: _note_outside(step, op, handed))
    return _others(step, data, None)


def _note_outside(step: Any, op: tf.Operation, handed: Sequence[tf.Tensor]) -> None:
    """Notes a step that is taken inside of `op`, with what the others on the same batch make of its noise."""
    with op.graph.as_default():
        together = [step, *_others(step, handed, op)]
        for each in together if len(together) > 1 else ():
            each.past.see_noise(noise_together(together))


def _others(step: Any, data: Sequence[tf.Tensor], op: tf.Operation | None) -> list[Any]:
    """Steps on the same batch up to now; `step`, which `op` takes, is one of them from now on."""
    found: list[Any] = []
    for batch in {batch for tensor in data for batch in _batches(tensor)}:
        users = _users.setdefault(data[0].graph, {}).setdefault((replicas.number(), batch), [])
        for user, by in users:
            step.meet(user())
            if op is not None and by == op.name:  # branches, of which one is run
                continue
            if user() is step:
                raise ValueError(
                    f"One optimizer takes two steps on the same batch, {data[0].name!r}. The accounting counts each "
                    "step as a separate draw, so epsilon would be too small. Add up the losses and take one step, or "
                    "draw a batch for each. (What one element of a dataset holds, or one function is called with, is "
                    "one batch.)"
                )
            if user() is not None and not any(user() is other for other in found):
                found.append(user())
        users.append((weakref.ref(step), None if op is None else op.name))
    return found


def _batches(tensor: tf.Tensor) -> set[str]:
    """What the data in `tensor` came with: arguments of the function, or an element of a dataset, by its op's name."""
    found = set()
    for op in graph.ancestors(tensor.op):
        if op.type == "Placeholder" and op.outputs[0].dtype != tf.resource:
            found.add("")
        elif proof.hands_out_examples(op):
            found.add(op.name if op.type != "OptionalGetValue" else graph.behind(op.inputs[0], ("Identity",)).op.name)
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
