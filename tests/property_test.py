"""Properties under hostile gradients: whatever the shapes, dtypes, structures, hyper-parameters and values.

For every gradient path, and for any record:

 - sensitivity: adding or removing one record moves the clipped sum by at most 1;
 - all outputs (g~, m, s^2, b) are finite, b > 0, and nothing is divided by zero;
 - s^2 stays in `MomentEstimator.variance_range`.

On the last. h1 and h2 bound the observed variances v. s^2 is their moving average, so it lies in [h1, h2] for ever if
it starts there. The paper's start, s = sqrt(h1 h2), does not: s^2 = h1 h2 is below h1 wherever h2 < 1 (with the
defaults 1e-15, where h1 is 1e-12; the middle of the interval on a log scale would be s^2 = sqrt(h1 h2)). What holds for
every start s0 is

    min(h1, s0^2) <= s^2 <= max(h2, s0^2),

ever closer to [h1, h2] from outside, and within it for good once inside; with `clamp="after_average"`, from the first
step on. Either way s > 0, which is all that b > 0 needs.
"""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from adaclip_tf import AdaClipSumQuery, DPAdaClipSGD, DPFixedClipSGD, core
from tests import models

SLACK = 1e-4  # of float32, over at most a few thousand coordinates
FLOAT32 = np.finfo(np.float32)

# What a hostile example's gradient may hold.
HOSTILE = [
    *(0.0, -0.0, 1.0, -1.0, 1e-3, 1e-30, 1e10, -1e19, 1e20, 1e38, -1e38, float(FLOAT32.max), float(-FLOAT32.max)),
    *(float(FLOAT32.tiny), float(FLOAT32.smallest_subnormal), -1e-44, float("inf"), float("-inf"), float("nan")),
]
shapes = st.lists(st.lists(st.integers(1, 4), max_size=3).map(tuple), min_size=1, max_size=3)


