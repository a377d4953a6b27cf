"""Mistakes in sampling, accounting, budgets and the PCA."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

MISTAKES = (
    Mutation(
        "batches of a fixed size instead of Poisson's",
        "data/sampling.py",
        "generator.binomial(num_examples, probability)",
        "round(num_examples * probability)",
        ("tests/data/sampling_test.py::test_sampling_law",),
    ),
    Mutation(
        "rows are drawn with replacement",
        "data/sampling.py",
        "count, replace=False, shuffle=False",
        "count, replace=True, shuffle=False",
        ("tests/data/sampling_test.py::test_every_row_is_drawn_at_most_once_and_in_order",),
    ),
    Mutation(
        "every epoch has the same draws",
        "data/sampling.py",
        "_generator(seed, (*stream, next(iterations)))",
        "_generator(seed or 0, stream)",
        ("tests/data/sampling_test.py::test_each_iteration_is_fresh_and_seeded_ones_repeat",),
    ),
    Mutation(
        "draws come from the global seed",
        "data/sampling.py",
        "np.random.SeedSequence() if seed is None",
        "np.random.SeedSequence(np.random.randint(2**31)) if seed is None",
        ("tests/data/sampling_test.py::test_ordinary_seeds_have_no_effect",),
    ),
    Mutation(
        "the sensitivity of microbatches is not paid for",
        "privacy/mechanism.py",
        "dp_accounting.GaussianDpEvent(self.noise_multiplier / self.microbatch_sensitivity)",
        "dp_accounting.GaussianDpEvent(self.noise_multiplier)",
        ("tests/privacy/accounting_test.py::test_whole_groups_cost_no_more_than_half_the_noise",),
    ),
    Mutation(
        "shuffled epochs that were begun are not counted",
        "privacy/mechanism.py",
        "return -(-steps // self.shortest_epoch)",
        "return max(1, steps // self.shortest_epoch)",
        ("tests/privacy/mechanism_test.py::test_shuffled_counts_epochs_begun",),
    ),
    Mutation(
        "shuffled batches are amplified",
        "privacy/mechanism.py",
        '        if self.sampling == "shuffled":\n            return event\n',
        "",
        ("tests/privacy/mechanism_test.py::test_shuffled_counts_epochs_begun",),
    ),
    Mutation(
        "group privacy multiplies epsilon alone",
        "privacy/accounting.py",
        "    log_target = math.log(delta)\n",
        "    return size * float(epsilon_at(delta))\n    log_target = math.log(delta)\n",
        ("tests/privacy/accounting_test.py::test_group_privacy_is_that_of_tensorflow_privacy",),
    ),
    Mutation(
        "the search for the noise stops above the target",
        "privacy/calibration.py",
        "        root = min(root * (1.0 + tolerance / 2.0), high)\n    return root",
        "        root = min(root * (1.0 + tolerance / 2.0), high)\n    return root * (1.0 - tolerance)",
        ("tests/privacy/calibration_test.py::test_inverse",),
    ),
    Mutation(
        "users' examples are left out of the search",
        "privacy/calibration.py",
        "accountant=make, examples_per_user=examples_per_user)",
        "accountant=make)",
        ("tests/privacy/calibration_test.py::test_inverse_with_options",),
    ),
    Mutation(
        "the microbatches' sensitivity is left out of the search",
        "privacy/calibration.py",
        "    def event(z: float) -> dp_accounting.DpEvent:\n"
        "        step = Mechanism(z, num_examples, batch_size, sampling, microbatch_sensitivity)",
        "    def event(z: float) -> dp_accounting.DpEvent:\n"
        "        step = Mechanism(z, num_examples, batch_size, sampling)",
        ("tests/privacy/calibration_test.py::test_inverse_with_options",),
    ),
    Mutation(
        "a step too many is allowed",
        "privacy/curve.py",
        "            low, high = (middle, high) if self(middle) <= target else (low, middle)\n        return low",
        "            low, high = (middle, high) if self(middle) <= target else (low, middle)\n        return high",
        ("tests/privacy/curve_test.py::test_largest_steps_is_the_last_within_the_target",),
    ),
    Mutation(
        "what else was spent is forgotten",
        "privacy/curve.py",
        "rdp = self._rest + (count * self._one if count else 0.0)",
        "rdp = count * self._one if count else 0.0 * self._rest",
        ("tests/privacy/curve_test.py::test_adds_what_else_was_spent",),
    ),
    Mutation(
        "what else was spent is forgotten by PLD",
        "privacy/curve.py",
        "if other is None and gaussian.noise_multiplier > 0.0:",
        "if gaussian.noise_multiplier > 0.0:",
        ("tests/privacy/curve_test.py::test_adds_what_else_was_spent",),
    ),
    Mutation(
        "the curve protects one example of a user's",
        "privacy/curve.py",
        "accounting.group_epsilon(self._compose(count), self._delta, self._group)",
        "accounting.group_epsilon(self._compose(count), self._delta, 1)",
        ("tests/privacy/curve_test.py::test_equals_epsilon_from_scratch",),
    ),
    Mutation(
        "training goes on after the budget is spent",
        "privacy/budget.py",
        "self.noised_steps + self._steps_per_call > self._allowed",
        "self.noised_steps > self._allowed",
        ("tests/privacy/budget_test.py::test_stops_before_the_step_that_would_pass_the_target",),
    ),
    Mutation(
        "rows of the PCA are not scaled to the unit ball",
        "data/pca.py",
        "        rows = unit_rows(chunk)\n",
        "        rows = np.nan_to_num(np.asarray(chunk, np.float64))\n",
        ("tests/data/pca_test.py::test_sensitivity_is_reached",),
    ),
    Mutation(
        "half of the PCA's noise",
        "data/pca.py",
        "generator.normal(scale=noise_multiplier,",
        "generator.normal(scale=noise_multiplier / 2,",
        ("tests/data/pca_test.py::test_noise_is_symmetric_and_of_the_stated_size",),
    ),
    Mutation(
        "the PCA's noise is on the diagonal alone",
        "data/pca.py",
        "return upper + np.triu(upper, 1).T",
        "return np.diag(np.diag(upper))",
        ("tests/data/pca_test.py::test_noise_is_symmetric_and_of_the_stated_size",),
    ),
    Mutation(
        "every fit of a PCA has the same noise",
        "data/pca.py",
        "np.random.SeedSequence(self._seed, spawn_key=(self._fits,))",
        "np.random.SeedSequence(self._seed or 0)",
        ("tests/data/pca_test.py::test_noise_is_fresh_in_every_fit_and_deaf_to_ordinary_seeds",),
    ),
    Mutation(
        "a PCA pays once, however often it is fitted",
        "data/pca.py",
        "max(1, self._fits)",
        "1",
        ("tests/data/pca_test.py::test_event_counts_the_fits",),
    ),
)
