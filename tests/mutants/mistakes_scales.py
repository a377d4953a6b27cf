"""Mistakes in the scales that are asked before training, and in the training that is made of them."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_ROWS = "tests/gradients/row_norms_test.py"
_HANDLES = "tests/gradients/ghost/handle_row_norms_test.py"
_QUERIES = "tests/scales/queries_test.py"
_SCALES = "tests/scales/private_scales_test.py"

MISTAKES = (
    Mutation(
        "scales that nobody names are free",
        "privacy/events.py",
        "    if prior is None or any(_holds(event, prior) for event in counted):",
        "    if True:",
        ("tests/privacy/prior_test.py::test_scales_count_once",),
    ),
    Mutation(
        "anything else that was spent pays for the scales",
        "privacy/events.py",
        "if prior.name is None and math.isclose(mine, prior.noise_multiplier, rel_tol=1e-9):",
        "if True:",
        ("tests/privacy/prior_test.py::test_scales_count_once",),
    ),
    Mutation(
        "a saved optimizer forgets what its scales cost",
        "core/scales.py",
        '            "noise_multiplier": self.noise_multiplier,\n',
        "",
        ("tests/privacy/prior_test.py::test_scales_count_once",),
    ),
    Mutation(
        "row norms of gradients that are not clipped",
        "gradients/row_norms.py",
        "    weights = core.clip_weights(norms)\n",
        "    weights = tf.ones_like(norms)\n",
        (f"{_ROWS}::test_one_example_moves_the_sums_by_at_most_one[mlp-auto]",),
    ),
    Mutation(
        "row norms of isolated gradients that are not clipped",
        "gradients/row_norms.py",
        "core.weigh_records(records, weight)",
        "records",
        (f"{_ROWS}::test_one_example_moves_the_sums_by_at_most_one[mlp-jacobian]",),
    ),
    Mutation(
        "row norms forget the weights of examples",
        "gradients/row_norms.py",
        "weights *= counts  # c_k omega_k",
        "pass",
        (f"{_ROWS}::test_weights_do_as_in_training[auto]",),
    ),
    Mutation(
        "isolated rows forget the weights of examples",
        "gradients/row_norms.py",
        "weight *= tf.gather(counts, [k])",
        "pass",
        (f"{_ROWS}::test_weights_do_as_in_training[jacobian]",),
    ),
    Mutation(
        "isolated rows are clipped by their own variables alone",
        "gradients/row_norms.py",
        "tf.gather(known, [k]) + core.squared_norms(records)",
        "core.squared_norms(records)",
        (f"{_ROWS}::test_one_example_moves_the_sums_by_at_most_one[both_paths-auto]",),
    ),
    Mutation(
        "sums of absolute values in the place of row norms",
        "gradients/row_norms.py",
        "tf.norm(record, axis=-1, keepdims=True)",
        "tf.reduce_sum(tf.abs(record), axis=-1, keepdims=True)",
        (f"{_ROWS}::test_one_example_moves_the_sums_by_at_most_one[mlp-jacobian]",),
    ),
    Mutation(
        "the row norms of an example that is left out spoil the others",
        "gradients/ghost/slices.py",
        "tf.math.multiply_no_nan(examples.make(arrays), weights[:, tf.newaxis])",
        "examples.make(arrays) * weights[:, tf.newaxis]",
        (f"{_HANDLES}::test_an_example_of_weight_zero_is_left_out_nans_and_all[conv2d]",),
    ),
    Mutation(
        "positions that look up one row are taken one by one",
        "gradients/ghost/embeddings.py",
        "norms = tf.norm(tf.math.unsorted_segment_sum(values, lookups, tf.size(distinct)), axis=1)",
        "norms = tf.math.unsorted_segment_sum(tf.norm(values, axis=1), lookups, tf.size(distinct))",
        (f"{_HANDLES}::test_positions_of_one_example_are_added_before_the_norm",),
    ),
    Mutation(
        "an example without a finite norm counts as neither within nor beyond",
        "scales/queries.py",
        "return float(np.sum(within)) - 0.5 * len(within)",
        "return float(np.sum(within)) - 0.5 * float(np.sum(np.isfinite(self._norms)))",
        (f"{_QUERIES}::test_one_example_moves_a_count_by_a_half_and_the_rows_by_one_at_most",),
    ),
    Mutation(
        "counts without the half taken off",
        "scales/queries.py",
        "return float(np.sum(within)) - 0.5 * len(within)",
        "return float(np.sum(within))",
        (f"{_QUERIES}::test_one_example_moves_a_count_by_a_half_and_the_rows_by_one_at_most",),
    ),
    Mutation(
        "a loader may give an example twice",
        "scales/queries.py",
        "sampling.checked(self._load(np.arange(start, stop)), stop - start)",
        "self._load(np.arange(start, stop))",
        (f"{_QUERIES}::test_a_loader_that_gives_an_example_twice_is_refused",),
    ),
    Mutation(
        "counts without noise",
        "scales/private_scales.py",
        "asked.count(search.clip) + self.count_noise * self._normals([[]])[0]",
        "asked.count(search.clip)",
        (f"{_SCALES}::test_counts_are_noised_by_their_own_noise",),
    ),
    Mutation(
        "row norms with half the noise",
        "scales/private_scales.py",
        "part + self.noise_multiplier * normal",
        "part + 0.5 * self.noise_multiplier * normal",
        (f"{_SCALES}::test_noise_of_the_queries_is_that_of_the_arguments",),
    ),
    Mutation(
        "the last search looks at the norms themselves",
        "scales/private_scales.py",
        "search.move(float(noised) / asked.num_examples + 0.5)",
        "search.move(asked.count(search.clip) / asked.num_examples + 0.5)",
        (f"{_SCALES}::test_it_is_the_warm_up_of_the_oracle[auto]",),
    ),
    Mutation(
        "counts are accounted as if they moved by a quarter",
        "scales/method.py",
        "events.gaussian_event(2.0 * noise.counts,",
        "events.gaussian_event(4.0 * noise.counts,",
        (f"{_SCALES}::test_the_event_is_the_composition_written_out",),
    ),
    Mutation(
        "one of the two searches is not accounted",
        "scales/method.py",
        "2 * self.counts * fits",
        "self.counts * fits",
        (f"{_SCALES}::test_the_event_is_the_composition_written_out",),
    ),
    Mutation(
        "a second fit is free",
        "scales/private_scales.py",
        "self._fits.begin()  # from here on",
        "self._fits.count = 1  # from here on",
        (f"{_SCALES}::test_every_fit_is_paid_for_through_saving_and_loading",),
    ),
    Mutation(
        "the scales are not within the target",
        "training/plan.py",
        "noise_multiplier=calibration.noise_for_run(mechanism, target, steps=steps, other_event=others),",
        "noise_multiplier=calibration.noise_for_run(mechanism, target, steps=steps, other_event=before),",
        ("tests/training/plan_test.py::test_scales_and_training_together_meet_the_target",),
    ),
    Mutation(
        "what a ledger holds is forgotten",
        "training/plan.py",
        "others = events.composed(asked)",
        "others = events.composed(asked[-1:])",
        ("tests/training/plan_test.py::test_what_was_spent_before_is_within_the_target",),
    ),
    Mutation(
        "scales are written down after they were asked",
        "training/make_private.py",
        "        _write_down(book, scales)\n",
        "",
        ("tests/training/make_private_test.py::test_scales_are_written_down_before_they_are_asked",),
    ),
    Mutation(
        "the choice among runs is free",
        "privacy/choice.py",
        "    return choice.event(event)\n",
        "    return event\n",
        ("tests/privacy/choice_test.py::test_more_runs_cost_more_and_no_choice_costs_nothing",),
    ),
)
