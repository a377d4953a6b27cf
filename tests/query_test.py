"""Tests of `AdaClipSumQuery`: the query by itself, and inside tensorflow-privacy's own machinery."""

import collections
import doctest
import functools
import math

import dp_accounting
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from adaclip_tf import core, query
from tests import generations, oracle, tfp

Pair = collections.namedtuple("Pair", ["left", "right"])
SPEC = tf.TensorSpec([3])


def make(specs=SPEC, noise_multiplier=0.0, expected_num_records=4.0, **options):
    return query.AdaClipSumQuery(specs, noise_multiplier, expected_num_records, **options)


def draw_records(rng, count=4, size=0.05):
    return [tf.constant(size * rng.normal(0.5, 1.0, 3), tf.float32) for _ in range(count)]


def run_rounds(dp_query, rounds):
    """Runs the life cycle over a list of lists of records; returns (results, last state)."""
    state, results = dp_query.initial_global_state(), []
    for records in rounds:
        result, state = run_query(dp_query, records, state)
        results.append(result)
    return results, state


def run_query(dp_query, records, state=None):
    """One round; returns (result, state)."""
    state = dp_query.initial_global_state() if state is None else state
    params, sample = dp_query.derive_sample_params(state), dp_query.initial_sample_state(records[0])
    for record in records:
        sample = dp_query.accumulate_record(params, sample, record)
    return dp_query.get_noised_result(sample, state)[:2]


# ---------------------------------------------------------------------------------------------------
# The query by itself.


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"variance_scaling": "paper"},
        {"clamp": "after_average", "beta_2": 0.99},
        {"gamma": 0.5, "initial_std": 0.05, "h1": 1e-8, "h2": 1.0, "beta_1": 0.9},
    ],
)
def test_agrees_with_the_oracle(options, rng):
    """Three records where five are expected; the query's own noise is read from a twin with its seed."""
    noise_multiplier, expected = 0.6, 5.0
    dp_query = make(SPEC, noise_multiplier, expected, seed=11, **options)
    twin = query.noise.NoiseSource(11)
    truth = oracle.Oracle([(3,)], noise_multiplier=noise_multiplier, divisor=expected, **options)
    rounds = [draw_records(rng, count=3) for _ in range(6)]
    results, state = run_rounds(dp_query, rounds)
    for records, result in zip(rounds, results):
        normals = [n.numpy() for n in twin.fresh_normals([(3,)])]
        mean = truth.step([np.stack(records)], normals)[0]
        np.testing.assert_allclose(result, expected * mean, rtol=0, atol=1e-5 * np.abs(expected * mean).max())
    moments = state.rule_state
    np.testing.assert_allclose(moments.mean[0], truth.mean[0], atol=1e-5 * np.abs(truth.mean[0]).max())
    np.testing.assert_allclose(moments.variance[0], truth.variance[0], atol=1e-5 * np.abs(truth.variance[0]).max())


def test_three_rounds_by_hand():
    """d = 1, so b = s (gamma = 1). B = 2, no noise, beta_1 = beta_2 = 0.5, s = 4 at first, records 2 and 6.

    Round 1: a = 0, b = 4. w = 0.5 and 1.5, u = 0.5 and 1: W = 1.5, g~ = 4 * 1.5 / 2 = 3, the result 6.
             v = 2 (3 - 0)^2 = 18; s^2 = (16 + 18) / 2 = 17; m = 1.5.
    Round 2: a = 1.5, b = sqrt 17 = 4.1231. w = 0.12127 and 1.09141: W = 1.12127, g~ = 4.1231 * 1.12127 / 2 +
             1.5 = 3.81155, the result 7.62311. v = 2 (2.31155)^2 = 10.68656; s^2 = 13.84328; m = 2.65578.
    Round 3: b = 3.72066. w = -0.17625 and 0.89883, both inside: W = 0.72258, and g~ is the plain mean, 4.
    """
    dp_query = make(tf.TensorSpec([]), 0.0, 2.0, beta_1=0.5, beta_2=0.5, h1=1e-6, h2=1e4, initial_std=4.0)
    state, seen = dp_query.initial_global_state(), []
    for _ in range(3):
        result, state = run_query(dp_query, [2.0, 6.0], state)
        seen.append((float(result), float(state.rule_state.variance[0]), float(state.rule_state.mean[0])))
    np.testing.assert_allclose(seen[0], (6.0, 17.0, 1.5), rtol=1e-5)
    np.testing.assert_allclose(seen[1], (7.62311, 13.84328, 2.65578), rtol=1e-5)
    np.testing.assert_allclose(seen[2][0], 8.0, rtol=1e-5)


