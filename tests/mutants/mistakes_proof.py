"""Mistakes in the proof that examples stay apart, and in the path that runs them one by one."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_PROVEN = "tests/gradients/proof/proof_test.py::test_examples_that_stay_apart_are_recognised"
_UNKNOWN = "tests/gradients/proof/proof_test.py::test_what_is_not_known_is_run_one_by_one"
_REFUSED = "tests/gradients/proof/proof_test.py::test_what_is_known_to_mix_is_refused"
_MEMORY = "tests/gradients/proof/proof_test.py::test_nothing_of_a_batch_may_stay_behind"
_BEHIND = "tests/gradients/proof/memory_test.py::test_nor_behind_the_loss"
_COUNTED = "tests/gradients/proof/counted_test.py"
_ATTACK = "tests/attack/attack_test.py::test_some_cases"
_POISON = "tests/gradients/proof/proof_test.py::test_data_of_another_length_poisons_the_run"

MISTAKES = (
    Mutation(
        "behind the loss nobody looks into branches, loops and functions",
        "gradients/proof/memory.py",
        "return any(map(_may_note_itself, graph.inside(op)))",
        "return False",
        tuple(f"{_BEHIND}[{name}]" for name in ("in a branch on data", "in as many rounds as data says")),
    ),
    Mutation(
        "behind the loss what is on a dead side is not looked for",
        "gradients/proof/memory.py",
        'known = op.type == "Switch" or ',
        "known = ",
        (f"{_BEHIND}[behind a switch]",),
    ),
    Mutation(
        "a write behind the loss is labelled without what it is computed from",
        "gradients/proof/walk.py",
        "                pending.extend(tensor.op for tensor in op.inputs if self._look_up(tensor) is None)\n",
        "                self.labels.update((part.ref(), Public()) for part in op.inputs if not self._look_up(part))\n",
        (f"{_BEHIND}[a sum of as many ones]",),
    ),
    Mutation(
        "an op that is not in the table keeps examples apart",
        "gradients/proof/walk.py",
        '            raise Unproven("is not known to keep examples apart")\n',
        "            return next(label for label in labels if isinstance(label, Rows))\n",
        (f"{_UNKNOWN}[one op that nobody knows-True]",),
    ),
    Mutation(
        "other axes may be as long as there are examples",
        "gradients/proof/walk.py",
        "if counted and tensor.ref() not in self._settled:",
        "if False:",
        tuple(
            f"{_COUNTED}::test_what_may_tell_the_number_of_examples_is_run_one_by_one[{name}]"
            for name in ("an outer product as long", "a kernel as long", "as many bins")
        ),
    ),
    Mutation(
        "what a reshape leaves to an axis is public",
        "gradients/proof/shapes.py",
        "        _grows(after, axis, rest)\n",
        "        pass\n",
        (f"{_COUNTED}::test_what_may_tell_the_number_of_examples_is_run_one_by_one[the rest of a reshape]",),
    ),
    Mutation(
        "an output shape may depend on how many examples there are",
        "gradients/proof/shapes.py",
        "elementwise.not_counted(None if symbols is None else list(symbols.ravel()), axis)",
        "pass",
        (f"{_COUNTED}::test_what_may_tell_the_number_of_examples_is_run_one_by_one[an output shape as long]",),
    ),
    Mutation(
        "zeros of a list are no longer than they should be",
        "gradients/proof/lists.py",
        "return EVERYWHERE.but(counted=not tensor.shape.is_fully_defined())",
        "return Public()",
        (f"{_COUNTED}::test_what_tells_the_number_of_examples_is_refused[an element that was never put in]",),
    ),
    Mutation(
        "the number of examples may be a value",
        "gradients/proof/walk.py",
        "            if isinstance(label, Sizes):\n                raise",
        "            if False:\n                raise",
        (f"{_REFUSED}[divided by the batch size-False]",),
    ),
    Mutation(
        "sums over the batch may meet examples",
        "gradients/proof/walk.py",
        "            if isinstance(label, Summed):\n                raise",
        "            if False:\n                raise",
        (f"{_REFUSED}[mean of the batch-False]",),
    ),
    Mutation(
        "numbers of examples are public",
        "gradients/proof/extents.py",
        '        raise Unproven("numbers the examples of the batch")',
        "        return Public(None)",
        (f"{_UNKNOWN}[numbered examples-False]",),
    ),
    Mutation(
        "constants may meet the examples by place",
        "gradients/proof/elementwise.py",
        "    if axis < 0 or tensor.shape[axis] == 1 or is_uniform(tensor, label, axis):\n        return\n",
        "    return\n",
        (f"{_REFUSED}[constants by place-False]",),
    ),
    Mutation(
        "another axis may be as long as there are examples",
        "gradients/proof/elementwise.py",
        "        not_counted(walk.sizes.extents(tensor), axis)\n",
        "",
        (f"{_UNKNOWN}[zeros as wide as the batch-False]",),
    ),
    Mutation(
        "examples along different axes are one and the same",
        "gradients/proof/elementwise.py",
        "    if len(set(axes)) > 1:\n",
        "    if False:\n",
        (f"{_REFUSED}[differences of pairs-False]",),
    ),
    Mutation(
        "what works along the axis of the examples passes",
        "gradients/proof/parts.py",
        "    if label.axis in along:\n",
        "    if False:\n",
        (f"{_REFUSED}[rolled batch-False]", f"{_REFUSED}[cumsum over the batch-False]"),
    ),
    Mutation(
        "a slice of the examples passes",
        "gradients/proof/parts.py",
        "    if not taken.whole[label.axis]:\n",
        "    if taken.output[label.axis] is None:\n",
        (f"{_UNKNOWN}[examples in reverse-True]",),
    ),
    Mutation(
        "a reshape may have the batch's size behind the examples",
        "gradients/proof/shapes.py",
        "    elementwise.not_counted(after, axis)\n",
        "",
        (f"{_UNKNOWN}[reshaped to the batch's width-False]",),
    ),
    Mutation(
        "sizes may be what data says",
        "gradients/proof/walk.py",
        '            raise Unproven("has a size that data decides")\n',
        "            pass\n",
        (f"{_UNKNOWN}[tiles as data says-False]",),
    ),
    Mutation(
        "tiles may be as many as there are examples",
        "gradients/proof/shapes.py",
        "        elementwise.not_counted(None if symbols is None else list(symbols.ravel()), axis)\n",
        "",
        (f"{_UNKNOWN}[as many features as examples-False]",),
    ),
    Mutation(
        "a reduction over the batch passes where its axis is negative",
        "gradients/proof/sizes.py",
        "return None if found is None else [axis % rank for axis in found]",
        "return found",
        (f"{_REFUSED}[negative axis of the batch-False]",),
    ),
    Mutation(
        "softmax over the batch passes",
        "gradients/proof/contractions.py",
        "    if label.axis >= rank(op.inputs[0]) - last:\n",
        "    if False:\n",
        (f"{_REFUSED}[softmax over the batch-False]",),
    ),
    Mutation(
        "products of examples with each other pass",
        "gradients/proof/contractions.py",
        "    if any(other != letter for _, other in found):\n",
        "    if False:\n",
        (f"{_REFUSED}[pairs-False]", f"{_REFUSED}[pairs by einsum-False]"),
    ),
    Mutation(
        "batch normalisation in training passes",
        "gradients/proof/contractions.py",
        '    if op.get_attr("is_training"):\n',
        "    if False:\n",
        (f"{_REFUSED}[batch normalisation-False]",),
    ),
    Mutation(
        "branches on data pass",
        "gradients/proof/calls.py",
        "    if not isinstance(condition, Public):\n",
        "    if False:\n",
        (f"{_UNKNOWN}[a branch on the data-False]",),
    ),
    Mutation(
        "functions are not looked into",
        "gradients/proof/calls.py",
        "        results = _outputs(walk.entered[op])\n        if len",
        "        results = labels[:1] * len(op.outputs)\n        if len",
        (f"{_REFUSED}[hidden in a function-False]",),
    ),
    Mutation(
        "what a list was given first holds for all that it is given",
        "gradients/proof/calls.py",
        "        return Listed(element, symbols, holes, long, sized, extents)\n",
        "        return before\n",
        ("tests/gradients/proof/lists_test.py::test_a_list_holds_what_all_of_its_elements_are",),
    ),
    Mutation(
        "a fact inside of a function is left to a run that can't tell",
        "gradients/proof/walk.py",
        "Checks() if outer is None else NoChecks()",
        "Checks() if outer is None else outer.checks",
        ("tests/gradients/proof/lists_test.py::test_facts_inside_of_functions_are_not_left_to_the_run",),
    ),
    Mutation(
        "a step may keep the number of examples",
        "gradients/proof/memory.py",
        "(walk.told or tells(labels)):  # a write",
        "_decided(labels):  # a write",
        (f"{_MEMORY}[how many-True]",),
    ),
    Mutation(
        "several rows per example pass as examples",
        "gradients/proof/verdict.py",
        "        if label.rows not in (None, 1) or label.outer != 1:\n",
        "        if False:\n",
        (f"{_REFUSED}[several rows per example-False]",),
    ),
    Mutation(
        "the backward pass is not looked at",
        "gradients/proof/verdict.py",
        "            proven = isinstance(labels[0], Public) or (isinstance(labels[0], Summed) and labels[0].exact)\n",
        "            proven = True\n",
        (
            "tests/gradients/proof/proof_test.py::test_a_custom_gradient_that_looks_at_the_batch_is_not_a_sum_over_examples",
        ),
    ),
    Mutation(
        "assertions alone, which XLA drops",
        "gradients/graph/extents.py",
        "        return tf.where(all_hold,",
        "        return tf.where(True,",
        (f"{_POISON}[True]",),
    ),
    Mutation(
        "Python in the graph passes",
        "gradients/proof/verdict.py",
        "            if inner.type in graph.PYTHON:\n",
        "            if False:\n",
        ("tests/gradients/proof/memory_test.py::test_python_no_data_is_given_to_is_refused_in_the_loss",),
    ),
    Mutation(
        "writes of data are not noticed",
        "gradients/proof/memory.py",
        "self.writes.append(Write(op, root(walk, handles[0]) if handles else None))",
        "pass",
        (f"{_MEMORY}[assign_add-False]", f"{_MEMORY}[scatter-False]"),
    ),
    Mutation(
        "the loss may read a metric",
        "gradients/proof/memory.py",
        "if write.handle not in found.metrics or write.handle in read:",
        "if write.handle not in found.metrics:",
        ("tests/gradients/proof/proof_test.py::test_what_the_loss_read_is_no_metric_later[True]",),
    ),
    Mutation(
        "a scalar of the dataset is public",
        "gradients/proof/sources.py",
        "            return scalar or Lost(\n",
        "            return scalar or EVERYWHERE or Lost(\n",
        (
            "tests/gradients/proof/proof_test.py::test_a_scalar_of_the_dataset_is_refused_and_a_scalar_argument_is_public",
        ),
    ),
    Mutation(
        "extents that data decides are public",
        "gradients/proof/extents.py",
        "    if isinstance(label, (Public, Rows)) or tensor.shape.is_fully_defined():\n        return None\n",
        "    return None\n",
        (
            "tests/gradients/proof/counted_test.py"
            "::test_what_may_tell_the_number_of_examples_is_run_one_by_one[the rest of a reshape]",
        ),
    ),
    Mutation(
        "what was closed over is not looked for behind other ops",
        "gradients/proof/sources.py",
        "        pending.extend(_differ_by_place(walk, current.op))\n",
        "",
        (f"{_REFUSED}[a constant by place, number by number-False]",),
    ),
    Mutation(
        "quantisation by the range of a batch passes",
        "gradients/proof/elementwise.py",
        '    if not op.get_attr("range_given"):\n',
        "    if False:\n",
        (f"{_REFUSED}[quantised by the batch's range-False]",),
    ),
    Mutation(
        "examples may meet among their copies",
        "gradients/isolated.py",
        "    if apart or draws is None:",
        "    if apart or draws is None or proven:",
        (
            "tests/gradients/isolated_test.py::test_a_batch_of_copies_is_no_way_out_where_examples_meet[neighbours-False]",
        ),
    ),
    Mutation(
        "an example is run in a graph that makes four of it",
        "gradients/proof/verdict.py",
        "            expected[label.axis] = extent // batch * size\n",
        "            expected[label.axis] = copy.shape[label.axis]\n",
        (
            "tests/gradients/isolated_test.py::"
            "test_a_graph_for_one_size_of_batch_runs_on_less_where_no_shape_holds_that_size[_spread-False]",
        ),
    ),
    Mutation(
        "the isolated path gets the whole batch",
        "gradients/isolated.py",
        "_gradients_of(backward, _Copy(backward, proven, rows), microbatch_size, microbatch_size)",
        "_gradients_of(backward, _Copy(backward, proven, tf.range(batch_size)), batch_size, batch_size)",
        ("tests/gradients/isolated_test.py::test_equals_one_run_per_example",),
    ),
    Mutation(
        "the sum of as many ones as examples is public",
        "gradients/proof/walk.py",
        "            result = result if told is None else told\n",
        "            del told\n",
        (f"{_COUNTED}::test_what_tells_the_number_of_examples_is_refused[ones that are summed]",),
    ),
    Mutation(
        "numbers of a fixed seed are draws",
        "gradients/proof/publics.py",
        '    if op.type.startswith("Stateless") and not labels[1].moved:\n',
        "    if False:\n",
        (f"{_COUNTED}::test_what_may_tell_the_number_of_examples_is_run_one_by_one[a fixed seed]",),
    ),
    Mutation(
        "noise may change places",
        "gradients/proof/counted.py",
        "    if along is None or _may_be_long(tensor, label) & set(along):\n",
        "    if along is None:\n",
        (f"{_COUNTED}::test_what_may_tell_the_number_of_examples_is_run_one_by_one[noise in reverse]",),
    ),
    Mutation(
        "a scalar beside arrays is public",
        "gradients/proof/sources.py",
        "scalar=None if _is_beside_arrays(self._walk, tensor) else EVERYWHERE",
        "scalar=EVERYWHERE",
        (
            "tests/gradients/proof/proof_test.py::"
            "test_a_scalar_of_the_dataset_is_refused_and_a_scalar_argument_is_public",
        ),
    ),
    Mutation(
        "ragged arguments are dense",
        "gradients/proof/sources.py",
        "        if isinstance(spec, tf.RaggedTensorSpec):\n",
        "        if False:\n",
        (f"{_ATTACK}[ragged_loss_per_token-loop]",),
    ),
    Mutation(
        "ragged copies are compared with copies",
        "gradients/proof/sources.py",
        "            if first is not None:\n                longer",
        "            if False:\n                longer",
        (f"{_ATTACK}[ragged_total-static]",),
    ),
    Mutation(
        "isolated gradients are those at later weights",
        "gradients/isolated.py",
        '        if operation.type == "ReadVariableOp":',
        "        if False:",
        ("tests/gradients/isolated_test.py::test_gradients_are_those_at_the_weights_of_the_loss",),
    ),
    Mutation(
        "a bias's gradient has its channels behind the first axis in any layout",
        "gradients/proof/contractions.py",
        'channel = 1 if op.get_attr("data_format") == b"NCHW" else',
        'channel = 1 if op.get_attr("data_format") >= b"NCHW" else',
        (f"{_REFUSED}[a bias's gradient with the examples in the middle-True]",),
    ),
    Mutation(
        "splits of texts may be anything that is made of their lengths",
        "gradients/proof/texts.py",
        'ends.type != "Cumsum" or graph',
        'ends.type != "Cumsum" and graph',
        ("tests/gradients/proof/texts_test.py::test_what_may_join_texts_is_not_proven[cut at products of lengths]",),
    ),
    Mutation(
        "of what is zipped only a part is looked at",
        "optimizers/given.py",
        "        elif name not in _HANDS_ON:\n            continue",
        "        elif name not in _HANDS_ON:\n            break",
        ("tests/optimizers/given_test.py::test_every_part_of_a_zip_is_looked_at",),
    ),
    Mutation(
        "what is mapped over batches that are cut again is not looked at",
        "optimizers/given.py",
        "            of_batches = name in _ENDS_BATCHES",
        "            of_batches = False",
        ("tests/optimizers/given_test.py::test_it_is_seen_behind_what_follows[cut again]",),
    ),
    Mutation(
        "what was refused once is taken for looked at",
        "optimizers/given.py",
        "    pending = [(batches, True)]\n",
        "    setattr(batches, _LOOKED_AT, True)\n    pending = [(batches, True)]\n",
        ("tests/optimizers/given_test.py::test_what_was_refused_is_refused_again",),
    ),
    Mutation(
        "what is cached is not looked at",
        "optimizers/given.py",
        '"Cache", ',
        "",
        ("tests/optimizers/given_test.py::test_it_is_seen_behind_what_follows[cached]",),
    ),
    Mutation(
        "batches may be chosen by what is in them",
        "gradients/proof/mapped.py",
        "    if any(walk.label(tensor) != EVERYWHERE for tensor in predicate.outputs):\n",
        "    if False:\n",
        ("tests/gradients/proof/mapped_test.py::test_batches_are_not_chosen_by_what_is_in_them[by a mean]",),
    ),
)
