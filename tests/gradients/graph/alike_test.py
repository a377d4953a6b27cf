"""`fingerprint`: the same for the same computation, another one for any other."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.gradients import graph

WEIGHTS, OTHERS = tf.Variable(tf.ones([3, 2])), tf.Variable(tf.ones([3, 2]))
TABLE, OTHER_TABLE = tf.constant([1.0, 2.0]), tf.constant([1.0, 3.0])


def fingerprint(function, order=1):
    """Of `function(x, y)` and its gradient, in a graph of its own; data is handed over in whatever `order`."""
    found = []

    @tf.function(input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec([None, 3])])
    def step(x, y):
        loss = function(x, y)
        gradient = tf.gradients(loss, WEIGHTS)[0]
        found.append(graph.fingerprint([loss, gradient, None], [x, y][::order]))

    step.get_concrete_function()
    return found[0]


def plain(x, y):
    return tf.reduce_sum(tf.matmul(x, WEIGHTS), 1) + y[:, 0]


def turned(factor):
    @tf.custom_gradient
    def identity(h):
        return tf.identity(h), lambda upstream: upstream * factor

    return lambda x, y: plain(x, y) * 0.0 + identity(plain(x, y))


def looped(rounds):
    def function(x, y):
        return tf.while_loop(lambda i, _: i < rounds, lambda i, h: (i + 1, h * 0.5), (0, plain(x, y)))[1]

    return function


def test_the_same_is_the_same():
    for function in (plain, turned(2.0), looped(3), lambda x, y: plain(x, y) * TABLE[0]):
        assert fingerprint(function) == fingerprint(function, order=-1)


def test_draws_are_alike_whatever_their_seed():
    assert fingerprint(lambda x, y: plain(x, y) * tf.random.uniform([], seed=1)) == fingerprint(
        lambda x, y: plain(x, y) * tf.random.uniform([], seed=2)
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (plain, lambda x, y: -plain(x, y)),
        (plain, lambda x, y: plain(y, x)),
        (lambda x, y: plain(x, y) * 2.0, lambda x, y: plain(x, y) * 3.0),
        (turned(2.0), turned(3.0)),
        (looped(3), looped(4)),
        (lambda x, y: plain(x, y) * WEIGHTS[0, 0], lambda x, y: plain(x, y) * OTHERS[0, 0]),
        (lambda x, y: plain(x, y) * TABLE[0], lambda x, y: plain(x, y) * OTHER_TABLE[0]),
    ],
    ids=["sign", "pieces of data", "constant", "gradient", "inside a loop", "variable", "captured value"],
)
def test_another_one_is_not(one, other):
    assert fingerprint(one) != fingerprint(other)


def test_a_variable_of_replicas_is_one_where_its_values_are():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        frozen = tf.Variable(np.zeros(2, np.float32), trainable=False)
    function = lambda x, y: plain(x, y) * frozen[0]  # noqa: E731
    first = fingerprint(function)
    assert fingerprint(function) == first
    frozen.assign([1.0, 0.0])
    assert fingerprint(function) != first


def test_a_generator_has_another_state_on_each_replica():
    """It is the place that differs, and draws are alike; what is read out of the state is not."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        generator = tf.random.Generator.from_seed(1)

    def drawn(x, y):
        return tf.cond(tf.size(y) > 0, lambda: plain(x, y) * generator.uniform([]), lambda: plain(x, y))

    def read(x, y):
        return plain(x, y) * tf.cast(generator.state[0], tf.float32)

    def several(how_many):
        seed = lambda: generator.make_seeds()[:, 0]  # noqa: E731
        return lambda x, y: plain(x, y) * tf.reduce_sum(tf.random.stateless_uniform([how_many], seed()))

    assert fingerprint(several(2)) == fingerprint(several(2)) != fingerprint(several(3))
    before = [fingerprint(drawn), fingerprint(read)]
    generator.reset_from_seed(2)
    generator.uniform([])
    assert fingerprint(drawn) == before[0]
    assert fingerprint(read) != before[1]
