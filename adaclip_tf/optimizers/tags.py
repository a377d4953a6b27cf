"""Marks on gradients: who made them private, and whether they complete a logical batch."""

from __future__ import annotations

from typing import Any


def tag(gradient: Any, optimizer: Any, complete: Any) -> Any:
    """Marks a gradient as private, for `apply_gradients`."""
    gradient._adaclip_from = (id(optimizer), complete)
    return gradient


def completes(grads_and_vars: Any, optimizer: Any) -> Any:
    """Whether the gradients complete a logical batch, after a check that `optimizer` made them."""
    complete = None
    for gradient, variable in grads_and_vars:
        maker, complete = getattr(gradient, "_adaclip_from", (None, None))
        if maker != id(optimizer):
            raise ValueError(
                f"The gradient of {variable.name!r} was not made by this optimizer, so it is not private. Call "
                "`minimize(loss, variables, tape)`, or pass on what `compute_gradients` returned, unchanged."
            )
    return complete