def test_the_event_is_one_gaussian_of_the_noise_multiplier():
    dp_query = make(SPEC, 1.25)
    state = dp_query.initial_global_state()
    _, _, event = dp_query.get_noised_result(dp_query.initial_sample_state(), state)
    assert event == dp_accounting.GaussianDpEvent(1.25)


def test_no_record_contributes_more_than_norm_one(rng):
    dp_query = make({"w": tf.TensorSpec([4]), "b": tf.TensorSpec([])}, initial_std=0.01)
    params = dp_query.derive_sample_params(dp_query.initial_global_state())
    for size in (0.0, 1e-3, 1.0, 1e10, 1e30, 3e38, np.inf, np.nan):
        record = {"w": np.float32(size * rng.normal(size=4)), "b": np.float32(size)}
        u = dp_query.preprocess_record(params, record)
        assert float(tf.linalg.global_norm(tf.nest.flatten(u))) <= 1 + 1e-5


def noise_of(dp_query, scale, rounds=1):
    """The noise of `rounds` rounds without records, in units that should be standard normal."""
    draws = []
    for _ in range(rounds):
        sample = dp_query.initial_sample_state()
        result, _, _ = dp_query.get_noised_result(sample, dp_query.initial_global_state())
        draws.append(result.numpy() / scale)
    return np.concatenate(draws)


def p_value(draws):
    return scipy.stats.kstest(draws, "norm").pvalue


def test_noise_is_gaussian_of_the_right_size():
    """a = 0 and b = s sqrt(d): the result is z s sqrt(d) N(0, I). 2/3 and 3/2 of it are rejected."""
    d, std, noise_multiplier = 2000, 0.02, 1.7
    dp_query = make(tf.TensorSpec([d]), noise_multiplier, 50.0, initial_std=std, seed=5)
    draws = noise_of(dp_query, noise_multiplier * std * math.sqrt(d), rounds=5)
    assert p_value(draws) > 0.01
    assert p_value(draws * 2 / 3) < 1e-6
    assert p_value(draws * 3 / 2) < 1e-6
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.05


def test_noise_ignores_the_global_seed():
    def draw():
        tf.random.set_seed(1)
        np.random.seed(1)
        return noise_of(make(tf.TensorSpec([8]), 1.0, initial_std=1.0), 1.0)

    assert np.abs(draw() - draw()).min() > 0


def test_noise_is_never_replayed_even_from_the_same_state():
    """A user who starts a state anew, or a traced step that never updates it, must not get old noise."""
    dp_query = make(tf.TensorSpec([8]), 1.0, seed=3)
    state = dp_query.initial_global_state()

    @tf.function
    def result():
        return dp_query.get_noised_result(dp_query.initial_sample_state(), state)[0]

    draws = [result().numpy() for _ in range(3)]
    assert len({draw.tobytes() for draw in draws}) == 3


def test_a_seed_repeats_the_noise_for_tests():
    one, two = (make(tf.TensorSpec([8]), 1.0, seed=3) for _ in range(2))
    np.testing.assert_array_equal(noise_of(one, 1.0), noise_of(two, 1.0))


