"""Seeds: numbers drawn from one that the step moves on are draws; from any other they are values by place."""

import pytest
import tensorflow as tf

from adaclip_tf.gradients import proof

STATE, SCALAR = tf.Variable([3, 4]), tf.Variable(5, dtype=tf.int64)
GENERATOR = tf.random.Generator.from_seed(1)


def _drawn(seed, n):
    return tf.random.stateless_normal([n, 3], seed)


def _before(write):
    before = tf.identity(STATE)
    write()
    return before


def _moved(write, seed=lambda state: state):
    """Noise of a seed that is read, with something written behind it."""
    return lambda n: _drawn(seed(_before(write)), n)


def _up():
    STATE.assign_add([0, 1])


def _set_in_a_function(n):
    """What a function moves on is set back around it."""
    noise = tf.function(lambda: _moved(_up)(n), autograph=False)()
    STATE.assign([3, 4])
    return noise


def _set_back_around_two_functions(n):
    """One function reads the seed and moves it on, another one is given it."""
    read = tf.function(lambda: _before(_up), autograph=False)
    noise = tf.function(_drawn, autograph=False)(read(), n)
    STATE.assign([3, 4])
    return noise


def _generator_set_back(n):
    GENERATOR.reset_from_seed(1)
    return GENERATOR.normal([n, 3])


def _generator_turned_back(n):
    noise = GENERATOR.normal([n, 3])
    GENERATOR.skip(-64)
    return noise


def _of_an_integer(n, most):
    return _drawn(tf.random.uniform([2], maxval=most, dtype=tf.int32), n)


def _next_of_keras(n):
    """As `SeedGenerator.next(ordered=False)` goes on."""
    before = tf.identity(SCALAR)
    SCALAR.assign((SCALAR + 1) * 5387 % 933199)
    return _drawn(tf.stack([tf.math.floormod(before, tf.int32.max - 1), 0]), n)


def _many(shape=()):
    return tf.random.uniform(shape, maxval=2**30, dtype=tf.int32)


def _rounded(seed):
    """The same numbers, by another way."""
    return tf.cast(tf.cast(seed, tf.float32), tf.int32)


def _folded_in(n):
    before = tf.identity(SCALAR)
    SCALAR.assign_add(1)
    return _drawn(tf.random.experimental.stateless_fold_in([1, 2], tf.cast(before, tf.int32)), n)


