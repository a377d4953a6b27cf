"""Rows from data as people have it: tables, columns of words, records on disk."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.data import rows, sampling

N = 12


class Column:
    """What is used of a pandas Series: indexed by label, so asked for its array."""

    def __init__(self, values):
        self._values = np.asarray(values)
        self.shape, self.dtype = self._values.shape, "whatever"

    def __getitem__(self, label):
        raise AssertionError("by label")

    def to_numpy(self):
        return self._values


class Frame:
    """What is used of a pandas DataFrame."""

    def __init__(self, **columns):
        self.columns, self._columns = list(columns), columns

    def __len__(self):
        return N

    def __getitem__(self, label):
        return self._columns[label]

    def to_numpy(self):
        return np.stack([column.to_numpy() for column in self._columns.values()], axis=1)


WORDS = np.array([f"word {i}" for i in range(N)], object)


def _whole(data, **options):
    """All rows, in order."""
    (batch,) = list(sampling.poisson_batches(data, expected_batch_size=N, steps=1, **options))
    return batch


def test_a_table_of_numbers_is_one_array():
    frame = Frame(a=Column(np.arange(N)), b=Column(np.arange(N) + 0.5))
    x, y = _whole((frame, Column(np.arange(N))))
    np.testing.assert_array_equal(x, np.stack([np.arange(N), np.arange(N) + 0.5], axis=1))
    np.testing.assert_array_equal(y, np.arange(N))


def test_columns_are_an_input_each_and_words_are_strings():
    inputs = _whole({"number": Column(np.arange(N)), "word": Column(WORDS)})
    assert inputs["word"].dtype == tf.string
    assert [word.decode() for word in inputs["word"].numpy()] == list(WORDS)
    np.testing.assert_array_equal(inputs["number"], np.arange(N))
    assert _whole(WORDS.astype(str)).dtype == tf.string  # of a fixed width


def test_an_empty_batch_of_words():
    batches = list(sampling.poisson_batches(WORDS, expected_batch_size=1, steps=20, seed=0))
    assert 0 in [len(batch) for batch in batches]
    assert all(batch.dtype == tf.string for batch in batches)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (Frame(a=Column(np.arange(N)), b=Column(WORDS)), r"`dict\(frame\)`, an input for each column"),
        (Column(np.array([*WORDS[1:], None], object)), "'NoneType'. Missing values"),
        (np.array([*WORDS[1:], np.nan], object), "'float'. Missing values"),
        (np.arange(N).astype("datetime64[D]"), "got times, dtype"),
        (np.array([object()] * N), "Python objects"),
    ],
)
def test_what_is_neither_number_nor_word_is_named(data, says):
    with pytest.raises(ValueError, match=says):
        sampling.poisson_batches(data, expected_batch_size=2)


class Source:
    """Records on disk, as seen from here."""

    def __init__(self):
        self.read = []

    def __len__(self):
        return N

    def __getitem__(self, index):
        self.read.append(index)
        return {"x": np.full([2], index, np.float32)}, index


def test_records_are_read_when_they_are_drawn():
    source = Source()
    batches = sampling.poisson_batches(source, expected_batch_size=3, steps=4, seed=1)
    drawn = [label.numpy().tolist() for _, label in batches]
    assert source.read == [0, *(index for batch in drawn for index in batch)]  # the first says what they are like
    x, y = _whole(source)
    np.testing.assert_array_equal(x["x"][:, 0], y.numpy())


def test_the_number_of_examples_is_that_of_the_data():
    for data in (Source(), np.zeros(N)):
        with pytest.raises(ValueError, match=f"must be {N}"):
            rows.loader(data, N + 1)


def test_pandas():
    """Where it is installed."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": np.arange(N), "b": np.arange(N) / 2, "c": list(WORDS)}, index=range(100, 100 + N))
    shuffled = frame.sample(frac=1.0, random_state=0)  # labels are not positions
    x, y = _whole((shuffled[["a", "b"]], shuffled["a"]))
    np.testing.assert_array_equal(x[:, 0], y)
    np.testing.assert_array_equal(y, shuffled["a"].to_numpy())
    inputs = _whole(dict(shuffled))
    assert [word.decode() for word in inputs["c"].numpy()] == list(shuffled["c"])
    assert _whole(frame["c"].astype("category")).dtype == tf.string
    assert _whole(frame["a"].astype("Int64")).dtype == tf.int64
    with pytest.raises(ValueError, match="dict"):
        sampling.poisson_batches(frame, expected_batch_size=2)
    with pytest.raises(ValueError, match="Missing values"):
        sampling.poisson_batches(frame["c"].where(frame["a"] > 3), expected_batch_size=2)


class Batches(tf.keras.utils.Sequence):
    """What Keras trains on as it is: ten batches of three."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return np.zeros([3, 2], np.float32)


def test_batches_are_no_examples():
    """Each would be drawn, clipped and counted as one, and 30 people would hide as 10."""
    with pytest.raises(ValueError, match="`arrays` is a Batches, a Keras `Sequence` or `PyDataset`, whose items are"):
        rows.loader(Batches(), None)
