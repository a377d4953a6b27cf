"""Tests of `adaclip_tf.core.noise`: the draws are Gaussian, never predictable and never replayed."""

import copy
import doctest
import functools
import json
import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from adaclip_tf.core import noise

ROOT = pathlib.Path(__file__).parents[2]


def flat(draws):
    return np.concatenate([np.ravel(draw) for draw in draws])


def key_of(source):
    """Its secret numbers; the first number of its state counts."""
    return source._state.numpy()[1:]


def p_value(draws):
    return scipy.stats.kstest(draws, "norm").pvalue


def test_draws_are_standard_normal():
    draws = flat(noise.NoiseSource(seed=1).fresh_normals([(100, 50), (5000,), ()]))
    assert p_value(draws) > 0.01
    assert p_value(draws * 2 / 3) < 1e-6
    assert p_value(draws * 3 / 2) < 1e-6


def test_draws_over_steps_of_one_scalar_are_standard_normal_and_independent():
    """The other direction: one variable, many steps. A step that reuses words would show here."""
    source = noise.NoiseSource(seed=2)

    @tf.function
    def many():
        return tf.map_fn(lambda _: source.fresh_normals([()])[0], tf.range(4000), fn_output_signature=tf.float32)

    draws = many().numpy()
    assert p_value(draws) > 0.01
    assert p_value(draws * 2 / 3) < 1e-6
    assert p_value(draws * 3 / 2) < 1e-6
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.06
    assert len(np.unique(draws)) > 3990


@pytest.mark.parametrize("many", [1, 2**15])
def test_draws_compiled_by_xla_are_standard_normal_and_fresh(many, monkeypatch):
    """And they are those of eager mode, but for rounding: XLA has its own logarithm, sine and cosine."""
    monkeypatch.setattr(noise, "_MANY", many)
    source, twin = noise.NoiseSource(seed=2), noise.NoiseSource(seed=2)

    @tf.function(jit_compile=True)
    def compiled():
        return source.fresh_normals([(5000,)])[0]

    one, two = compiled().numpy(), compiled().numpy()
    for draws in (one, two):
        np.testing.assert_allclose(draws, twin.fresh_normals([(5000,)])[0], rtol=1e-4, atol=5e-6)
    assert p_value(np.concatenate([one, two])) > 0.01
    assert p_value(one * 2 / 3) < 1e-6
    assert p_value(one * 3 / 2) < 1e-6
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.07


def test_variables_of_one_step_do_not_share_words():
    """Neither radii nor angles: draws of one radius and other angles are not correlated, but their squares are."""
    one, two = (draw.numpy() for draw in noise.NoiseSource(seed=1).fresh_normals([(1000,), (1000,)]))
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.15
    assert abs(np.corrcoef(one**2, two**2)[0, 1]) < 0.15


@pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
@pytest.mark.parametrize(("terms", "many"), [(1, 1), (2, 1), (2, 2**15)])
def test_shapes_and_dtype(terms, many, mode, monkeypatch):
    monkeypatch.setattr(noise, "_MANY", many)
    shapes = [(2, 3), (), (0,), (1,), (3, 0, 2), (3, 3), tf.TensorShape([5])]
    source = noise.NoiseSource(terms=terms)
    for wanted in (shapes, [], [(0,)]):
        function = functools.partial(source.fresh_normals, wanted)
        draws = function() if mode == "eager" else tf.function(function, jit_compile=mode == "xla")()
        assert [draw.shape.as_list() for draw in draws] == [list(shape) for shape in wanted]
        assert {draw.dtype for draw in draws} <= {tf.float32}
        values = np.concatenate([np.ravel(draw) for draw in draws]) if draws else np.array([])
        assert np.isfinite(values).all()
        assert len(np.unique(values)) == values.size


def test_a_shape_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match=r"`shapes` must be fully known.*\(None, 3\).*Give every"):
        noise.NoiseSource().fresh_normals([(2,), tf.TensorShape([None, 3])])


def test_ordinary_seeds_do_not_reach_the_key():
    def draw():
        tf.random.set_seed(0)
        tf.keras.utils.set_random_seed(0)
        return flat(noise.NoiseSource().fresh_normals([(8,)]))

    assert np.abs(draw() - draw()).min() > 0


