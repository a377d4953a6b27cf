"""Tests of `adaclip_tf.noise`: the draws are Gaussian, never predictable and never replayed."""

import copy
import doctest
import pickle

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from adaclip_tf import noise


def flat(draws):
    return np.concatenate([np.ravel(draw) for draw in draws])


def p_value(draws):
    return scipy.stats.kstest(draws, "norm").pvalue


def test_draws_are_standard_normal():
    draws = flat(noise.NoiseSource(seed=1).standard_normals([(100, 50), (5000,), ()], step=3))
    assert p_value(draws) > 0.01
    assert p_value(draws * 2 / 3) < 1e-6
    assert p_value(draws * 3 / 2) < 1e-6


def test_draws_over_steps_of_one_scalar_are_standard_normal_and_independent():
    """The other direction: one variable, many steps. A step that reuses a stream would show here."""
    source = noise.NoiseSource(seed=2)

    @tf.function
    def many():
        return tf.map_fn(
            lambda step: source.standard_normals([()], step)[0],
            tf.range(4000),
            fn_output_signature=tf.float32,
        )

    draws = many().numpy()
    assert p_value(draws) > 0.01
    assert p_value(draws * 2 / 3) < 1e-6
    assert p_value(draws * 3 / 2) < 1e-6
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.06
    assert len(np.unique(draws)) > 3990


def test_draws_compiled_by_xla_are_standard_normal_and_fresh():
    """XLA draws other numbers from the same key: they have to be as good."""
    source = noise.NoiseSource(seed=2)

    @tf.function(jit_compile=True)
    def compiled():
        return source.fresh_normals([(5000,)])[0]

    one, two = compiled().numpy(), compiled().numpy()
    assert p_value(np.concatenate([one, two])) > 0.01
    assert p_value(one * 2 / 3) < 1e-6
    assert p_value(one * 3 / 2) < 1e-6
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.07


def test_variables_of_one_step_do_not_share_a_stream():
    one, two = noise.NoiseSource(seed=1).standard_normals([(1000,), (1000,)], step=0)
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.15


def test_shapes_and_dtype():
    draws = noise.NoiseSource().standard_normals([(2, 3), (), (0,)], step=0)
    assert [draw.shape.as_list() for draw in draws] == [[2, 3], [], [0]]
    assert {draw.dtype for draw in draws} == {tf.float32}


def test_ordinary_seeds_do_not_reach_the_key():
    def draw():
        tf.random.set_seed(0)
        tf.keras.utils.set_random_seed(0)
        return flat(noise.NoiseSource().standard_normals([(8,)], step=0))

    assert np.abs(draw() - draw()).min() > 0


def test_the_test_seed_repeats_and_different_seeds_differ():
    def draw(seed):
        return flat(noise.NoiseSource(seed).standard_normals([(8,)], step=5))

    np.testing.assert_array_equal(draw(7), draw(7))
    assert np.abs(draw(7) - draw(8)).min() > 0


def test_fresh_draws_never_repeat_in_eager_mode_graphs_and_loops():
    source = noise.NoiseSource(seed=1)

    @tf.function
    def graph():
        return source.fresh_normals([()])[0]

    @tf.function
    def loop():
        seen = tf.TensorArray(tf.float32, 3)
        for i in tf.range(3):
            seen = seen.write(i, source.fresh_normals([()])[0])
        return seen.stack()

    draws = [*flat(source.fresh_normals([()])), *flat(source.fresh_normals([()])), graph(), graph(), *loop()]
    assert len({float(draw) for draw in draws}) == 7


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])  # noqa: S301
def test_a_copy_has_a_key_of_its_own(copied):
    source = noise.NoiseSource()
    other = copied(source)
    same_step = [flat(s.standard_normals([(8,)], step=0)) for s in (source, other)]
    assert np.abs(same_step[0] - same_step[1]).min() > 0


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


def test_docstring_examples():
    assert doctest.testmod(noise).failed == 0
