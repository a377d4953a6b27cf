"""Mistakes in what is claimed of a run, in budgets that are told of it, and in the files that remember it."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_CLAIMS = "tests/privacy/claims_test.py"
_PAST = f"{_CLAIMS}::test_a_past_that_does_not_go_with_the_present_is_refused"
_WORSE = f"{_CLAIMS}::test_steps_that_turn_out_worse_are_told_and_paid_for"

MISTAKES = (
    Mutation(
        "weights may have been updated without noise",
        "privacy/claims.py",
        "    if updates > seen.steps:",
        "    if False:",
        (_PAST,),
    ),
    Mutation(
        "another optimizer on the same batches is not noticed",
        "privacy/claims.py",
        "    if seen.noise_multiplier < planned.noise_multiplier:",
        "    if False:",
        (_WORSE,),
    ),
    Mutation(
        "larger batches of the past count as the present ones",
        "privacy/meter.py",
        "min(max(self.claimed.batch_size, before.batch_size if before.steps else 0), self.claimed.num_examples)",
        "self.claimed.batch_size",
        (f"{_CLAIMS}::test_steps_to_come_are_counted_as_the_worst_of_those_before",),
    ),
    Mutation(
        "what a function mapped may have drawn counts as drawn, whatever its size",
        "privacy/fit_data.py",
        "mapped = cut.mapped and given.batch_size is None",
        "mapped = cut.mapped or given.batch_size is None",
        ("tests/privacy/budget_claims_test.py::test_a_cut_of_another_size_is_no_poisson_sample_either",),
    ),
    Mutation(
        "a budget of drawn batches is one for arrays",
        "privacy/fit_data.py",
        "return Given(True, rows, call.batch_size, found=True)",
        "return Given(True, rows, call.batch_size)",
        ("tests/privacy/budget_claims_test.py::test_a_budget_of_batches_is_not_for_arrays",),
    ),
)
