"""Survivors, by identifier, and why no test fails for them. One that touches privacy has no place here."""

from __future__ import annotations

# The program does the same: no test can notice.
EQUIVALENT: dict[str, str] = {
    "core/moments.py:MomentEstimator.next_state:44f536": (
        "The same: the other word that is allowed sorts below this one."
    ),
    "flower/sampling.py:ClientSampler.draw:3dc2cb": ("The same: of the ways of sampling this one sorts last."),
    "flower/sums.py:within_one:82d9e8": (
        "The same: NumPy takes any negative extent for the one that it is to work out."
    ),
    "gradients/gathers.py:gathered:42756b": ("The same: the op has one output, which is its first and its last."),
    "gradients/ghost/flow_linear.py:_space_batch:5a3295": (
        "The same: the other of the two types sorts below this one."
    ),
    "gradients/ghost/labels.py:Context.__init__:0b9ee4": (
        "The same: the seed has one axis, which is its first and its last."
    ),
    "gradients/ghost/labels.py:_is_length_of:360391": (
        "The same: the op has one input, which is its first and its last."
    ),
    "gradients/ghost/labels.py:_is_length_of:cf524a": ("The same: the shape of a loss of rank 0 has no first entry."),
    "gradients/ghost/maps.py:_functions:f9667e": ("The same: of one place the first is the last."),
    "gradients/ghost/maps.py:_product.function:72e2b7": ("The same: of one part the first is the last."),
    "gradients/ghost/placing.py:place.placed:a36459": ("The same: of one part the first is the last."),
    "gradients/ghost/rules.py:_einsum:d2b318": ("The same: an index is not negative."),
    "gradients/ghost/several.py:join:519a09": ("The same: of one part the first is the last."),
    "gradients/graph/known.py:_number:f0a6a9": ("The same: of one number the first is the last."),
    "gradients/isolated.py:_among_copies:aa7b78": ("The same: it is 0 or not a number."),
    "gradients/paths.py:_layer_of:bf349c": ("The same: of two parts the last but one is the first."),
    "gradients/proof/calls.py:module:7d4a7e": (
        "The same: the entry itself asks that the place be public, and a list comes first."
    ),
    "gradients/proof/contractions.py:_over_all:7e67ef": ("The same: of the two layouts NCHW sorts first."),
    "gradients/proof/counted.py:_reshape:c6befd": ("The same: the op has one output, which is its first and its last."),
    "gradients/proof/elementwise.py:is_uniform:99476d": ("The same: 0 and -1 are both not above 0."),
    "gradients/proof/labels.py:module:2615ef": ("The same: nothing writes to a label."),
    "gradients/proof/memory.py:privatised:c8b549": (
        "The same: a scalar has no axis along which it could be alike or not."
    ),
    "gradients/proof/parts.py:_strided_slice_grad:ba2007": (
        "The same: an unknown rank raises a line later, and counts as not followed."
    ),
    "gradients/proof/repeated.py:_repeated:78da19": ("The same: of one axis the first is the last."),
    "gradients/proof/shapes.py:_broadcast_to:b22c46": (
        "The same: the op has one output, which is its first and its last."
    ),
    "gradients/proof/sizes.py:Evaluator._evaluate:f7e151": (
        "The same: the op has one input, which is its first and its last."
    ),
    "gradients/proof/sources.py:Piece.take:d61808": ("The same: of one axis the first is the last."),
    "gradients/proof/symbols.py:_floordiv:c536c2": (
        "The same: of an unknown multiple the answer is unknown either way."
    ),
    "gradients/proof/symbols.py:_maximum:6d6851": (
        "The same: no symbol is 0 times N, and of an unknown multiple the answer is unknown either way."
    ),
    "gradients/proof/table.py:module:942a9c": (
        "The same: nothing writes to what is known of a list, and it is no key of anything."
    ),
    "gradients/proof/walk.py:Walk._visit:a58e87": ("The same: a label that is there is not replaced."),
    "gradients/spelled_out.py:_most_steps:35f631": (
        "The same: the third argument of a gradient's loop is a whole number, too, how many rounds there were."
    ),
    "optimizers/check_model.py:_objection:a15f33": ("The same: every recurrent layer has the attribute."),
    "optimizers/past.py:Past.see_step:dd65fc": ("The same: what the assignment returns is not used."),
    "optimizers/replicas.py:first:6eaa75": ("The same: it is asked for values that all replicas share."),
    "optimizers/settings.py:Settings:c70f69": ("The same: `DPOptimizer` gives every setting, so no default is used."),
    "optimizers/shell.py:Shell.apply_gradients:5acd41": (
        "The same: one replica by itself may enter the update as several do, together."
    ),
    "optimizers/step.py:PrivateStep.past_steps:b8348b": ("The noise of no steps is not used."),
    "privacy/calibration.py:noise_multiplier:8f38ae": (
        "The same: the search puts its own noise in the place of this one."
    ),
    "privacy/events.py:optimizer_event:d1f239": ("The same: no count of steps is negative."),
    "privacy/fit_data.py:given_to_fit:8179be": (
        "The same: a dataset of no batches counts as one of which the number is not known."
    ),
    "privacy/formed.py:formed:36751b": (
        "The same: it goes on where there is one input, which is the first and the last."
    ),
    "privacy/group.py:group_epsilon:1f3b83": ("The same: no size is below 1."),
    "releasing/release_statement.py:_check_fits:620282": (
        "The same: of the ways of sampling that a report may name this one sorts first."
    ),
}

