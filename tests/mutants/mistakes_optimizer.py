"""Mistakes in the optimizer, the query and the replicas."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

AUDIT = "tests/examples/audit_test.py::test_no_claim_is_refuted_and_a_bolder_claim_would_be"
AUDIT_MICROBATCHES = f"{AUDIT}[fixed ghost microbatches]"

MISTAKES = (
    Mutation(
        "division by the true size of a Poisson batch",
        "optimizers/step.py",
        "self.settings.expected_records or records, tf.float32",
        "records, tf.float32",
        ("tests/optimizers/optimizer_test.py::test_a_poisson_batch_is_divided_by_the_expected_size_and_may_be_empty",),
    ),
    Mutation(
        "the sensitivity of microbatches is ignored",
        "optimizers/step.py",
        "            return seen.microbatch_sensitivity if seen.steps else 2.0\n        return 2.0",
        "            return 1.0\n        return 1.0",
        (AUDIT_MICROBATCHES,),
    ),
    Mutation(
        "accumulation adds noise to every part",
        "optimizers/step.py",
        "self.accumulator.add(total, records)",
        "self.accumulator.add(self.add_noise(total), records)",
        ("tests/optimizers/noise_terms_test.py::test_accumulation_adds_noise_once_per_logical_batch",),
    ),
    Mutation(
        "(a, b) are not applied to the sum",
        "optimizers/step.py",
        "total = transform.apply_to_sums(total, weight)",
        "total = list(total)",
        ("tests/optimizers/optimizer_test.py::test_ten_fit_steps_equal_the_oracle",),
    ),
    Mutation(
        "accumulation adds no noise",
        "optimizers/step.py",
        "functools.partial(self._noise_and_learn, joined, state, transform, batch, records)",
        "functools.partial(self.learn, joined, state, transform, batch.total, records)",
        ("tests/optimizers/noise_terms_test.py::test_accumulation_adds_noise_once_per_logical_batch",),
    ),
    Mutation(
        "small variables that are joined get the noise of one of them",
        "optimizers/joined.py",
        "flat = tf.concat([made.reshape(tensors[i], [-1]) for i in self._small], axis=0)",
        "flat = tf.concat([tf.fill([size], tf.reshape(tensors[0], [-1])[0]) for size in self._sizes()], axis=0)",
        (
            "tests/optimizers/joined_test.py::test_joined_and_parted_again_is_what_it_was",
            "tests/optimizers/joined_test.py::test_training_is_the_same",
        ),
    ),
    Mutation(
        "a center is taken for zero",
        "optimizers/centers.py",
        "inside.shape.rank == 0 and tf.get_static_value",
        "inside.shape.rank is not None or tf.get_static_value",
        ("tests/optimizers/centers_test.py::test_what_is_known_to_be_zero",),
    ),
    Mutation(
        "centers of other variables are taken from the state",
        "optimizers/centers.py",
        "zip(traced.inputs, tf.nest.flatten(state))",
        "zip(traced.inputs, tf.nest.flatten(state)[::-1])",
        ("tests/optimizers/centers_test.py::test_what_stands_in_the_state_is_taken_from_there",),
    ),
    Mutation(
        "noised steps are not counted",
        "optimizers/step.py",
        "self.noised_steps.assign_add(1",
        "self.noised_steps.assign_add(0",
        ("tests/optimizers/optimizer_test.py::test_accumulation_draws_noise_once_and_stands_still_in_between",),
    ),
    Mutation(
        "replicas' shares of the noise are too small",
        "optimizers/step.py",
        "return self.settings.noise_multiplier / math.sqrt(replicas.count())",
        "return self.settings.noise_multiplier / replicas.count()",
        ("tests/optimizers/distribution_mirrored_test.py::test_noise_is_on_the_sum_once",),
    ),
    Mutation(
        "an optimizer applies gradients that it did not make",
        "optimizers/tags.py",
        "        if maker != id(optimizer):",
        "        if False:",
        ("tests/optimizers/optimizer_test.py::test_foreign_gradients_are_refused",),
    ),
    Mutation(
        "an inner optimizer may have seen gradients without noise",
        "optimizers/wrapping.py",
        "    if keras.has_state(inner):\n",
        "    if False:\n",
        ("tests/optimizers/wrapping_test.py::test_an_inner_optimizer_that_was_used_in_between_is_refused",),
    ),
    Mutation(
        "a wrapped optimizer takes saved steps with other noise",
        "optimizers/wrapping.py",
        "        self.check_saved(weights)\n",
        "",
        ("tests/optimizers/wrapping_test.py::test_set_weights_sets_all_or_nothing",),
    ),
    Mutation(
        "the query says less noise than it has",
        "query.py",
        "dp_accounting.GaussianDpEvent(self._noise_multiplier)",
        "dp_accounting.GaussianDpEvent(2.0 * self._noise_multiplier)",
        ("tests/query_test.py::test_the_event_is_one_gaussian_of_the_noise_multiplier",),
    ),
    Mutation(
        "the query divides by the number of records twice",
        "query.py",
        "tf.cast(self._divisor * g, spec.dtype)",
        "tf.cast(g, spec.dtype)",
        ("tests/query_test.py::test_three_rounds_by_hand",),
    ),
    Mutation(
        "the query sums records as they are",
        "query.py",
        "clipped = [tf.squeeze(u, 0) for u in self._clip.records(transformed)]",
        "clipped = [tf.squeeze(record, 0) for record in batch_of_one]",
        ("tests/query_test.py::test_no_record_contributes_more_than_norm_one",),
    ),
    Mutation(
        "a query's state of other shapes is taken",
        "query.py",
        "        self._check_state(state)\n",
        "",
        ("tests/query_test.py::test_the_state_of_another_query_is_refused",),
    ),
    Mutation(
        "every strategy is taken",
        "optimizers/replicas.py",
        "if not _has_scope(strategy) or isinstance(strategy, _SUPPORTED):",
        "if True:",
        ("tests/optimizers/replicas_test.py::test_other_strategies_are_refused",),
    ),
    Mutation(
        "a noise key is mirrored",
        "_internal/variables.py",
        "return resource_variable_ops.ResourceVariable(value, trainable=False, dtype=dtype, name=name)",
        "return tf.Variable(value, trainable=False, dtype=dtype, name=name)",
        ("tests/optimizers/replicas_test.py::test_a_noise_key_is_not_mirrored",),
    ),
    Mutation(
        "statistics get no noise",
        "optimizers/step.py",
        "return self.noise_sources.here().fresh_normals([spec.shape for spec in self._sum_specs()])",
        "normals = self.noise_sources.here().fresh_normals([spec.shape for spec in self.specs])\n"
        "        return [*normals, *(tf.zeros(spec.shape) for spec in self._sum_specs()[len(normals) :])]",
        ("tests/optimizers/baselines_test.py::test_quantile_noise_is_that_of_the_paper",),
    ),
    Mutation(
        "the rule's own clip is not used",
        "optimizers/step.py",
        "            clip=clip,\n",
        "",
        ("tests/optimizers/baselines_test.py::test_every_rule_takes_accumulation_and_microbatches",),
    ),
    Mutation(
        "a saved state with other noise is gone on from",
        "optimizers/dp_optimizer.py",
        "            past_steps.check(saved, self.noise_multiplier, self.expected_batch_size, self.name)\n",
        "",
        ("tests/optimizers/past_test.py::test_a_file_of_steps_with_other_noise_is_refused",),
    ),
    Mutation(
        "the divisor leaves out the parts of a logical batch",
        "optimizers/settings.py",
        "            return self.num_microbatches * self.accumulation_steps\n        return self.expected_batch_size",
        "            return self.num_microbatches\n        return self.expected_batch_size",
        ("tests/optimizers/baselines_test.py::test_every_rule_takes_accumulation_and_microbatches",),
    ),
    Mutation(
        "replicas of one seed draw the same",
        "optimizers/step.py",
        "functools.partial(noise.NoiseSource, settings.seed, terms=settings.noise_terms)",
        "lambda _: noise.NoiseSource(settings.seed, terms=settings.noise_terms)",
        ("tests/optimizers/step_test.py::test_replicas_of_one_seed_draw_for_themselves",),
    ),
    Mutation(
        "several draws for each value are asked for, and one is made",
        "optimizers/step.py",
        "functools.partial(noise.NoiseSource, settings.seed, terms=settings.noise_terms)",
        "functools.partial(noise.NoiseSource, settings.seed)",
        ("tests/optimizers/step_test.py::test_replicas_of_one_seed_draw_for_themselves",),
    ),
    Mutation(
        "microbatches on replicas count as single examples",
        "optimizers/step.py",
        "if replicas.count() == 1 else 2",
        "if replicas.count() == 1 else 1",
        ("tests/optimizers/step_test.py::test_of_parts_on_replicas_nothing_is_claimed",),
    ),
    Mutation(
        "sums of a logical batch go on into the next one",
        "optimizers/unnoised.py",
        "for variable in [*self._totals, self._records, self._batches]:",
        "for variable in [self._records, self._batches]:",
        ("tests/optimizers/step_test.py::test_parts_add_up_until_the_last_one_and_then_all_begins_anew",),
    ),
)
