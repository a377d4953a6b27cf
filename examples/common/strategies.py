"""The strategies that examples/train.py knows, and who of several workers writes files."""

from __future__ import annotations

import os

import tensorflow as tf

NAMES = ("none", "mirrored", "multi_worker")


def make(name: str, replicas: int = 2) -> tf.distribute.Strategy | None:
    """One of `NAMES`. Call it before anything else: TensorFlow fixes devices and clusters when it starts.

    Args:
      name: "none" is None; "mirrored" runs `replicas` GPUs, or as many parts of the CPU where there are fewer; for
        "multi_worker" TF_CONFIG says who the workers are (examples/launch.py writes it).
      replicas: of "mirrored".
    """
    if name == "none":
        return None
    if name == "multi_worker":
        if "TF_CONFIG" not in os.environ:
            raise ValueError(
                "--strategy=multi_worker needs TF_CONFIG in the environment. On one machine, start it by "
                "`python -m examples.launch --workers=2 -- -m examples.train --strategy=multi_worker ...`."
            )
        return tf.distribute.MultiWorkerMirroredStrategy()
    if len(tf.config.list_physical_devices("GPU")) >= replicas:
        return tf.distribute.MirroredStrategy([f"GPU:{number}" for number in range(replicas)])
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
    return tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(replicas)])


def writes(strategy: tf.distribute.Strategy | None) -> bool:
    """Whether this process writes files and prints: of several workers only the first does."""
    return strategy is None or bool(strategy.extended.should_checkpoint)


def several_workers(strategy: tf.distribute.Strategy | None) -> bool:
    """Whether other processes take part."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