# It does something else, on which neither privacy nor its accounting nor any result hangs.
HARMLESS: dict[str, str] = {
    "privacy/horizon.py:Horizon.spent:8598fc": ("Only the words of why training has ended."),
    "privacy/budget.py:PrivacyBudget._statement:705c5f": (
        "The same in effect: without a step the meter has no report, and nothing is written."
    ),
    "gradients/ghost/transposed.py:Transposed._moved:2c4b23": (
        "Only how many gradients are formed at a time, for memory's sake."
    ),
    "gradients/ghost/transposed.py:Transposed._moved:3fda7d": (
        "Only how many gradients are formed at a time, for memory's sake."
    ),
    "_internal/files.py:check_writable:9ab324": ("Only what a file is called that is gone at once."),
    "data/streaming.py:module:9fabe8": ("Only how many examples may be in memory at once."),
    "flower/answers.py:Asked.change:23a076": ("Only whether NumPy warns of a change that is too large for a number."),
    "flower/answers.py:_checked:d06ff0": (
        "Only sooner: what an array says of its shape is asked of the array itself as well, once it is unpacked."
    ),
    "flower/sampling.py:module:f214ef": ("Only how often it is asked whether enough clients are there."),
    "flower/sums.py:Clipper.add_up:2706c2": ("Only how many changes are clipped at a time, for memory's sake."),
    "gradients/ghost/convolutions.py:Geometry.patches:60ee87": (
        "Only which of two forms cuts out the windows; they are the same."
    ),
    "gradients/ghost/keeping.py:module:a7d4f0": (
        "Only from which width on a pass over rows is spared; either way the numbers are the same."
    ),
    "gradients/ghost/plan.py:Handle._divided_rows:3de065": (
        "Only which of two forms computes the norms where rows have one entry; they are the same."
    ),
    "gradients/ghost/plan.py:Handle._divided_rows:c3ec5d": (
        "Only which of two forms computes the norms where rows have one or two entries; they are the same."
    ),
    "gradients/ghost/plan.py:keep_together:134aa6": (
        "Only how many branches are traced; the sums are the same without it, as the function says."
    ),
    "gradients/ghost/products.py:SumOfOuterProducts.squared_norms:77dfe4": (
        "Only how much is computed at once, for memory's sake."
    ),
    "gradients/ghost/single.py:squared_norms:63020a": (
        "Only in which order two products are computed, for memory's sake."
    ),
    "gradients/ghost/single.py:squared_norms:d7cd4d": (
        "Only in which order two products are computed, for memory's sake."
    ),
    "gradients/ghost/single.py:weighted_squares:0a22e3": (
        "Only whether sums are one product with another or two passes; they are the same but for rounding."
    ),
    "gradients/ghost/slices.py:map_examples:a73c12": (
        "Only whether the examples are computed in pieces; the numbers are the same."
    ),
    "gradients/ghost/slices.py:module:543e66": ("Only how much memory a piece may take."),
    "gradients/ghost/terms.py:_unless_all_used:ce357d": (
        "Only from which width on zeros are looked for; either way the numbers are the same."
    ),
    "gradients/isolated.py:_Copy._inputs:f8e964": (
        "Examples draw at other counters instead of by other keys: no two of them the same numbers, either way."
    ),
    "gradients/isolated.py:_runs_on_less:8b36b2": (
        "Only that a graph of a fixed size with sparse gradients runs microbatches among copies, more slowly; the "
        "gradients are the same."
    ),
    "gradients/proof/metrics.py:of_running_models:d306e8": ("Only slower: all metrics are then asked for, and found."),
    "gradients/proof/sizes.py:_constant:65f081": (
        "Only what is looked at in vain: numbers that are not whole are nobody's size."
    ),
    "gradients/spelled_out.py:_leaf:283dcf": (
        "Only which loops are spelled out: the others run example by example, with the same sums (the module says so)."
    ),
    "optimizers/fused.py:after:6a4939": (
        "Only when noise is drawn, for memory's and time's sake: it is the same noise."
    ),
    "optimizers/fused.py:after:c68e77": (
        "Only when noise is drawn, for memory's and time's sake: it is the same noise."
    ),
    "optimizers/fused.py:if_large.call:25b1fc": ("Only whether XLA compiles the step; the numbers are the same."),
    "optimizers/fused.py:if_large:3d221e": (
        "Only how it is traced: nothing in these functions branches on a tensor, so AutoGraph changes nothing."
    ),
    "optimizers/fused.py:if_large:83cd0a": (
        "Only how it is traced: nothing in these functions branches on a tensor, so AutoGraph changes nothing."
    ),
    "optimizers/fused.py:is_large:079b9f": ("Only from which size on XLA compiles the step; the numbers are the same."),
    "optimizers/fused.py:module:5f6fbb": ("Only from which size on XLA compiles the step; the numbers are the same."),
    "optimizers/fused.py:module:b63292": (
        "Only when noise is drawn, for memory's and time's sake: it is the same noise."
    ),
    "optimizers/joined.py:module:662d14": ("Only which variables are joined; joined or not, the step is the same."),
    "optimizers/joined.py:module:c0f9ac": ("Only which variables are joined; joined or not, the step is the same."),
    "privacy/auditing.py:module:50730a": ("Only how many values are kept."),
    "privacy/calibration.py:_solve:1005f4": ("Only the stride of a loop that ends within the target."),
    "privacy/calibration.py:module:d9fde6": ("A limit for the search, far beyond any use."),
    "privacy/curve.py:EpsilonCurve._by:730eca": ("Only how many values are kept."),
    "privacy/curve.py:EpsilonCurve.largest_steps:48f5a4": ("Only where the search starts."),
    "privacy/curve.py:_largest_steps:419cc2": ("At equality one step less, on the safe side."),
    "privacy/past_steps.py:new_phase:85af4b": ("One bit less of 126 in a name that only has to be new."),
    "training/private_training.py:PrivateTraining._notes:ddf6e2": (
        "Only advice in the summary; no number hangs on it."
    ),
    "training/private_training.py:PrivateTraining.summary:8ac48e": ("Only where the lines of the summary are broken."),
    "training/private_training.py:PrivateTraining.summary:faeb80": ("Only where the lines of the summary are broken."),
}