STRUCTURES = {
    "leaf": (tf.TensorSpec([2]), np.array([1.0, 2.0])),
    "scalar": (tf.TensorSpec([]), 3.0),
    "list": ([tf.TensorSpec([2]), tf.TensorSpec([])], [np.array([1.0, 2.0]), 3.0]),
    "tuple": ((tf.TensorSpec([2]), tf.TensorSpec([])), (np.array([1.0, 2.0]), 3.0)),
    "dict": ({"b": tf.TensorSpec([]), "a": tf.TensorSpec([2, 2])}, {"b": 3.0, "a": np.eye(2)}),
    "namedtuple": (Pair(tf.TensorSpec([2]), tf.TensorSpec([])), Pair(np.array([1.0, 2.0]), 3.0)),
    "deep": (
        {"x": [tf.TensorSpec([1]), Pair(tf.TensorSpec([]), tf.TensorSpec([2]))]},
        {"x": [np.array([1.0]), Pair(2.0, np.array([3.0, 4.0]))]},
    ),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_nested_structures_come_back_as_they_went_in(name):
    specs, record = STRUCTURES[name]
    dp_query = make(specs, 0.0, 2.0, initial_std=100.0)
    result, _ = run_query(dp_query, [record, record])
    tf.nest.assert_same_structure(specs, result)
    for value, original in zip(tf.nest.flatten(result), tf.nest.flatten(record)):
        np.testing.assert_allclose(value, 2.0 * np.asarray(original), rtol=1e-4)


@pytest.mark.parametrize("dtype", [tf.float16, tf.float32, tf.float64])
def test_leaf_dtypes_are_kept_and_the_state_is_float32(dtype):
    specs = {"w": tf.TensorSpec([2], dtype), "b": tf.TensorSpec([], dtype)}
    record = {"w": tf.constant([1.0, 2.0], dtype), "b": tf.constant(3.0, dtype)}
    dp_query = make(specs, 0.0, 2.0, initial_std=100.0)
    result, state = run_query(dp_query, [record, record])
    assert {leaf.dtype for leaf in tf.nest.flatten(result)} == {dtype}
    assert {leaf.dtype for leaf in tf.nest.flatten(state)} == {tf.float32}
    np.testing.assert_allclose(tf.cast(result["w"], tf.float32), [2.0, 4.0], rtol=1e-3)


def test_float16_sums_are_accumulated_in_float32():
    """In float16 2048 + 1 is 2048."""
    dp_query = make(tf.TensorSpec([], tf.float16), 0.0, 1.0, initial_std=1.0)
    params = dp_query.derive_sample_params(dp_query.initial_global_state())
    one = dp_query.preprocess_record(params, tf.constant(1.0, tf.float16))
    sample = dp_query.accumulate_preprocessed_record(tf.constant(2048.0), one)
    assert float(sample) == 2049.0


def test_mixed_dtypes_side_by_side():
    specs = [tf.TensorSpec([], tf.float16), tf.TensorSpec([], tf.float64)]
    dp_query = make(specs, 0.0, 1.0, initial_std=100.0)
    result, _ = run_query(dp_query, [[tf.constant(1.0, tf.float16), tf.constant(2.0, tf.float64)]])
    assert [leaf.dtype for leaf in result] == [tf.float16, tf.float64]


def test_merging_two_sample_states_is_accumulating_into_one(rng):
    records = draw_records(rng, count=6)
    one, two = make(SPEC, 0.8, seed=2), make(SPEC, 0.8, seed=2)
    state = one.initial_global_state()
    params = one.derive_sample_params(state)

    def accumulate(dp_query, part):
        sample = dp_query.initial_sample_state()
        for record in part:
            sample = dp_query.accumulate_record(params, sample, record)
        return sample

    whole = accumulate(one, records)
    merged = two.merge_sample_states(accumulate(two, records[:2]), accumulate(two, records[2:]))
    result, next_state, _ = one.get_noised_result(whole, state)
    merged_result, merged_state, _ = two.get_noised_result(merged, state)
    np.testing.assert_allclose(result, merged_result, rtol=1e-5)
    tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), next_state, merged_state)


def test_params_and_sample_states_can_travel_as_plain_arrays(rng):
    """Whoever preprocesses needs the record's specs and (a, b): not the rule, the state, the noise or the types."""
    specs = {"w": tf.TensorSpec([2, 3]), "b": tf.TensorSpec([])}
    records = [{"w": rng.normal(size=(2, 3)), "b": np.float32(rng.normal())} for _ in range(4)]
    for choice in (core.AdaClip(core.MomentEstimator(initial_std=0.3)), core.FixedClip(0.5)):
        here = query.ClippedSumQuery(choice, specs, 0.7, 4.0, seed=9)
        there = make(specs)
        state = here.initial_global_state()
        params = here.derive_sample_params(state)
        sent = tuple([np.array(vector) for vector in vectors] for vectors in params)
        parts = []
        for part in (records[:1], records[1:], []):
            sample = there.initial_sample_state()
            for record in part:
                sample = there.accumulate_preprocessed_record(sample, there.preprocess_record(sent, record))
            parts.append(tf.nest.map_structure(np.array, sample))
        merged = functools.reduce(here.merge_sample_states, parts)
        expected = here.initial_sample_state()
        for record in records:
            expected = here.accumulate_record(params, expected, record)
        tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), merged, expected)
        as_arrays = tf.nest.map_structure(np.array, merged)
        result, _, _ = here.get_noised_result(as_arrays, tf.nest.map_structure(np.array, state))
        twin = query.ClippedSumQuery(choice, specs, 0.7, 4.0, seed=9)
        truth, _, _ = twin.get_noised_result(expected, state)
        tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), result, truth)