DRAWS = {
    "a count": _moved(_up),
    "a count that is assigned": _moved(lambda: STATE.assign(tf.add(STATE, [0, 1]))),
    "as Keras goes on": _next_of_keras,
    "a count, scrambled": _moved(_up, lambda seed: tf.cast(3 * seed + 7, tf.int64)),
    "a count that is folded in": _folded_in,
    "split": _moved(_up, lambda seed: tf.random.experimental.stateless_split(seed, 2)[1]),
    "a generator": lambda n: GENERATOR.normal([n, 3]),
    "seeds of a generator": lambda n: _drawn(GENERATOR.make_seeds(2)[:, 0], n),
    "a count and a constant": _moved(_up, lambda seed: 5 - tf.bitwise.bitwise_xor(seed + 2, 1)),
    "a part of many": lambda n: _drawn(1 + _many([3])[:2], n),
    "of many": lambda n: _of_an_integer(n, 2**30),
}
VALUES = {
    "set back": _moved(lambda: STATE.assign([3, 4])),
    "set to itself": _moved(lambda: STATE.assign(tf.maximum(STATE, 1))),
    "set to what is no more": _moved(lambda: STATE.assign(tf.add(STATE, [0, 0]))),
    "counted up and back": _moved(lambda: (_up(), STATE.assign_sub([0, 1]))),
    "up by less than nothing": _moved(lambda: (_up(), STATE.assign_add([0, -1]))),
    "modulo a few": _moved(lambda: STATE.assign((STATE + 1) % 3)),
    "set to a multiple of itself and more": _moved(lambda: STATE.assign(2 * STATE + 1)),
    "set to what it was, by turns": _moved(lambda: STATE.assign(-1 * STATE + 5)),
    "up and down again in one": _moved(lambda: STATE.assign(tf.add(tf.add(STATE, [0, 1]), [0, -1]))),
    "up by half a turn": _moved(lambda: STATE.assign((STATE + 32768) % 65536)),
    "up by half of all there is": _moved(lambda: STATE.assign_add([0, 2**30])),
    "up through a few bits": _moved(lambda: STATE.assign(tf.cast(tf.cast(STATE, tf.int8) + 1, tf.int32))),
    "multiples modulo what they are of": _moved(_up, lambda seed: 65536 * seed % 65536),
    "steps modulo what they are of": _moved(lambda: STATE.assign_add([0, 32768]), lambda seed: seed % 65536),
    "assigned steps modulo what they are of": _moved(
        lambda: STATE.assign(tf.add(STATE, [0, 32768])), lambda seed: tf.math.floormod(seed, 65536)
    ),
    "multiples beyond the last bit": _moved(_up, lambda seed: 65536 * (65536 * seed)),
    "cut to the lower half": _moved(_up, lambda seed: tf.cast(2**32 * tf.cast(seed, tf.int64), tf.int32)),
    "taken out again": _moved(_up, lambda seed: 0 * seed),
    "cut to a few": _moved(_up, lambda seed: seed % 3),
    "cut to a few bits": _moved(_up, lambda seed: tf.cast(tf.cast(seed, tf.int8), tf.int32)),
    "the entry that stays": _moved(_up, lambda seed: tf.stack([seed[0], 1])),
    "folded into itself": _moved(_up, lambda seed: tf.random.experimental.stateless_fold_in([1, 2], seed[0])),
    "less itself": _moved(_up, lambda seed: seed - tf.identity(seed)),
    "less itself, rounded": _moved(_up, lambda seed: seed - _rounded(seed)),
    "together with itself, rounded": _moved(_up, lambda seed: seed + -_rounded(seed)),
    "the bits that differ from itself": _moved(_up, lambda seed: tf.bitwise.bitwise_xor(seed, _rounded(seed))),
    "the zeros beside seeds": lambda n: _drawn(GENERATOR.make_seeds(2)[1], n),
    "a zero beside a draw, of another type": lambda n: _drawn(tf.cast(tf.stack([_many(), 0, 0]), tf.int64)[1:], n),
    "zeros between draws": lambda n: _drawn(tf.stack([_many(), 0, 0], axis=0)[1:], n),
    "zeros at every other place": lambda n: _drawn(tf.stack([0, _many(), 0])[::2], n),
    "zeros that are looked up at a place that is drawn": lambda n: _drawn(
        tf.gather(tf.zeros([2**17], tf.int32), tf.random.uniform([2], maxval=2**17, dtype=tf.int32)), n
    ),
    "of few": lambda n: _of_an_integer(n, 1000),
}
REFUSED = {
    "set back around the functions that read and draw": _set_back_around_two_functions,
    "set back around a function": _set_in_a_function,
    "a generator that is set back": _generator_set_back,
    "a generator that is turned back": _generator_turned_back,
}


def _label(noise, static, behind=lambda: None):
    found = []

    def step(x):
        found.append(proof.prove(tf.reduce_sum(x * noise(tf.shape(x)[0]), axis=1)))
        behind()

    spec = tf.TensorSpec([8 if static else None, 3])
    tf.function(step, input_signature=[spec], autograph=False).get_concrete_function()
    return found[-1]


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("name", DRAWS)
def test_numbers_of_seeds_that_move_on_are_draws(name, static):
    assert _label(DRAWS[name], static).unproven is None


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("name", VALUES)
def test_numbers_of_other_seeds_are_values_by_place(name, static):
    assert _label(VALUES[name], static).unproven is not None


@pytest.mark.parametrize("name", REFUSED)
def test_states_that_are_set_back_are_refused(name):
    with pytest.raises(ValueError, match="sets back the state"):
        _label(REFUSED[name], static=False)


def test_nor_may_they_be_set_back_behind_the_loss():
    with pytest.raises(ValueError, match="sets back the state"):
        _label(DRAWS["a count"], static=False, behind=lambda: STATE.assign([3, 4]))
