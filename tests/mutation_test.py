"""The library, broken on purpose: each of these mistakes would cost privacy, and a test that is named here catches it.

A mutation is a textual patch of a copy of the package. The tests that are named run against the copy in a process of
their own and must fail there, by an assertion; the same tests pass on a copy that is not patched. A patch that no
longer applies fails loudly: write it anew for the code as it is.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from typing import NamedTuple

import pytest

ROOT = pathlib.Path(__file__).parent.parent
COPIED = ("adaclip_tf", "examples", "tests", "pyproject.toml")

AUDIT = "tests/audit_test.py::test_no_claim_is_refuted_and_a_bolder_claim_would_be"
AUDIT_ADACLIP = f"{AUDIT}[adaclip ghost]"
AUDIT_FIXED = f"{AUDIT}[fixed jacobian]"
AUDIT_MICROBATCHES = f"{AUDIT}[fixed ghost microbatches]"


class Mutation(NamedTuple):
    """A mistake, and who notices."""

    name: str
    file: str
    old: str
    new: str
    caught_by: tuple[str, ...]  # all of these must fail


MUTATIONS = (
    Mutation(
        "the state learns from the un-noised sum",
        "core.py",
        "    return published_step(choice, state, transform, noised_sum, noise_multiplier, divisor)\n",
        "    mean, _ = published_step(choice, state, transform, noised_sum, noise_multiplier, divisor)\n"
        "    return mean, published_step(choice, state, transform, total, noise_multiplier, divisor)[1]\n",
        (AUDIT_ADACLIP, "tests/core_test.py::test_the_next_state_depends_on_the_noised_mean_alone"),
    ),
    Mutation(
        "noise scaled by 1 / B",
        "core.py",
        "u + noise_multiplier * n for",
        "u + noise_multiplier / divisor * n for",
        (AUDIT_FIXED, "tests/optimizer_noise_test.py::test_noise_is_on_top_of_the_clipped_sum"),
    ),
    Mutation(
        "one variable gets no noise",
        "core.py",
        "u + noise_multiplier * n for u, n in zip(total, standard_normals)]",
        "u + noise_multiplier * (k > 0) * n for k, (u, n) in enumerate(zip(total, standard_normals))]",
        (AUDIT_FIXED,),
    ),
    Mutation(
        "no centring term in the clip, in the core",
        "core.py",
        "clip_weights(squared_norms(transformed))",
        "clip_weights(squared_norms([r / b for r, b in zip(records, transform.scale)]))",
        ("tests/core_test.py::test_every_clipped_record_has_norm_at_most_one",),
    ),
    Mutation(
        "no centring term in the clip, ghost path",
        "gradients.py",
        "handle.squared_norms(transform.center[index], transform.scale[index])",
        "handle.squared_norms(tf.constant(0.0), transform.scale[index])",
        ("tests/gradients_test.py::test_sum_equals_the_oracle",),
    ),
    Mutation(
        "no centring term in the clip, isolated path",
        "gradients.py",
        "known + core.squared_norms(transformed)",
        "known + core.squared_norms([r / b for r, b in zip(record, transform.scale)])",
        ("tests/gradients_test.py::test_sum_equals_the_oracle",),
    ),
    Mutation(
        "the ghost norm is a tenth too small",
        "gradients.py",
        "known += norms.value +",
        "known += 0.81 * norms.value +",
        ("tests/gradients_test.py::test_sum_equals_the_oracle",),
    ),
    Mutation(
        "every variable is clipped by itself",
        "gradients.py",
        "clipped = core.weigh_records(transformed, core.clip_weights(squared_norm))",
        "clipped = [core.weigh_records([w], core.clip_weights(core.squared_norms([w])))[0] for w in transformed]",
        (AUDIT_FIXED,),
    ),
    Mutation(
        "an example without a finite gradient is not dropped",
        "core.py",
        "tf.where(weight > 0.0, weight * record, 0.0)",
        "weight * record",
        ("tests/core_test.py::test_a_record_without_a_finite_norm_contributes_nothing",),
    ),
    Mutation(
        "noise keyed by the global seed",
        "noise.py",
        "os.urandom(16)",
        "np.random.bytes(16)",
        (
            "tests/noise_test.py::test_ordinary_seeds_do_not_reach_the_key",
            "tests/optimizer_noise_test.py::test_global_seeds_do_not_make_the_noise_predictable",
        ),
    ),
    Mutation(
        "the same draws at every step",
        "noise.py",
        "delta=tf.constant(blocks, dtype=tf.uint64)",
        "delta=tf.constant(0, dtype=tf.uint64)",
        (
            "tests/noise_test.py::test_fresh_draws_never_repeat_in_eager_mode_graphs_and_loops",
            "tests/optimizer_noise_test.py::test_noise_differs_between_steps_variables_and_runs",
        ),
    ),
    Mutation(
        "all variables share a stream",
        "noise.py",
        "low + tf.constant(by, tf.uint64)",
        "low + tf.constant(0 * by, tf.uint64)",
        (
            "tests/noise_test.py::test_variables_of_one_step_do_not_share_words",
            "tests/noise_counters_test.py::test_a_million_pairs_of_call_and_variable_have_blocks_of_their_own",
        ),
    ),
    Mutation(
        "half of the key from the operating system",
        "noise.py",
        "return np.array([0, *key], np.int64)",
        "return np.array([0, 0, key[1]], np.int64)",
        (
            "tests/noise_key_test.py::test_every_bit_of_the_key_changes_every_draw",
            "tests/noise_key_test.py::test_a_shortened_key_is_found_by_brute_force_and_a_whole_one_is_not",
        ),
    ),
    Mutation(
        "half of the bits of either number of the key",
        "noise.py",
        "return np.frombuffer(os.urandom(16), dtype=np.int64)",
        "return np.frombuffer(os.urandom(16), dtype=np.int64) & 0xFFFFFFFF",
        ("tests/noise_key_test.py::test_every_bit_of_the_key_changes_every_draw",),
    ),
    Mutation(
        "a call moves on by too few blocks for its angles",
        "noise.py",
        "return ends[:-1].reshape([len(sizes), terms, 2]), int(ends[-1])",
        "return ends[:-1].reshape([len(sizes), terms, 2]), int(ends[-1]) // 512",
        ("tests/noise_counters_test.py::test_a_million_pairs_of_call_and_variable_have_blocks_of_their_own",),
    ),
    Mutation(
        "no carry into the upper half of the counter",
        "noise.py",
        "carry = tf.cast(lows < low, tf.uint64)",
        "carry = tf.zeros_like(lows)",
        (
            "tests/noise_counters_test.py::test_a_million_pairs_of_call_and_variable_have_blocks_of_their_own",
            "tests/noise_counters_test.py::test_draws_where_the_lower_half_of_the_counter_overflows",
        ),
    ),
    Mutation(
        "angles that are not masked",
        "noise.py",
        "mask = tf.cast(words, tf.uint32)",
        "mask = tf.zeros_like(words, tf.uint32)",
        ("tests/noise_key_test.py::test_draws_are_those_of_philox_with_the_whole_key",),
    ),
    Mutation(
        "a radius of 32 bits: no tails",
        "box_muller.py",
        "u = tf.cast(words, tf.float64) * _TO_U + _HALF",
        "u = tf.cast(words, tf.float64) * _TO_U + 2.0**-33",
        ("tests/box_muller_test.py::test_tails_have_the_right_weight",),
    ),
    Mutation(
        "a radius that is a little short",
        "box_muller.py",
        "tf.sqrt(-2.0 *",
        "tf.sqrt(-1.98 *",
        (
            "tests/box_muller_test.py::test_normals_are_right_for_every_kind_of_word",
            "tests/noise_quality_test.py::test_a_million_draws",
        ),
    ),
    Mutation(
        "a forked process keeps its parent's key",
        "noise.py",
        "if self._owner == _process():",
        "if True:",
        ("tests/noise_test.py::test_a_function_traced_in_a_new_process_takes_a_new_key",),
    ),
    Mutation(
        "a sum of several draws divided by their number",
        "noise.py",
        "tf.add_n(draws) / math.sqrt(self._terms)",
        "tf.add_n(draws) / self._terms",
        ("tests/noise_terms_test.py::test_noise_through_fit_has_standard_deviation_z",),
    ),
    Mutation(
        "division by the true size of a Poisson batch",
        "base_optimizer.py",
        "self._expected_records or num_records",
        "num_records",
        ("tests/optimizer_test.py::test_a_poisson_batch_is_divided_by_the_expected_size_and_may_be_empty",),
    ),
    Mutation(
        "the sensitivity of microbatches is ignored",
        "past.py",
        "sensitivity = 1.0 if int(microbatch) <= 1 else 2.0",
        "sensitivity = 1.0",
        (AUDIT_MICROBATCHES, "tests/past_test.py::test_one_batch_of_shared_microbatches_is_enough_for_sensitivity_2"),
    ),
    Mutation(
        "the noise of past steps is forgotten",
        "past.py",
        "tf.minimum(self._noise, noise)",
        "noise",
        ("tests/past_test.py::test_steps_that_were_mixed_unseen_count_as_the_worst",),
    ),
    Mutation(
        "an epoch of n / B steps, rounded down",
        "mechanism.py",
        "return -(-self.num_examples // self.batch_size)",
        "return self.num_examples // self.batch_size",
        ("tests/mechanism_test.py::test_an_epoch_is_as_long_as_poisson_batches_make_it",),
    ),
    Mutation(
        "what a killed run had reserved is forgotten",
        "ledger.py",
        "        paid = self.steps\n",
        "        paid = min(self.steps, self.paid + count - self.start)\n",
        ("tests/ledger_test.py::test_a_killed_run_counts_what_it_may_have_taken",),
    ),
    Mutation(
        "a ledger is written after the steps",
        "_account.py",
        "self._session.reserve(steps + steps_per_call,",
        "self._session.reserve(steps,",
        ("tests/budget_ledger_test.py::test_a_step_is_written_down_before_it_is_taken",),
    ),
    Mutation(
        "accumulation adds noise to every part",
        "base_optimizer.py",
        "accumulator.add(batch)",
        "accumulator.add(batch._replace(total=self._share(batch.total)))",
        ("tests/noise_terms_test.py::test_accumulation_adds_noise_once_per_logical_batch",),
    ),
    Mutation(
        "accumulation adds no noise",
        "base_optimizer.py",
        "functools.partial(self._publish, state, transform, total, records)",
        "functools.partial(self._learn, state, transform, total, None, records)",
        ("tests/noise_terms_test.py::test_accumulation_adds_noise_once_per_logical_batch",),
    ),
    Mutation(
        "noised steps are not counted",
        "base_optimizer.py",
        "self._noised_steps.assign_add(1",
        "self._noised_steps.assign_add(0",
        ("tests/optimizer_test.py::test_accumulation_draws_noise_once_and_stands_still_in_between",),
    ),
    Mutation(
        "batches of a fixed size instead of Poisson's",
        "sampling.py",
        "generator.binomial(num_examples, probability)",
        "round(num_examples * probability)",
        ("tests/sampling_test.py::test_sampling_law",),
    ),
)


def _copy(folder):
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)


def _apply(mutation, folder):
    path = folder / "adaclip_tf" / mutation.file
    text = path.read_text()
    count = text.count(mutation.old)
    assert count == 1, f"the patch of {mutation.file} applies {count} times, not once: {mutation.old!r}"
    path.write_text(text.replace(mutation.old, mutation.new))


def _outcomes(folder, tests):
    """{name of a test function, with its parameters: None if it passed, else what went wrong}."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "TF_CPP_MIN_LOG_LEVEL": "3"}
    # This process may itself be a worker of pytest-xdist, or have options of its own.
    environment = {k: v for k, v in environment.items() if not k.startswith("PYTEST_")}
    report = folder / "report.xml"
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--junitxml={report}"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert report.exists(), run.stdout[-3000:] + run.stderr[-3000:]
    outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        path = case.get("classname").replace(".", "/") + ".py"
        wrong = [element for element in case if element.tag in ("failure", "error", "skipped")]
        outcomes[f"{path}::{case.get('name')}"] = f"{wrong[0].tag}: {wrong[0].get('message')}" if wrong else None
    return outcomes


