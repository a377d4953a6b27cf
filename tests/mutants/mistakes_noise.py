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
        "pairs that are drawn together share their angles",
        "core/noise.py",
        "angles = tf.bitcast(tf.cast(angles, tf.uint32), tf.int32)",
        "angles = tf.bitcast(tf.cast(tf.fill([pairs], angles[0]), tf.uint32), tf.int32)",
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
        "a call moves on by too few blocks",
        "core/noise.py",
        "return ends[:-1].reshape([len(sizes), terms]), int(ends[-1])",
        "return ends[:-1].reshape([len(sizes), terms]), int(ends[-1]) // 512",
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
        "angles from the words that the radius is made of",
        "core/noise.py",
        "radii, angles = tf.unstack(tf.reshape(words, [pairs, 2]), axis=1)",
        "radii = angles = tf.reshape(words, [pairs, 2])[:, 0]",
        ("tests/core/noise_key_test.py::test_draws_are_those_of_philox_with_the_whole_key",),
    ),
    Mutation(
        "angles of many numbers from the words that the radius is made of",
        "core/noise.py",
        "low, high, angles, _ = philox.blocks(pairs, key, counter)",
        "low, high, _, _ = philox.blocks(pairs, key, counter)\n    angles = low",
        ("tests/core/noise_key_test.py::test_draws_are_those_of_philox_with_the_whole_key",),
    ),
    Mutation(
        "a radius of 32 bits, where many are drawn",
        "core/box_muller.py",
        "below = tf.cast(low, tf.float32) * 2.0**-64 + _HALF",
        "below = 2.0**-33",
        ("tests/core/box_muller_test.py::test_the_largest_and_the_smallest_quick_radius",),
    ),
    Mutation(
        "nine rounds of Philox",
        "core/philox.py",
        "_ROUNDS = 10",
        "_ROUNDS = 9",
        ("tests/core/philox_test.py::test_blocks",),
    ),
    Mutation(
        "no carry in a range of blocks",
        "core/philox.py",
        "high = counter[1] + tf.cast(low < counter[0], tf.uint64)",
        "high = counter[1] + tf.zeros_like(low)",
        ("tests/core/philox_test.py::test_blocks",),
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
        "tf.sqrt(-2.0 * tf.cast(",
        "tf.sqrt(-1.98 * tf.cast(",
        ("tests/core/box_muller_test.py::test_normals_are_right_for_every_kind_of_word",),
    ),
    Mutation(
        "a radius that is a little short, in the compiled loop",
        "core/box_muller.py",
        "tf.sqrt(-2.0 * _log_of_uniform(",
        "tf.sqrt(-1.98 * _log_of_uniform(",
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
