"""The modules that carry the guarantee, and the tests that belong to each: the one table to add to.

A mutant of a module is tried against these tests in this order, up to the first that fails: put quick ones first. A
survivor costs the whole list, so leave out what takes minutes.
"""

from __future__ import annotations

_GHOST = (
    "tests/gradients/ghost/flow_test.py",
    "tests/gradients/ghost/ghost_rules_test.py",
    "tests/gradients/ghost/ghost_refusal_test.py",
    "tests/gradients/ghost/ghost_zoo_test.py",
)
_PROOF = (
    "tests/gradients/proof/symbols_test.py",
    "tests/gradients/proof/proof_test.py",
    "tests/gradients/proof/counted_test.py",
    "tests/gradients/proof/table_test.py",
)
_ATTACK = "tests/attack/attack_test.py::test_some_cases"
_OPTIMIZER = (
    "tests/optimizers/baselines_test.py",
    "tests/optimizers/optimizer_test.py",
    "tests/optimizers/optimizer_noise_test.py",
    "tests/optimizers/noise_terms_test.py",
)

MODULES: dict[str, tuple[str, ...]] = {
    "core/framework.py": (
        "tests/core/rules_test.py",
        "tests/core/core_test.py",
        "tests/property_test.py::test_core",
        "tests/property_test.py::test_query",
    ),
    "core/clipping.py": ("tests/core/rules_test.py", "tests/core/core_test.py"),
    "core/rules.py": ("tests/core/rules_test.py", "tests/core/core_test.py"),
    "core/moments.py": ("tests/core/core_test.py", "tests/property_test.py::test_core"),
    "core/noise.py": ("tests/core/noise_counters_test.py", "tests/core/noise_key_test.py", "tests/core/noise_test.py"),
    "core/box_muller.py": ("tests/core/box_muller_test.py", "tests/core/noise_quality_test.py"),
    "gradients/paths.py": (
        "tests/gradients/gradients_test.py",
        "tests/gradients/isolated_test.py",
        "tests/optimizers/baselines_test.py",
        "tests/optimizers/optimizer_test.py",
    ),
    "gradients/isolated.py": ("tests/gradients/isolated_test.py", "tests/gradients/gradients_test.py"),
    "optimizers/check_model.py": ("tests/optimizers/check_model_test.py",),
    "gradients/graph/known.py": (*_PROOF, *_GHOST),
    "gradients/graph/ops.py": (*_PROOF, "tests/gradients/isolated_test.py", *_GHOST),
    "gradients/graph/reach.py": (*_PROOF, "tests/gradients/isolated_test.py"),
    "gradients/proof/calls.py": _PROOF,
    "gradients/proof/contractions.py": _PROOF,
    "gradients/proof/counted.py": ("tests/gradients/proof/counted_test.py",),
    "gradients/proof/elementwise.py": _PROOF,
    "gradients/proof/labels.py": _PROOF,
    "gradients/proof/memory.py": _PROOF,
    "gradients/proof/parts.py": _PROOF,
    "gradients/proof/shapes.py": _PROOF,
    "gradients/proof/sizes.py": _PROOF,
    "gradients/proof/symbols.py": _PROOF,
    "gradients/proof/sources.py": (*_PROOF, "tests/gradients/isolated_test.py", _ATTACK),
    "gradients/proof/verdict.py": _PROOF,
    "gradients/proof/walk.py": _PROOF,
    "privacy/mechanism.py": ("tests/privacy/mechanism_test.py", "tests/privacy/epsilon_test.py"),
    "optimizers/past.py": ("tests/optimizers/past_test.py",),
    "privacy/past_steps.py": ("tests/optimizers/past_test.py",),
    "privacy/ledger.py": ("tests/privacy/ledger_test.py",),
    "gradients/ghost/convolutions.py": ("tests/gradients/ghost/convolutions_test.py", *_GHOST),
    "gradients/ghost/embeddings.py": _GHOST,
    "gradients/ghost/flow.py": _GHOST,
    "gradients/ghost/flow_linear.py": _GHOST,
    "gradients/ghost/flow_shapes.py": _GHOST,
    "gradients/ghost/labels.py": ("tests/gradients/ghost/labels_test.py", *_GHOST),
    "gradients/ghost/plan.py": (*_GHOST, "tests/gradients/gradients_test.py"),
    "gradients/ghost/products.py": (*_GHOST, "tests/gradients/gradients_test.py"),
    "gradients/ghost/rules.py": _GHOST,
    "gradients/ghost/slices.py": _GHOST,
    "gradients/ghost/terms.py": (*_GHOST, "tests/gradients/gradients_test.py"),
    "optimizers/joined.py": ("tests/optimizers/joined_test.py",),
    "optimizers/step.py": (
        *_OPTIMIZER,
        "tests/optimizers/optimizer_saving_test.py",
        "tests/optimizers/bad_input_test.py",
    ),
    "optimizers/dp_optimizer.py": (
        *_OPTIMIZER,
        "tests/optimizers/optimizer_saving_test.py",
        "tests/optimizers/bad_input_test.py",
    ),
    "optimizers/shell.py": (
        *_OPTIMIZER,
        "tests/optimizers/optimizer_saving_test.py",
        "tests/optimizers/bad_input_test.py",
    ),
    "optimizers/settings.py": _OPTIMIZER,
    "optimizers/rule_state.py": (*_OPTIMIZER, "tests/optimizers/optimizer_saving_test.py"),
    "optimizers/tags.py": ("tests/optimizers/optimizer_test.py",),
    "optimizers/handed_over.py": ("tests/optimizers/handed_over_test.py",),
    "gradients/reduced.py": ("tests/gradients/reduced_test.py",),
    "optimizers/quantile_clip.py": ("tests/optimizers/baselines_test.py",),
    "_internal/variables.py": ("tests/optimizers/replicas_test.py",),
    "optimizers/adaclip.py": _OPTIMIZER,
    "optimizers/replicas.py": ("tests/optimizers/replicas_test.py", "tests/optimizers/distribution_mirrored_test.py"),
    "query.py": ("tests/query_test.py", "tests/property_test.py::test_query", "tests/examples/federation_test.py"),
    "data/sampling.py": ("tests/data/sampling_test.py",),
    "data/pca.py": ("tests/data/pca_test.py",),
    "privacy/events.py": ("tests/privacy/epsilon_test.py", "tests/privacy/statement_test.py"),
    "privacy/epsilon.py": ("tests/privacy/epsilon_test.py", "tests/privacy/statement_test.py"),
    "privacy/group.py": ("tests/privacy/epsilon_test.py",),
    "privacy/accountants.py": ("tests/privacy/accountants_test.py", "tests/privacy/curve_test.py"),
    "privacy/claims.py": ("tests/privacy/meter_test.py", "tests/privacy/budget_claims_test.py"),
    "privacy/horizon.py": ("tests/privacy/horizon_test.py", "tests/privacy/budget_test.py"),
    "privacy/private_optimizer.py": ("tests/privacy/meter_test.py",),
    "privacy/meter.py": ("tests/privacy/meter_test.py", "tests/privacy/budget_test.py"),
    "privacy/calibration.py": ("tests/privacy/calibration_test.py",),
    "privacy/curve.py": ("tests/privacy/curve_test.py",),
    "privacy/budget.py": ("tests/privacy/budget_test.py", "tests/privacy/budget_ledger_test.py"),
    "privacy/statement.py": ("tests/privacy/statement_test.py",),
    "_internal/validate.py": (
        "tests/internal/validate_test.py",
        "tests/core/core_test.py::test_bad_arguments_are_named",
    ),
    "optimizers/checks.py": (
        "tests/optimizers/optimizer_test.py",
        "tests/optimizers/optimizer_saving_test.py",
        "tests/optimizers/bad_input_test.py",
    ),
}