def test_the_test_seed_repeats_and_different_seeds_differ():
    def draw(seed):
        return flat(noise.NoiseSource(seed).fresh_normals([(8,)]))

    np.testing.assert_array_equal(draw(7), draw(7))
    assert np.abs(draw(7) - draw(8)).min() > 0


def test_fresh_draws_never_repeat_in_eager_mode_graphs_and_loops():
    source = noise.NoiseSource(seed=1)

    def graph():
        return source.fresh_normals([()])[0]

    def loop():
        seen = tf.TensorArray(tf.float32, 3)
        for i in tf.range(3):
            seen = seen.write(i, source.fresh_normals([()])[0])
        return seen.stack()

    def branch():
        return tf.cond(tf.random.uniform([]) >= 0.0, graph, lambda: tf.zeros([]))

    draws = [*flat(source.fresh_normals([()])), *flat(source.fresh_normals([()]))]
    for jit_compile in (None, True):
        for function, size in ((graph, 1), (branch, 1), (loop, 3)):
            compiled = tf.function(function, jit_compile=jit_compile)
            draws += [*np.ravel(compiled()), *np.ravel(compiled())]
            assert compiled().numpy().size == size
    assert len(draws) == 22
    assert len({float(draw) for draw in draws}) == 22


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])  # noqa: S301
def test_a_copy_has_a_key_of_its_own(copied):
    source = noise.NoiseSource()
    other = copied(source)
    first = [flat(s.fresh_normals([(8,)])) for s in (source, other)]
    assert np.abs(first[0] - first[1]).min() > 0


def test_the_key_stays_out_of_checkpoints(tmp_path):
    module = tf.Module()
    module.weight = tf.Variable(1.0)
    module.noise = noise.NoiseSource()
    path = tf.train.Checkpoint(module).save(tmp_path / "checkpoint")
    names = [name for name, _ in tf.train.list_variables(path)]
    assert any("weight" in name for name in names)
    assert not any("noise" in name for name in names)


def test_a_source_made_inside_a_function_is_a_variable_outside_it():
    holder = []

    @tf.function
    def trace():
        if not holder:
            holder.append(noise.NoiseSource(seed=1))
        return holder[0].fresh_normals([()])[0]

    assert float(trace()) != float(trace())


@pytest.mark.parametrize("terms", [2, 4])
def test_sums_of_several_draws_are_standard_normal_and_fresh(terms):
    source = noise.NoiseSource(seed=1, terms=terms)
    one, two = (flat(source.fresh_normals([(100, 50), (5000,)])) for _ in range(2))
    assert p_value(one) > 0.01
    assert p_value(one * 2 / 3) < 1e-6
    assert p_value(one * 3 / 2) < 1e-6
    for x, y in ((one, two), (one[:5000], one[5000:])):
        assert abs(np.corrcoef(x, y)[0, 1]) < 0.07
    np.testing.assert_array_equal(one, flat(copy.deepcopy(source).fresh_normals([(100, 50), (5000,)])))


def test_sums_of_several_draws_are_sums_of_draws_that_differ(monkeypatch):
    """If all terms had one counter, the sum would be sqrt(n) times a draw. With constant draws the scaling shows."""
    source, seen = noise.NoiseSource(seed=1, terms=3), []

    def constant(numbers, key, counter):
        seen.append((tuple(counter.numpy()), tuple(key.numpy())))
        return [tf.ones([number]) for number in numbers]

    monkeypatch.setattr(noise, "_draw", constant)
    monkeypatch.setattr(noise, "_TOGETHER", 1)  # each has its own
    (draw,) = source.fresh_normals([(2,)])
    np.testing.assert_allclose(draw, np.sqrt(3) * np.ones(2), rtol=1e-6)
    assert len(set(seen)) == 3
    assert len({key for _, key in seen}) == 1


# Processes. They run in programs of their own: a fork of the tests' process would copy its threads' locks.

