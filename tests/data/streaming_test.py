"""Poisson batches of a dataset that does not fit into memory."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import PrivacyBudget
from adaclip_tf.data import sampling, streaming
from tests.data import sampling_test


def _numbers(n):
    return tf.data.Dataset.range(n)


@pytest.fixture
def small(monkeypatch):
    """Room for five batches of 8 examples, in chunks of 7."""
    monkeypatch.setattr(streaming, "EXAMPLES_IN_MEMORY", 40)
    monkeypatch.setattr(streaming, "_CHUNK", 7)


def test_sampling_law(small):
    n, size, steps = sampling_test.N, sampling_test.SIZE, 2000
    batches = sampling.poisson_batches(_numbers(n), expected_batch_size=size, steps=steps, seed=1)
    drawn = sampling_test.rows(batches)
    p_values = sampling_test.law_p_values(sampling_test.inclusion(drawn, n), size / n)
    assert min(p_values.values()) > 1e-3, p_values
    assert all(batch == sorted(set(batch)) for batch in drawn)


def test_it_is_the_draw_of_an_array(small):
    """The same seed draws the same rows, in passes of five steps, in parts too."""
    options = {"expected_batch_size": 8, "steps": 13, "seed": 3, "accumulation_steps": 2}
    data = tf.data.Dataset.from_tensor_slices({"x": np.arange(50.0), "y": np.arange(50).astype(str)})
    by_stream = list(sampling.poisson_batches(data, **options))
    by_array = list(sampling.poisson_batches({"x": np.arange(50.0), "y": np.arange(50).astype(str)}, **options))
    assert len(by_stream) == len(by_array) == 26
    for one, other in zip(by_stream, by_array):
        np.testing.assert_array_equal(one["x"], other["x"])
        np.testing.assert_array_equal(one["y"], other["y"])


def test_passes_are_as_few_as_memory_allows(small):
    passes = []

    def generate():
        passes.append(1)
        yield from range(50)

    data = tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec([], tf.int64))
    batches = sampling.poisson_batches(data, num_examples=50, expected_batch_size=8, steps=10, seed=0)
    assert len(passes) == 1  # the first example says what they are like
    assert len(list(batches)) == 10
    assert len(passes) == 1 + 2


def test_the_budget_knows_how_they_were_drawn():
    batches = sampling.poisson_batches(_numbers(100), expected_batch_size=10)
    assert batches.cardinality() == 10
    assert PrivacyBudget.of(batches, delta=1e-3) is not None


@pytest.mark.parametrize("count", [49, 51, 200])
def test_another_number_of_examples_is_an_error(small, count):
    """Fewer or more than epsilon is counted for."""
    data = _numbers(count).filter(lambda _: True)  # which does not know how many pass
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="that `num_examples` says"):
        list(sampling.poisson_batches(data, num_examples=50, expected_batch_size=8, steps=2))


@pytest.mark.parametrize(
    ("data", "options", "says"),
    [
        (_numbers(9).filter(lambda _: True), {}, "does not know how many examples"),
        (_numbers(9).repeat(), {}, "no `repeat"),
        (_numbers(9), {"num_examples": 8}, "must be the 9 examples"),
        (_numbers(9).batch(2), {}, "`unbatch"),
        (tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1], [2, 3]])), {}, "pad sequences"),
    ],
)
def test_other_datasets_are_refused(data, options, says):
    with pytest.raises(ValueError, match=says):
        sampling.poisson_batches(data, expected_batch_size=2, **options)


def test_batches_are_no_examples():
    """Each would be drawn, clipped and counted as one."""
    examples = tf.data.Dataset.from_tensor_slices(np.zeros([30, 2], np.float32))
    cut = examples.batch(3, drop_remainder=True)
    for dataset in (cut, cut.shuffle(5).prefetch(1)):
        with pytest.raises(ValueError, match=r"a dataset of single examples; got batches of 3.*call `unbatch"):
            streaming.Stream(dataset, None)
    assert streaming.Stream(cut.unbatch(), 30).num_examples == 30
    assert streaming.Stream(cut.map(lambda window: window), None).num_examples == 10  # three rows may be one example
