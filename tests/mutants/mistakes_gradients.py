"""Mistakes in the paths from a loss to the clipped sum."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

AUDIT = "tests/examples/audit_test.py::test_no_claim_is_refuted_and_a_bolder_claim_would_be"
AUDIT_FIXED = f"{AUDIT}[fixed jacobian]"

_REFUSED = "tests/gradients/gradients_test.py::test_nothing_is_summed_of_a_batch_that_must_be_refused"

MISTAKES = (
    Mutation(
        "a frozen variable may have another value on each replica",
        "gradients/graph/alike.py",
        " {hashlib.sha256(mine.numpy().tobytes()).hexdigest()}",
        "",
        ("tests/gradients/graph/alike_test.py::test_a_variable_of_replicas_is_one_where_its_values_are",),
    ),
    Mutation(
        "replicas may differ inside of loops",
        "gradients/graph/alike.py",
        "            self.hash.update(fingerprint(body.outputs, body.inputs).encode())\n",
        "            pass\n",
        ("tests/gradients/graph/alike_test.py::test_another_one_is_not[inside a loop]",),
    ),
    Mutation(
        "replicas may differ by values that they capture",
        "gradients/graph/alike.py",
        'return "value " + hashlib.sha256(value.numpy().tobytes()).hexdigest()',
        'return "value "',
        ("tests/gradients/graph/alike_test.py::test_another_one_is_not[captured value]",),
    ),
    Mutation(
        "replicas are not compared",
        "optimizers/step.py",
        "        self._alike.check(batch)\n",
        "",
        ("tests/optimizers/distribution_mirrored_test.py::test_refusals",),
    ),
    Mutation(
        "no centring term in the clip, ghost path",
        "gradients/paths.py",
        "handles[index].squared_norms(transform.center[index], transform.scale[index])",
        "handles[index].squared_norms(tf.constant(0.0), transform.scale[index])",
        ("tests/gradients/gradients_test.py::test_sum_equals_the_oracle",),
    ),
    Mutation(
        "no centring term in the clip, isolated path",
        "gradients/paths.py",
        "square += core.squared_norms([transformed[i] for i in members])",
        "square += core.squared_norms([record[i] / part.scale[i] for i in members])",
        ("tests/gradients/gradients_test.py::test_sum_equals_the_oracle",),
    ),
    Mutation(
        "the ghost norm is a tenth too small",
        "gradients/paths.py",
        "total = tf.add_n([part.value for part in norms])",
        "total = 0.81 * tf.add_n([part.value for part in norms])",
        ("tests/gradients/gradients_test.py::test_sum_equals_the_oracle",),
    ),
    Mutation(
        "every variable is clipped by itself",
        "gradients/paths.py",
        "core.weigh_records([transformed[i]], weight)[0]",
        "core.weigh_records([transformed[i]], clip.weights(core.squared_norms([transformed[i]])))[0]",
        (AUDIT_FIXED,),
    ),
    Mutation(
        "no allowance for rounding",
        "gradients/paths.py",
        "ROUNDING = 2e-6",
        "ROUNDING = 0.0",
        (
            "tests/gradients/gradients_test.py::test_a_gradient_close_to_the_center_is_clipped_to_one_in_spite_of_cancellation",
            "tests/gradients/gradients_test.py::test_a_sequence_close_to_a_scalar_center_is_clipped_to_one_in_spite_of_cancellation",
        ),
    ),
    Mutation(
        "a variable without gradient is left out of the norm",
        "gradients/paths.py",
        "norm = tf.reduce_sum(tf.square(tf.broadcast_to(center / scale, self._shape)))",
        "norm = tf.zeros([])",
        ("tests/gradients/gradients_test.py::test_a_variable_without_gradient_takes_part_with_gradient_zero",),
    ),
    Mutation(
        "the isolated path runs the first microbatch again and again",
        "gradients/isolated.py",
        "rows = k * microbatch_size + tf.range(microbatch_size)",
        "rows = 0 * k + tf.range(microbatch_size)",
        ("tests/gradients/isolated_test.py::test_equals_one_run_per_example",),
    ),
    Mutation(
        "the isolated path sums a microbatch",
        "gradients/isolated.py",
        "seed = first / tf.cast(tf.maximum(microbatch_size, 1), dtype)",
        "seed = first",
        ("tests/gradients/isolated_test.py::test_microbatches_of_two",),
    ),
    Mutation(
        "what a fixed seed gives to a place is an example's",
        "gradients/isolated.py",
        "        if not (isinstance(label, proof.Public) and label.moved):\n            return False\n",
        "",
        (
            "tests/gradients/isolated_test.py::"
            "test_examples_draw_from_a_seed_that_moves_on_and_share_what_a_fixed_one_gives[False]",
        ),
    ),
    Mutation(
        "numbers of a fixed seed count as draws",
        "gradients/proof/publics.py",
        " if moved.moves_on(op) else label",
        " if op.outputs[0].dtype.is_integer else label",
        ("tests/gradients/proof/proof_test.py::test_seeds_that_the_step_moves_on_are_draws[False-False]",),
    ),
    Mutation(
        "a sum that was divided by anything counts as a mean",
        "gradients/divisors.py",
        "    return _by_count(entries, divisor, walk(), replicas) if found is None else found",
        "    return behind_first(entries, tf.reduce_mean) if found is None else found",
        ("tests/gradients/reduced_test.py::test_what_is_no_plain_mean_is_refused",),
    ),
    Mutation(
        "a loss may be changed after it was handed over",
        "optimizers/handed_over.py",
        "or (value is not None and (value != 1).any()):",
        "and (value is not None and (value != 1).any()):",
        ("tests/optimizers/handed_over_test.py::test_a_loss_that_is_changed_on_the_way_is_refused",),
    ),
    Mutation(
        "the tape sees the gradient of a loss that was handed over",
        "optimizers/handed_over.py",
        "        return _without_gradient(loss)",
        "        return tf.identity(loss)",
        ("tests/optimizers/handed_over_test.py::test_what_the_tape_sees_has_no_gradient",),
    ),
    Mutation(
        "weights above 1 are applied after clipping",
        "gradients/weighted.py",
        "counts = (weights >= 0.0) & (weights <= 1.0)",
        "counts = weights >= 0.0",
        ("tests/gradients/weighted_test.py::test_no_weight_makes_an_example_count_for_more_than_1",),
    ),
    Mutation(
        "a center counts in full where its example does not",
        "gradients/paths.py",
        "        weight = tf.reduce_sum(shares)\n",
        "        weight = tf.reduce_sum(weights[number])\n",
        ("tests/gradients/weighted_test.py::test_the_center_counts_as_often_as_its_example",),
    ),
    Mutation(
        "weights may be of several rows of an example",
        "gradients/weighted.py",
        "if not isinstance(label, Rows) or (label.axis, label.rows, label.outer) != (0, 1, 1) or label.checks:",
        "if False:",
        ("tests/gradients/weighted_test.py::test_what_is_no_weight_of_an_example_stays_in_the_loss",),
    ),
    Mutation(
        "any factor of the loss is a weight",
        "gradients/weighted.py",
        "if one_each and _enters(graph.behind(weights, _SAME).op):",
        "if one_each:",
        ("tests/gradients/weighted_test.py::test_what_is_no_weight_of_an_example_stays_in_the_loss",),
    ),
    Mutation(
        "what XLA can't refuse is summed",
        "gradients/paths.py",
        "start, known = tf.fill([num_records], poison), []",
        "start, known = tf.zeros([num_records]), []",
        (f"{_REFUSED}[auto-clip0]", f"{_REFUSED}[jacobian-clip0]"),
    ),
    Mutation(
        "what XLA can't refuse is summed, where coordinates are cut",
        "gradients/paths.py",
        "transform.apply([gradient + poison for gradient in record])",
        "transform.apply(record)",
        (f"{_REFUSED}[auto-clip1]",),
    ),
    Mutation(
        "variables that are run example by example have a norm of their own",
        "gradients/paths.py",
        "            square = tf.gather(others_norms, [k])\n",
        "            square = tf.zeros([1])\n",
        (
            "tests/gradients/gradients_test.py::test_variables_on_both_paths_have_one_norm",
            "tests/gradients/gradients_test.py::test_one_example_moves_the_sum_by_at_most_one[both_paths-auto]",
        ),
    ),
    Mutation(
        "all groups of variables are clipped as the first one",
        "gradients/paths.py",
        "shares = weights[number] if counts is None else weights[number] * counts",
        "shares = weights[0] if counts is None else weights[0] * counts",
        ("tests/gradients/gradients_test.py::test_variables_on_both_paths_have_one_norm[groups2]",),
    ),
    Mutation(
        "a rule is all that a variable needs",
        "gradients/paths.py",
        "            reason = proven.summed(gradient)\n",
        "            reason = None\n",
        ("tests/gradients/gradients_test.py::test_rows_that_a_custom_gradient_takes_from_others_are_on_no_ghost_path",),
    ),
    Mutation(
        "a variable's sum is over the b of another",
        "gradients/paths.py",
        '("over", shares.ref(), scale.ref())',
        '("over", shares.ref())',
        ("tests/gradients/gradients_test.py::test_each_variable_has_its_own_factor",),
    ),
    Mutation(
        "a sum over another tensor's size is a mean",
        "gradients/divisors.py",
        '    if op.type == "Shape":\n        return _extents(entries) if op.inputs[0] is entries else None',
        '    if op.type == "Shape":\n        return _extents(entries)',
        ("tests/gradients/reduced_test.py::test_what_is_no_plain_mean_is_refused",),
    ),
    Mutation(
        "an example by itself may have any number of losses",
        "gradients/isolated.py",
        "    poison = _poison(loss, count)\n",
        "    poison = 0.0\n",
        ("tests/gradients/isolated_test.py::test_a_loss_that_leaves_examples_out_has_no_entries_that_are_examples",),
    ),
)
