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
    Mutation(
        "another data set's numbers make earlier steps cheaper",
        "privacy/account.py",
        "alike = phase is not None and phase.mechanism == self.meter.mechanism(optimizer)",
        "alike = phase is not None",
        ("tests/privacy/account_test.py::test_the_ledger_knows_better_what_its_steps_were",),
    ),
    Mutation(
        "steps that were worse than said are not kept so without a ledger",
        "privacy/account.py",
        "            self._taken.worsen(worse)\n",
        "",
        ("tests/privacy/account_test.py::test_steps_that_turn_out_worse_are_refused_and_paid_for",),
    ),
    Mutation(
        "an older state of the running optimizer takes steps back",
        "privacy/taken.py",
        "(mechanism, max(seen, count))",
        "(mechanism, count)",
        ("tests/privacy/forgotten_test.py::test_a_count_that_goes_back_takes_no_step_back",),
    ),
    Mutation(
        "the progress bar's epsilon may be below the truth",
        "privacy/horizon.py",
        "end = steps - (-batches // self.accumulation_steps)",
        "end = steps + batches // self.accumulation_steps",
        ("tests/privacy/horizon_test.py::test_end_of_epoch",),
    ),
    Mutation(
        "a file takes another's place before it is on the disk",
        "_internal/files.py",
        "            os.fsync(file.fileno())\n",
        "",
        ("tests/internal/files_test.py::test_a_file_is_replaced_once_all_is_on_the_disk",),
    ),
    Mutation(
        "a call that completes half a batch takes no step",
        "privacy/run_checks.py",
        "    return -(-batches // accumulation_steps)",
        "    return max(1, batches // accumulation_steps)",
        ("tests/privacy/run_checks_test.py::test_a_call_takes_so_many_noised_steps_at_most",),
    ),
)
