"""Texts that are split into words: what is proven of them, and what is not."""

import pytest
import tensorflow as tf

from adaclip_tf.gradients import proof

WEIGHTS = tf.Variable(tf.ones([4]))


def _proof(function):
    """The proof for a loss of texts [batch]."""
    found = []

    def step(texts):
        found.append(proof.prove(function(texts)))

    tf.function(step, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False).get_concrete_function()
    return found[-1]


def _padded(rows, length=4):
    """A number for each word, in rows of a length."""
    return rows.to_tensor(0.0, shape=[None, length])


def _lengths(texts):
    return tf.ragged.map_flat_values(
        lambda words: tf.cast(tf.strings.length(words), tf.float32), tf.strings.split(texts)
    )


def _loss(rows):
    rows.set_shape([None, 4])
    return tf.reduce_sum(rows * WEIGHTS, axis=1)


def _with_words(change):
    def function(texts):
        rows = _lengths(texts)
        return _loss(_padded(rows.with_flat_values(change(rows.flat_values))))

    return function


def _by_hand(texts, rows=lambda split: split[0][:, 0], count=lambda split: split[2][0], default=0.0, words=None):
    """The same by TensorFlow's own ops, with something done otherwise."""
    split = tf.raw_ops.StringSplitV2(input=texts, sep="")
    values = tf.cast(tf.strings.length(split[1]), tf.float32) if words is None else words(split)
    padded = tf.raw_ops.RaggedTensorToTensor(
        shape=tf.constant([-1, 4], tf.int64),
        values=values,
        default_value=default,
        row_partition_tensors=[count(split), rows(split)],
        row_partition_types=["FIRST_DIM_SIZE", "VALUE_ROWIDS"],
    )
    return _loss(padded)


def _counts(texts, change=lambda words: words, size=4):
    rows = tf.strings.split(texts)
    ids = rows.with_flat_values(change(tf.strings.to_hash_bucket_fast(rows.flat_values, 4)))
    return _loss(tf.math.bincount(ids, minlength=size, maxlength=size, dtype=tf.float32, axis=-1))


def _counts_by_hand(texts, ends=tf.cumsum):
    split = tf.raw_ops.StringSplitV2(input=texts, sep="")
    count = tf.cast(split[2][0], tf.int32)
    lengths = tf.math.bincount(tf.cast(split[0][:, 0], tf.int32), minlength=count, maxlength=count)
    counts = tf.raw_ops.RaggedBincount(
        splits=tf.cast(tf.concat([[0], ends(lengths)], 0), tf.int64),
        values=tf.cast(tf.strings.to_hash_bucket_fast(split[1], 4), tf.int32),
        size=4,
        weights=tf.zeros([0]),
    )
    return _loss(counts)


PROVEN = {
    "counted by hand": _counts_by_hand,
    "padded": lambda texts: _loss(_padded(_lengths(texts))),
    "word by word": _with_words(lambda words: tf.where(words > 3.0, words, 2.0 * words + 1.0)),
    "by hand": _by_hand,
    "counted": _counts,
}
UNKNOWN = {
    "cut at products of lengths": lambda texts: _counts_by_hand(texts, tf.math.cumprod),
    "as long as the longest": lambda texts: tf.reduce_mean(_lengths(texts).to_tensor(), axis=1),
    "words turned round": _with_words(lambda words: tf.reverse(words, [0])),
    "words moved on": _with_words(lambda words: tf.roll(words, 1, axis=0)),
    "over all words": _with_words(lambda words: words - tf.reduce_mean(words)),
    "words added up": _with_words(tf.cumsum),
    "rows turned round": lambda texts: _by_hand(texts, rows=lambda split: tf.reverse(split[0][:, 0], [0])),
    "rows by place": lambda texts: _by_hand(texts, rows=lambda split: split[0][:, 1]),
    "every other row": lambda texts: _by_hand(texts, rows=lambda split: split[0][::2, 0]),
    "rows of other texts": lambda texts: _by_hand(
        texts, rows=lambda split: tf.raw_ops.StringSplitV2(input=tf.reverse(texts, [0]), sep="")[0][:, 0]
    ),
    "another count": lambda texts: _by_hand(texts, count=lambda split: split[2][1]),
    "other texts' words": lambda texts: _by_hand(
        texts,
        words=lambda split: tf.cast(
            tf.strings.length(tf.raw_ops.StringSplitV2(input=tf.reverse(texts, [0]), sep="")[1]), tf.float32
        ),
    ),
    "a default of all": lambda texts: _by_hand(texts, default=tf.reduce_max(_lengths(texts).flat_values)),
    "words by place": lambda texts: _by_hand(
        texts, words=lambda split: tf.cast(tf.strings.length(split[1]) * tf.range(tf.size(split[1])), tf.float32)
    ),
    "counted behind a reverse": lambda texts: _counts(texts, lambda words: tf.reverse(words, [0])),
    "counted up to the most": lambda texts: tf.reduce_mean(
        tf.math.bincount(_lengths(texts).with_flat_values(tf.cast(_lengths(texts).flat_values, tf.int32)), axis=-1),
        axis=1,
    ),
}


@pytest.mark.parametrize("name", PROVEN)
def test_texts_stay_apart(name):
    assert _proof(PROVEN[name]).unproven is None


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_may_join_texts_is_not_proven(name):
    try:
        assert _proof(UNKNOWN[name]).unproven is not None
    except ValueError as refused:
        assert "one example changes others" in str(refused) or "how many examples" in str(refused)
