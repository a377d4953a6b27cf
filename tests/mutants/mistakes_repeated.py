"""Mistakes about public arrays with a part for each example, and about variables that are made into something else."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_COUNTED = "tests/gradients/proof/counted_test.py::test_what_may_tell_the_number_of_examples_is_run_one_by_one"
_BY_PLACE = "tests/gradients/proof/table_test.py::test_values_by_place_are_not_taken_for_all_alike"
_UNKNOWN = "tests/gradients/proof/table_test.py::test_entries_that_may_see_several_examples"
_MAPS = "tests/gradients/ghost/maps_test.py"
_CANCELS = "tests/gradients/ghost/several_test.py::test_what_cancels_within_an_example_counts_for_rounding"
_LOOPS = "tests/gradients/spelled_out_test.py::test_recurrent_layers_have_handles_and_are_exact"

MISTAKES = (
    Mutation(
        "numbers by place are followed as if each example had its own",
        "gradients/proof/repeated.py",
        "    if len(long) != 1 or not extents[long[0]].multiple or not label.is_uniform(long[0]):",
        "    if len(long) != 1 or not extents[long[0]].multiple:",
        (f"{_COUNTED}[a fixed seed, in other rows]",),
    ),
    Mutation(
        "an array of half as many parts has a part for each example",
        "gradients/proof/repeated.py",
        "    if len(long) != 1 or not extents[long[0]].multiple or not label.is_uniform(long[0]):\n"
        "        return label\n"
        "    return Rows(long[0], extents[long[0]].multiple)",
        "    if len(long) != 1 or not label.is_uniform(long[0]):\n"
        "        return label\n"
        "    return Rows(long[0], extents[long[0]].multiple or 1)",
        (f"{_COUNTED}[repeated for each pair]",),
    ),
    Mutation(
        "what is looked up is alike wherever it was looked up",
        "gradients/proof/publics.py",
        "    found = {axis + own for own in range(count) if labels[1].is_uniform(own)}",
        "    found = {axis + own for own in range(count)}",
        (f"{_BY_PLACE}[looked up by place]",),
    ),
    Mutation(
        "codes of places are alike",
        "gradients/proof/publics.py",
        "for own, axis in enumerate(places) if labels[0].is_uniform(own)))",
        "for own, axis in enumerate(places)))",
        (f"{_BY_PLACE}[codes of places]",),
    ),
    Mutation(
        "sorted draws are alike along the axis of the sort",
        "gradients/proof/publics.py",
        "    last = rank(op.inputs[0]) - 1\n",
        "    last = rank(op.inputs[0])\n",
        (f"{_BY_PLACE}[sorted by place]",),
    ),
    Mutation(
        "a sort may be over all examples",
        "gradients/proof/counted.py",
        '@entry("TopKV2", "TopK")\ndef _top(walk: Walk, op: tf.Operation, labels: Labels) -> None:\n'
        "    _leaves(op.inputs[0], labels[0], [rank(op.inputs[0]) - 1])",
        '@entry("TopKV2", "TopK")\ndef _top(walk: Walk, op: tf.Operation, labels: Labels) -> None:\n    pass',
        (f"{_COUNTED}[the best of all draws]",),
    ),
    Mutation(
        "a product may sum over as many as there are examples",
        "gradients/proof/counted.py",
        "        if any(own[axis] not in output for axis in _may_be_long(tensor, label)):",
        "        if False:",
        tuple(
            f"tests/gradients/proof/counted_test.py::test_what_tells_the_number_of_examples_is_refused[{name}]"
            for name in ("ones in einsum", "ones in a batched product")
        ),
    ),
    Mutation(
        "rows of a table that were drawn may be any",
        "gradients/proof/verdict.py",
        "isinstance(labels[1], Public) and labels[1].is_uniform(0) and isinstance(labels[0], Rows):",
        "isinstance(labels[1], Public) and isinstance(labels[0], Rows):",
        ("tests/gradients/proof/table_test.py::test_rows_that_are_drawn_are_a_sum_over_examples",),
    ),
    Mutation(
        "rows of the batch may be added up by numbers",
        "gradients/proof/parts.py",
        '    if label.axis < front:\n        raise Unproven("adds up rows of the batch")\n',
        "",
        (f"{_UNKNOWN}[rows put elsewhere-None]",),
    ),
    Mutation(
        "sequences may be turned around along the batch",
        "gradients/proof/parts.py",
        'values.axis != along or op.get_attr("seq_dim") == along:',
        'op.get_attr("seq_dim") == along:',
        (f"{_UNKNOWN}[examples turned around-None]",),
    ),
    Mutation(
        "lengths may go by place",
        "gradients/proof/parts.py",
        "    elementwise.meets(walk, op.inputs[1], lengths, 0)\n    return values",
        "    return values",
        (f"{_UNKNOWN}[turned around by place-8]",),
    ),
    Mutation(
        "equations may be those of all examples",
        "gradients/proof/contractions.py",
        "    if label.axis >= total - 2:",
        "    if False:",
        (f"{_UNKNOWN}[a system of all-8]",),
    ),
    Mutation(
        "any part of a batch is all of it",
        "gradients/proof/strided.py",
        "ends = same(end[i], extents[axis])",
        "ends = True",
        ("tests/gradients/proof/table_test.py::test_a_slice_of_all_examples",),
    ),
    Mutation(
        "two numbers of rows that nobody knows are one",
        "gradients/proof/symbols.py",
        "    if isinstance(first, Count) and first.multiple is None:\n        return False\n",
        "",
        ("tests/gradients/proof/table_test.py::test_parts_of_unknown_rows_are_not_taken_for_all_of_them[a part]",),
    ),
    Mutation(
        "a difference from something public is linear",
        "gradients/proof/repeated.py",
        '    return len(summed) == (2 if op.type == "Sub" else 1)',
        "    return True",
        (f"{_MAPS}::test_maps_that_are_not_linear_are_no_sums_over_examples[shifted]",),
    ),
    Mutation(
        "a choice between a gradient and anything is linear",
        "gradients/proof/repeated.py",
        "return len(summed) == 1 and graph.is_zero(op.inputs[3 - summed[0]])",
        "return len(summed) == 1",
        (f"{_MAPS}::test_maps_that_are_not_linear_are_no_sums_over_examples[chosen]",),
    ),
    Mutation(
        "one over a gradient is linear",
        "gradients/graph/ops.py",
        '    **dict.fromkeys(("RealDiv", "DivNoNan", "MulNoNan", "Sum", "Tile", "BroadcastTo"), (0,)),',
        '    **dict.fromkeys(("RealDiv", "DivNoNan", "MulNoNan", "Sum", "Tile", "BroadcastTo"), (0, 1)),',
        (f"{_MAPS}::test_maps_that_are_not_linear_are_no_sums_over_examples[divided]",),
    ),
    Mutation(
        "what a map cancels is not reckoned with",
        "gradients/ghost/slices.py",
        "    if bounds is None:\n        return",
        "    if True:\n        return",
        (f"{_MAPS}::test_what_a_map_cancels_counts_for_rounding",),
    ),
    Mutation(
        "what one use cancels of another is not reckoned with",
        "gradients/ghost/several.py",
        "        return self._sum([cancelling.most_of(part) for part in self._parts])",
        "        return None",
        (f"{_CANCELS}[a product and a sum]",),
    ),
    Mutation(
        "what rows of one example cancel is forgotten where a part is used",
        "gradients/ghost/products.py",
        "return None if self._length == 1 else cancelling.of_absolutes(self.examples())",
        "return None",
        (f"{_CANCELS}[over time, of a part]",),
    ),
    Mutation(
        "what cancels is forgotten behind a transposition",
        "gradients/ghost/transposed.py",
        "return None if inner is None else self._moved(inner)",
        "return None",
        (f"{_CANCELS}[transposed, of a part]",),
    ),
    Mutation(
        "imaginary parts are dropped on the way through a map",
        "gradients/ghost/maps.py",
        "    if not all(tensor.dtype.is_floating for tensor in (op.outputs[0], *sources)):",
        "    if False:",
        (f"{_MAPS}::test_numbers_that_are_not_real_have_no_map",),
    ),
    Mutation(
        "a map by positive and negative numbers cancels nothing",
        "gradients/ghost/maps.py",
        "_product(op, places[0], tf.abs)",
        "_product(op, places[0], lambda other: other)",
        (f"{_MAPS}::test_a_map_does_to_each_gradient_what_the_op_does_to_one[products]",),
    ),
    Mutation(
        "a sum that is rounded to whole numbers is one of its terms' whole numbers",
        "gradients/proof/walk.py",
        " and not graph.rounds(op)",
        "",
        (f"{_MAPS}::test_maps_that_are_not_linear_are_no_sums_over_examples[rounded]",),
    ),
    Mutation(
        "what is rounded to whole numbers has the handle of what it was before",
        "gradients/ghost/plan.py",
        "        if graph.rounds(op):",
        "        if False:",
        (f"{_MAPS}::test_what_is_rounded_to_whole_numbers_has_no_handle",),
    ),
    Mutation(
        "what rows of one example cancel is forgotten where gradients are formed",
        "gradients/ghost/products.py",
        "return SquaredNorms(value, tf.maximum(value, tf.square(tf.sqrt(most) + tf.sqrt(constant))))",
        "return SquaredNorms(value, value)",
        (_CANCELS.replace("within_an_example", "where_gradients_are_formed"),),
    ),
    Mutation(
        "what positions of one channel cancel is not reckoned with",
        "gradients/ghost/convolutions.py",
        "lengths = [tf.norm(factor, axis=1) for factor in self._factors(arrays)]",
        "lengths = [tf.reduce_sum(factor, axis=1) for factor in self._factors(arrays)]",
        (f"{_CANCELS}[a convolution]",),
    ),
    Mutation(
        "what positions that look up one row cancel is not reckoned with",
        "gradients/ghost/embeddings.py",
        "return SquaredNorms(norms.value, tf.maximum(norms.magnitude, most))",
        "return norms",
        (f"{_CANCELS}[looked up twice]",),
    ),
    Mutation(
        "entries that were sorted go back to other places",
        "gradients/gathers.py",
        "    chosen = tf.one_hot(places, params.shape[-1], dtype=dy.dtype)\n    return tf.squeeze(",
        "    chosen = tf.one_hot(places[..., ::-1], params.shape[-1], dtype=dy.dtype)\n    return tf.squeeze(",
        (f"{_LOOPS}[sorted]",),
    ),
)
