"""Mistakes in the noise."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

MISTAKES = (
    Mutation(
        "noise keyed by the global seed",
        "core/noise.py",
        "os.urandom(16)",
        "np.random.bytes(16)",
        (
            "tests/core/noise_test.py::test_ordinary_seeds_do_not_reach_the_key",
            "tests/optimizers/optimizer_noise_test.py::test_global_seeds_do_not_make_the_noise_predictable",
        ),
    ),
    Mutation(
        "the same draws at every step",
        "core/noise.py",
        "delta=tf.constant(blocks, dtype=tf.uint64)",
        "delta=tf.constant(0, dtype=tf.uint64)",
        (
            "tests/core/noise_test.py::test_fresh_draws_never_repeat_in_eager_mode_graphs_and_loops",
            "tests/optimizers/optimizer_noise_test.py::test_noise_differs_between_steps_variables_and_runs",
        ),
    ),
    Mutation(
        "all variables share a stream",
        "core/noise.py",
        "low + tf.constant(by, tf.uint64)",
        "low + tf.constant(0 * by, tf.uint64)",
        ("tests/core/noise_counters_test.py::test_a_million_pairs_of_call_and_variable_have_blocks_of_their_own",),
    ),
    Mutation(
        "variables that are drawn together share their angles",
        "core/noise.py",
        "tf.concat(words[2::4], axis=0)",
        "tf.concat([words[2][:1]] * sum(pairs), axis=0)",
        (
            "tests/core/noise_test.py::test_variables_of_one_step_do_not_share_words",
            "tests/core/noise_key_test.py::test_draws_are_those_of_philox_with_the_whole_key",
        ),
    ),
    Mutation(
        "half of the key from the operating system",
        "core/noise.py",
        "return np.array([0, *key], np.int64)",
        "return np.array([0, 0, key[1]], np.int64)",
        (
            "tests/core/noise_key_test.py::test_every_bit_of_the_key_changes_every_draw",
            "tests/core/noise_key_test.py::test_a_shortened_key_is_found_by_brute_force_and_a_whole_one_is_not",
        ),
    ),
    Mutation(
        "half of the bits of either number of the key",
        "core/noise.py",
        "return np.frombuffer(os.urandom(16), dtype=np.int64)",
        "return np.frombuffer(os.urandom(16), dtype=np.int64) & 0xFFFFFFFF",
        ("tests/core/noise_key_test.py::test_every_bit_of_the_key_changes_every_draw",),
    ),
    Mutation(
        "a call moves on by too few blocks for its angles",
        "core/noise.py",
        "return ends[:-1].reshape([len(sizes), terms, 2]), int(ends[-1])",
        "return ends[:-1].reshape([len(sizes), terms, 2]), int(ends[-1]) // 512",
        ("tests/core/noise_counters_test.py::test_a_million_pairs_of_call_and_variable_have_blocks_of_their_own",),
    ),
    Mutation(
        "no carry into the upper half of the counter",
        "core/noise.py",
        "carry = tf.cast(lows < low, tf.uint64)",
        "carry = tf.zeros_like(lows)",
        (
            "tests/core/noise_counters_test.py::test_a_million_pairs_of_call_and_variable_have_blocks_of_their_own",
            "tests/core/noise_counters_test.py::test_draws_where_the_lower_half_of_the_counter_overflows",
        ),
    ),
    Mutation(
        "angles that are not masked",
        "core/noise.py",
        "mask = tf.cast(words, tf.uint32)",
        "mask = tf.zeros_like(words, tf.uint32)",
        ("tests/core/noise_key_test.py::test_draws_are_those_of_philox_with_the_whole_key",),
    ),
    Mutation(
        "a radius of 32 bits: no tails",
        "core/box_muller.py",
        "u = tf.cast(words, tf.float64) * _TO_U + _HALF",
        "u = tf.cast(words, tf.float64) * _TO_U + 2.0**-33",
        ("tests/core/box_muller_test.py::test_tails_have_the_right_weight",),
    ),
    Mutation(
        "a radius that is a little short",
        "core/box_muller.py",
        "tf.sqrt(-2.0 *",
        "tf.sqrt(-1.98 *",
        (
            "tests/core/box_muller_test.py::test_normals_are_right_for_every_kind_of_word",
            "tests/core/noise_quality_test.py::test_a_million_draws",
        ),
    ),
    Mutation(
        "a forked process keeps its parent's key",
        "core/noise.py",
        "if self._owner == _process():",
        "if True:",
        ("tests/core/noise_test.py::test_a_function_traced_in_a_new_process_takes_a_new_key",),
    ),
    Mutation(
        "a sum of several draws divided by their number",
        "core/noise.py",
        "tf.add_n(draws) / math.sqrt(self._terms)",
        "tf.add_n(draws) / self._terms",
        ("tests/optimizers/noise_terms_test.py::test_noise_through_fit_has_standard_deviation_z",),
    ),
)
