"""Mistakes in reading norms off the backward graph."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

MISTAKES = (
    Mutation(
        "rows looked up twice are squared one by one under XLA",
        "gradients/ghost/embeddings.py",
        "self._per_example(tf.square(self._added_up(values)))",
        "self._per_example(tf.square(values))",
        (
            "tests/gradients/ghost/ghost_rules_test.py::test_rows_looked_up_twice_are_added_before_they_are_squared_under_xla",
        ),
    ),
    Mutation(
        "rows looked up twice are squared one by one",
        "gradients/ghost/embeddings.py",
        "repeats = tf.gather(counts, lookups) > 1",
        "repeats = tf.gather(counts, lookups) > 10**6",
        ("tests/gradients/ghost/ghost_rules_test.py::test_rows_looked_up_twice_are_added_before_they_are_squared",),
    ),
    Mutation(
        "rows that two examples look up are added",
        "gradients/ghost/embeddings.py",
        " + self._vocabulary * tf.cast(examples, tf.int64)",
        " + 0 * tf.cast(examples, tf.int64)",
        ("tests/gradients/ghost/ghost_rules_test.py::test_rows_looked_up_twice_are_added_before_they_are_squared",),
    ),
    Mutation(
        "the extent that a pad changes is not checked",
        "gradients/ghost/flow.py",
        "    return dataclasses.replace(label, checks=label.checks | {check})",
        "    return label",
        ("tests/gradients/ghost/ghost_refusal_test.py::test_a_change_of_the_number_of_rows_is_seen_in_the_run",),
    ),
    Mutation(
        "an extent may grow",
        "gradients/ghost/labels.py",
        "holds = tf.equal(extent, tf.shape(check.equals)[check.axis])",
        "holds = tf.greater_equal(extent, tf.shape(check.equals)[check.axis])",
        (
            "tests/gradients/ghost/ghost_refusal_test.py::test_a_change_of_the_number_of_rows_is_seen_in_the_run[sliced]",
        ),
    ),
    Mutation(
        "an extent may shrink",
        "gradients/ghost/labels.py",
        "holds = tf.equal(extent, tf.shape(check.equals)[check.axis])",
        "holds = tf.less_equal(extent, tf.shape(check.equals)[check.axis])",
        (
            "tests/gradients/ghost/ghost_refusal_test.py::test_a_change_of_the_number_of_rows_is_seen_in_the_run[padded]",
        ),
    ),
    Mutation(
        "checks are not told to XLA",
        "gradients/ghost/labels.py",
        'return tf.where(holds, 0.0, float("nan"))',
        "return tf.where(holds, 0.0, 0.0)",
        ("tests/gradients/ghost/ghost_refusal_test.py::test_rows_that_only_the_run_can_count_are_checked_in_the_run",),
    ),
    Mutation(
        "rows need not split evenly",
        "gradients/ghost/labels.py",
        "holds = tf.equal(extent % tf.maximum(self.n, 1), 0)",
        "holds = tf.equal(0, 0)",
        ("tests/gradients/ghost/ghost_refusal_test.py::test_rows_that_only_the_run_can_count_are_checked_in_the_run",),
    ),
    Mutation(
        "a selection need not be of zero",
        "gradients/ghost/flow.py",
        "    others_are_zero(op.inputs[1:], labels[1:])\n",
        "",
        (
            "tests/gradients/ghost/ghost_refusal_test.py::test_gradients_that_are_not_linear_in_the_seed_are_unrecognised",
        ),
    ),
    Mutation(
        "a sum need not be with zero",
        "gradients/ghost/flow.py",
        "    del ctx\n    others_are_zero(op.inputs, labels)\n    return _elementwise",
        "    del ctx\n    return _elementwise",
        (
            "tests/gradients/ghost/ghost_refusal_test.py::test_gradients_that_are_not_linear_in_the_seed_are_unrecognised",
        ),
    ),
    Mutation(
        "a product of two gradients counts as linear",
        "gradients/ghost/flow.py",
        "if any((label is not None) != (position == index) for position, label in enumerate(labels)):",
        "if labels[index] is None:",
        (
            "tests/gradients/ghost/ghost_refusal_test.py::test_gradients_that_are_not_linear_in_the_seed_are_unrecognised",
        ),
    ),
    Mutation(
        "gradients may be broadcast in front of the examples",
        "gradients/ghost/flow.py",
        "            if tensor.shape[axis - offset] != 1:\n",
        "            if False:\n",
        (
            "tests/gradients/ghost/ghost_refusal_test.py::test_a_product_that_adds_rows_in_front_of_the_examples_is_refused",
        ),
    ),
    Mutation(
        "rows may be reversed",
        "gradients/ghost/flow_shapes.py",
        "    axis_zero(label)\n    if along is None or 0 in along:",
        "    axis_zero(label)\n    if along is None:",
        ("tests/gradients/ghost/ghost_refusal_test.py::test_unrecognised_or_exact[reversed_batch]",),
    ),
    Mutation(
        "rows may be sliced with a stride",
        "gradients/ghost/flow_shapes.py",
        'if not (mask["begin"] and mask["end"] and strides[0] == 1):',
        'if not (mask["begin"] and mask["end"]):',
        ("tests/gradients/ghost/ghost_refusal_test.py::test_unrecognised_or_exact[strided_reversed]",),
    ),
    Mutation(
        "rows after a reshape are not checked",
        "gradients/ghost/flow_shapes.py",
        "checks = label.checks if divides else label.checks | {ctx.check(result, axis, op)}",
        "checks = label.checks",
        ("tests/gradients/ghost/ghost_refusal_test.py::test_rows_that_only_the_run_can_count_are_checked_in_the_run",),
    ),
    Mutation(
        "the batch may be transposed",
        "gradients/ghost/flow_shapes.py",
        "permutation is None or permutation[: label.axis + 1] != list(range(label.axis + 1))",
        "permutation is None",
        ("tests/gradients/ghost/ghost_refusal_test.py::test_unrecognised_or_exact[transposed_batch]",),
    ),
    Mutation(
        "rows may be joined along the examples",
        "gradients/ghost/flow_shapes.py",
        'if along is None or 0 in along:\n        raise Unknown("joins',
        'if along is None:\n        raise Unknown("joins',
        ("tests/gradients/ghost/ghost_refusal_test.py::test_gradients_joined_along_the_examples_are_refused",),
    ),
    Mutation(
        "batch normalisation keeps examples apart",
        "gradients/ghost/flow_linear.py",
        'if not op.get_attr("is_training"):',
        "if True:",
        ("tests/gradients/ghost/ghost_refusal_test.py::test_what_is_in_front_of_batch_normalization_is_unrecognised",),
    ),
    Mutation(
        "a product over the batch keeps rows",
        "gradients/ghost/flow_linear.py",
        "    if transposed == first:\n        return Summed()\n",
        "",
        ("tests/gradients/ghost/ghost_zoo_test.py::test_every_variable_is_recognised_and_exact[mlp]",),
    ),
    Mutation(
        "a variable used twice has the norm of one use",
        "gradients/ghost/plan.py",
        "    if op.type in _SEVERAL:\n        raise Unknown(",
        "    if op.type in _SEVERAL:\n        return _find(ctx, op.inputs[0], variable)\n        raise Unknown(",
        ("tests/gradients/ghost/ghost_refusal_test.py::test_unrecognised_or_exact[tied]",),
    ),
    Mutation(
        "a negated gradient has the center of the other sign",
        "gradients/ghost/terms.py",
        "return self._term.squared_norms(-center, scale)",
        "return self._term.squared_norms(center, scale)",
        ("tests/gradients/ghost/ghost_rules_test.py::test_forms_of_a_product",),
    ),
    Mutation(
        "no allowance for cancellation",
        "gradients/ghost/terms.py",
        "quadratic + 2.0 * tf.abs(linear) + constant)",
        "quadratic - 2.0 * linear + constant)",
        (
            "tests/gradients/ghost/ghost_rules_test.py::test_cancellation_is_covered_by_the_magnitude",
            "tests/gradients/gradients_test.py::test_a_gradient_close_to_the_center_is_clipped_to_one_in_spite_of_cancellation",
        ),
    ),
    Mutation(
        "no allowance for cancellation in the Gram form",
        "gradients/ghost/products.py",
        "norms.magnitude + (magnitude - quadratic) * p",
        "norms.magnitude",
        (
            "tests/gradients/ghost/ghost_rules_test.py::test_cancellation_in_the_gram_form_is_covered_by_the_magnitude",
            "tests/gradients/gradients_test.py::test_a_sequence_close_to_a_scalar_center_is_clipped_to_one_in_spite_of_cancellation",
        ),
    ),
    Mutation(
        "no allowance for underflow",
        "gradients/ghost/terms.py",
        "    quadratic += TINY * (total_p + float(sum(shape))) * sum_of_squares\n",
        "",
        ("tests/gradients/ghost/ghost_rules_test.py::test_underflow_never_makes_a_norm_too_small",),
    ),
    Mutation(
        "the square lacks its linear term",
        "gradients/ghost/terms.py",
        "SquaredNorms(quadratic - 2.0 * linear + constant,",
        "SquaredNorms(quadratic + constant,",
        ("tests/gradients/ghost/ghost_zoo_test.py::test_every_variable_is_recognised_and_exact[mlp]",),
    ),
    Mutation(
        "the square lacks its constant",
        "gradients/ghost/terms.py",
        "SquaredNorms(quadratic - 2.0 * linear + constant,",
        "SquaredNorms(quadratic - 2.0 * linear,",
        ("tests/gradients/ghost/ghost_zoo_test.py::test_every_variable_is_recognised_and_exact[mlp]",),
    ),
    Mutation(
        "a NaN of an example left out spoils the sum",
        "gradients/ghost/terms.py",
        "weighed = tf.math.multiply_no_nan(runs, tf.reshape(weights, [1, self.n, 1]))",
        "weighed = runs * tf.reshape(weights, [1, self.n, 1])",
        ("tests/gradients/ghost/ghost_zoo_test.py::test_an_extreme_example_leaves_the_others_alone[dense_on_time]",),
    ),
    Mutation(
        "the rows of a sequence are squared one by one",
        "gradients/ghost/products.py",
        "quadratic = tf.reduce_sum(products, axis=[1, 2])",
        "quadratic = tf.reduce_sum(tf.linalg.diag_part(products), axis=1)",
        ("tests/gradients/ghost/ghost_rules_test.py::test_gram_form_and_formed_gradients_agree",),
    ),
    Mutation(
        "slices leave out the last examples",
        "gradients/ghost/slices.py",
        "count = tf.math.floordiv(n + length - 1, tf.maximum(length, 1))",
        "count = tf.math.floordiv(n, tf.maximum(length, 1))",
        ("tests/gradients/ghost/ghost_rules_test.py::test_slices_cover_every_example",),
    ),
    Mutation(
        "the number of rows is not compared with the number of examples",
        "gradients/ghost/rules.py",
        "    if static != ctx.static_n * rows.per_microbatch:\n        raise",
        "    if False:\n        raise",
        (
            "tests/gradients/ghost/ghost_refusal_test.py::test_rows_that_are_not_the_examples_are_refused_before_the_run",
        ),
    ),
    Mutation(
        "a kernel's padding is forgotten",
        "gradients/ghost/convolutions.py",
        'missing = max(int(places.max()) + 1 - size, 0) if padding == "SAME" else 0',
        "missing = 0",
        ("tests/gradients/ghost/convolutions_test.py::test_patches_are_tensorflows",),
    ),
    Mutation(
        "every constant counts as zero",
        "gradients/graph/known.py",
        "return value is not None and not np.any(value)",
        "return value is not None",
        (
            "tests/gradients/ghost/ghost_refusal_test.py::test_gradients_that_are_not_linear_in_the_seed_are_unrecognised",
        ),
    ),
)
