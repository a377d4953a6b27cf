"""Scales of a model that was made under a strategy: the same as of one that was not, or refused in words."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf._internal import keras
from adaclip_tf.scales.private_scales import PrivateScales
from tests import models


def fit(model):
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return PrivateScales(noise_multiplier=2.0, count_noise=2.0, seed=1).fit(model, loss, models.data(40))


def test_a_strategy_of_one_replica_changes_nothing():
    alone = fit(models.mlp())
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = models.mlp()
    mirrored = fit(model)
    assert mirrored.clip_ == pytest.approx(alone.clip_, rel=1e-5)
    for one, other in zip(mirrored.shapes_, alone.shapes_):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.slow
def test_two_replicas_change_nothing_either():
    """In a process of its own, which has two logical processors. A compiled loss is refused on Keras 2."""
    program = """
        import tensorflow as tf
        (cpu,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        from adaclip_tf.scales.private_scales import PrivateScales
        from tests import models
        from tests.scales import replicas_test
        alone = replicas_test.fit(models.mlp())
        with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
            model = models.mlp()
            model.compile(loss="sparse_categorical_crossentropy")
        both = replicas_test.fit(model)
        assert abs(both.clip_ - alone.clip_) < 1e-5 * alone.clip_
        try:
            PrivateScales(noise_multiplier=2.0, count_noise=2.0).fit(model, None, models.data(40))
            print("compiled loss: taken")
        except NotImplementedError as error:
            print("compiled loss:", error)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    expected = "Keras 2 can't compute a compiled loss outside" if keras.GENERATION == 2 else "taken"
    assert f"compiled loss: {expected}" in done.stdout
