"""Survivors that no test could notice, by identifier, and why not."""

from __future__ import annotations

EXPLAINED: dict[str, str] = {}
