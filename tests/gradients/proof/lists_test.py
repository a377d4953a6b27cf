"""Lists of tensors in the proof: all elements have one label, and what is known of them holds for all."""

import dataclasses

import pytest
import tensorflow as tf

from adaclip_tf.gradients.proof import calls
from adaclip_tf.gradients.proof.labels import Lost, Public, Rows, Sizes, Summed, Unproven
from adaclip_tf.gradients.proof.symbols import Count
from adaclip_tf.gradients.proof.table import LISTS, Listed
from adaclip_tf.gradients.proof.walk import Walk


def joined(before, after):
    with tf.Graph().as_default():
        return calls.joined_label(tf.constant(0).op, before, after)


def test_a_list_holds_what_all_of_its_elements_are():
    rows, zeros = Listed(Rows(0)), Listed(Public(None), extents=(Count(1), 3))
    assert joined(zeros, rows) == rows == joined(rows, zeros)
    for others in (None, (1, 3), (Count(2), 3)):  # nobody knows how long its elements are
        assert joined(Listed(Public(None), extents=others), rows).element == Rows(0, None)
    assert isinstance(joined(rows, Listed(Rows(1))).element, Lost)
    assert isinstance(joined(rows, Listed(Public())).element, Lost)  # differs from place to place
    assert joined(Listed(Sizes(), (Count(1), 3)), Listed(Sizes(), (Count(2), 3))).symbols == (Count(None), 3)
    assert joined(Listed(Sizes(), (4, 3)), Listed(Sizes(), (5, 3))).symbols == (None, 3)
    assert joined(Listed(Sizes(), (4, 3)), Listed(Sizes())).symbols is None


def test_lists_that_are_added_hold_what_all_of_them_hold():
    rows, columns, one_each = Listed(Rows(0)), Listed(Rows(1)), Listed(Public(None), extents=(Count(1), 3))

    def added(*labels):
        with tf.Graph().as_default():
            return LISTS["AddN"](None, tf.constant(0).op, list(labels))

    assert added(rows).element == added(rows, one_each).element == added(one_each, rows).element == Rows(0)
    for labels in ([rows, columns], [columns, rows], [rows, rows, columns], [rows, columns, columns]):
        assert isinstance(added(*labels).element, Lost)
    assert added(Listed(Rows(0), symbols=(1,)), rows).symbols is None  # sums are other numbers
    with pytest.raises(Unproven):
        added(rows, Rows(0))


def test_holes_are_remembered():
    """An element that nobody put in is zeros, whatever is known of the others."""
    assert joined(Listed(None, holes=True), Listed(Sizes(), (4, 3))).holes
    assert not joined(Listed(Sizes(), (4, 3)), Listed(Sizes(), (5, 3))).holes


@pytest.mark.parametrize("label", [Public(), Rows(0), Summed("", frozenset(), True), Sizes(), Lost(""), Listed(None)])
def test_labels_are_values(label):
    """Many tensors share one: who changed it would change what is known of all of them."""
    name = dataclasses.fields(label)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(label, name, None)


def test_facts_inside_of_functions_are_not_left_to_the_run():
    with tf.Graph().as_default() as graph:
        tensor = tf.zeros([2])
    walk = Walk(graph, {})
    inner = Walk(graph, {}, walk)
    assert walk.checks.add(tensor, 0, "a fact") == 0
    try:
        inner.checks.add(tensor, 0, "a fact")
    except Unproven:
        return
    raise AssertionError("a fact that nobody can check was accepted")