@st.composite
def record_lists(draw, some_shapes, most=5):
    """Records [n, *shape] for each shape: ordinary noise, sprinkled with hostile values, or a single coordinate."""
    n = draw(st.integers(1, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = 10.0 ** draw(st.integers(-8, 8))
    records = [(size * rng.normal(size=(n, *shape))).astype(np.float32) for shape in some_shapes]
    for _ in range(draw(st.integers(0, 4))):
        flat = records[draw(st.integers(0, len(records) - 1))].reshape(-1)
        value = draw(st.sampled_from(HOSTILE))
        if draw(st.booleans()):
            flat[:] = 0.0  # a single coordinate
        flat[draw(st.integers(0, flat.size - 1))] = value
    return records


@st.composite
def estimators(draw):
    low = draw(st.integers(-30, 3))
    high = draw(st.integers(max(low, -30), 12))
    start = draw(st.sampled_from([None, 1e-15, 1e-6, 0.3, 1e5]))
    if start is None and low + high < -37:
        start = 1e-3
    return core.MomentEstimator(
        beta_1=draw(st.sampled_from([0.0, 0.5, 0.99, 0.9999])),
        beta_2=draw(st.sampled_from([0.0, 0.5, 0.9, 0.9999])),
        h1=10.0**low,
        h2=10.0**high,
        initial_std=start,
        variance_scaling=draw(st.sampled_from(["per_example", "paper"])),
        clamp=draw(st.sampled_from(["before_average", "after_average"])),
    )


@st.composite
def choices(draw):
    kind = draw(st.sampled_from([core.AdaClip, core.AdaClip, core.Whitening, core.FixedClip]))
    if kind is core.FixedClip:
        return core.FixedClip(10.0 ** draw(st.integers(-10, 10)))
    return kind(draw(estimators()), draw(st.sampled_from([1e-3, 0.5, 1.0, 50.0])))


def flat(tensors):
    return np.concatenate([np.asarray(tensor, np.float64).reshape(-1) for tensor in tensors])


def check_published(choice, state, transform, mean):
    """Finite everywhere, b > 0, s^2 in its range."""
    for tensor in [*mean, *transform.center, *transform.scale]:
        assert np.isfinite(tensor).all()
    for scale in transform.scale:
        assert np.min(scale) > 0.0
    if isinstance(state, core.Moments):
        for tensor in state.mean:
            assert np.isfinite(tensor).all()
        low, high = choice.moments.variance_range
        for variance in state.variance:
            assert np.min(variance) >= low * (1 - 1e-5) and np.max(variance) <= high * (1 + 1e-5)


@given(st.data())
def test_core(data):
    """Several rounds, each with records of its own, from any state that the mechanism itself can reach."""
    choice = data.draw(choices())
    some_shapes = data.draw(shapes)
    specs = [tf.TensorSpec(shape) for shape in some_shapes]
    z = data.draw(st.sampled_from([0.0, 1e-3, 1.0, 50.0, 1e6]))
    divisor = data.draw(st.sampled_from([1.0, 7.5, 600.0]))
    state = choice.initial_state(specs)
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    for _ in range(3):
        transform = choice.transform(state, specs)
        records = data.draw(record_lists(some_shapes))
        total = core.clipped_sum(records, transform)
        clipped = flat(total)
        assert np.isfinite(clipped).all()
        left = data.draw(st.integers(0, len(records[0]) - 1))
        without = flat(core.clipped_sum([np.delete(record, left, axis=0) for record in records], transform))
        assert np.linalg.norm(clipped - without) <= 1.0 + SLACK
        normals = [rng.normal(size=shape).astype(np.float32) for shape in some_shapes]
        mean, state = core.private_step(choice, state, transform, total, normals, z, divisor)
        check_published(choice, state, transform, mean)


@given(estimators(), st.integers(0, 2**32 - 1))
def test_the_variance_never_leaves_the_interval_once_it_is_inside(estimator, seed):
    rng = np.random.default_rng(seed)
    choice = core.AdaClip(estimator, 1.0)
    specs = [tf.TensorSpec([6])]
    state = choice.initial_state(specs)
    h1, h2 = estimator.h1, estimator.h2
    inside = np.zeros(6, bool)
    for step in range(6):
        variance = state.variance[0].numpy().astype(np.float64)
        now = (variance >= h1 * (1 - 1e-5)) & (variance <= h2 * (1 + 1e-5))
        assert now[inside].all()
        if estimator.clamp == "after_average" and step > 0:
            assert now.all()
        inside = now
        sizes = 10.0 ** rng.uniform(-20, 18, 6)
        mean = [(sizes * rng.normal(size=6)).astype(np.float32)]
        transform = choice.transform(state, specs)
        state = choice.next_state(state, core.Published(transform, mean, rng.choice([0.0, 1.0, 1e6]), 8.0))


def test_the_default_start_lies_below_h1():
    """As the module says; a change of the default would be a change of the mechanism."""
    estimator = core.MomentEstimator()
    assert estimator.variance_range == (pytest.approx(1e-15), 1e-3)
    assert estimator.variance_range[0] < estimator.h1


def test_squares_that_overflow_leave_no_nan():
    """(g~ - m)^2 and the noise's variance are both infinite in float32 here, and their difference was NaN."""
    estimator = core.MomentEstimator(h2=1.0)
    state = core.Moments([tf.zeros([2])], [tf.fill([2], 0.5)])
    for mean in (3e25, 1e-3, -3e25):
        transform = core.Transform([0.0], [tf.fill([2], 1e20)])
        moved = estimator.next_state(state, core.Published(transform, [tf.fill([2], mean)], 1e6, 1.0))
        assert np.isfinite(moved.variance[0]).all()


# ---------------------------------------------------------------------------------------------------
# The query: nested structures and dtypes.

STRUCTURES = {
    "leaf": lambda leaves: leaves[0],
    "dict": lambda leaves: {f"k{i}": leaf for i, leaf in enumerate(leaves)},
    "nested": lambda leaves: {"a": [leaves[0]], "b": (leaves[-1], {"c": leaves[0]})},
}


@settings(max_examples=25)
@given(st.data())
def test_query(data):
    some_shapes = data.draw(shapes)
    dtypes = [data.draw(st.sampled_from([tf.float16, tf.bfloat16, tf.float32, tf.float64])) for _ in some_shapes]
    build = STRUCTURES[data.draw(st.sampled_from(sorted(STRUCTURES)))]
    specs = build([tf.TensorSpec(shape, dtype) for shape, dtype in zip(some_shapes, dtypes)])
    query = AdaClipSumQuery(specs, data.draw(st.sampled_from([0.0, 1.0, 1e4])), 4.0, h2=1.0, seed=1)
    state = query.initial_global_state()
    for _ in range(2):
        params = query.derive_sample_params(state)
        records = data.draw(record_lists([spec.shape for spec in tf.nest.flatten(specs)], most=3))
        sample = query.initial_sample_state()
        for k in range(len(records[0])):
            leaves = [tf.cast(r[k], spec.dtype) for r, spec in zip(records, tf.nest.flatten(specs))]
            before = flat(tf.nest.flatten(sample))
            sample = query.accumulate_record(params, sample, tf.nest.pack_sequence_as(specs, leaves))
            assert np.linalg.norm(flat(tf.nest.flatten(sample)) - before) <= 1.0 + SLACK
        result, state, _ = query.get_noised_result(sample, state)
        tf.nest.assert_same_structure(specs, result)
        check_published(query._rule, state.rule_state, params, [tf.cast(r, tf.float32) for r in records[:0]])
        for leaf, spec in zip(tf.nest.flatten(result), tf.nest.flatten(specs)):
            assert leaf.dtype == spec.dtype


# ---------------------------------------------------------------------------------------------------
# Whole models: both gradient paths, on hostile inputs.


@pytest.fixture(scope="module", params=["auto", "jacobian"])
def summed(request):
    """sum_k u_k of a small model by one path; traced once."""
    return models.pre_noise_sum(models.mlp(), request.param)


MLP = [(models.FEATURES, 5), (5,), (5, models.CLASSES), (models.CLASSES,)]  # shapes of `models.mlp`


@settings(max_examples=30)
@given(data=st.data())
def test_gradient_paths(summed, data):
    (inputs,) = data.draw(record_lists([(models.FEATURES,)], most=6))
    labels = np.arange(len(inputs)) % models.CLASSES
    exponents = st.integers(-12, 6)
    transform = core.Transform(
        [tf.fill(shape, data.draw(st.sampled_from([0.0, 1e-3, -10.0]))) for shape in MLP],
        [tf.fill(shape, 10.0 ** data.draw(exponents)) for shape in MLP],
    )
    whole = summed(inputs, labels, transform)
    assert np.isfinite(whole).all()
    left = data.draw(st.integers(0, len(inputs) - 1))
    rest = summed(np.delete(inputs, left, axis=0), np.delete(labels, left), transform)
    # Sums of large entries that cancel round by more than the entries are different.
    slack = SLACK + 1e-6 * len(inputs)
    assert np.linalg.norm(whole.astype(np.float64) - rest) <= 1.0 + slack


@pytest.fixture(scope="module", params=["adaclip", "fixed"])
def trained(request):
    """A model with its training step, traced once for any data."""
    model = models.mlp()
    if request.param == "adaclip":
        optimizer = DPAdaClipSGD(0.1, 0.9, noise_multiplier=1.0, expected_batch_size=4, h2=1e3)
    else:
        optimizer = DPFixedClipSGD(0.1, l2_norm_clip=1.0, noise_multiplier=1.0, expected_batch_size=4)
    model.compile(optimizer, models.per_example_loss())
    return model


@settings(max_examples=20)
@given(data=st.data())
def test_optimizer(trained, data):
    """Steps on hostile data, one after the other on the same weights: everything stays finite, every step counts."""
    (inputs,) = data.draw(record_lists([(models.FEATURES,)]))
    inputs = np.resize(inputs, [5, models.FEATURES])
    trained.train_on_batch(inputs, np.arange(5) % models.CLASSES)
    optimizer = trained.optimizer
    assert int(optimizer.noised_steps) == int(optimizer.iterations)
    for variable in [*trained.variables, *optimizer.variables]:
        assert np.isfinite(variable.numpy()).all(), variable.name
    for part in optimizer.private_state().values():
        assert np.min(part["scale"]) > 0.0
    assert all(np.isfinite(value) for value in optimizer.private_metrics().values())


# ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dense", "single coordinate", "subnormal", "huge"])
def test_ten_million_coordinates(kind, rng):
    """Float32 sums of 1e7 squares keep |u| <= 1 too, and b = sqrt(s) sqrt(sum s) stays in range."""
    d = 10_000_000
    record = {
        "dense": lambda: rng.normal(size=d),
        "single coordinate": lambda: np.eye(1, d, 12345)[0] * 1e30,
        "subnormal": lambda: np.full(d, 1e-42),
        "huge": lambda: np.full(d, 1e14),
    }[kind]()
    specs = [tf.TensorSpec([d])]
    choice = core.AdaClip()
    state = choice.initial_state(specs)
    for _ in range(2):
        transform = choice.transform(state, specs)
        total = core.clipped_sum([record.astype(np.float32)[None]], transform)
        norm = np.linalg.norm(total[0].numpy().astype(np.float64))
        assert norm <= 1.0 + SLACK
        if kind == "dense":
            assert norm >= 1.0 - SLACK  # clipped, not lost
        normals = [rng.standard_normal(d, np.float32)]
        mean, state = core.private_step(choice, state, transform, total, normals, 1.0, 8.0)
        check_published(choice, state, transform, mean)
