"""Mistakes about seeds that random numbers are drawn from, and about sizes that stand for the number of examples."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_MOVED = "tests/gradients/proof/moved_test.py"
_VALUES = f"{_MOVED}::test_numbers_of_other_seeds_are_values_by_place"
_SET_BACK = f"{_MOVED}::test_states_that_are_set_back_are_refused"
_BEHIND = f"{_MOVED}::test_nor_may_they_be_set_back_behind_the_loss"
_COUNTED = "tests/gradients/proof/counted_test.py::test_what_may_tell_the_number_of_examples_is_run_one_by_one"
_TEXTS = "tests/gradients/proof/table_test.py::test_rows_for_texts_of_any_length_are_a_sum_over_examples"
_SEEDS = "gradients/proof/moved.py"


def _values(*names: str) -> tuple[str, ...]:
    return tuple(f"{_VALUES}[{name}-{static}]" for name in names for static in (False, True))


MISTAKES = (
    Mutation(
        "a count may go back",
        _SEEDS,
        "bool(np.all(value >= 0) and np.any(value > 0))",
        "bool(np.any(value != 0))",
        _values("up by less than nothing"),
    ),
    Mutation(
        "what is assigned need not be more than before",
        _SEEDS,
        "    return steps > 0 and value.op.inputs[0] is handle",
        "    return value.op.inputs[0] is handle",
        _values("set to what is no more"),
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
        "        return all(labels[place].drawn and _of_each(op, op.inputs[place]) for place in moved)",
        "        return True",
        _values("the entry that stays", "the zeros beside seeds"),
    ),
    Mutation(
        "a seed less itself is a seed",
        _SEEDS,
        "        return len(moved) == 1  # two of them may cancel",
        "        return True",
        _values("less itself"),
    ),
    Mutation(
        "a generator may be set back",
        "gradients/proof/publics.py",
        "    if op.type in graph.DRAWS_OF_A_STATE:\n",
        "    if False:\n",
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
