"""Mistakes about what everyday models do: texts, embeddings of places, gathers, loops whose state starts otherwise."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_TEXTS = "tests/gradients/proof/texts_test.py::test_what_may_join_texts_is_not_proven"
_LISTS = "tests/gradients/ghost/flow_lists_test.py"

MISTAKES = (
    Mutation(
        "words are in whatever rows somebody says",
        "gradients/proof/texts.py",
        "    if split is None or not _is_first_column(rows, split) or not _is_count(count, split):",
        "    if split is None or not _is_count(count, split):",
        (_TEXTS,),
    ),
    Mutation(
        "rows are as many as somebody says",
        "gradients/proof/texts.py",
        "    if split is None or not _is_first_column(rows, split) or not _is_count(count, split):",
        "    if split is None or not _is_first_column(rows, split):",
        (_TEXTS,),
    ),
    Mutation(
        "words are padded to the longest text",
        "gradients/proof/texts.py",
        "    if extents is None or len(extents) != 2 or extents[0] != -1 or extents[1] < 1:",
        "    if False:",
        (_TEXTS,),
    ),
    Mutation(
        "what fills up the rows may be anything",
        "gradients/proof/texts.py",
        "    if not _is_one_number(walk, default) or not _word_by_word(",
        "    if not _word_by_word(",
        (_TEXTS,),
    ),
    Mutation(
        "words may have been moved",
        "gradients/proof/texts.py",
        "    if op.type not in _WORD_BY_WORD or tensor.shape.rank != 1:",
        "    if tensor.shape.rank != 1:",
        (_TEXTS,),
    ),
    Mutation(
        "words meet numbers that differ from place to place",
        "gradients/proof/texts.py",
        "len(values) or not all(_is_one_number(walk, value) for value in others):",
        "len(values):",
        (_TEXTS,),
    ),
    Mutation(
        "a place that is used several times is squared one by one",
        "gradients/ghost/embeddings.py",
        "everybody, values, indices.shape[0])",
        "everybody, values, 1)",
        ("tests/gradients/ghost/ghost_zoo_test.py::test_every_variable_is_recognised_and_exact[embedding_of_places]",),
    ),
    Mutation(
        "what one of two labels rests on is forgotten",
        "gradients/ghost/flow_lists.py",
        "    checks = first.checks | second.checks",
        "    checks = first.checks",
        (f"{_LISTS}::test_one_label_for_two_forgets_what_only_one_knows_and_keeps_the_checks_of_both",),
    ),
    Mutation(
        "two labels are one, however many rows an example has in each",
        "gradients/ghost/flow_lists.py",
        "    rows = first.rows if first.rows == second.rows else None",
        "    rows = first.rows or second.rows",
        (f"{_LISTS}::test_one_label_for_two_forgets_what_only_one_knows_and_keeps_the_checks_of_both",),
    ),
    Mutation(
        "a list of zeros stays one, whatever is put in",
        "gradients/ghost/labels.py",
        "            return self.is_zero(op.inputs[0]) and self.is_zero(op.inputs[2])",
        "            return self.is_zero(op.inputs[0])",
        (f"{_LISTS}::test_a_list_is_zero_as_long_as_zeros_are_put_in",),
    ),
    Mutation(
        "the sign of a loss that is taken away is forgotten",
        "gradients/reduced.py",
        "_terms(op.inputs[1], -factor, count)]",
        "_terms(op.inputs[1], factor, count)]",
        ("tests/gradients/reduced_test.py::test_a_mean_is_taken_apart",),
    ),
    Mutation(
        "of two means a mean is made as if it were a sum",
        "gradients/reduced.py",
        'factor / len(parts) if op.type == "Mean" else factor',
        "factor",
        ("tests/gradients/reduced_test.py::test_a_mean_is_taken_apart",),
    ),
)
