"""Mistakes in the core."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

AUDIT = "tests/examples/audit_test.py::test_no_claim_is_refuted_and_a_bolder_claim_would_be"
AUDIT_ADACLIP = f"{AUDIT}[adaclip ghost]"
AUDIT_FIXED = f"{AUDIT}[fixed jacobian]"

MISTAKES = (
    Mutation(
        "the state learns from the un-noised sum",
        "core/framework.py",
        "    return published_step(rule, state, transform, noised_sum, noise_multiplier, divisor)\n",
        "    mean, _ = published_step(rule, state, transform, noised_sum, noise_multiplier, divisor)\n"
        "    return mean, published_step(rule, state, transform, total, noise_multiplier, divisor)[1]\n",
        ("tests/core/core_test.py::test_the_next_state_depends_on_the_noised_mean_alone",),
    ),
    Mutation(
        "the state of an optimizer learns from the un-noised sum",
        "optimizers/step.py",
        "return self._published_step(state, transform, core.add_noise(total, normals, self._share), divisor)",
        "mean, _ = self._published_step(state, transform, core.add_noise(total, normals, self._share), divisor)\n"
        "        return mean, self._published_step(state, transform, total, divisor)[1]",
        (AUDIT_ADACLIP,),
    ),
    Mutation(
        "noise scaled by 1 / B",
        "core/framework.py",
        "noised_sum = add_noise(total, standard_normals, noise_multiplier)",
        "noised_sum = add_noise(total, standard_normals, noise_multiplier / divisor)",
        ("tests/core/core_test.py::test_agrees_with_the_oracle",),
    ),
    Mutation(
        "one variable gets no noise",
        "core/framework.py",
        "u + stddev * n for u, n in zip(total, standard_normals)]",
        "u + stddev * float(k > 0) * n for k, (u, n) in enumerate(zip(total, standard_normals))]",
        (AUDIT_FIXED,),
    ),
    Mutation(
        "no centring term in the clip, in the core",
        "core/framework.py",
        "return clip.records(transform.apply(records))",
        "return clip.records([r / b for r, b in zip(records, transform.scale)])",
        ("tests/core/core_test.py::test_agrees_with_the_oracle",),
    ),
    Mutation(
        "an example without a finite gradient is not dropped",
        "core/clipping.py",
        "tf.where(weight > 0.0, weight * record, 0.0)",
        "weight * record",
        ("tests/core/core_test.py::test_a_record_without_a_finite_norm_contributes_nothing",),
    ),
    Mutation(
        "no ceiling when the average is clamped",
        "core/moments.py",
        "                average = tf.clip_by_value(average, self.h1, self.h2)",
        "                average = tf.maximum(average, self.h1)",
        ("tests/core/core_test.py::test_the_variance_stays_between_floor_and_ceiling",),
    ),
    Mutation(
        "no floor when the average is clamped",
        "core/moments.py",
        "                average = tf.clip_by_value(average, self.h1, self.h2)",
        "                average = tf.minimum(average, self.h2)",
        ("tests/core/core_test.py::test_the_variance_stays_between_floor_and_ceiling",),
    ),
    Mutation(
        "the clip is at two",
        "core/clipping.py",
        "tf.maximum(squared_norm, 1.0)",
        "tf.maximum(squared_norm / 4.0, 1.0)",
        ("tests/core/core_test.py::test_every_clipped_record_has_norm_at_most_one",),
    ),
    Mutation(
        "the clip divides by the squared norm",
        "core/clipping.py",
        "tf.math.rsqrt(tf.maximum(squared_norm, 1.0))",
        "tf.math.reciprocal(tf.maximum(squared_norm, 1.0))",
        ("tests/core/core_test.py::test_clip_weights_by_hand",),
    ),
    Mutation(
        "a record without a finite norm keeps its weight",
        "core/clipping.py",
        "return tf.where(tf.math.is_finite(squared_norm), weights, 0.0)",
        "return weights",
        ("tests/core/core_test.py::test_clip_weights_by_hand",),
    ),
    Mutation(
        "the norm is that of the first variable",
        "core/clipping.py",
        "            for record in records\n        ]\n    )",
        "            for record in records[:1]\n        ]\n    )",
        ("tests/core/core_test.py::test_the_norm_is_global_over_all_variables",),
    ),
    Mutation(
        "the known noise is not taken out of the variance",
        "core/moments.py",
        "residual = (deviation - noise) * (deviation + noise)",
        "residual = tf.square(deviation)",
        ("tests/core/core_test.py::test_agrees_with_the_oracle",),
    ),
    Mutation(
        "the variance is that of the batch's mean",
        "core/moments.py",
        'divisor if self.variance_scaling == "per_example" else 1.0',
        "1.0",
        ("tests/core/core_test.py::test_agrees_with_the_oracle",),
    ),
    Mutation(
        "the scale is not divided by gamma",
        "core/rules.py",
        "tf.sqrt(s) * tf.sqrt(total / self.gamma)",
        "tf.sqrt(s) * tf.sqrt(total)",
        ("tests/core/core_test.py::test_theorem_1_no_feasible_scale_adds_less_noise",),
    ),
    Mutation(
        "the published noise norm leaves out B",
        "core/framework.py",
        '"noise_norm": noise_multiplier * scale_norm / tf.cast(divisor, tf.float32)',
        '"noise_norm": noise_multiplier * scale_norm',
        ("tests/core/core_test.py::test_published_metrics_by_hand",),
    ),
    Mutation(
        "the noise on the sum is half of what is claimed",
        "core/framework.py",
        "u + stddev * n for",
        "u + 0.5 * stddev * n for",
        (AUDIT_FIXED, "tests/optimizers/optimizer_noise_test.py::test_noise_is_on_top_of_the_clipped_sum"),
    ),
    Mutation(
        "what a rule observes is not clipped",
        "core/framework.py",
        "weights = clipping.clip_weights(tf.reduce_sum(tf.square(observed), axis=1))",
        "weights = tf.ones_like(squared_norms)",
        ("tests/core/rules_test.py::test_what_a_rule_observes_is_clipped",),
    ),
    Mutation(
        "statistics get the whole ball",
        "core/framework.py",
        " * clip.left_for_statistics",
        "",
        ("tests/core/rules_test.py::test_a_record_is_within_the_unit_ball",),
    ),
    Mutation(
        "a record that is no number has statistics",
        "core/framework.py",
        "weights = tf.where(finite, weights, 0.0) *",
        "weights = weights *",
        ("tests/core/rules_test.py::test_a_record_that_is_no_number_is_left_out",),
    ),
    Mutation(
        "each layer is clipped to the whole ball",
        "core/clipping.py",
        "limit = self.radius**2 / groups",
        "limit = self.radius**2",
        ("tests/core/rules_test.py::test_a_record_is_within_the_unit_ball",),
    ),
    Mutation(
        "a gradient with statistics beside it gets the whole ball",
        "core/clipping.py",
        "limit = self.radius**2 / groups",
        "limit = 1.0 / groups",
        ("tests/core/rules_test.py::test_a_record_is_within_the_unit_ball",),
    ),
    Mutation(
        "coordinates are cut at one each",
        "core/clipping.py",
        "limit = 1.0 / math.sqrt(self.dimension)",
        "limit = 1.0",
        ("tests/core/rules_test.py::test_a_record_is_within_the_unit_ball",),
    ),
    Mutation(
        "a variable may be in no group",
        "core/clipping.py",
        "if sorted(index for group in self.groups for index in group) != list(range(number)):",
        "if False:",
        ("tests/core/rules_test.py::test_groups_that_leave_out_a_variable_are_refused",),
    ),
    Mutation(
        "the quantile's count is not divided by its share",
        "core/quantile.py",
        "published.statistics[0] / math.sqrt(self.share)",
        "published.statistics[0]",
        ("tests/core/rules_test.py::test_the_quantile_rule_follows_tensorflow_privacy",),
    ),
    Mutation(
        "the quantile's clip is that of a sum without a count",
        "core/quantile.py",
        'uniform(specs, state["l2_norm_clip"] / self._radius)',
        'uniform(specs, state["l2_norm_clip"])',
        ("tests/core/rules_test.py::test_the_quantile_rule_follows_tensorflow_privacy",),
    ),
    Mutation(
        "a center below 0 that is known beforehand is left out of the sum",
        "core/framework.py",
        "tf.get_static_value(center) == 0.0",
        "tf.get_static_value(center) <= 0.0",
        ("tests/core/core_test.py::test_the_transform_of_a_sum_is_the_sum_of_transforms[-0.5]",),
    ),
    Mutation(
        "squares of narrow numbers overflow, or vanish",
        "core/clipping.py",
        "tf.reduce_sum(tf.square(tf.cast(record, tf.float32)), axis",
        "tf.reduce_sum(tf.cast(tf.square(record), tf.float32), axis",
        ("tests/core/core_test.py::test_squares_of_float16_records_neither_overflow_nor_vanish",),
    ),
    Mutation(
        "narrow records are transformed as narrow numbers",
        "core/framework.py",
        "[(tf.cast(record, tf.float32) - center) / scale for record",
        "[tf.cast((record - tf.cast(center, record.dtype)) / tf.cast(scale, record.dtype), tf.float32) for record",
        ("tests/core/core_test.py::test_squares_of_float16_records_neither_overflow_nor_vanish",),
    ),
)
