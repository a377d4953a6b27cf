"""The rule with scales that were learnt before training: (a, b), the direction, what does not fit."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import core

SPECS = [tf.TensorSpec([2, 3], name="kernel"), tf.TensorSpec([3], name="bias")]
SHAPES = [np.float32([[0.5], [4.0]]), np.float32([2.0])]


def rule(clip=3.0, multiplier=0.25, **options):
    return core.ScaledClip(core.Scales(clip, SHAPES, multiplier), **options)


def test_center_is_zero_and_the_scale_is_mu_c_h():
    transform = rule().transform(rule().initial_state(SPECS), SPECS)
    assert [float(tf.reduce_sum(tf.abs(center))) for center in transform.center] == [0.0, 0.0]
    np.testing.assert_allclose(transform.scale[0], 0.75 * SHAPES[0])
    np.testing.assert_allclose(transform.scale[1], 0.75 * SHAPES[1])


@pytest.mark.parametrize("multiplier", [0.25, 1.0, 1.6])
def test_the_direction_is_w_over_b_c_h(multiplier):
    """From W = 5 everywhere and B = 10: max(1, mu) 5 / (10 * 3 h)."""
    scaled = rule(multiplier=multiplier)
    state = scaled.initial_state(SPECS)
    noised = [tf.fill(spec.shape, 5.0) for spec in SPECS]
    mean, next_state = core.published_step(scaled, state, scaled.transform(state, SPECS), noised, 1.1, 10.0)
    for direction, h, spec in zip(scaled.direction(state, mean), SHAPES, SPECS):
        expected = max(1.0, multiplier) * 5.0 / (10.0 * 3.0 * h)
        np.testing.assert_allclose(direction, np.broadcast_to(expected, spec.shape), rtol=1e-5)
    tf.nest.map_structure(np.testing.assert_array_equal, next_state, state)


def test_without_preconditioning_the_direction_is_the_mean():
    plain, mean = rule(precondition=False), [tf.ones([2, 3]), tf.ones([3])]
    assert plain.direction(plain.initial_state(SPECS), mean) is mean
    assert core.FixedClip(1.0).direction((), mean) is mean


def test_what_is_far_above_the_noise_is_damped():
    """Three steps of W = 60 and 2 at z = 3, B = 10, D = 4, decay .9: p is 400 and 4/9, with its bias taken out, at
    every step, so that the first is divided by 20 / 4 and the second by nothing. h = C = 1: W / B is 6 and .2."""
    damped = core.ScaledClip(core.Scales(1.0, [np.ones(1)], damping=4.0))
    spec = [tf.TensorSpec([2])]
    state = damped.initial_state(spec)
    for _ in range(3):
        noised = [tf.constant([60.0, 2.0])]
        mean, state = core.published_step(damped, state, damped.transform(state, spec), noised, 3.0, 10.0)
        np.testing.assert_allclose(damped.direction(state, mean)[0], [6.0 / 5.0, 0.2], rtol=1e-4)
    np.testing.assert_allclose(state["power"][0], np.array([400.0, 4 / 9]) * (1 - 0.9**3), rtol=1e-4)


def test_without_noise_and_without_preconditioning_nothing_is_damped():
    damped = core.ScaledClip(core.Scales(1.0, [np.ones(1)], damping=4.0))
    state, spec = damped.initial_state([tf.TensorSpec([2])]), [tf.TensorSpec([2])]
    noised = [tf.constant([60.0, 2.0])]
    mean, state = core.published_step(damped, state, damped.transform(state, spec), noised, 0.0, 10.0)
    np.testing.assert_allclose(damped.direction(state, mean)[0], [6.0, 0.2], rtol=1e-5)
    assert "power" not in core.ScaledClip(core.Scales(1.0, [np.ones(1)], damping=4.0), False).initial_state(spec)


def test_a_direction_is_finite_at_the_ends_of_the_range():
    """C h = 1e-15 and 1e15: squares of both are within float32, and what is divided twice is, too."""
    for size in (1e-15, 1e15):
        extreme = core.ScaledClip(core.Scales(size, [np.ones(1)]))
        state = extreme.initial_state([tf.TensorSpec([4])])
        mean = extreme.transform(state, [tf.TensorSpec([4])]).invert([tf.fill([4], 5.0)], 10.0)
        np.testing.assert_allclose(extreme.direction(state, mean)[0], 0.5 / size, rtol=1e-5)


def test_config_goes_there_and_back_through_json():
    scales = core.Scales(0.1, [np.float32([[0.1], [1 / 3]]), np.float32([1e-6]), np.float32(2.0)], 1.7, 4.0, 0.8)
    again = core.Scales.from_config(json.loads(json.dumps(scales.get_config())))
    assert (again.clip, again.multiplier, again.damping, again.damping_decay) == (0.1, 1.7, 4.0, 0.8)
    for one, other in zip(scales.shapes, again.shapes):
        assert one.dtype == other.dtype == np.float32
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"clip": 0.0}, "`clip`"),
        ({"clip": float("nan")}, "`clip`"),
        ({"multiplier": -1.0}, "`multiplier`"),
        ({"damping": 0.0}, "`damping`"),
        ({"damping_decay": 1.0}, "`damping_decay`"),
        ({"shapes": [np.float32([1.0, 0.0])]}, r"`shapes\[0\]`"),
        ({"shapes": [np.ones(1), np.float32([np.nan])]}, r"`shapes\[1\]`"),
        ({"shapes": [np.ones(0)]}, r"`shapes\[0\]`"),
        ({"shapes": [np.ones(1)], "clip": 1e16}, r"`shapes\[0\]`"),
        ({"shapes": [np.ones(1)], "clip": 1e-14, "multiplier": 0.01}, r"`shapes\[0\]`"),
        ({"shapes": [np.ones(1)], "clip": 1e14, "multiplier": 1e2}, r"`shapes\[0\]`"),
    ],
)
def test_numbers_that_are_no_scales_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        core.Scales(**{"clip": 1.0, "shapes": SHAPES, **arguments})


def test_scales_stay_as_they_were_checked():
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule().scales.clip = 0.0


def test_scales_of_another_model_are_refused():
    with pytest.raises(ValueError, match="are of 2 variables, and 1 are trained"):
        rule().initial_state(SPECS[:1])
    for shape in ([3, 3], [2], [3, 2]):
        with pytest.raises(ValueError, match=r"of 'kernel' have the shape \[2, 1\], which does not fit"):
            rule().initial_state([tf.TensorSpec(shape, name="kernel"), SPECS[1]])
    with pytest.raises(ValueError, match=r"`scales` must be a `core\.Scales`"):
        core.ScaledClip({"clip": 1.0})


def test_metrics():
    metrics = rule().metrics(rule().initial_state(SPECS))
    assert {name: float(value) for name, value in metrics.items()} == {
        "l2_norm_clip": 0.75,
        "shape_min": 0.5,
        "shape_max": 4.0,
    }
