"""Tests of `adaclip_tf.core.rules` and `clipping`: a record stays within the unit ball, statistics included."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import core
from adaclip_tf.query import ClippedSumQuery
from tests import tfp

SPECS = [
    tf.TensorSpec([2, 3], name="one/kernel"),
    tf.TensorSpec([3], name="one/bias"),
    tf.TensorSpec([4], name="two/w"),
]
RULES = {
    "fixed": core.FixedClip(0.7),
    "adaclip": core.AdaClip(core.MomentEstimator(initial_std=0.2, h2=1.0)),
    "whitening": core.Whitening(core.MomentEstimator(initial_std=0.2, h2=1.0)),
    "per layer": core.PerLayerClip(0.5),
    "per coordinate": core.PerCoordinateClip(0.3),
    "quantile": core.QuantileClip(0.8, share=0.3),
    "scaled": core.ScaledClip(core.Scales(0.7, [np.float32([[0.5], [2.0]]), np.ones(1), np.ones(1)], 0.5)),
}


def joint(rule, records, state=None):
    """(u_k, statistics_k) of one record each, as one vector."""
    state = rule.initial_state(SPECS) if state is None else state
    transform, clip = rule.transform(state, SPECS), rule.clip(SPECS)
    transformed = transform.apply(records)
    parts = [u[0] for u in clip.records(transformed)]
    parts += core.statistics_sum(rule, clip, core.squared_norms(transformed))
    return np.concatenate([np.asarray(part, np.float64).ravel() for part in parts])


@pytest.mark.parametrize("name", RULES)
def test_a_record_is_within_the_unit_ball(name):
    rule, rng = RULES[name], np.random.default_rng(3)
    largest = 0.0
    for size in 10.0 ** rng.uniform(-3, 25, 60):
        records = [tf.constant(size * rng.normal(size=(1, *spec.shape)), tf.float32) for spec in SPECS]
        largest = max(largest, np.linalg.norm(joint(rule, records)))
    assert rule.clip(SPECS).sensitivity == 1.0
    assert 0.9 < largest <= 1.0 + 1e-5


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_record_that_is_no_number_is_left_out(name, bad):
    records = [tf.fill([1, *spec.shape], bad) for spec in SPECS]
    values = joint(RULES[name], records)
    assert np.isfinite(values).all() and np.linalg.norm(values) <= 1.0 + 1e-5
    if name != "per coordinate" or math.isnan(bad):
        assert not values.any()


def test_what_a_rule_observes_is_clipped():
    """A rule that answers with numbers far too large gets no more of the ball than it left."""

    class Greedy(core.QuantileClip):
        def observe(self, squared_norms):
            return 1e6 * (1.0 + squared_norms)[:, tf.newaxis]

    records = [tf.fill([1, *spec.shape], 5.0) for spec in SPECS]
    values = joint(Greedy(0.8, share=0.3), records)
    np.testing.assert_allclose(np.linalg.norm(values), 1.0, rtol=1e-5)
    np.testing.assert_allclose(values[-1], math.sqrt(0.3), rtol=1e-5)


def test_statistics_add_up_over_the_records():
    """Two within the clip, one beyond, one that is no number: (1 + 1 - 1 + 0) sqrt(p)."""
    rule = RULES["quantile"]
    squares = tf.constant([0.1, 0.2, 5.0, float("nan")])
    (total,) = core.statistics_sum(rule, rule.clip(SPECS), squares)
    np.testing.assert_allclose(total, [math.sqrt(0.3)], rtol=1e-5)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_a_value_and_says_how_many_statistics_it_has(name):
    """What it is accounted by cannot be changed behind the accounts' back."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        RULES[name].share = 0.5
    assert RULES[name].num_statistics == (1 if name == "quantile" else 0)


def test_a_clip_is_a_value():
    for clip, name in ((core.NormClip(), "radius"), (core.CoordinateClip(4), "dimension")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(clip, name, 100)


def test_layers_are_clipped_one_by_one():
    """Layer "one" of norm 10 to 0.5, layer "two" of norm 0.1 not at all; over b = 0.5 sqrt(2)."""
    records = [np.zeros([1, 2, 3], np.float32), np.float32([[0.0, 10.0, 0.0]]), np.float32([[0.1, 0.0, 0.0, 0.0]])]
    values = joint(RULES["per layer"], [tf.constant(record) for record in records])
    expected = np.zeros(13)
    expected[7], expected[9] = 0.5 / (0.5 * math.sqrt(2)), 0.1 / (0.5 * math.sqrt(2))
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-7)


def test_groups_that_leave_out_a_variable_are_refused():
    with pytest.raises(ValueError, match=r"`groups` must hold each of the 3 variables once; got \(\(0, 1\),\)"):
        core.NormClip(groups=((0, 1),)).records([tf.zeros([1, 2])] * 3)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, math.nan])
def test_a_quantile_takes_a_part_of_the_budget(share):
    """At 0 the answers would be free, at 1 there would be nothing left for the sum."""
    with pytest.raises(ValueError, match="`share` must be"):
        core.QuantileClip(share=share)


def test_the_quantile_rule_follows_tensorflow_privacy():
    """Five rounds without noise: the same sums and the same clips as `QuantileAdaptiveClipSumQuery`."""
    rng = np.random.default_rng(5)
    quantile = tfp.module("dp_query.quantile_adaptive_clip_sum_query")
    theirs = quantile.QuantileAdaptiveClipSumQuery(
        initial_l2_norm_clip=0.8,
        noise_multiplier=0.0,
        target_unclipped_quantile=0.7,
        learning_rate=0.5,
        clipped_count_stddev=0.0,
        expected_num_records=10,
    )
    ours = ClippedSumQuery(core.QuantileClip(0.8, 0.7, 0.5, share=0.2), tf.TensorSpec([4]), 0.0, 10.0)
    their_state, our_state = theirs.initial_global_state(), ours.initial_global_state()
    for _ in range(5):
        records = rng.normal(size=(12, 4)).astype(np.float32)
        sums = []
        for query, state in ((theirs, their_state), (ours, our_state)):
            params = query.derive_sample_params(state)
            sample = query.initial_sample_state(tf.zeros([4]))
            for record in records:
                sample = query.accumulate_record(params, sample, record)
            sums.append(query.get_noised_result(sample, state))
        np.testing.assert_allclose(sums[0][0], sums[1][0], rtol=1e-4, atol=1e-5)
        their_state, our_state = sums[0][1], sums[1][1]
        clip = their_state.sum_state.l2_norm_clip
        np.testing.assert_allclose(our_state.rule_state["l2_norm_clip"], clip, rtol=1e-4)
