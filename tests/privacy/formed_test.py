"""How a `tf.data` pipeline cuts its batches, as far as it shows it."""

import pytest
import tensorflow as tf

from adaclip_tf.privacy.drawn import Drawn, note
from adaclip_tf.privacy.formed import Formed, formed

ROWS = tf.data.Dataset.range(100)


def same(*batch):
    return batch


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (ROWS.batch(8), Formed(8, False, 100, False)),
        (ROWS.batch(8, num_parallel_calls=2).prefetch(1), Formed(8, False, 100, False)),
        (ROWS.padded_batch(8).cache().shuffle(3).take(5).skip(1).repeat(), Formed(8, False, 100, False)),
        (ROWS.shuffle(9).batch(8).map(same), Formed(8, True, 100, False)),
        (ROWS.batch(8).map(same, num_parallel_calls=2).prefetch(1), Formed(8, True, 100, False)),
        (ROWS.repeat(1).batch(8), Formed(8, False, 100, False)),
        (ROWS.repeat(2).batch(8), Formed(8, False, None, True)),
        (ROWS.repeat().shuffle(9).map(same).batch(8), Formed(8, False, None, True)),
        (ROWS.filter(lambda row: row > 3).batch(8), Formed(8, False, None, False)),
        (ROWS.batch(8).unbatch(), None),
        (ROWS.batch(8).rebatch(3), None),
        (tf.data.Dataset.zip((ROWS.batch(8), ROWS.batch(8))), None),
        (ROWS, None),
        (None, None),
    ],
)
def test_what_a_pipeline_shows(dataset, expected):
    assert formed(dataset) == expected


def test_a_size_that_only_the_run_knows_is_not_known():
    @tf.function
    def trace(size):
        assert formed(tf.data.Dataset.range(100).batch(size)) is None
        return size

    trace(tf.constant(8, tf.int64))


def test_what_was_drawn_is_not_cut():
    assert formed(note(ROWS.batch(8), Drawn(100, 8, 1)).prefetch(1)) is None
