"""Mistakes about scalar losses: counts that sums were divided by, trained factors, terms of unlike lengths."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_DIVISORS = "tests/gradients/divisors_test.py"
_OTHER = f"{_DIVISORS}::test_a_sum_over_any_other_count_is_refused"
_REDUCED = "tests/gradients/reduced_test.py"
_NOT_PUBLIC = f"{_REDUCED}::test_what_is_no_public_factor_nor_belongs_to_one_is_refused"

MISTAKES = (
    Mutation(
        "any extent of the entries counts the examples",
        "gradients/divisors.py",
        '    if open_axes == [("extent", 0)]:',
        "    if len(open_axes) == 1:",
        (f"{_OTHER}[own width]",),
    ),
    Mutation(
        "a byte holds any count",
        "gradients/divisors.py",
        '(tensor.op.type == "Cast" and tensor.dtype.base_dtype.name in _WIDE)',
        'tensor.op.type == "Cast"',
        (f"{_OTHER}[a byte]",),
    ),
    Mutation(
        "any place in any vector is an extent of the entries",
        "gradients/divisors.py",
        'if shape.type != "Shape" or shape.inputs[0] is not entries or begin is None',
        "if begin is None",
        (_OTHER,),
    ),
    Mutation(
        "what the batch is divided by hangs on nothing else",
        "gradients/divisors.py",
        "    if label.rows is None or not _is_count_of(divisor, entries, walk):",
        "    if label.rows is None:",
        (f"{_DIVISORS}::test_a_count_of_data_that_the_sum_does_not_depend_on_is_refused",),
    ),
    Mutation(
        "a count may be left to the run",
        "gradients/divisors.py",
        '            if getattr(label, "checks", None):\n                return False\n',
        "",
        (f"{_DIVISORS}::test_a_count_that_is_left_to_the_run_is_refused",),
    ),
    Mutation(
        "a multiple of the number of examples is that number",
        "gradients/divisors.py",
        "label.rows / symbol.multiple)",
        "float(label.rows))",
        (f"{_DIVISORS}::test_a_multiple_of_the_number_of_examples_is_a_factor",),
    ),
    Mutation(
        "of a sum over examples the rows of each are averaged",
        "gradients/divisors.py",
        "    return times(behind_first(entries, tf.reduce_sum), label.rows",
        "    return times(behind_first(entries, tf.reduce_mean), label.rows",
        (f"{_DIVISORS}::test_a_sum_over_the_number_of_examples_is_a_mean",),
    ),
    Mutation(
        "any number is that of examples",
        "gradients/divisors.py",
        "    if batch_size is not None and math.isclose(value, batch_size):",
        "    if batch_size is not None:",
        (f"{_DIVISORS}::test_a_sum_over_the_expected_batch_is_the_mean_of_such_a_batch",),
    ),
    Mutation(
        "replicas add up whole means of the expected batch",
        "gradients/divisors.py",
        "        return times(behind_first(entries, tf.reduce_sum), 1.0 / replicas)",
        "        return behind_first(entries, tf.reduce_sum)",
        (f"{_DIVISORS}::test_a_sum_over_the_expected_batch_is_the_mean_of_such_a_batch",),
    ),
    Mutation(
        "a loss may be multiplied by how many examples there are",
        "gradients/reduced.py",
        "        fits = isinstance(label, Public) and not label.counted and not label.drawn",
        '        fits = type(label).__name__ == "Sizes" or (isinstance(label, Public) and not label.drawn)',
        (f"{_NOT_PUBLIC}[their number]",),
    ),
    Mutation(
        "a loss may be multiplied by what is drawn",
        "gradients/reduced.py",
        " and not label.counted and not label.drawn",
        " and not label.counted",
        (f"{_NOT_PUBLIC}[drawn]",),
    ),
    Mutation(
        "beside a trained factor any regularizer is one of its own",
        "gradients/reduced.py",
        "        return bool(read) and read <= trained and",
        "        return bool(read) and",
        (f"{_NOT_PUBLIC}[beside a factor]",),
    ),
    Mutation(
        "a regularizer's own factor is not looked at",
        "gradients/reduced.py",
        "        read = _variables(part.tensor) | _variables(part.factor)",
        "        read = _variables(part.tensor)",
        (f"{_NOT_PUBLIC}[of both, the other way round]",),
    ),
    Mutation(
        "what is added for a factor loses its own factor",
        "gradients/reduced.py",
        "            total += divisors.times(tf.cast(part.tensor, tf.float32), part.factor)",
        "            total += tf.cast(part.tensor, tf.float32)",
        (f"{_REDUCED}::test_a_factor_may_be_trained_and_so_may_what_is_added_for_it",),
    ),
    Mutation(
        "terms of unlike lengths are cut to fit, and nobody is told",
        "gradients/reduced.py",
        "    return total if all(followed) else total[: tf.where(are_alike, count, 0)]",
        "    return total",
        (f"{_REDUCED}::test_they_are_no_loss_of_a_batch_where_assertions_are_dropped",),
    ),
    Mutation(
        "terms of lengths that are known to be unlike are added up",
        "gradients/reduced.py",
        "        if len(known) > 1:",
        "        if False:",
        (f"{_REDUCED}::test_means_over_unlike_numbers_of_entries_are_refused",),
    ),
    Mutation(
        "lengths that are left to the run are alike",
        "gradients/reduced.py",
        ' or getattr(label, "checks", None) for',
        " for",
        (f"{_REDUCED}::test_lengths_that_are_left_to_the_run_are_asked_for",),
    ),
    Mutation(
        "a mean of weights is a term of each example",
        "gradients/reduced.py",
        "            if isinstance(label, Public) and not label.counted:",
        "            if False:",
        (f"{_REDUCED}::test_a_mean_without_examples_is_refused",),
    ),
    Mutation(
        "nobody says how large a batch is expected",
        "optimizers/dp_optimizer.py",
        "count, tape, self.expected_batch_size)",
        "count, tape)",
        ("tests/attack/attack_test.py::test_some_cases[average_loss_of_the_expected_batch-graph]",),
    ),
)