def test_state_survives_a_while_loop_of_many_rounds(rng):
    """100 rounds inside one graph are 100 rounds in eager mode."""
    records = tf.stack(draw_records(rng, count=4))
    eager, graph = (make(SPEC, 0.5, initial_std=0.05, h2=1.0, seed=4) for _ in range(2))

    @tf.function
    def loop():
        def body(i, state):
            params = graph.derive_sample_params(state)
            sample = graph.initial_sample_state()
            for k in range(4):
                sample = graph.accumulate_record(params, sample, records[k])
            _, state, _ = graph.get_noised_result(sample, state)
            return i + 1, state

        return tf.while_loop(lambda i, _: i < 100, body, (0, graph.initial_global_state()))[1]

    _, expected = run_rounds(eager, [list(records)] * 100)
    state = loop()
    start = graph.initial_global_state()
    tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6), state, expected)
    assert np.abs(state.rule_state.mean[0] - start.rule_state.mean[0]).max() > 1e-3


def test_metrics_are_functions_of_the_state_alone():
    dp_query = make(SPEC, 2.0, 8.0, initial_std=0.5)
    state = dp_query.initial_global_state()
    metrics = dp_query.derive_metrics(state)
    assert list(metrics) == ["scale_norm", "noise_norm", "std_mean", "std_min", "std_max", "mean_norm"]
    assert float(metrics["scale_norm"]) == pytest.approx(1.5, rel=1e-5)  # (sum s)^2 = |b|^2
    assert float(metrics["noise_norm"]) == pytest.approx(2.0 * 1.5 / 8.0, rel=1e-5)
    assert float(metrics["std_mean"]) == pytest.approx(0.5, rel=1e-5)


def test_any_choice_of_a_and_b_can_be_used(rng):
    """A fixed clip gives what tensorflow-privacy's own Gaussian query gives."""
    records = [tf.constant(rng.normal(size=3), tf.float32) for _ in range(5)]
    ours = query.ClippedSumQuery(core.FixedClip(0.9), SPEC, 0.0, 5.0)
    theirs = tfp.module("dp_query.gaussian_query").GaussianSumQuery(l2_norm_clip=0.9, stddev=0.0)
    left, state = run_query(ours, records)
    right, _ = run_query(theirs, records)
    np.testing.assert_allclose(left, right, rtol=1e-5)
    assert set(ours.derive_metrics(state)) == {"scale_norm", "noise_norm"}


# ---------------------------------------------------------------------------------------------------
# tensorflow-privacy's machinery.


def test_inside_a_normalized_query(rng):
    records = draw_records(rng)
    average = tfp.module("dp_query.normalized_query").NormalizedQuery(
        make(SPEC, 0.0, 4.0, initial_std=10.0), denominator=4.0
    )
    result, state = run_query(average, records)
    np.testing.assert_allclose(result, np.mean(records, axis=0), atol=1e-6)
    assert "noise_norm" in average.derive_metrics(state)


def test_inside_a_nested_query(rng):
    inner = [make(tf.TensorSpec([]), 0.0, 2.0, initial_std=10.0), make(SPEC, 0.0, 2.0, initial_std=10.0)]
    nested = tfp.module("dp_query.nested_query").NestedSumQuery(inner)
    state = nested.initial_global_state()
    params = nested.derive_sample_params(state)
    rows = rng.normal(size=(2, 3)).astype(np.float32)
    sample = nested.initial_sample_state([1.0, rows[0]])
    for record in ([1.0, rows[0]], [2.0, rows[1]]):
        sample = nested.accumulate_record(params, sample, record)
    result, state, event = nested.get_noised_result(sample, state)
    np.testing.assert_allclose(result[0], 3.0, rtol=1e-5)
    np.testing.assert_allclose(result[1], rows.sum(axis=0), atol=1e-5)
    assert event == dp_accounting.ComposedDpEvent((dp_accounting.GaussianDpEvent(0.0),) * 2)
    assert "0/noise_norm" in nested.derive_metrics(state)


def test_inside_run_query_over_rounds(rng):
    dp_query, state = make(SPEC, 0.0, 4.0, initial_std=10.0), None
    for _ in range(3):
        records = draw_records(rng)
        result, state = run_query(dp_query, records, state)
        np.testing.assert_allclose(result, np.sum(records, axis=0), atol=1e-5)


