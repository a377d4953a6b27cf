"""Tests of `adaclip_tf.optimizers.rule_state`: any structure in variables, cut to those that are trained."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import core
from adaclip_tf.optimizers.rule_state import RuleState

SPECS = [tf.TensorSpec([2], name="one"), tf.TensorSpec([3], name="two")]


class Nested(core.ClippingRule):
    """A list of dicts that runs over the variables, and a number for all, in a tuple."""

    def initial_state(self, specs):
        return ([{"sum": tf.zeros(spec.shape), "count": tf.constant(1.0)} for spec in specs], {"all": tf.constant(5.0)})


def made(rule, specs=SPECS):
    named = {}

    def add(value, name, like=None):
        key = name if like is None else f"{name}/{like.name}"
        assert key not in named
        named[key] = tf.Variable(value)
        return named[key]

    return RuleState(rule, specs, specs, add), named


def test_a_list_may_hold_structures():
    state, named = made(Nested())
    assert sorted(named) == ["0/count/one", "0/count/two", "0/sum/one", "0/sum/two", "1/all"]
    entries, shared = state.read([0, 1])
    assert [entry["sum"].shape.as_list() for entry in entries] == [[2], [3]]
    assert float(shared["all"]) == 5.0


def test_only_what_is_trained_is_read_and_assigned():
    state, named = made(Nested())
    entries, _ = state.read([1])
    assert len(entries) == 1 and entries[0]["sum"].shape.as_list() == [3]
    joined, _ = state.read_joined([1])
    state.assign([1], joined, ([{"sum": tf.ones([3]), "count": tf.constant(2.0)}], {"all": tf.constant(6.0)}))
    values = {name: np.asarray(variable).tolist() for name, variable in named.items()}
    assert values == {
        "0/count/one": 1.0,
        "0/count/two": 2.0,
        "0/sum/one": [0.0, 0.0],
        "0/sum/two": [1.0, 1.0, 1.0],
        "1/all": 6.0,
    }


SMALL = [tf.TensorSpec(shape, tf.float32, name) for name, shape in zip("abcd", [(2, 3), (), (4,), (1, 5)])]
MIXED = [*SMALL[:2], tf.TensorSpec((200, 200), tf.float32, "large"), *SMALL[2:]]


def test_small_variables_are_kept_as_one():
    state, named = made(core.AdaClip(), MIXED)
    assert {name: variable.shape.as_list() for name, variable in named.items()} == {
        "mean/large": [200, 200],
        "mean/small": [16],
        "variance/large": [200, 200],
        "variance/small": [16],
    }
    assert [entry.shape for entry in state.read(range(5)).mean] == [spec.shape for spec in MIXED]
    joined, parts = state.read_joined(range(5))
    assert [part.shape for part in parts.variance] == [spec.shape for spec in joined.specs] == [(200, 200), (16,)]
    state.assign(range(5), joined, core.Moments(*[[tf.fill(s.shape, v) for s in joined.specs] for v in (2.0, 3.0)]))
    assert {float(tf.reduce_max(variable)) for variable in named.values()} == {2.0, 3.0}


@pytest.mark.parametrize("trained", [[0, 1, 3], [2, 4], [4]])
def test_what_is_frozen_stands_still_in_what_is_kept_as_one(trained):
    state, named = made(core.AdaClip(), MIXED)
    for variable in named.values():
        variable.assign(tf.fill(variable.shape, 2.0))
    before = state.read(range(5))
    joined, parts = state.read_joined(trained)
    assert [part.shape for part in parts.mean] == [spec.shape for spec in joined.specs]
    state.assign(trained, joined, core.Moments(*[[part + 1.0 for part in values] for values in parts]))
    for old, new in zip(before, state.read(range(5))):
        moved = [float(tf.reduce_min(q - p)) for p, q in zip(old, new)]
        np.testing.assert_allclose(moved, [1.0 if i in trained else 0.0 for i in range(5)], atol=1e-6)


def test_a_list_that_does_not_run_over_the_variables_is_refused():
    class Wrong(core.ClippingRule):
        def initial_state(self, specs):
            return {"quantiles": [tf.constant(0.1)] * 3}

    with pytest.raises(ValueError, match=r"an entry for each variable, 2 here; got 3 in quantiles\. For"):
        made(Wrong())
