"""Metrics against epsilon: a small file beside the event files, so that a picture can show runs side by side.

TensorBoard's own charts have steps or time below, never another value. A resumed run goes on with what its file holds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from absl import logging

FILE = "by_epsilon.json"
MOST_OTHERS = 6

Points = list[tuple[float, dict[str, float]]]  # epsilon, and metrics by name


class Curve:
    """What a run has reached at which epsilon.

    Args:
      log_dir: its folder.
    """

    def __init__(self, log_dir: str):
        self._log_dir = log_dir
        self.points: Points = []

    def begin(self, epsilon: float | None) -> None:
        """Starts anew, or goes on with what was reached up to `epsilon`."""
        before = _read(os.path.join(self._log_dir, FILE)) if epsilon else []
        self.points = [point for point in before if epsilon is not None and point[0] <= epsilon * (1 + 1e-9)]

    def add(self, epsilon: float, metrics: Mapping[str, float]) -> None:
        """One more point, in the file too. A file that can't be written costs the comparison, not the training."""
        self.points.append((epsilon, dict(metrics)))
        try:
            with tf.io.gfile.GFile(os.path.join(self._log_dir, FILE), "w") as file:
                file.write(json.dumps({"points": self.points}))
        except (OSError, tf.errors.OpError) as error:
            logging.warning("%s could not be written: %s", FILE, error)

    def others(self) -> dict[str, Points]:
        """What the runs in the folders beside this one have reached, by their names."""
        own = self._log_dir.rstrip("/")
        own = own if "://" in own else os.path.abspath(own)
        found: dict[str, Points] = {}
        for path in sorted(tf.io.gfile.glob(os.path.join(os.path.dirname(own), "*", FILE))):
            points = _read(path) if os.path.dirname(path) != own else []
            if points and len(found) < MOST_OTHERS:
                found[os.path.basename(os.path.dirname(path))] = points
        return found


def _read(path: str) -> Points:
    """The points in a file; none if there is no such file, or if it is just being written."""
    try:
        with tf.io.gfile.GFile(path) as file:
            held: Any = json.loads(file.read())
        return [(float(epsilon), dict(metrics)) for epsilon, metrics in held["points"]]
    except (OSError, tf.errors.OpError, ValueError, KeyError, TypeError):
        return []
