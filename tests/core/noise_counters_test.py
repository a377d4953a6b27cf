"""No two draws of a `NoiseSource` share a block of the generator: by arithmetic on the counters that it hands out.

The counters are those of the real source, `_take`, which `fresh_normals` uses; what an op makes of them is checked
against another implementation of Philox.
"""

import threading

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.core import noise
from tests.core import philox

VARIABLES = 1000


def _sizes(seed):
    """Of 1000 variables: empty ones, scalars, odd ones, one of 10^12 numbers."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 12, VARIABLES) ** rng.integers(1, 6, VARIABLES)
    return [*sizes.tolist()[:-1], 10**12]


def _calls(number, terms, jit_compile=None):
    """`number` calls for variables of four sets of sizes in turn: the state before and after, counters, sizes.

    The lower half of the counter runs over within the first call, between its variables.
    """
    source = noise.NoiseSource(seed=1, terms=terms)
    source._state.assign([-(10**6), *source._state.numpy()[1:]])
    before = source._state.numpy().view(np.uint64)

    def call(sizes):
        starts, blocks = noise.layout(sizes, terms)
        take = tf.function(lambda: source._take(starts.ravel(), blocks)[1], jit_compile=jit_compile)
        return lambda: take().numpy().reshape([*starts.shape, 2])

    sizes = [_sizes(seed) for seed in range(4)]
    functions = [call(s) for s in sizes]
    found = np.stack([functions[i % 4]() for i in range(number)])
    return before, source._state.numpy().view(np.uint64), found, np.array([sizes[i % 4] for i in range(number)])


def _overlaps(before, after, counters, sizes):
    """How many of the ranges (calls, variables, terms) begin before their predecessor ends."""
    # Counted from the first one, in whole numbers of 64 bits: the upper half has to follow the lower one's overflow.
    offsets = counters[..., 0] - before[0]
    np.testing.assert_array_equal(counters[..., 1], before[1] + (counters[..., 0] < before[0]).astype(np.uint64))
    lengths = ((sizes + 1) // 2).astype(np.uint64)  # two numbers take a block
    lengths = np.broadcast_to(lengths[:, :, None], offsets.shape)
    used = lengths.ravel() > 0
    starts, lengths = offsets.ravel()[used], lengths.ravel()[used]
    order = np.argsort(starts, kind="stable")
    ends = starts[order] + lengths[order]
    assert (ends >= starts[order]).all()
    return np.count_nonzero(starts[order][1:] < ends[:-1]) + int(ends[-1] > (int(after[0]) - int(before[0])) % 2**64)


@pytest.fixture(scope="module")
def million():
    return _calls(1000, terms=1)


def test_a_million_pairs_of_call_and_variable_have_blocks_of_their_own(million):
    before, after, counters, _ = million
    assert counters.shape == (1000, VARIABLES, 1, 2)
    assert after[1] == before[1] + np.uint64(1)  # the carry was met
    run_over = counters[0, :, 0, 0] < before[0]
    assert run_over.any() and not run_over.all()  # by variables of the first call, too
    assert _overlaps(*million) == 0


@pytest.mark.parametrize("call", [0, 1, 998, 999])
def test_one_range_that_begins_a_block_too_early_is_found_out(million, call):
    """The negative control: a variable whose predecessor uses all of its own range."""
    before, after, counters, sizes = million
    counters = counters.copy()
    variable = 1 + np.flatnonzero((sizes[call, 1:] > 0) & (sizes[call, :-1] > 0) & (sizes[call, :-1] % 16 == 0))[0]
    counters[call, variable, 0, 0] -= np.uint64(1)
    assert _overlaps(before, after, counters, sizes) > 0


@pytest.mark.parametrize("jit_compile", [None, True])
def test_terms_and_xla_have_blocks_of_their_own(jit_compile):
    found = _calls(8, terms=3, jit_compile=jit_compile)
    assert found[2].shape == (8, VARIABLES, 3, 2)
    assert _overlaps(*found) == 0


def test_layout_has_no_gaps():
    """Rows of 8 blocks from 0 on, in the order of variables and terms."""
    starts, blocks = noise.layout([17, 0, 1, 16], terms=2)
    assert starts.tolist() == [[0, 16], [32, 32], [32, 40], [48, 56]]
    assert blocks == 64
    assert noise.layout([], terms=1)[1] == 0
    assert noise.layout([10**15 + 1], terms=4)[1] == 4 * (5 * 10**14 + 8)


@pytest.mark.parametrize("jit_compile", [None, True])
@pytest.mark.parametrize("many", [1, 2**15])
@pytest.mark.parametrize(("before_overflow", "together"), [(1, 1), (2, 2**24), (7, 1), (9, 2**24), (1000, 1)])
def test_draws_where_the_lower_half_of_the_counter_overflows(before_overflow, together, many, jit_compile, monkeypatch):
    """The carry, in the op that moves on, in `_advance`, in the op that fills and in `core.philox`.

    `_advance` moves on from one group of draws to the next: there is one group, or each draw is its own.
    """
    monkeypatch.setattr(noise, "_MANY", many)
    monkeypatch.setattr(noise, "_TOGETHER", together)
    source = noise.NoiseSource()
    high, key = 2**64 - 5, 12345
    source._state.assign(np.array([2**64 - before_overflow, high, key], np.uint64).view(np.int64))
    function = tf.function(lambda: source.fresh_normals([(9,), (14,)]), jit_compile=jit_compile)
    start = 2**64 * high + 2**64 - before_overflow
    for _ in range(2):
        one, two = function()
        np.testing.assert_allclose(one, philox.draws(key, start, 9), rtol=1e-5, atol=3e-6)
        np.testing.assert_allclose(two, philox.draws(key, start + 8, 14), rtol=1e-5, atol=3e-6)
        start += 256 * (8 + 8)


def test_a_hundred_thousand_draws_differ():
    """Draws, not counters: 5000 steps of 20 variables of 4 numbers, in a loop. One source, all steps of one key."""
    source = noise.NoiseSource()

    @tf.function
    def loop():
        steps = tf.TensorArray(tf.float32, 5000, element_shape=[20, 4])
        for i in tf.range(5000):
            steps = steps.write(i, tf.stack(source.fresh_normals(20 * [(4,)])))
        return steps.stack()

    draws = loop().numpy().reshape(-1, 4)
    assert len(np.unique(draws, axis=0)) == 100_000
    draws[77_777] = draws[3]
    assert len(np.unique(draws, axis=0)) == 99_999


def _in_threads(draw, threads=4, calls=250):
    found = [[] for _ in range(threads)]
    start = threading.Barrier(threads)

    def work(mine):
        start.wait()
        mine.extend(draw().numpy().tobytes() for _ in range(calls))

    workers = [threading.Thread(target=work, args=(mine,)) for mine in found]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return [draws for mine in found for draws in mine]


@pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
def test_threads_do_not_share_draws(mode):
    """Where a counter is read in one op and moved in another, threads repeat each other's noise."""
    source = noise.NoiseSource()

    def draw():
        return source.fresh_normals([(4,)])[0]

    if mode != "eager":
        draw = tf.function(draw, jit_compile=mode == "xla")
        draw()
    draws = _in_threads(draw)
    assert len(draws) == 1000
    assert len(set(draws)) == 1000
