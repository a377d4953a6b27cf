"""Functions that datasets map over batches."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.optimizers import given

X = np.arange(40, dtype=np.float32).reshape([10, 4])
Y = np.arange(10)


def _batches():
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(5).prefetch(1)


def _mixed_up(x, y):
    return 0.7 * x + 0.3 * tf.reverse(x, axis=[0]), y


MIXING = {
    "a mean": lambda x, y: (x - tf.reduce_mean(x, axis=0), y),
    "another example": _mixed_up,
    "the number of examples": lambda x, y: (x * tf.cast(tf.shape(x)[0], tf.float32), y),
    "two rows each": lambda x, y: (tf.reshape(x, [-1, 2]), tf.repeat(y, 2)),
    "examples along the second axis": lambda x, y: (tf.transpose(x), y),
}


@pytest.mark.parametrize("name", MIXING)
def test_what_mixes_is_refused(name):
    with pytest.raises(ValueError, match="mapped over batches"):
        given.check(_batches().map(MIXING[name]).repeat())


CHOICES = {
    "by a mean": lambda x, y: tf.reduce_mean(x) > 0.0,
    "by the first example": lambda x, y: x[0, 0] > 0.0,
    "by their number": lambda x, y: tf.shape(x)[0] == 5,
}


@pytest.mark.parametrize("name", CHOICES)
def test_batches_are_not_chosen_by_what_is_in_them(name):
    for choose in ("filter", "take_while"):
        with pytest.raises(ValueError, match="kept or dropped"):
            given.check(getattr(_batches(), choose)(CHOICES[name]))
    given.check(tf.data.Dataset.from_tensor_slices((X, Y)).filter(lambda x, y: x[0] > 0.0).batch(5))


def test_what_does_not_is_not():
    noisy = _batches().map(lambda x, y: (x / 2.0 + tf.random.normal(tf.shape(x)), y)).enumerate()
    given.check(noisy.map(lambda i, batch: (batch[0] * tf.cast(i, tf.float32), batch[1])))


def test_what_a_function_keeps_is_refused():
    kept = tf.Variable(tf.zeros([4]))

    def remember(x, y):
        kept.assign_add(x[0])
        return x, y

    with pytest.raises(ValueError, match="keeps what it saw"):
        given.check(_batches().map(remember))


def _windows():
    """Batches [batch, time, 4] of which nobody knows how many times there are."""
    return tf.data.Dataset.from_tensor_slices((X[:, None], Y)).padded_batch(5, padded_shapes=([None, 4], []))


def _as_many_as_drawn(x, y):
    many = tf.random.uniform([], 2, 4, tf.int32)
    return tf.slice(x, [0, 0], [many, 4]), tf.slice(y, [0], [many])


THREE = tf.Variable(3)
TOLD = {
    "an op that is not known": lambda: _batches().map(lambda x, y: (tf.linalg.expm(tf.linalg.diag(x))[:, 0], y)),
    "a row for each time": lambda: _windows().map(lambda x, y: (tf.reshape(x, [-1, 4]), tf.repeat(y, tf.shape(x)[1]))),
    "as many rows as a variable says": lambda: _batches().map(lambda x, y: (tf.repeat(x, THREE, axis=0), y)),
    "as many examples as are drawn": lambda: _batches().map(_as_many_as_drawn),
}
SILENT = {
    "each by itself": lambda: _batches().map(lambda x, y: (tf.reshape(x, [-1, 2, 2]), tf.one_hot(y, 10))),
    "times of unknown number": lambda: _windows().map(lambda x, y: (tf.reshape(2.0 * x, tf.shape(x)), y)),
    "a mean over times": lambda: _windows().map(lambda x, y: (tf.reduce_mean(x, axis=1), y)),
}


@pytest.mark.parametrize("name", TOLD)
def test_what_is_not_known_is_told(name, caplog):
    given.check(TOLD[name]())
    assert "not known to keep examples apart" in caplog.text


@pytest.mark.parametrize("name", SILENT)
def test_what_is_known_is_not(name, caplog):
    given.check(SILENT[name]())
    assert not caplog.text
