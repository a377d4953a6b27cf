"""The modules that carry the guarantee, and the tests that belong to each: the one table to add to.

A mutant of a module is tried against these tests in this order, up to the first that fails: put quick ones first. A
survivor costs the whole list, so leave out what takes minutes.
"""

from __future__ import annotations

_GHOST = (
    "tests/ghost/ghost_rules_test.py",
    "tests/ghost/ghost_refusal_test.py",
    "tests/ghost/ghost_zoo_test.py",
)
_PROOF = ("tests/proof/proof_test.py",)
_OPTIMIZER = ("tests/optimizer_test.py", "tests/optimizer_noise_test.py", "tests/noise_terms_test.py")

MODULES: dict[str, tuple[str, ...]] = {
    "core.py": ("tests/core_test.py", "tests/property_test.py::test_core", "tests/property_test.py::test_query"),
    "noise.py": ("tests/noise_counters_test.py", "tests/noise_key_test.py", "tests/noise_test.py"),
    "box_muller.py": ("tests/box_muller_test.py", "tests/noise_quality_test.py"),
    "gradients.py": ("tests/gradients_test.py", "tests/isolated_test.py", "tests/optimizer_test.py"),
    "isolated.py": ("tests/isolated_test.py", "tests/gradients_test.py"),
    "mixing.py": ("tests/mixing_test.py",),
    "proof/calls.py": _PROOF,
    "proof/contractions.py": _PROOF,
    "proof/elementwise.py": _PROOF,
    "proof/labels.py": _PROOF,
    "proof/memory.py": _PROOF,
    "proof/shapes.py": _PROOF,
    "proof/sizes.py": _PROOF,
    "proof/sources.py": (*_PROOF, "tests/isolated_test.py"),
    "proof/verdict.py": _PROOF,
    "proof/walk.py": _PROOF,
    "mechanism.py": ("tests/mechanism_test.py", "tests/accounting_test.py"),
    "past.py": ("tests/past_test.py",),
    "ledger.py": ("tests/ledger_test.py",),
    "ghost/_graph.py": _GHOST,
    "ghost/convolutions.py": ("tests/ghost/convolutions_test.py", *_GHOST),
    "ghost/embeddings.py": _GHOST,
    "ghost/flow.py": _GHOST,
    "ghost/flow_linear.py": _GHOST,
    "ghost/flow_shapes.py": _GHOST,
    "ghost/labels.py": ("tests/ghost/labels_test.py", *_GHOST),
    "ghost/plan.py": (*_GHOST, "tests/gradients_test.py"),
    "ghost/products.py": (*_GHOST, "tests/gradients_test.py"),
    "ghost/rules.py": _GHOST,
    "ghost/slices.py": _GHOST,
    "ghost/terms.py": (*_GHOST, "tests/gradients_test.py"),
    "base_optimizer.py": (*_OPTIMIZER, "tests/optimizer_saving_test.py", "tests/bad_input_test.py"),
    "optimizer.py": _OPTIMIZER,
    "replicas.py": ("tests/replicas_test.py", "tests/distribution_mirrored_test.py"),
    "query.py": ("tests/query_test.py", "tests/property_test.py::test_query", "tests/federation_test.py"),
    "sampling.py": ("tests/sampling_test.py",),
    "pca.py": ("tests/pca_test.py",),
    "accounting.py": ("tests/accounting_test.py", "tests/statement_test.py"),
    "calibration.py": ("tests/calibration_test.py",),
    "curve.py": ("tests/curve_test.py",),
    "budget.py": ("tests/budget_test.py",),
    "statement.py": ("tests/statement_test.py",),
    "_validate.py": ("tests/validate_test.py", "tests/core_test.py::test_bad_arguments_are_named"),
    "_checks.py": ("tests/optimizer_test.py", "tests/optimizer_saving_test.py", "tests/bad_input_test.py"),
}
