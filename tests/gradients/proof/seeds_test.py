"""Random numbers of which anybody may know where they start: the log says so."""

import pytest
import tensorflow as tf

from adaclip_tf._internal import keras
from adaclip_tf.gradients import proof
from adaclip_tf.gradients.proof import seeds

COUNT, GENERATOR = tf.Variable(0), tf.random.Generator.from_seed(1)


def _count():
    before = tf.identity(COUNT)
    COUNT.assign_add(1)
    return before


def _of_a_count(n):
    return tf.random.stateless_uniform([n, 3], [7, _count()])


def _in_a_function(n):
    draw = tf.function(lambda n, seed: tf.random.stateless_uniform([n, 3], seed), autograph=False)
    return draw(n, tf.stack([7, _count()]))


def _in_a_branch(n):
    """A count, or numbers that nobody knows: which of them, the count says."""
    secret = tf.random.uniform([], maxval=2**30, dtype=tf.int32)
    count = _count()
    return tf.random.stateless_uniform([n, 3], [7, tf.cond(count > 5, lambda: secret, lambda: count)])


def _folded_into_a_secret(n):
    secret = tf.random.uniform([2], maxval=2**30, dtype=tf.int32)
    return tf.random.stateless_uniform([n, 3], tf.random.experimental.stateless_fold_in(secret, _count()))


def _of_keras(seed):
    """Numbers of a layer's seed generator, as a custom layer has one."""
    if keras.GENERATION == 2:
        pytest.skip("Keras 2 has no seed generators.")

    class Noisy(tf.keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.generator = tf.keras.random.SeedGenerator(seed)

        def call(self, x):
            return x * tf.keras.random.uniform(tf.shape(x), seed=self.generator)

    layer = Noisy()
    return lambda n: layer(tf.ones([n, 3]))


KNOWN = {
    "a count": lambda: _of_a_count,
    "a count, in a function": lambda: _in_a_function,
    "a count, in a branch": lambda: _in_a_branch,
    "a seed generator with a seed": lambda: _of_keras(11),
    "a generator, in a function": lambda: tf.function(lambda n: GENERATOR.uniform([n, 3]), autograph=False),
}
UNKNOWN = {
    "an op without a seed": lambda: lambda n: tf.random.uniform([n, 3]),
    "a count that is folded into a secret": lambda: _folded_into_a_secret,
    "a seed generator without a seed": lambda: _of_keras(None),
}


def _said(draw, monkeypatch):
    said = []
    monkeypatch.setattr(seeds.logging, "log_first_n", lambda level, text, times, why: said.append(why))

    def step(x):
        assert proof.prove(tf.reduce_sum(x * draw(tf.shape(x)[0]), axis=1)).unproven is None

    try:
        tf.random.set_seed(None)
        tf.function(step, input_signature=[tf.TensorSpec([None, 3])], autograph=False).get_concrete_function()
    finally:
        tf.random.set_seed(1)
    return said


@pytest.mark.parametrize("name", KNOWN)
def test_what_starts_where_anybody_knows_is_told(name, monkeypatch):
    assert len(_said(KNOWN[name](), monkeypatch)) == 1


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_nobody_knows_is_not(name, monkeypatch):
    assert not _said(UNKNOWN[name](), monkeypatch)
