"""Single rules, and the arithmetic behind them, where the zoo does not reach."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.gradients import ghost
from adaclip_tf.gradients.ghost import convolutions, single, slices
from tests.gradients.ghost.reference import Case, check_norms, squared_error

layers = tf.keras.layers


def normal(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


def variable(rng, *shape):
    return tf.Variable(normal(rng, *shape))


FORMS = {  # y from x and a kernel w, with their shapes
    "transposed kernel": (lambda x, w: tf.matmul(x, w, transpose_b=True), [5], [3, 5]),
    "kernel transposed by an op": (lambda x, w: x @ tf.transpose(w), [5], [3, 5]),
    "negated kernel": (lambda x, w: x @ -w, [5], [5, 3]),
    "features first": (lambda x, w: tf.matmul(tf.transpose(x), w, transpose_a=True), [5], [5, 3]),
    "batched product": (lambda x, w: x @ w, [4, 5], [5, 3]),
    "tensordot": (lambda x, w: tf.tensordot(x, w, [[1, 2], [0, 1]]), [4, 5], [4, 5, 3]),
    "einsum, kernel first": (lambda x, w: tf.einsum("cd,abc->abd", w, x), [4, 5], [5, 3]),
    "scale": (lambda x, w: x * w, [4, 5], [4, 5]),
    "one scale for all": (lambda x, w: x * w, [4, 5], []),
    "shift that broadcasts": (lambda x, w: x - w, [4, 5], [4, 1]),
    "divisor": (lambda x, w: x / (2.0 + w), [5], [5]),
    "gathered features": (lambda x, w: x @ tf.gather(w, [0, 2, 2]), [3], [4, 5]),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_a_product(form, rng):
    function, inputs, shape = FORMS[form]
    w = variable(rng, *shape)
    case = Case(lambda x: squared_error(function(x, w)), [w], tf.TensorSpec([None, *inputs]), rng)
    exact = form not in ("divisor", "gathered features")  # -x / w^2 and shared rows have no rule
    for size in (5, 1):
        case.check(normal(rng, size, *inputs), all_recognised=exact)


def test_a_nan_of_an_example_left_out_stays_out_of_a_sum_that_is_one_product(rng):
    """The kernel is larger than what its gradient is made of, in several rows for each example."""
    model = tf.keras.Sequential([tf.keras.Input([5, 5, 16]), layers.Conv2D(32, 3, dilation_rate=2), layers.Flatten()])
    case = Case(lambda x: squared_error(model(x)), model.trainable_variables, tf.TensorSpec([None, 5, 5, 16]), rng)
    x, left_out = normal(rng, 3, 5, 5, 16), np.float32([1.0, 0.0, 1.0])
    clean = case.ghost(x, left_out)[0][2]
    x[1, 0, 0, 0] = np.nan
    np.testing.assert_array_equal(case.ghost(x, left_out)[0][2], clean)


def test_batched_products_with_a_kernel_are_not_formed_per_example(rng):
    w = variable(rng, 5, 3)
    case = Case(lambda x: squared_error(tf.linalg.matmul(x, w)), [w], tf.TensorSpec([None, 4, 5]), rng)
    case.check(normal(rng, 3, 4, 5))
    assert case.plan.recognised[0].rule in ("MatMul", "Sum")


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_is_computed_in_float32(policy, rng):
    tf.keras.mixed_precision.set_global_policy(policy)
    try:
        model = tf.keras.Sequential(
            [
                tf.keras.Input([6, 6, 2]),
                layers.Conv2D(3, 3, activation="relu"),
                layers.Flatten(),
                layers.LayerNormalization(),
                layers.Dense(4),
                layers.Dense(2, dtype="float32"),
            ]
        )
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")
    case = Case(lambda x: squared_error(model(x)), model.trainable_variables, tf.TensorSpec([None, 6, 6, 2]), rng)
    x = normal(rng, 3, 6, 6, 2)
    results = case.ghost(x, np.ones(3, np.float32))
    assert not case.plan.unrecognised
    for (full, plain, total), g, center, scale in zip(results.values(), case.alone(x), case.centers, case.scales):
        assert full.value.dtype == plain.value.dtype == total.dtype == tf.float32
        expected = np.square((g - center) / scale).sum(axis=tuple(range(1, g.ndim)))
        np.testing.assert_allclose(full.value, expected, rtol=0.05)  # the reference rounds to half precision
        np.testing.assert_allclose(total, g.sum(axis=0), atol=0.05 * np.abs(g).sum(axis=0).max())


def test_an_eager_forward_pass(rng):
    """As in `run_eagerly=True`: the tape recorded eager tensors, and only the backward pass is in a graph."""
    model = tf.keras.Sequential([tf.keras.Input([5]), layers.Dense(4, "relu"), layers.Dense(2)])
    case = Case(lambda x: squared_error(model(x)), model.trainable_variables, tf.TensorSpec([None, 5]), rng)
    x = normal(rng, 3, 5)
    with tf.GradientTape() as tape:
        loss = case.loss(tf.constant(x))

    @tf.function(autograph=False)
    def norms():
        seed = tf.identity(tf.fill(tf.shape(loss), 1.0))
        gradients = tape.gradient(loss, case.variables, output_gradients=seed)
        plan = ghost.analyse(gradients, case.variables, seed, num_microbatches=tf.shape(loss)[0])
        assert not plan.unrecognised
        assert isinstance(plan.recognised[0]._term, ghost.outer_product.OuterProduct)  # not the general form
        return [plan.recognised[i].squared_norms(case.centers[i], case.scales[i]) for i in range(4)]

    for result, g, center, scale in zip(norms(), case.alone(x), case.centers, case.scales):
        check_norms(result, g, center, scale, "eager")


@pytest.mark.parametrize("in_slices", [False, True])
def test_xla_gives_the_same(in_slices, rng, monkeypatch):
    if in_slices:
        monkeypatch.setattr(slices, "BUDGET", 3000)
        monkeypatch.setattr(slices, "MODEST", 0)
    model = tf.keras.Sequential(
        [tf.keras.Input([6, 6, 1]), layers.Conv2D(2, 3), layers.Reshape([8, 4]), layers.Dense(3), layers.Flatten()]
    )
    case = Case(lambda x: squared_error(model(x)), model.trainable_variables, tf.TensorSpec([None, 6, 6, 1]), rng)
    x, ones = normal(rng, 3, 6, 6, 1), np.ones(3, np.float32)
    signature = [case.spec, tf.TensorSpec([None])]  # the batch is only known to the compiler, as in `fit`
    compiled = tf.function(case._ghost, signature, autograph=False, jit_compile=True)
    for result, reference in zip(tf.nest.flatten(compiled(x, ones)), tf.nest.flatten(case.ghost(x, ones))):
        np.testing.assert_allclose(result, reference, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("budget", [1, 3000, 10**9])
def test_slices_cover_every_example(budget, rng, monkeypatch):
    monkeypatch.setattr(slices, "BUDGET", budget)
    monkeypatch.setattr(slices, "MODEST", 0)
    model = tf.keras.Sequential(
        [
            tf.keras.Input([5, 5, 1]),
            layers.DepthwiseConv2D(2),
            layers.Conv2D(3, 2),
            layers.Reshape([9, 3]),
            layers.Dense(4),
        ]
    )
    case = Case(lambda x: squared_error(model(x)), model.trainable_variables, tf.TensorSpec([None, 5, 5, 1]), rng)
    for size in (7, 1, 0):
        case.check(normal(rng, size, 5, 5, 1))


def test_grouped_convolutions_match_separate_ones(rng):
    """TensorFlow has no gradient of a grouped kernel on the CPU; the handle does not need it."""
    groups, w, x = 2, variable(rng, 2, 2, 2, 6), normal(rng, 3, 5, 5, 4)

    def grouped(x):
        return squared_error(tf.nn.conv2d(x, w, 1, "SAME"))

    def separate(x):
        parts = zip(tf.split(x, groups, axis=3), tf.split(w, groups, axis=3))
        return squared_error(tf.concat([tf.nn.conv2d(a, b, 1, "SAME") for a, b in parts], axis=3))

    spec = tf.TensorSpec([None, 5, 5, 4])
    records = Case(separate, [w], spec, rng).alone(x)
    Case(grouped, [w], spec, rng).check(x, records=records)


def test_explicit_padding_and_strides(rng):
    w = variable(rng, 3, 2, 2, 3)
    pads = [[0, 0], [2, 1], [0, 1], [0, 0]]
    case = Case(
        lambda x: squared_error(tf.nn.conv2d(x, w, [1, 2, 1, 1], pads)), [w], tf.TensorSpec([None, 6, 5, 2]), rng
    )
    case.check(normal(rng, 4, 6, 5, 2))


def test_kernel_geometry_needs_static_sizes(rng):
    w = variable(rng, 2, 2, 1, 1)
    case = Case(lambda x: tf.reduce_sum(tf.nn.conv2d(x, w, 1, "SAME"), [1, 2, 3]), [w], tf.TensorSpec([None] * 4), rng)
    case.spec = None
    case.ghost(normal(rng, 2, 4, 4, 1), np.ones(2, np.float32))
    assert "only known at run time" in case.plan.unrecognised[0]
    assert convolutions.Geometry.__doc__


def test_rows_looked_up_twice_are_added_before_they_are_squared(rng):
    table = variable(rng, 6, 3)
    case = Case(lambda x: squared_error(tf.gather(table, x)), [table], tf.TensorSpec([None, 4], tf.int32), rng)
    case.check(np.array([[0, 0, 0, 0], [1, 2, 1, 2], [5, 4, 3, 2], [5, 5, 0, 5]], np.int32))
    one = Case(lambda x: squared_error(tf.gather(table, x)), [table], tf.TensorSpec([None], tf.int32), rng)
    one.check(np.array([3, 3, 0], np.int32))


def test_rows_looked_up_twice_are_added_before_they_are_squared_under_xla(rng):
    """XLA takes another way there than the one above, since it cannot count distinct rows."""
    table = variable(rng, 6, 3)
    case = Case(lambda x: squared_error(tf.gather(table, x)), [table], tf.TensorSpec([None, 4], tf.int32), rng)
    x = np.array([[0, 0, 0, 0], [1, 2, 1, 2], [5, 4, 3, 2], [5, 5, 0, 5]], np.int32)
    weights = np.array([1.0, 0.5, 0.25, 0.125], np.float32)
    signature = [case.spec, tf.TensorSpec([None])]
    compiled = tf.function(case._ghost, signature, autograph=False, jit_compile=True)
    (records,) = case.alone(x)
    full, plain, total = compiled(x, weights)[0]
    check_norms(full, records, case.centers[0], case.scales[0], "xla")
    check_norms(plain, records, 0.0, 0.5, "xla")
    np.testing.assert_allclose(total, np.tensordot(weights, records, 1), rtol=1e-4, atol=1e-6)
    # Negative control: squared one by one, the first example's norm would be half of what it is.
    own = np.square(records[0]).sum()
    with tf.GradientTape() as tape:
        rows = tf.gather(table, x[:1])
        tape.watch(rows)
        loss = squared_error(rows)
    assert np.square(tape.gradient(loss, rows)).sum() < 0.7 * own


# ---------------------------------------------------------------------------------------------------
# Arithmetic.


@pytest.mark.parametrize("scalar", [True, False])
@pytest.mark.parametrize("x_size, dy_size", [(1e-25, 1e15), (1e15, 1e-25), (1e-20, 1e18), (1e-30, 1e25), (1e-3, 1e3)])
def test_underflow_never_makes_a_norm_too_small(x_size, dy_size, scalar, rng):
    x, dy = normal(rng, 4, 3) * np.float32(x_size), normal(rng, 4, 5) * np.float32(dy_size)
    scale = np.float32(1e-3) if scalar else np.full([3, 5], 1e-3, np.float32)
    zero = tf.constant(0.0)
    expected = np.square(np.einsum("ni,nj->nij", x.astype(np.float64), dy.astype(np.float64)) / 1e-3).sum(axis=(1, 2))
    value = single.squared_norms(tf.constant(x), tf.constant(dy), zero, tf.constant(scale)).value.numpy()
    assert np.all(~np.isfinite(value) | (value >= expected * (1 - 1e-5)))


@pytest.mark.parametrize("x_size, dy_size", [(1e-25, 1e15), (1e15, 1e-25), (1e-20, 1e18), (1e-3, 1e3)])
def test_underflow_never_makes_a_norm_too_small_in_the_gram_form(x_size, dy_size, rng):
    x, dy = normal(rng, 4, 2, 30) * np.float32(x_size), normal(rng, 4, 2, 20) * np.float32(dy_size)
    term = ghost.products.SumOfOuterProducts(
        n=tf.constant(4),
        arrays=[tf.constant(x), tf.constant(dy)],
        make=lambda a: (a[0], a[1]),
        shape=(30, 20),
        length=2,
        total=lambda w: w,
    )
    assert term._gram_is_cheaper()
    g = np.einsum("nti,ntj->nij", x.astype(np.float64), dy.astype(np.float64))
    norms = term.squared_norms(tf.constant(0.0), tf.constant(1e-3))
    expected = np.square(g / 1e-3).sum(axis=(1, 2))
    value = norms.value.numpy()
    assert np.all(~np.isfinite(value) | (value >= expected * (1 - 1e-5)))


@pytest.mark.parametrize("x_size, dy_size", [(1e-25, 1e15), (1e15, 1e-25), (1e-3, 1e3)])
def test_underflow_never_makes_a_norm_too_small_in_pairs_of_rows(x_size, dy_size, rng):
    x, dy = normal(rng, 4, 2, 3) * np.float32(x_size), normal(rng, 4, 2, 5) * np.float32(dy_size)
    term = ghost.products.of_arrays(tf.constant(4), tf.constant(x), tf.constant(dy), 2)
    g = np.einsum("nti,ntj->nij", x.astype(np.float64), dy.astype(np.float64))
    norms = term.squared_norms(tf.constant(0.0), tf.constant(np.full([3, 5], 1e-3, np.float32)))
    value = norms.value.numpy()
    assert np.all(~np.isfinite(value) | (value >= np.square(g / 1e-3).sum(axis=(1, 2)) * (1 - 1e-5)))


def test_a_gradient_whose_shape_only_the_run_knows_has_the_variables_size(rng):
    gradients = normal(rng, 4, 2, 3)

    @tf.function(input_signature=[tf.TensorSpec([None, None, None])])
    def norms(examples):
        term = ghost.terms.PerExample(examples, size=6)
        return term.squared_norms(tf.constant(0.0), tf.constant(2.0)).value, term.weighted_sum(tf.ones([4]))

    value, total = norms(gradients)
    np.testing.assert_allclose(value, np.square(gradients / 2.0).sum(axis=(1, 2)), rtol=1e-5)
    np.testing.assert_allclose(tf.reshape(total, [2, 3]), gradients.sum(axis=0), rtol=1e-5, atol=1e-5)


def test_cancellation_is_covered_by_the_magnitude(rng):
    """g close to a: the expanded square loses digits, value + ulps * magnitude does not fall short."""
    x, dy = normal(rng, 50, 30), normal(rng, 50, 20)
    g = np.einsum("ni,nj->nij", x.astype(np.float64), dy.astype(np.float64))
    scale = rng.uniform(0.5, 2.0, size=[30, 20]).astype(np.float32)
    for k in range(50):
        center = (g[k] * (1 + 1e-6 * rng.normal(size=g[k].shape))).astype(np.float32)
        norms = single.squared_norms(*map(tf.constant, (x[k : k + 1], dy[k : k + 1], center, scale)))
        expected = np.square((g[k] - center) / scale).sum()
        assert norms.value[0] + 2e-6 * norms.magnitude[0] >= expected
        assert norms.magnitude[0] >= np.square(g[k] / scale).sum()


def test_gram_form_and_formed_gradients_agree(rng):
    x, dy = normal(rng, 5, 3, 40), normal(rng, 5, 3, 30)
    term = ghost.products.SumOfOuterProducts(
        n=tf.constant(5),
        arrays=[tf.constant(x), tf.constant(dy)],
        make=lambda a: (a[0], a[1]),
        shape=(40, 30),
        length=3,
        total=lambda w: w,
    )
    assert term._gram_is_cheaper()
    g = np.einsum("nti,ntj->nij", x.astype(np.float64), dy.astype(np.float64))
    check_norms(term.squared_norms(tf.constant(0.3), tf.constant(0.7)), g, 0.3, 0.7, "gram")
    full = tf.constant(np.full([40, 30], 0.7, np.float32))
    check_norms(term.squared_norms(tf.constant(0.3), full), g, 0.3, 0.7, "formed")


def test_cancellation_in_the_gram_form_is_covered_by_the_magnitude(rng):
    """g_k close to a in every coordinate, from rows that cancel one another: the sum of products loses digits twice."""
    n, length, inner, outer = 40, 4, 30, 20
    parts = rng.normal(size=[n, length, 1]).astype(np.float32) * 100.0
    parts[:, -1] = 1.0 - parts[:, :-1].sum(axis=1)  # they add up to about 1
    x = (parts * np.ones([1, 1, inner])).astype(np.float32)
    x += 1e-5 * normal(rng, n, length, inner)
    dy = np.ones([n, length, outer], np.float32)
    g = np.einsum("nti,ntj->nij", x.astype(np.float64), dy.astype(np.float64))
    arrays = [tf.constant(x), tf.constant(dy)]
    term = ghost.products.SumOfOuterProducts(
        n=tf.constant(n),
        arrays=arrays,
        make=lambda a: (a[0], a[1]),
        shape=(inner, outer),
        length=length,
        total=lambda w: w,
    )
    assert term._gram_is_cheaper()
    norms = term.squared_norms(tf.constant(1.0), tf.constant(1e-3))
    expected = np.square((g - 1.0) / 1e-3).sum(axis=(1, 2))
    value, magnitude = (part.numpy().astype(np.float64) for part in norms)
    assert np.any(value < 0.5 * expected)  # the value by itself falls short
    assert np.all(value + 2e-6 * magnitude >= expected)
    absolute = np.abs(np.einsum("nti,nsi->nts", x, x) * np.einsum("ntj,nsj->nts", dy, dy)).sum(axis=(1, 2))
    assert np.all(magnitude >= absolute * 1e6 * (1 - 1e-5))


def test_handles_take_vectors_that_broadcast(rng):
    w = variable(rng, 4, 3)
    case = Case(lambda x: squared_error(x @ w), [w], tf.TensorSpec([None, 4]), rng)
    case.centers, case.scales = [normal(rng, 3)], [np.array([[0.5], [1.0], [2.0], [4.0]], np.float32)]
    case.check(normal(rng, 3, 4))
