"""Mistakes in what may stay behind of a batch, and in what other replicas may see of it."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_FILE = "tests/gradients/proof/memory_test.py"
_WRITTEN = f"{_FILE}::test_what_a_batch_decides_may_not_be_written"
_METRICS = "tests/gradients/proof/metrics_test.py"
_TOLD = "tests/gradients/proof/mapped_test.py::test_what_is_not_known_is_told"
_PYTHON = f"{_FILE}::test_python_gets_nothing_of_a_batch"

MISTAKES = (
    Mutation(
        "only an op without results keeps something by itself",
        "gradients/graph/ops.py",
        "(not op.outputs or op.type not in FORGETFUL)\n",
        "not op.outputs\n",
        (f"{_WRITTEN}[in a sampler that counts]",),
    ),
    Mutation(
        "a dataset's function keeps nothing by itself",
        "gradients/proof/memory.py",
        "remembers = not op.outputs or remembers or any(map(graph.may_remember, inside))",
        "remembers = not op.outputs",
        (f"{_WRITTEN}[in the same sampler in a dataset]",),
    ),
    Mutation(
        "a debugger's op is no write, since TensorFlow does not call it stateful",
        "gradients/graph/ops.py",
        "    if op.type in _TELLING:\n",
        "    if False:\n",
        (f"{_WRITTEN}[in a debugger's file]",),
    ),
    Mutation(
        "the number of examples may stay behind",
        "gradients/proof/memory.py",
        "    return not all(isinstance(label, Public) and not label.counted for label in labels)\n",
        "    return not all(isinstance(label, (Public, Sizes)) for label in labels)\n",
        (f"{_WRITTEN}[how many examples there are]",),
    ),
    Mutation(
        "data may decide whether something is written",
        "gradients/proof/memory.py",
        "(walk.told or tells(labels)):  # a write",
        "tells(labels):  # a write",
        (f"{_WRITTEN}[in a branch on data]", f"{_WRITTEN}[in as many rounds as data says]"),
    ),
    Mutation(
        "a branch on data is like any other",
        "gradients/proof/calls.py",
        "told = labels[0], memory.tells(labels[:1])",
        "told = labels[0], False",
        (f"{_WRITTEN}[in a case of data]",),
    ),
    Mutation(
        "data may decide how often something is written",
        "gradients/proof/calls.py",
        "        if memory.tells([goes_on]):  #",
        "        if False:  #",
        (f"{_WRITTEN}[in as many rounds as there are examples]",),
    ),
    Mutation(
        "a loop that is not followed may write as often as data says",
        "gradients/proof/calls.py",
        "            _inside(walk, body, arguments, current, constant, told=memory.tells(labels))\n",
        "",
        (f"{_WRITTEN}[in a loop that is not followed]",),
    ),
    Mutation(
        "a function in a branch on data forgets who decided",
        "gradients/proof/walk.py",
        "told or (outer is not None and outer.told)",
        "told",
        (f"{_WRITTEN}[in a function in a branch on data]",),
    ),
    Mutation(
        "data may decide how many random numbers are skipped",
        "gradients/proof/memory.py",
        " or (op.type in graph.RANDOM and _decided(labels))",
        "",
        (f"{_WRITTEN}[skipped random numbers]",),
    ),
    Mutation(
        "Python beside the loss may see the batch",
        "gradients/proof/memory.py",
        " or (is_python and tells(labels) and not (self.is_watching and metrics.in_a_metric()))",
        "",
        (f"{_PYTHON}[beside the loss]", f"{_PYTHON}[beside the loss, in a function]"),
    ),
    Mutation(
        "Python in functions is not looked for",
        "gradients/proof/verdict.py",
        "        for inner in (op, *graph.inside(op)):\n",
        "        for inner in (op,):\n",
        (f"{_FILE}::test_python_no_data_is_given_to_is_refused_in_the_loss",),
    ),
    Mutation(
        "replicas may join their examples",
        "gradients/proof/verdict.py",
        "            if inner.type in graph.COLLECTIVE and not (inner is op and _joins_what_is_public(walk, op)):",
        "            if False:",
        (f"{_FILE}::test_what_replicas_join_is_refused",),
    ),
    Mutation(
        "two replicas may have losses of one example",
        "gradients/proof/sources.py",
        "    if replica is None or replica.num_replicas_in_sync == 1:\n",
        "    if True:\n",
        (f"{_FILE}::test_an_example_belongs_to_one_replica[1]",),
    ),
    Mutation(
        "sparse copies have as many entries around them as copies",
        "gradients/proof/sources.py",
        "        found = tf.boolean_mask(found, (found[:, 0] < own) | ((found[:, 0] - own) % 2 == 1))\n",
        "",
        (f"{_FILE}::test_among_zeros_a_sparse_example_has_fewer_entries_around_it",),
    ),
    Mutation(
        "what a switch leaves out is of no account",
        "gradients/proof/memory.py",
        "        if leaves_out or (is_python",
        "        if (is_python",
        (f"{_WRITTEN}[behind a switch]",),
    ),
    Mutation(
        "what is mapped over batches may mix",
        "gradients/proof/mapped.py",
        "        if isinstance(label, Summed) or (isinstance(label, Lost) and label.mixing):\n",
        "        if isinstance(label, Summed):\n",
        ("tests/gradients/proof/mapped_test.py::test_what_mixes_is_refused[a mean]",),
    ),
    Mutation(
        "what is mapped over batches may make two rows of one",
        "gradients/proof/mapped.py",
        "(label.axis != 0 or label.outer != 1 or label.rows not in (None, 1))",
        "False",
        ("tests/gradients/proof/mapped_test.py::test_what_mixes_is_refused[two rows each]",),
    ),
    Mutation(
        "nobody is told that only a run says how many rows are made of one",
        "gradients/proof/mapped.py",
        "    if isinstance(label, Rows) and label.rows is None:\n",
        "    if False:\n",
        (f"{_TOLD}[a row for each time]",),
    ),
    Mutation(
        "nobody is told what only a run says of batches",
        "gradients/proof/mapped.py",
        "    if isinstance(label, Rows) and label.checks:\n",
        "    if False:\n",
        (f"{_TOLD}[as many examples as are drawn]",),
    ),
    Mutation(
        "a metric owns what it tracks",
        "gradients/proof/metrics.py",
        "                    found.pop(number, None)\n",
        "                    pass\n",
        (
            f"{_METRICS}::test_what_a_layer_holds_is_no_metrics[the variable]",
            f"{_METRICS}::test_nor_is_what_an_optimizer_or_a_module_holds",
        ),
    ),
    Mutation(
        "a metric that is made in a step owns what it tracks",
        "gradients/proof/metrics.py",
        "itertools.chain(layers, self._alive())",
        "()",
        (f"{_METRICS}::test_nor_is_it_where_the_metric_was_made_while_a_model_is_at_work",),
    ),
    Mutation(
        "a step keeps all layers alive",
        "gradients/proof/metrics.py",
        "weakref.ref(part) for part in found",
        "(lambda part=part: part) for part in found",
        (f"{_METRICS}::test_models_are_not_kept_alive",),
    ),
    Mutation(
        "what is mapped over batches may keep them",
        "gradients/proof/mapped.py",
        "        if write.op.type not in graph.PYTHON:\n",
        "        if False:\n",
        ("tests/gradients/proof/mapped_test.py::test_what_a_function_keeps_is_refused",),
    ),
    Mutation(
        "nobody looks at what fit is given",
        "optimizers/dp_optimizer.py",
        "            self.check_batches(batches)\n",
        "            pass\n",
        ("tests/optimizers/given_test.py::test_fit_looks_at_its_dataset",),
    ),
)