def _belong(outcomes, test):
    """The outcomes of a test with all its parameters."""
    return {name: wrong for name, wrong in outcomes.items() if name == test or name.startswith(f"{test}[")}


@pytest.mark.slow
def test_the_named_tests_pass_on_an_unpatched_copy(tmp_path):
    _copy(tmp_path)
    tests = sorted({test for mutation in MUTATIONS for test in mutation.caught_by})
    outcomes = _outcomes(tmp_path, tests)
    for test in tests:
        found = _belong(outcomes, test)
        assert found, f"no such test: {test}"
        assert not any(found.values()), found


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name.replace(" ", "-"))
def test_each_mutation_is_caught(mutation, tmp_path):
    _copy(tmp_path)
    _apply(mutation, tmp_path)
    outcomes = _outcomes(tmp_path, mutation.caught_by)
    for test in mutation.caught_by:
        wrong = [message for message in _belong(outcomes, test).values() if message]
        assert wrong, f"{test} did not notice: {mutation.name}"
        # Caught by what the test asserts, not by a copy that does not run.
        assert any(message.startswith(("failure: assert", "failure: AssertionError")) for message in wrong), wrong


def test_every_patch_still_applies(tmp_path):
    """Fast, so that whoever changes the code learns of it before `make slow-test`."""
    for mutation in MUTATIONS:
        folder = tmp_path / mutation.name.replace(" ", "_").replace("/", "_")
        (folder / "adaclip_tf").mkdir(parents=True)
        shutil.copy(ROOT / "adaclip_tf" / mutation.file, folder / "adaclip_tf" / mutation.file)
        _apply(mutation, folder)
        compile((folder / "adaclip_tf" / mutation.file).read_text(), mutation.file, "exec")
