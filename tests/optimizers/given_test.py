"""What datasets do to batches before a step gets them: which functions are looked at."""

import numpy as np
import pytest
import tensorflow as tf

import adaclip_tf
from adaclip_tf.data import sampling
from adaclip_tf.optimizers import given

X = np.arange(40, dtype=np.float32).reshape([10, 4])
Y = np.arange(10)


def _batches():
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(5).prefetch(1)


def _mixed_up(x, y):
    return 0.7 * x + 0.3 * tf.reverse(x, axis=[0]), y


def test_every_part_of_a_zip_is_looked_at():
    numbers, mixed = tf.data.Dataset.range(2), _batches().map(_mixed_up)
    for zipped in (tf.data.Dataset.zip((numbers, mixed)), tf.data.Dataset.zip((mixed, numbers))):
        with pytest.raises(ValueError, match="mapped over batches"):
            given.check(zipped)


HANDED_ON = {
    "cached": lambda batches: batches.cache(),
    "joined to others": lambda batches: _batches().concatenate(batches),
    "cut again": lambda batches: batches.unbatch().map(lambda x, y: (x, y)).batch(2, num_parallel_calls=2),
    "of another size": lambda batches: batches.rebatch(2),
    "chosen by number": lambda batches: batches.enumerate().filter(lambda i, batch: i > 0).map(lambda i, batch: batch),
    "dealt out": lambda batches: batches.shard(2, 0).with_options(tf.data.Options()).ignore_errors(),
}


@pytest.mark.parametrize("name", HANDED_ON)
def test_it_is_seen_behind_what_follows(name):
    given.check(HANDED_ON[name](_batches()))
    with pytest.raises(ValueError, match="mapped over batches"):
        given.check(HANDED_ON[name](_batches().map(_mixed_up)))


def test_examples_may_be_changed_before_there_are_batches():
    examples = tf.data.Dataset.from_tensor_slices((X, Y)).map(lambda x, y: (x - tf.reduce_mean(x, axis=0), y))
    given.check(examples.batch(5))


def test_what_was_refused_is_refused_again():
    mixed = _batches().map(_mixed_up)
    for _ in range(2):
        with pytest.raises(ValueError, match="mapped over batches"):
            given.check(mixed)


def test_draws_are_not_looked_into():
    batches = sampling.poisson_batches((X, Y), expected_batch_size=4, steps=2)
    given.check(batches)
    with pytest.raises(ValueError, match="mapped over batches"):
        given.check(batches.map(_mixed_up))


def test_what_is_not_known_is_told_once(caplog):
    batches = _batches().map(lambda x, y: (tf.linalg.expm(tf.linalg.diag(x))[:, 0], y))
    for _ in range(2):
        given.check(batches)
    assert caplog.text.count("not known to keep examples apart") == 1


def test_fit_looks_at_its_dataset():
    model = tf.keras.Sequential([tf.keras.Input([4]), tf.keras.layers.Dense(1)])
    optimizer = adaclip_tf.DPFixedClipSGD(l2_norm_clip=1.0, noise_multiplier=1.0, expected_batch_size=5)
    model.compile(optimizer, tf.keras.losses.MeanSquaredError(reduction="none"))
    with pytest.raises(ValueError, match="mapped over batches"):
        model.fit(_batches().map(_mixed_up), verbose=0)
