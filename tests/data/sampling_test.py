"""Tests of `poisson_batches`: the sampling law, and that `fit` takes what comes out."""

import math

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from adaclip_tf.data import sampling
from adaclip_tf.optimizers import adaclip


def rows(batches):
    """The row numbers in each batch of a dataset whose only array is np.arange(n)."""
    return [batch.numpy().tolist() for batch in batches]


def inclusion(draws, n):
    """[steps, n] matrix of zeros and ones."""
    included = np.zeros((len(draws), n))
    for step, drawn in enumerate(draws):
        included[step, drawn] = 1.0
    return included


def law_p_values(included, probability):
    """p-values of the Poisson law: marginals, sizes, pairs of examples, one example in consecutive steps."""
    steps, n = included.shape
    variance = probability * (1 - probability)
    counts = included.sum(axis=0)
    marginals = scipy.stats.chi2.sf(((counts - steps * probability) ** 2 / (steps * variance)).sum(), n)
    sizes = included.sum(axis=1)
    spread = scipy.stats.chi2.cdf(((sizes - n * probability) ** 2 / (n * variance)).sum(), steps)
    centred = (included - probability) / math.sqrt(variance)
    # Sums over all pairs of products of independent standardised variables: mean 0, variance known.
    pairs = (centred.sum(axis=1) ** 2 - (centred**2).sum(axis=1)).sum() / math.sqrt(2.0 * n * (n - 1) * steps)
    repeats = (centred[1:] * centred[:-1]).sum() / math.sqrt(n * (steps - 1))
    return {
        "marginals": marginals,
        "sizes": 2 * min(spread, 1 - spread),
        "pairs": 2 * scipy.stats.norm.sf(abs(pairs)),
        "repeats": 2 * scipy.stats.norm.sf(abs(repeats)),
    }


N, SIZE, STEPS = 40, 8, 4000


def test_sampling_law():
    batches = sampling.poisson_batches(np.arange(N), expected_batch_size=SIZE, steps=STEPS, seed=1)
    p_values = law_p_values(inclusion(rows(batches), N), SIZE / N)
    assert min(p_values.values()) > 1e-3, p_values


