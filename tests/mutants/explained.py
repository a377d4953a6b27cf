"""Survivors that no test could notice, by identifier, and why not."""

from __future__ import annotations

EXPLAINED: dict[str, str] = {
    "core/moments.py:MomentEstimator.next_state:44f536": (
        "The same: the other word that is allowed sorts below this one."
    ),
    "gradients/ghost/labels.py:_is_length_of:360391": (
        "The same: the op has one input, which is its first and its last."
    ),
    "gradients/ghost/labels.py:_is_length_of:cf524a": "The same: the shape of a loss of rank 0 has no first entry.",
    "gradients/ghost/labels.py:Context.__init__:0b9ee4": (
        "The same: the seed has one axis, which is its first and its last."
    ),
}