_FORKS = """
import json, multiprocessing, os, signal
import tensorflow as tf
from adaclip_tf import AdaClipSumQuery
from adaclip_tf.core import noise

sources = {"used": noise.NoiseSource(), "unused": noise.NoiseSource(), "seeded": noise.NoiseSource(seed=1)}
query = AdaClipSumQuery(tf.TensorSpec([4]), noise_multiplier=1.0, expected_num_records=4.0)
sources["used"].fresh_normals([(4,)])

def draw(name):
    signal.alarm(60)  # instead of hanging for ever
    draws = {key: source.fresh_normals([(4,)])[0].numpy().tolist() for key, source in sources.items()}
    result, _, _ = query.get_noised_result(query.initial_sample_state(), query.initial_global_state())
    draws["query"] = [1e6 * value for value in result.numpy().tolist()]
    return name, draws

def fork(name, then):
    read, write = os.pipe()
    if not os.fork():
        with os.fdopen(write, "w") as pipe:
            json.dump(then(name), pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        return json.load(pipe)

def child_and_grandchild(name):
    return [fork("grandchild", draw), draw(name)]

found = fork("child", child_and_grandchild)
with multiprocessing.get_context("fork").Pool(1) as pool:
    found += pool.map(draw, ["pool"])
print(json.dumps(dict([*found, draw("parent")])))
"""


def _start(program, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT)


@pytest.mark.slow
def test_processes_do_not_share_noise():
    """Two programs started at the same time, and in each a parent, a child, a grandchild and a pool's worker."""
    programs = [_start(_FORKS) for _ in range(2)]
    draws = [json.loads(program.communicate()[0]) for program in programs]
    assert all(set(found) == {"parent", "child", "grandchild", "pool"} for found in draws)
    for kind in ("used", "unused", "query"):
        values = [value for found in draws for process in found.values() for value in process[kind]]
        assert len(values) == 32
        assert len(set(values)) == 32, f"{kind} repeats"
    # Negative control, and what the docstring says of seeds: these repeat everywhere.
    assert len({tuple(process["seeded"]) for found in draws for process in found.values()}) == 1


def test_the_hook_that_runs_at_a_fork_touches_python_alone(monkeypatch):
    """Any TensorFlow op in it can hang, in data loaders too: see the table at the top of `adaclip_tf.core.noise`."""
    source = noise.NoiseSource()
    key = key_of(source)
    monkeypatch.setattr(noise, "_forks", noise._forks)
    noise._count_fork()
    np.testing.assert_array_equal(key_of(source), key)
    source.fresh_normals([()])
    assert (key_of(source) != key).all()
    key = key_of(source)
    source.fresh_normals([()])  # once per process is enough
    np.testing.assert_array_equal(key_of(source), key)


def test_a_function_traced_in_a_new_process_takes_a_new_key(monkeypatch):
    source = noise.NoiseSource()
    key = key_of(source)
    monkeypatch.setattr(noise, "_forks", noise._forks + 1)
    tf.function(lambda: source.fresh_normals([()])[0])()
    assert (key_of(source) != key).all()


_WHAT_A_FORKED_CHILD_CAN_DO = """
import os, signal, sys
from adaclip_tf.core import noise
import tensorflow as tf

what = sys.argv[1]
source = noise.NoiseSource()
function = tf.function(lambda: source.fresh_normals([(4,)])[0], jit_compile=what == "xla")
if what == "traced":
    function()
child = os.fork()
if not child:
    signal.alarm(int(sys.argv[2]))
    (source.fresh_normals([(4,)]) if what == "eager" else function())
    os._exit(0)
print(os.WTERMSIG(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("what", "hangs"), [("eager", False), ("traced", True), ("fresh", True), ("xla", False)])
def test_what_tensorflow_can_do_in_a_forked_child(what, hangs):
    """The table at the top of `adaclip_tf.core.noise`. Should a row change, the design there has to be thought over."""
    seconds = 10 if hangs else 600  # what works is not told by how long it takes on a busy machine
    signal = int(_start(_WHAT_A_FORKED_CHILD_CAN_DO, what, str(seconds)).communicate()[0])
    assert signal == (14 if hangs else 0)


def test_docstring_examples():
    assert doctest.testmod(noise).failed == 0


def test_streams_of_one_seed_have_keys_of_their_own():
    """Replicas share a seed and differ by stream: equal noise on two of them would add up to twice its share."""
    draws = [noise.NoiseSource(3, stream).fresh_normals([(50,)])[0].numpy() for stream in (0, 1, 2)]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not np.any(draws[one] == draws[other])
