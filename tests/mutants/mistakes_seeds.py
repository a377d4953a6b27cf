"""Mistakes about seeds that random numbers are drawn from, and about sizes that stand for the number of examples."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_MOVED = "tests/gradients/proof/moved_test.py"
_VALUES = f"{_MOVED}::test_numbers_of_other_seeds_are_values_by_place"
_SET_BACK = f"{_MOVED}::test_states_that_are_set_back_are_refused"
_BEHIND = f"{_MOVED}::test_nor_may_they_be_set_back_behind_the_loss"
_COUNTED = "tests/gradients/proof/counted_test.py::test_what_may_tell_the_number_of_examples_is_run_one_by_one"
_TEXTS = "tests/gradients/proof/table_test.py::test_rows_for_texts_of_any_length_are_a_sum_over_examples"
_TOLD = "tests/gradients/proof/seeds_test.py::test_what_starts_where_anybody_knows_is_told"
_SEEDS = "gradients/proof/moved.py"


def _values(*names: str) -> tuple[str, ...]:
    return tuple(f"{_VALUES}[{name}-{static}]" for name in names for static in (False, True))


MISTAKES = (
    Mutation(
        "a count may go back",
        _SEEDS,
        "all(0 <= value < _MANY for value in values) and any(value > 0 for value in values)",
        "any(value != 0 for value in values)",
        _values("up by less than nothing", "up by half of all there is"),
    ),
    Mutation(
        "what is assigned need not be more than before",
        _SEEDS,
        "    if value.op.inputs[0] is not handle or not _is_a_step(step):\n        return False\n",
        "    if value.op.inputs[0] is handle:\n        return True\n",
        _values("set to what is no more", "up and down again in one"),
    ),
    Mutation(
        "a state may go on by any product",
        _SEEDS,
        " == _OF_KERAS",
        " != ()",
        _values("set to a multiple of itself and more", "set to what it was, by turns"),
    ),
    Mutation(
        "a state may go on by half turns",
        _SEEDS,
        "all(_leaves_many(int(one), modulus) for modulus in moduli)",
        "True",
        _values("up by half a turn"),
    ),
    Mutation(
        "a state may go on through a few bits",
        _SEEDS,
        "        if not _is_long(value) or not (",
        "        if not (",
        _values("up through a few bits"),
    ),
    Mutation(
        "multiples are many, whatever is cut off",
        _SEEDS,
        "    return all(_leaves_many(multiple, int(modulus)) for modulus in moduli)",
        "    return True",
        _values("multiples modulo what they are of", "multiples beyond the last bit", "cut to the lower half"),
    ),
    Mutation(
        "steps are no multiples",
        _SEEDS,
        "        if graph.may_write(write):\n",
        "        if False:\n",
        _values("steps modulo what they are of", "assigned steps modulo what they are of"),
    ),
    Mutation(
        "a seed of few values is a seed",
        _SEEDS,
        "_MANY = 2**16",
        "_MANY = 2",
        _values("modulo a few", "cut to a few", "of few"),
    ),
    Mutation(
        "a product by 0 leaves a seed what it is",
        _SEEDS,
        "        return bool(np.all(value != 0))",
        "        return True",
        _values("taken out again"),
    ),
    Mutation(
        "any entry of a seed is moved on",
        _SEEDS,
        "        return places == [place] and labels[place].drawn and _each_is_drawn(op, label_of)",
        "        return True",
        _values("the entry that stays", "the zeros beside seeds", "zeros that are looked up at a place that is drawn"),
    ),
    Mutation(
        "what was joined from draws and zeros is drawn, under another type",
        _SEEDS,
        "        return _is_drawn(source, label_of)\n    if op.type != ",
        "        return True\n    if op.type != ",
        _values("a zero beside a draw, of another type"),
    ),
    Mutation(
        "every other place has something of each",
        _SEEDS,
        " and strides is not None and strides[0] == 1",
        "",
        _values("zeros at every other place"),
    ),
    Mutation(
        "a seed less itself is a seed",
        _SEEDS,
        "        if tf.get_static_value(number) is not None and _keeps_apart(op, number):",
        "        if _keeps_apart(op, number):",
        _values("less itself", "less itself, rounded"),
    ),
    Mutation(
        "a generator may be set back",
        "gradients/proof/publics.py",
        "    elif op.type in graph.DRAWS_OF_A_STATE:\n",
        "    elif False:\n",
        (f"{_SET_BACK}[a generator that is set back]", f"{_SET_BACK}[a generator that is turned back]"),
    ),
    Mutation(
        "a generator may be turned back",
        _SEEDS,
        "        return steps is not None and int(steps) >= _BACKWARDS",
        "        return False",
        (f"{_SET_BACK}[a generator that is turned back]",),
    ),
    Mutation(
        "a state may be set back from outside",
        "gradients/proof/memory.py",
        "    found.check_states()\n",
        "",
        (f"{_SET_BACK}[set back around a function]", _BEHIND),
    ),
    Mutation(
        "nobody is told of a count that anybody knows",
        "gradients/proof/memory.py",
        "            if SECRET not in states:\n",
        "            if False:\n",
        (f"{_TOLD}[a count]", f"{_TOLD}[a seed generator with a seed]"),
    ),
    Mutation(
        "where a state starts is always a secret",
        "gradients/proof/memory.py",
        " if handle in self.metrics.unknown_seeds else {handle})",
        ")",
        (f"{_TOLD}[a seed generator with a seed]",),
    ),
    Mutation(
        "what Keras drew itself is told",
        "gradients/proof/memory.py",
        "frozenset({handle, SECRET} if handle in self.metrics.unknown_seeds else {handle})",
        "frozenset({handle})",
        ("tests/gradients/proof/seeds_test.py::test_what_nobody_knows_is_not[a seed generator without a seed]",),
    ),
    Mutation(
        "what is drawn in a function is no draw",
        "gradients/proof/seeds.py",
        "for inner in (op, *graph.inside(op))",
        "for inner in (op,)",
        (f"{_TOLD}[a count, in a function]", f"{_TOLD}[a generator, in a function]"),
    ),
    Mutation(
        "one branch of two is a secret",
        "gradients/proof/calls.py",
        "    return states if all(SECRET in label.moved for label in labels) else states - {SECRET}\n",
        "    return states\n",
        (f"{_TOLD}[a count, in a branch]",),
    ),
    Mutation(
        "an axis that is 1 for eight examples is left alone",
        "gradients/proof/reductions.py",
        "        return bool(own[0].multiple)",
        "        return True",
        (f"{_COUNTED}[a sum where there are eight]",),
    ),
    Mutation(
        "a vector of counts is as long as anything",
        "gradients/proof/sizes.py",
        "            dims = [Count(None) if extent is None else extent for extent in dims]\n",
        "            pass\n",
        (f"{_COUNTED}[as long as a vector of counts]",),
    ),
    Mutation(
        "nobody counts what is looked up for texts of any length",
        "gradients/proof/verdict.py",
        "                labels.append(Rows(0, checks=frozenset({as_many})))\n            elif",
        "                del as_many\n            elif",
        (_TEXTS,),
    ),
)
