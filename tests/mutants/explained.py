"""Survivors that no test could notice, by identifier, and why not."""

from __future__ import annotations

EXPLAINED: dict[str, str] = {
    "core.py:MomentEstimator.next_state:44f536": "The same: the other word that is allowed sorts below this one.",
    "ghost/labels.py:Context.__init__:0b9ee4": "The same: the seed has one axis, which is its first and its last.",
}
