"""The event files of `PrivacyTensorBoard`: one writer per run, opened only if the folder can be written to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf


class EventFiles:
    """Writers for runs (folders) below `log_dir`. Without an open run it is false, and nothing may be written."""

    def __init__(self, log_dir: str):
        self._log_dir = log_dir
        self._writers: dict[str, Any] = {}

    def __bool__(self) -> bool:
        return bool(self._writers)

    def has_events(self, run: str) -> bool:
        """Whether an event file is there already."""
        return bool(tf.io.gfile.glob(os.path.join(self._log_dir, run, "events.out.tfevents*")))

    def open(self, run: str) -> None:
        """Makes the folder and a new event file, or says why it can't be."""
        folder = os.path.join(self._log_dir, run)
        probe = os.path.join(folder, ".writable")
        try:
            tf.io.gfile.makedirs(folder)
            with tf.io.gfile.GFile(probe, "w") as file:
                file.write(" " * 4096)  # a full disk lets an empty file be made
            tf.io.gfile.remove(probe)
        except (OSError, tf.errors.OpError) as error:
            raise ValueError(
                f"`log_dir`={self._log_dir!r} cannot be written to: {error}. Give a folder that exists or can be made, "
                "with space left."
            ) from error
        self._writers[run] = tf.summary.create_file_writer(folder)

    def write(self, run: str, summary: Any, step: int = 0) -> None:
        """Writes a summary protocol buffer."""
        # Keras's callback switches recording off between its own steps, for everyone.
        with tf.summary.record_if(True), self._writers[run].as_default():
            tf.summary.experimental.write_raw_pb(summary.SerializeToString(), step=step)

    def write_images(self, run: str, images: Mapping[str, tuple[Any, str]], step: int) -> None:
        """Writes {tag: (array [height, width, 3], description)}."""
        with tf.summary.record_if(True), self._writers[run].as_default(step=step):
            for tag, (image, description) in images.items():
                tf.summary.image(tag, image[None], description=description)

    def flush(self) -> None:
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """Closes all runs, to be opened again by the next training."""
        for writer in self._writers.values():
            writer.close()
        self._writers = {}
