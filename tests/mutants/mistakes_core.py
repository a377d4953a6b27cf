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
        "    return published_step(choice, state, transform, noised_sum, noise_multiplier, divisor)\n",
        "    mean, _ = published_step(choice, state, transform, noised_sum, noise_multiplier, divisor)\n"
        "    return mean, published_step(choice, state, transform, total, noise_multiplier, divisor)[1]\n",
        (AUDIT_ADACLIP, "tests/core/core_test.py::test_the_next_state_depends_on_the_noised_mean_alone"),
    ),
    Mutation(
        "noise scaled by 1 / B",
        "core/framework.py",
        "u + noise_multiplier * n for",
        "u + noise_multiplier / divisor * n for",
        (AUDIT_FIXED, "tests/optimizers/optimizer_noise_test.py::test_noise_is_on_top_of_the_clipped_sum"),
    ),
    Mutation(
        "one variable gets no noise",
        "core/framework.py",
        "u + noise_multiplier * n for u, n in zip(total, standard_normals)]",
        "u + noise_multiplier * (k > 0) * n for k, (u, n) in enumerate(zip(total, standard_normals))]",
        (AUDIT_FIXED,),
    ),
    Mutation(
        "no centring term in the clip, in the core",
        "core/framework.py",
        "clip_weights(squared_norms(transformed))",
        "clip_weights(squared_norms([r / b for r, b in zip(records, transform.scale)]))",
        ("tests/core/core_test.py::test_every_clipped_record_has_norm_at_most_one",),
    ),
    Mutation(
        "an example without a finite gradient is not dropped",
        "core/framework.py",
        "tf.where(weight > 0.0, weight * record, 0.0)",
        "weight * record",
        ("tests/core/core_test.py::test_a_record_without_a_finite_norm_contributes_nothing",),
    ),
    Mutation(
        "no ceiling when the average is clamped",
        "core/framework.py",
        "                average = tf.clip_by_value(average, self.h1, self.h2)",
        "                average = tf.maximum(average, self.h1)",
        ("tests/core/core_test.py::test_the_variance_stays_between_floor_and_ceiling",),
    ),
    Mutation(
        "no floor when the average is clamped",
        "core/framework.py",
        "                average = tf.clip_by_value(average, self.h1, self.h2)",
        "                average = tf.minimum(average, self.h2)",
        ("tests/core/core_test.py::test_the_variance_stays_between_floor_and_ceiling",),
    ),
    Mutation(
        "the clip is at two",
        "core/framework.py",
        "tf.maximum(squared_norm, 1.0)",
        "tf.maximum(squared_norm / 4.0, 1.0)",
        ("tests/core/core_test.py::test_every_clipped_record_has_norm_at_most_one",),
    ),
    Mutation(
        "the clip divides by the squared norm",
        "core/framework.py",
        "tf.math.rsqrt(tf.maximum(squared_norm, 1.0))",
        "tf.math.reciprocal(tf.maximum(squared_norm, 1.0))",
        ("tests/core/core_test.py::test_clip_weights_by_hand",),
    ),
    Mutation(
        "a record without a finite norm keeps its weight",
        "core/framework.py",
        "return tf.where(tf.math.is_finite(squared_norm), weights, 0.0)",
        "return weights",
        ("tests/core/core_test.py::test_clip_weights_by_hand",),
    ),
    Mutation(
        "the norm is that of the first variable",
        "core/framework.py",
        "            for record in records\n        ]\n    )",
        "            for record in records[:1]\n        ]\n    )",
        ("tests/core/core_test.py::test_the_norm_is_global_over_all_variables",),
    ),
    Mutation(
        "the known noise is not taken out of the variance",
        "core/framework.py",
        "residual = (deviation - noise) * (deviation + noise)",
        "residual = tf.square(deviation)",
        ("tests/core/core_test.py::test_agrees_with_the_oracle",),
    ),
    Mutation(
        "the variance is that of the batch's mean",
        "core/framework.py",
        'divisor if self.variance_scaling == "per_example" else 1.0',
        "1.0",
        ("tests/core/core_test.py::test_agrees_with_the_oracle",),
    ),
    Mutation(
        "the scale is not divided by gamma",
        "core/framework.py",
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
)
