"""Mistakes in what the proof knows of attributes, of lists and loops, of who calls a step, and of Keras metrics."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_ATTRIBUTES = "tests/gradients/proof/attributes_test.py"
_CALLERS = "tests/gradients/proof/callers_test.py"
_MEMORY = "tests/gradients/proof/memory_test.py"
_MEETING = f"{_ATTRIBUTES}::test_is_not_proven"
_RAW = "tests/optimizers/raw_gradients_test.py"

MISTAKES = (
    Mutation(
        "a slice's entries are numbered like the axes",
        "gradients/proof/parts.py",
        "        fixed_sizes(walk, op.inputs[position], labels[position], taken.entry.get(label.axis, -1))\n",
        "        fixed_sizes(walk, op.inputs[position], labels[position], label.axis)\n",
        (f"{_MEETING}[N in a slice behind an ellipsis]",),
    ),
    Mutation(
        "matrices of shapes are gathered like vectors",
        "gradients/proof/sizes.py",
        '    if parts[0].ndim != 1 or op.get_attr("batch_dims"):\n',
        "    if False:\n",
        (f"{_MEETING}[columns of two shapes]",),
    ),
    Mutation(
        "a narrow number is what it was before",
        "gradients/proof/sizes.py",
        "self.symbols(op.inputs[0]) if tensor.dtype in _WIDE else None",
        "self.symbols(op.inputs[0])",
        (f"{_MEETING}[N in eight bits]",),
    ),
    Mutation(
        "the larger of -N and 1 is -N",
        "gradients/proof/symbols.py",
        " and (a.multiple or 0) > 0:",
        ":",
        (f"{_MEETING}[the largest of -N and 1]",),
    ),
    Mutation(
        "a loop may start with ones [N, N]",
        "gradients/proof/calls.py",
        "            elementwise.not_counted(walk.sizes.extents(op.inputs[index]), joined.axis)\n",
        "            pass\n",
        (f"{_MEETING}[ones [N, N] that a loop starts with]",),
    ),
    Mutation(
        "holes of a list may be zeros [N, N]",
        "gradients/proof/lists.py",
        "    if label.holes and isinstance(label.element, Rows):\n",
        "    if False:\n",
        (f"{_MEETING}[zeros [N, N] of a list]",),
    ),
    Mutation(
        "whatever is in an optional is an element of a dataset",
        "gradients/proof/elements.py",
        "        return is_element(operation.inputs[0])\n",
        "        return True\n",
        (f"{_MEETING}[an optional of the step's own]",),
    ),
    Mutation(
        "a branch may change what a dataset hands out",
        "gradients/proof/elements.py",
        "all(map(is_element, optionals)) and _only_unpacks(operation)",
        "all(map(is_element, optionals))",
        (f"{_ATTRIBUTES}::test_a_branch_hands_out_elements_as_they_are",),
    ),
    Mutation(
        "windows may go over examples",
        "gradients/proof/contractions.py",
        "    if any(window[0] != 1 for window in windows):\n",
        "    if False:\n",
        (f"{_MEETING}[windows over examples]",),
    ),
    Mutation(
        "several diagonals make several matrices",
        "gradients/proof/contractions.py",
        "        last = 2  # several",
        "        last = 1  # several",
        (f"{_ATTRIBUTES}::test_diagonals_side_by_side_make_one_matrix",),
    ),
    Mutation(
        "arrays that are compared always fit",
        "gradients/proof/elementwise.py",
        "        _fit(walk, op)\n",
        "        pass\n",
        (f"{_MEETING}[arrays that may not fit]",),
    ),
    Mutation(
        "functions of datasets write nothing",
        "gradients/proof/memory.py",
        "            by_itself = by_itself or any(map(graph.has_effects, inside))\n",
        "            pass\n",
        (f"{_ATTRIBUTES}::test_a_dataset_in_the_step_writes_nothing[map]",),
    ),
    Mutation(
        "what a metric holds is public",
        "gradients/proof/walk.py",
        "        if memory.read_metric(self, op):\n",
        "        if False:\n",
        (f"{_CALLERS}::test_what_a_metric_holds_reaches_no_weight",),
    ),
    Mutation(
        "random generators may be moved by data behind the optimizer's call",
        "gradients/proof/memory.py",
        "        may_keep = graph.has_effects(op) or op.type in graph.RANDOM\n",
        "        may_keep = graph.has_effects(op)\n",
        (f"{_MEMORY}::test_a_generator_behind_the_optimizer_is_not_moved_by_data",),
    ),
    Mutation(
        "nobody looks at who calls the step",
        "gradients/proof/verdict.py",
        "        callers.watch(self.walk.graph, self.data)\n",
        "",
        (f"{_CALLERS}::test_data_is_passed_on_example_by_example",),
    ),
    Mutation(
        "data may choose the branch of a step",
        "gradients/proof/callers.py",
        "        if memory.tells(labels[:1]):\n",
        "        if False:\n",
        (f"{_CALLERS}::test_a_branch_is_chosen_by_something_public",),
    ),
    Mutation(
        "data may decide how many steps there are",
        "gradients/proof/callers.py",
        "        if _data_decides(walk, op):\n",
        "        if False:\n",
        (f"{_CALLERS}::test_a_loop_goes_on_for_as_long_as_something_public_says",),
    ),
    Mutation(
        "a loop may take several steps on one batch",
        "gradients/proof/callers.py",
        "    if entered and isinstance(inner, WhileBodyFuncGraph):\n",
        "    if False:\n",
        (f"{_CALLERS}::test_a_loop_takes_no_two_steps_on_one_batch",),
    ),
    Mutation(
        "functions that write are run for each example",
        "gradients/isolated.py",
        "        if any(map(graph.has_effects, graph.inside(operation))):\n",
        "        if False:\n",
        ("tests/gradients/isolated_test.py::test_a_function_that_counts_its_calls_is_not_run_for_each_example",),
    ),
    Mutation(
        "raw gradients may be given to the update itself",
        "optimizers/shell.py",
        "        if not self._applying:\n",
        "        if False:\n",
        (f"{_RAW}::test_raw_gradients_are_refused_by_every_entrance",),
    ),
    Mutation(
        "what XLA can't refuse is noise alone",
        "optimizers/step.py",
        "tf.float32), 1.0) + self._poison\n",
        "tf.float32), 1.0)\n",
        (f"{_RAW}::test_a_batch_that_must_be_refused_ends_training_in_xla_too[1]",),
    ),
    Mutation(
        "what XLA can't refuse is noise alone, where batches are parts of one",
        "optimizers/step.py",
        "            total = [part + batch.poison for part in total]\n",
        "            pass\n",
        (f"{_RAW}::test_a_batch_that_must_be_refused_ends_training_in_xla_too[2]",),
    ),
    Mutation(
        "the loss may close over the batch",
        "optimizers/traced.py",
        "            _check_closure(step.get_concrete_function(), data)\n",
        "",
        (f"{_RAW}::test_a_batch_that_the_loss_closes_over_is_refused",),
    ),
)
