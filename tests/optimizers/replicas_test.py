"""Tests of `adaclip_tf.optimizers.replicas` on one replica; several are in distribution_mirrored_test.py."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import DPFixedClip, DPFixedClipSGD
from adaclip_tf._internal import variables
from adaclip_tf.core import noise
from adaclip_tf.optimizers import replicas
from tests import models


@pytest.fixture(scope="module")
def mirrored():
    return tf.distribute.MirroredStrategy(["CPU:0"])


def test_a_local_variable_is_nobody_elses(mirrored):
    with mirrored.scope():
        assert isinstance(tf.Variable(1.0), tf.distribute.DistributedValues)
        local = variables.local_variable([1, 2], tf.int64, name="mine")
    assert local.dtype == tf.int64
    assert local.name.startswith("mine")
    assert not isinstance(local, tf.distribute.DistributedValues)
    assert not local.trainable
    np.testing.assert_array_equal(local.numpy(), [1, 2])


def test_a_noise_key_is_not_mirrored(mirrored):
    """Under several workers a mirrored variable has the first one's value."""
    with mirrored.scope():
        source = noise.NoiseSource()
    assert not isinstance(source._state, tf.distribute.DistributedValues)


def test_streams_of_one_seed_differ_and_repeat():
    one, other, again = (noise.NoiseSource(7, stream).fresh_normals([(4,)])[0].numpy() for stream in (0, 1, 1))
    assert np.abs(one - other).min() > 0
    np.testing.assert_array_equal(other, again)
    np.testing.assert_array_equal(one, noise.NoiseSource(7).fresh_normals([(4,)])[0].numpy())


def test_what_is_made_once_per_replica():
    made = replicas.PerReplica(lambda number: [number])
    assert made.here() is made.here()
    assert made.here() == [0]


def test_one_replica_adds_up_to_itself():
    assert replicas.count() == 1
    tensor = tf.constant([1.0, 2.0])
    assert replicas.add_up([tensor])[0] is tensor


def test_state_is_mirrored_wherever_it_is_built(mirrored):
    with mirrored.scope():
        variable = tf.Variable(tf.zeros([2]))
        optimizer = DPFixedClipSGD(l2_norm_clip=1.0, noise_multiplier=1.0)
    optimizer.build([variable])  # outside the scope
    assert isinstance(optimizer.private_step.noised_steps, tf.distribute.DistributedValues)
    assert int(optimizer.noised_steps) == 0


@pytest.mark.parametrize("inner", [False, True])
def test_a_strategy_of_one_replica_accumulates_as_no_strategy_does(mirrored, inner):
    """Its update meets other replicas too, which it can't do inside of `tf.cond`."""
    weights = []
    for scope in (mirrored.scope(), contextlib.nullcontext()):
        with scope:
            model = models.softmax_regression()
            settings = {"l2_norm_clip": 1.0, "noise_multiplier": 1.0, "accumulation_steps": 2, "seed": 1}
            optimizer = DPFixedClip("adam", **settings) if inner else DPFixedClipSGD(0.5, momentum=0.9, **settings)
            model.compile(optimizer, models.per_example_loss())
        model.fit(*models.data(8), batch_size=2, shuffle=False, verbose=0)
        assert int(optimizer.noised_steps) == 2
        weights.append(model.get_weights())
    for ours, theirs in zip(*weights):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_replicas_meet_where_a_strategy_runs_them(mirrored):
    assert not replicas.meet()
    with mirrored.scope():
        assert not replicas.meet()  # in front of all of them
        met = []
        mirrored.run(lambda: met.append(replicas.meet()))
    assert met == [True]


def test_the_scope_is_entered_once(mirrored):
    with replicas.scope(mirrored):
        assert tf.distribute.get_strategy() is mirrored
        with replicas.scope(mirrored):
            assert tf.distribute.get_strategy() is mirrored
    with replicas.scope(tf.distribute.get_strategy()):
        assert not tf.distribute.has_strategy()


def test_strategies_that_wait_are_supported(mirrored):
    for strategy in (mirrored, tf.distribute.OneDeviceStrategy("CPU:0"), tf.distribute.get_strategy()):
        replicas.check_strategy(strategy, "X")


def test_other_strategies_are_refused():
    strategy = tf.distribute.experimental.CentralStorageStrategy(["CPU:0"], "CPU:0")
    with strategy.scope(), pytest.raises(NotImplementedError, match="does not run under CentralStorageStrategy"):
        DPFixedClipSGD(l2_norm_clip=1.0, noise_multiplier=1.0)
    with strategy.scope(), pytest.raises(NotImplementedError, match="does not run under CentralStorageStrategy"):
        replicas.check_step(strategy, None, "X")