@generations.keras2_only
def test_inside_the_generic_keras_optimizer_in_eager_mode():
    """Its trajectory is the oracle's: gradient of 0.5 |x - y_k|^2 for four y_k, in five eager steps."""
    targets = np.array([[1.0, 0.0], [0.8, 0.1], [1.2, -0.1], [1.0, 0.2]], np.float32)
    options = {"initial_std": 0.4, "h2": 1.0, "gamma": 0.5}
    variable = tf.Variable([0.0, 0.0])
    dp_query = make([tf.TensorSpec([2])], 0.0, 4.0, **options)
    factory = tfp.module("optimizers.dp_optimizer_keras").make_keras_generic_optimizer_class
    generic = factory(tf.keras.optimizers.legacy.SGD)
    optimizer = generic(dp_query, num_microbatches=4, learning_rate=0.1)
    truth = oracle.Oracle([(2,)], noise_multiplier=0.0, divisor=4.0, **options)
    x = np.zeros(2)
    for _ in range(5):
        optimizer.minimize(lambda: 0.5 * tf.reduce_sum(tf.square(variable - targets), axis=1), var_list=[variable])
        x -= 0.1 * truth.step([x - targets], [np.zeros(2)])[0]
    np.testing.assert_allclose(variable, x, rtol=1e-4)
    adapted = optimizer._global_state.rule_state
    np.testing.assert_allclose(adapted.variance[0], truth.variance[0], rtol=1e-3)


# ---------------------------------------------------------------------------------------------------
# Arguments.


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"noise_multiplier": -1.0}, "noise_multiplier"),
        ({"noise_multiplier": math.nan}, "noise_multiplier"),
        ({"expected_num_records": 0}, "expected_num_records"),
        ({"expected_num_records": "many"}, "expected_num_records"),
        ({"beta_1": 1.0}, "beta_1"),
        ({"h1": 1.0, "h2": 0.1}, "h1"),
        ({"gamma": 0}, "gamma"),
        ({"clamp": "no"}, "clamp"),
        ({"variance_scaling": 1}, "variance_scaling"),
        ({"specs": []}, "record_specs"),
        ({"specs": [1.0]}, "record_specs"),
        ({"specs": tf.TensorSpec([None])}, "record_specs"),
        ({"specs": tf.TensorSpec(None)}, "record_specs"),
        ({"specs": tf.TensorSpec([2], tf.int32)}, "record_specs"),
    ],
)
def test_bad_arguments_are_named(arguments, named):
    with pytest.raises(ValueError, match=f"`{named}`"):
        make(**arguments)


def test_records_of_another_structure_or_shape_are_refused():
    dp_query = make({"a": SPEC})
    params = dp_query.derive_sample_params(dp_query.initial_global_state())
    for record in ([tf.zeros([3])], {"b": tf.zeros([3])}, {"a": tf.zeros([4])}, {"a": tf.zeros([])}):
        with pytest.raises(ValueError, match="`record_specs`"):
            dp_query.preprocess_record(params, record)
    with pytest.raises(ValueError, match="`record_specs`"):
        dp_query.initial_sample_state([tf.zeros([3])])


def test_the_state_of_another_query_is_refused():
    """A state of one number would broadcast to any shape, and be wrong without a word."""
    state = make(tf.TensorSpec([]), 1.0).initial_global_state()
    dp_query = make(tf.TensorSpec([3]), 1.0)
    with pytest.raises(ValueError, match="another query"):
        dp_query.get_noised_result(dp_query.initial_sample_state(), state)


def test_variables_can_stand_for_specs():
    variables = [tf.Variable(tf.zeros([2, 2])), tf.Variable(0.0)]
    result, _ = run_query(make(variables, initial_std=10.0), [[np.eye(2, dtype=np.float32), 1.0]])
    np.testing.assert_allclose(result[0], np.eye(2), atol=1e-4)


def test_docstring_examples():
    assert doctest.testmod(query).failed == 0


@pytest.mark.parametrize("share", [0.01, 0.5])
def test_a_record_and_what_is_asked_of_it_are_within_one_ball(share):
    """A rule's question has its part of the sensitivity, and the gradient the rest."""
    rule = core.QuantileClip(initial_clip=2.0, share=share)
    asks = query.ClippedSumQuery(rule, [tf.TensorSpec([2])], 1.0, expected_num_records=4.0)
    params = asks.derive_sample_params(asks.initial_global_state())
    for record, answer in (([0.0, 0.0], 1.0), ([0.3, 0.4], 1.0), ([3e4, 4e4], -1.0), ([np.nan, 1.0], 0.0)):
        (clipped,), statistics = asks.preprocess_record(params, [tf.constant(record)])
        assert float(tf.norm(clipped)) ** 2 <= 1.0 - share + 1e-6
        np.testing.assert_allclose(statistics, [answer * share**0.5], rtol=1e-5)
