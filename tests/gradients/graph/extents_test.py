"""Tests of `adaclip_tf.gradients.graph.extents`: many facts, asked by a few ops."""

import pytest
import tensorflow as tf

from adaclip_tf.gradients import graph


def poisoned(sizes, jit_compile, n=2):
    """The poison of four facts about vectors of these sizes, of which no two are the same kind and dtype."""

    @tf.function(jit_compile=jit_compile, autograph=False)
    def poison(three, same, other, even):
        facts = [
            graph.Fact(even, 1, "even is not a multiple"),
            graph.Fact(same, 0, "same and other differ", equals=other),
            graph.Fact(three, 0, "three is not thrice", rows=3),
            graph.Fact(three, 0, "three is not thrice", rows=3),
        ]
        return graph.poison(facts, tf.constant(n), [(tf.size(other) < 7, "other is long")])

    dtypes = {"three": tf.float32, "same": tf.int32, "other": tf.float32, "even": tf.float32}
    shapes = {"three": [3 * n], "same": [5], "other": [5], "even": [1, 8]}
    shapes.update(sizes)
    specs = [tf.TensorSpec([None] * len(shapes[name]), dtypes[name]) for name in shapes]
    return poison.get_concrete_function(*specs)(*[tf.zeros(shapes[name], dtypes[name]) for name in shapes])


@pytest.mark.parametrize("jit_compile", [False, True])
def test_nothing_is_poisoned_where_all_facts_hold(jit_compile):
    assert poisoned({}, jit_compile).numpy() == 0.0
    assert poisoned({"three": [0], "even": [1, 7]}, jit_compile, n=0).numpy() == 0.0


WRONG = {
    "three is not thrice": {"three": [5]},
    "same and other differ": {"same": [4]},
    "even is not a multiple": {"even": [1, 7]},
    "other is long": {"other": [7], "same": [7]},
}


@pytest.mark.parametrize(("message", "sizes"), WRONG.items(), ids=WRONG)
def test_a_single_fact_that_is_wrong_poisons(message, sizes):
    """By NaN under XLA, which drops assertions; elsewhere the error says which one it is."""
    assert tf.math.is_nan(poisoned(sizes, jit_compile=True))
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        poisoned(sizes, jit_compile=False)
    number = str(error.value).split(f") {message}")[0][-1]
    assert f"first of all number] [{number}]" in str(error.value)


@pytest.mark.parametrize("kinds", [("rows", "equals"), ("equals", "multiple"), ("multiple", "other")])
def test_of_two_kinds_either_poisons(kinds):
    """Each kind is asked by an op of its own."""

    @tf.function(jit_compile=True, autograph=False, input_signature=[tf.TensorSpec([None])] * 2)
    def poison(one, two):
        facts, others = [], []
        for kind, tensor in zip(kinds, (one, two)):
            if kind == "other":
                others.append((tf.size(tensor) < 5, ""))
            else:
                facts.append(
                    graph.Fact(
                        tensor, 0, "", tf.zeros([4]) if kind == "equals" else None, 2 if kind == "rows" else None
                    )
                )
        return graph.poison(facts, tf.constant(2), others)

    right, wrong = tf.zeros([4]), tf.zeros([5])
    assert poison(right, right) == 0.0
    assert tf.math.is_nan(poison(wrong, right))
    assert tf.math.is_nan(poison(right, wrong))


def test_no_facts_are_no_poison():
    with tf.Graph().as_default():
        assert graph.poison([], tf.constant(2)) is None


def test_the_number_of_ops_does_not_grow_with_the_number_of_facts():
    counts = []
    for number in (2, 20):
        with tf.Graph().as_default() as made:
            facts = [graph.Fact(tf.compat.v1.placeholder(tf.float32, [None]), 0, "", rows=1) for _ in range(number)]
            graph.poison(facts, tf.constant(2))
        counts.append(len(made.get_operations()) - number)
    assert counts[0] == counts[1]