def test_sampling_law_rejects_other_samplings(rng):
    def p_values(draws):
        return law_p_values(inclusion(draws, N), SIZE / N)

    shuffled = [batch for _ in range(STEPS * SIZE // N) for batch in rng.permutation(N).reshape(-1, SIZE)]
    assert p_values(shuffled)["pairs"] < 1e-6  # fixed size: one in, another out
    assert p_values(shuffled)["sizes"] < 1e-6
    assert p_values(shuffled)["repeats"] < 1e-6  # without replacement within an epoch
    too_rare = [np.flatnonzero(rng.random(N) < 0.19) for _ in range(STEPS)]
    assert p_values(too_rare)["marginals"] < 1e-6
    in_blocks = [np.repeat(rng.random(N // 2) < SIZE / N, 2).nonzero()[0] for _ in range(STEPS)]
    assert p_values(in_blocks)["pairs"] < 1e-6


def test_parts_of_a_logical_batch_are_one_draw():
    options = {"expected_batch_size": 20, "steps": 30, "seed": 4}
    whole = rows(sampling.poisson_batches(np.arange(50), **options))
    parts = sampling.poisson_batches(np.arange(50), **options, accumulation_steps=3)
    assert parts.cardinality() == 90
    parts = rows(parts)
    assert [[*a, *b, *c] for a, b, c in zip(parts[::3], parts[1::3], parts[2::3])] == whole  # so nobody is in two parts
    assert max(len(part) for part in parts) <= max(len(batch) for batch in whole) / 3 + 1


def test_every_row_is_drawn_at_most_once_and_in_order():
    for drawn in rows(sampling.poisson_batches(np.arange(50), expected_batch_size=25, steps=40, seed=3)):
        assert drawn == sorted(set(drawn))


def test_the_whole_data_set_as_a_batch():
    assert rows(sampling.poisson_batches(np.arange(5), expected_batch_size=5, steps=2)) == [[0, 1, 2, 3, 4]] * 2


# ---------------------------------------------------------------------------------------------------
# Randomness.


def test_each_iteration_is_fresh_and_seeded_ones_repeat():
    def make(seed):
        return sampling.poisson_batches(np.arange(100), expected_batch_size=20, steps=5, seed=seed)

    batches, again = make(7), make(7)
    first, second = rows(batches), rows(batches)
    assert first != second
    assert (first, second) == (rows(again), rows(again))
    assert first != rows(make(8))


def test_ordinary_seeds_have_no_effect():
    drawn = []
    for _ in range(2):
        np.random.seed(0)
        tf.random.set_seed(0)
        drawn.append(rows(sampling.poisson_batches(np.arange(100), expected_batch_size=20, steps=5)))
    assert drawn[0] != drawn[1]


# ---------------------------------------------------------------------------------------------------
# Structures and sources.


def test_structures_keep_their_rows_together():
    x = np.arange(60, dtype=np.float32).reshape(30, 2)
    arrays = ({"a": x, "b": tf.constant(x[:, :1])}, np.arange(30), list(range(30)))
    batches = sampling.poisson_batches(arrays, expected_batch_size=6, steps=20, seed=0)
    assert batches.element_spec[0]["a"] == tf.TensorSpec([None, 2], tf.float32)
    assert batches.element_spec[1] == tf.TensorSpec([None], tf.int64)
    assert batches.cardinality() == 20
    for inputs, label, weight in batches:
        np.testing.assert_array_equal(inputs["a"][:, 0], 2.0 * label.numpy())
        np.testing.assert_array_equal(inputs["b"][:, 0], 2.0 * label.numpy())
        np.testing.assert_array_equal(weight, label)


def test_one_epoch_is_the_default_length():
    assert sampling.poisson_batches(np.arange(31), expected_batch_size=10).cardinality() == 4


class Indexed:
    """An array on disk, as seen from here: it notes which rows were read."""

    def __init__(self, array):
        self.array, self.shape, self.dtype, self.read = array, array.shape, array.dtype, 0

    def __getitem__(self, indices):
        assert isinstance(indices, np.ndarray)
        assert np.all(np.diff(indices) > 0)
        self.read += len(indices)
        return self.array[indices]


def test_only_the_rows_that_were_drawn_are_read():
    source = Indexed(np.arange(1000))
    drawn = rows(sampling.poisson_batches(source, expected_batch_size=10, steps=10, seed=0))
    assert source.read == 1 + sum(len(batch) for batch in drawn)  # one row tells the shape


def test_memory_map_and_loader(tmp_path):
    array = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=np.float32, shape=(100, 3))
    array[:] = np.arange(300).reshape(100, 3)
    by_map = sampling.poisson_batches(np.load(tmp_path / "x.npy", mmap_mode="r"), expected_batch_size=9, seed=5)
    by_loader = sampling.poisson_batches(
        lambda indices: array[indices], num_examples=100, expected_batch_size=9, seed=5
    )
    for one, other in zip(by_map, by_loader):
        np.testing.assert_array_equal(one, other)


def test_arrays_are_held_not_copied():
    x = np.zeros((60000, 784), np.float32)
    batches = sampling.poisson_batches((x, np.zeros(60000)), expected_batch_size=600, steps=2)
    x += 1.0  # a copy, in the graph or beside it, would not notice
    assert all(np.all(images == 1.0) for images, _ in batches)


@pytest.mark.parametrize(
    "arrays,options,message",
    [
        ((np.zeros(3), np.zeros(4)), {}, r"\[3, 4\]"),
        (np.zeros((0, 2)), {}, "1 or more"),
        (np.zeros(()), {}, "scalar"),
        (np.zeros(5), {"expected_batch_size": 6}, "at most the number of examples, 5"),
        (np.zeros(5), {"expected_batch_size": 0}, "expected_batch_size"),
        (np.zeros(5), {"steps": 0}, "steps"),
        (np.zeros(5), {"num_examples": 6}, "num_examples"),
        (lambda indices: indices, {}, "num_examples"),
    ],
)
def test_bad_arguments_are_named(arrays, options, message):
    with pytest.raises(ValueError, match=message):
        sampling.poisson_batches(arrays, **{"expected_batch_size": 2, **options})


def test_a_loader_that_returns_other_rows_is_refused():
    batches = sampling.poisson_batches(lambda _: np.zeros(1), num_examples=9, expected_batch_size=8, steps=3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="asked for"):
        list(batches)
    with pytest.raises(ValueError, match="returned no array"):
        sampling.poisson_batches(lambda _: np.zeros(()), num_examples=9, expected_batch_size=8)


@pytest.mark.parametrize(
    ("size", "parts", "switch", "warns"),
    [(1, 1, "1", True), (1, 1, "0", False), (64, 1, "1", False), (64, 32, None, True)],
)
def test_empty_batches_are_announced_where_convolutions_fail_on_them(size, parts, switch, warns, monkeypatch):
    said = []
    monkeypatch.setattr(sampling.logging, "log_first_n", lambda level, text, *rest: said.append(text))
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    if switch is not None:
        monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", switch)
    sampling.poisson_batches(np.zeros(100), expected_batch_size=size, accumulation_steps=parts)
    assert bool(said) == warns
    assert all("TF_ENABLE_ONEDNN_OPTS=0" in text for text in said)


# ---------------------------------------------------------------------------------------------------
# Keras.


def test_fit_without_retracing_and_with_empty_batches(rng):
    n, steps = 30, 25
    x, y = rng.normal(size=(n, 4)).astype(np.float32), rng.integers(0, 3, n)
    traces = []

    class Model(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = tf.keras.layers.Dense(3)

        def call(self, inputs):
            traces.append(inputs.shape)
            return self.dense(inputs)

    batches = sampling.poisson_batches((x, y), expected_batch_size=2, steps=steps, seed=0)
    assert 0 in [len(labels) for _, labels in batches]
    model = Model()
    model.compile(
        adaclip.DPAdaClipSGD(0.1, noise_multiplier=1.0, expected_batch_size=2),
        # Without a reduction, Keras 3 shows NaN as the loss of an empty batch.
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    history = model.fit(batches, epochs=3, verbose=0).history
    assert int(model.optimizer.noised_steps) == 3 * steps
    assert np.isfinite(history["loss"]).all()
    assert all(np.isfinite(weight).all() for weight in model.get_weights())
    after_first = len(traces)
    model.fit(batches, epochs=2, verbose=0)
    assert len(traces) == after_first
    assert {shape[0] for shape in traces} == {None}


def test_a_strategy_gets_whole_batches_unless_it_asks_for_parts():
    """q = 1: every example is in every logical batch."""
    strategy, x = tf.distribute.OneDeviceStrategy("CPU:0"), np.arange(6.0)
    for arguments, sizes in (({}, [6, 6]), ({"accumulation_steps": 2}, [3, 3])):
        batches = sampling.distributed_poisson_batches(strategy, (x,), expected_batch_size=6, **arguments)
        assert [len(element[0]) for element, _ in zip(batches, range(2))] == sizes
