"""Models in which the rows of a gradient are not the examples', or a variable has no single rule.

Each must be left unrecognised or be exact: never silently wrong. The reference is the Jacobian of the
losses of one batch, which is right even where examples mix.
"""

import numpy as np
import pytest
import tensorflow as tf

from tests.gradients.ghost.reference import Case

N, F = 4, 4  # square, so that a wrong axis does not show in the shapes


def matmul_loss(y):
    return tf.reduce_sum(tf.square(y - tf.cos(tf.range(y.shape[-1], dtype=tf.float32))), axis=-1)


def penalised(x, w, v):
    return matmul_loss(x @ w @ v) + tf.reduce_sum(tf.cumsum(w)) * 0.1


def added_up_weights(x, w, v):
    return matmul_loss(x @ tf.cumsum(w) @ v)


def minus_mean(x, w, v):
    y = x @ w
    return matmul_loss((y - tf.reduce_mean(y, axis=0)) @ v)


def divided_by_batch_maximum(x, w, v):
    y = x @ w
    return matmul_loss(y / (1.0 + tf.reduce_max(tf.abs(y), axis=0)) @ v)


def permuted(x, w, v):
    return matmul_loss(tf.gather(x @ w, [1, 0, 3, 2]) @ v)


def reversed_batch(x, w, v):
    return matmul_loss(tf.reverse(x @ w, [0]) @ v)


def rolled(x, w, v):
    return matmul_loss(tf.roll(x @ w, 1, axis=0) @ v)


def strided_reversed(x, w, v):
    return matmul_loss((x @ w)[::-1] @ v)


def transposed_batch(x, w, v):
    return matmul_loss(tf.transpose(tf.transpose(x) @ w) @ v)


def transposed_behind_a_one(x, w, v):
    return matmul_loss(tf.squeeze(tf.transpose(tf.expand_dims(tf.transpose(x) @ w, 0), [0, 2, 1]), 0) @ v)


def attention_over_the_batch(x, w, v):
    y = x @ w
    return matmul_loss(tf.nn.softmax(y @ tf.transpose(y)) @ y @ v)


def shifted_pairs(x, w, v):
    y = x @ w
    return matmul_loss(tf.concat([y[1:], y[:1]], axis=0) @ v)


def merged_rows(x, w, v):
    y = tf.reshape(x @ w, [-1, 2 * F])
    return matmul_loss(tf.reshape(y @ tf.linalg.diag(tf.range(2.0 * F)), [-1, F]) @ v)


def cumulative(x, w, v):
    return matmul_loss(tf.cumsum(x @ w, axis=0) @ v)


def conditional(x, w, v):
    y = x @ w
    return matmul_loss(tf.cond(tf.reduce_sum(x) > 0.0, lambda: y, lambda: -y) @ v)


def loop(x, w, v):
    _, y = tf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, tf.nn.tanh(y @ v)), (0, x @ w))
    return matmul_loss(y)


def function_call(x, w, v):
    return matmul_loss(tf.function(lambda y: tf.nn.tanh(y @ v))(x @ w))


def clipped_gradient(x, w, v):
    @tf.custom_gradient
    def clip(y):
        return y, lambda dy: tf.clip_by_value(dy, -0.1, 0.1)

    return matmul_loss(clip(x @ w) @ v)


def shifted_gradient(x, w, v):
    @tf.custom_gradient
    def shift(y):
        return tf.identity(y), lambda dy: dy + 0.5

    return matmul_loss(shift(x @ w) @ v)


def squared_gradient(x, w, v):
    @tf.custom_gradient
    def square(y):
        return tf.identity(y), lambda dy: dy * dy

    return matmul_loss(square(x @ w) @ v)


def normalised_gradient(x, w, v):
    @tf.custom_gradient
    def normalise(y):
        return tf.identity(y), lambda dy: dy / (1.0 + tf.abs(dy))

    return matmul_loss(normalise(x @ w) @ v)


def selected_gradient(select, then_first):
    """A gradient that is dy in some places and 0.5 in the others."""

    def loss(x, w, v):
        @tf.custom_gradient
        def chosen(y):
            def gradient(dy):
                mask, half = tf.cast(x > 0.0, tf.bool), tf.fill(tf.shape(dy), 0.5)
                return select(mask, dy, half) if then_first else select(mask, half, dy)

            return tf.identity(y), gradient

        return matmul_loss(chosen(x @ w) @ v)

    loss.__name__ = f"{select.__name__}_{'then' if then_first else 'else'}"
    return loss


def old_select(mask, yes, no):
    return tf.raw_ops.Select(condition=mask, x=yes, y=no)


def new_select(mask, yes, no):
    return tf.where(mask, yes, no)


def crossing_gradient(x, w, v):
    @tf.custom_gradient
    def cross(y):
        matrix = tf.cos(tf.reshape(tf.range(float(N * N * F)), [N, N, F]))
        return tf.identity(y), lambda dy: tf.reduce_sum(dy * matrix, axis=1)  # row r gets something of every row

    return matmul_loss(cross(x @ w) @ v)


def outer_broadcast(x, w, v):
    y = x @ w
    return matmul_loss(tf.reduce_sum(y[tf.newaxis] * x[:, tf.newaxis], axis=1) @ v)


def batch_as_features(x, w, v):
    return matmul_loss(tf.matmul(x @ w, x, transpose_a=True) @ v)


def einsum_over_the_batch(x, w, v):
    y = x @ w
    return matmul_loss(tf.einsum("bf,cf->bc", y, y) @ v)


def batch_norm(x, w, v):
    y, *_ = tf.compat.v1.nn.fused_batch_norm((x @ w)[:, tf.newaxis, tf.newaxis], tf.ones([F]), tf.zeros([F]))
    return matmul_loss(y[:, 0, 0] @ v)


MIXING = [minus_mean, divided_by_batch_maximum, batch_norm, attention_over_the_batch]
ROWS_MOVE = [permuted, reversed_batch, rolled, strided_reversed, transposed_batch, shifted_pairs, merged_rows]
ROWS_MOVE += [
    cumulative,
    transposed_behind_a_one,
    crossing_gradient,
    outer_broadcast,
    batch_as_features,
    einsum_over_the_batch,
]
SEVERAL_USES = [penalised, added_up_weights]
CONTROL_FLOW = [conditional, function_call]
NOT_LINEAR = [clipped_gradient, shifted_gradient, squared_gradient, normalised_gradient]
NOT_LINEAR += [selected_gradient(select, first) for select in (old_select, new_select) for first in (True, False)]


def sliced_in_the_run(x, w, v):
    start = tf.cast(0.0 * v[0, 0], tf.int32)
    return matmul_loss(x @ w[start : start + F] @ v)


def split_in_the_run(x, w, v):
    parts = tf.raw_ops.Split(axis=tf.cast(0.0 * v[0, 0], tf.int32), value=w, num_split=2)
    return matmul_loss(x[:, : F // 2] @ tf.ensure_shape(parts[0], [F // 2, F]) @ v)


PLACED = [sliced_in_the_run, split_in_the_run]


def case_of(loss, rng):
    w = tf.Variable(rng.normal(size=[F, F]).astype(np.float32), name="w")
    v = tf.Variable(rng.normal(size=[F, F]).astype(np.float32), name="v")
    return Case(lambda x: loss(x, w, v), [w, v], tf.TensorSpec([None, F]), rng)


@pytest.mark.parametrize(
    "loss", MIXING + ROWS_MOVE + SEVERAL_USES + CONTROL_FLOW + PLACED, ids=lambda loss: loss.__name__
)
def test_unrecognised_or_exact(loss, rng):
    case = case_of(loss, rng)
    x = rng.normal(size=[N, F]).astype(np.float32)
    case.check(x, records=case.jacobian(x), all_recognised=False)
    assert 0 in case.plan.unrecognised
    assert "w:0: " in case.plan.unrecognised[0]
    if loss in [*CONTROL_FLOW, permuted, rolled]:
        assert " op '" in case.plan.unrecognised[0]


def test_what_is_behind_a_loop_is_exact_and_what_is_added_up_inside_is_unrecognised(rng):
    case = case_of(loop, rng)
    x = rng.normal(size=[N, F]).astype(np.float32)
    case.check(x, records=case.jacobian(x), all_recognised=False)
    assert set(case.plan.unrecognised) == {1}


@pytest.mark.parametrize("loss", NOT_LINEAR, ids=lambda loss: loss.__name__)
def test_gradients_that_are_not_linear_in_the_seed_are_unrecognised(loss, rng):
    case = case_of(loss, rng)
    case.ghost(rng.normal(size=[N, F]).astype(np.float32), np.ones(N, np.float32))
    assert 0 in case.plan.unrecognised
    assert 1 in case.plan.recognised  # v comes before the odd gradient


def test_what_is_in_front_of_batch_normalization_is_unrecognised(rng):
    layers = tf.keras.layers
    for model in (
        tf.keras.Sequential([layers.Dense(3, input_shape=[2]), layers.BatchNormalization(), layers.Dense(1)]),
        tf.keras.Sequential(
            [layers.Conv2D(3, 2, input_shape=[4, 4, 1]), layers.BatchNormalization(), layers.Flatten()]
        ),
    ):
        spec = tf.TensorSpec(model.input_shape)
        case = Case(lambda x, m=model: matmul_loss(m(x, training=True)), model.trainable_variables, spec, rng)
        case.ghost(rng.normal(size=[5, *spec.shape[1:]]).astype(np.float32), np.ones(5, np.float32))
        assert {0, 1} <= set(case.plan.unrecognised)


@pytest.mark.parametrize("cell", [tf.keras.layers.LSTM, tf.keras.layers.GRU, tf.keras.layers.SimpleRNN])
def test_recurrent_layers_fall_back_and_the_rest_does_not(cell, rng):
    model = tf.keras.Sequential([tf.keras.Input([3, 2]), cell(3), tf.keras.layers.Dense(2)])
    case = Case(lambda x: matmul_loss(model(x)), model.trainable_variables, tf.TensorSpec([None, 3, 2]), rng)
    case.check(rng.normal(size=[3, 3, 2]).astype(np.float32), all_recognised=False)
    assert set(case.plan.unrecognised) == {0, 1, 2}
    assert set(case.plan.recognised) == {3, 4}


def by_transpose(x, w, v):
    return tf.transpose(tf.transpose(x, [1, 0, 2]) @ w, [1, 0, 2]) @ v


def by_einsum(x, w, v):
    return tf.einsum("tbg,gh->bth", tf.einsum("btf,fg->tbg", x, w), v)


@pytest.mark.parametrize("time_major", [by_transpose, by_einsum])
def test_time_major_is_unrecognised_or_exact(time_major, rng):
    w, v = (tf.Variable(rng.normal(size=[F, F]).astype(np.float32)) for _ in range(2))
    case = Case(
        lambda x: tf.reduce_sum(tf.square(time_major(x, w, v)), axis=[1, 2]),
        [w, v],
        tf.TensorSpec([None, N, F]),
        rng,
    )
    case.check(rng.normal(size=[N, N, F]).astype(np.float32), all_recognised=False)
    assert 0 in case.plan.unrecognised


def test_a_product_with_one_matrix_for_all_examples_is_refused_in_the_run_or_exact(rng):
    """Its gradient is a sum over the examples, and before the run it looks like that of a matrix for each of them."""
    w = tf.Variable(rng.normal(size=[F, F]).astype(np.float32), name="w")

    def loss(x):
        rows = tf.minimum(tf.shape(x)[0], 1)  # 1, which only the run tells
        matrix = tf.reshape(tf.ones([rows, F]) @ w, [rows, 1, F])
        return tf.reduce_sum(tf.square(tf.matmul(x[:, tf.newaxis], matrix, transpose_b=True)), [1, 2])

    case = Case(loss, [w], tf.TensorSpec([None, F]), rng)
    x = rng.normal(size=[N, F]).astype(np.float32)
    try:
        case.check(x, all_recognised=False)
    except tf.errors.InvalidArgumentError as error:
        assert "cannot be read off the backward graph" in str(error) or "rows per microbatch" in str(error)


def test_rows_that_only_the_run_can_count_are_checked_in_the_run(rng):
    w = tf.Variable(rng.normal(size=[F, F]).astype(np.float32), name="w")

    def loss(x):
        y = tf.reshape(x @ w, [tf.shape(x)[0] // 2, -1])  # pairs of examples in one row, if the batch is even
        return matmul_loss(tf.reshape(tf.nn.softmax(y), [-1, F]))

    case = Case(loss, [w], tf.TensorSpec([None, None]), rng)
    case.spec = tf.TensorSpec([None, F])
    with pytest.raises(tf.errors.InvalidArgumentError, match="split evenly"):
        case.ghost(rng.normal(size=[N, F]).astype(np.float32), np.ones(N, np.float32))
    # XLA has no assertions: there the norms say that the records are not to be used.
    signature = [tf.TensorSpec([None, None]), tf.TensorSpec([None])]
    compiled = tf.function(case._ghost, signature, autograph=False, jit_compile=True)
    full, plain, _ = compiled(rng.normal(size=[N, F]).astype(np.float32), np.ones(N, np.float32))[0]
    assert np.all(np.isnan(full.value)) and np.all(np.isnan(plain.value))


@pytest.mark.parametrize("use", ["of another", "twice", "in part"])
def test_what_must_hold_for_one_use_of_one_variable_is_checked_for_all(use, rng):
    """One that is wrong behind one that is right; two variables, or one that is used twice. XLA has no assertions."""
    w = tf.Variable(rng.normal(size=[F, F + 1]).astype(np.float32), name="w")
    v = tf.Variable(rng.normal(size=[F, F]).astype(np.float32), name="v") if use == "of another" else w

    def loss(x):
        kernel = w[:, 1:] if use == "in part" else w
        pairs = tf.reshape(x @ kernel, [tf.shape(x)[0] // 2, -1])  # two examples in one row, if the batch is even
        right = tf.zeros_like(x[:, 0]) if use == "in part" else matmul_loss(x @ v)
        return right + matmul_loss(tf.reshape(tf.nn.softmax(pairs), [-1, kernel.shape[1]]))

    case = Case(loss, [v, w] if use == "of another" else [w], tf.TensorSpec([None, F]), rng)
    x, weights = rng.normal(size=[N, F]).astype(np.float32), np.ones(N, np.float32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="split evenly"):
        case.ghost(x, weights)
    found = tf.function(case._ghost, [case.spec, tf.TensorSpec([None])], autograph=False, jit_compile=True)(x, weights)
    assert len(found) == len(case.variables)
    for full, plain, _ in found.values():
        assert np.all(np.isnan(full.value)) and np.all(np.isnan(plain.value))


@pytest.mark.parametrize("select", [old_select, new_select], ids=lambda select: select.__name__)
def test_a_selection_between_the_gradient_and_zero_is_followed(select, rng):
    """Negative control of `selected_gradient`: it is the 0.5 that is refused, not the selection."""

    def loss(x, w, v):
        @tf.custom_gradient
        def masked(y):
            return tf.identity(y), lambda dy: select(x > 0.0, dy, tf.zeros_like(dy))

        return matmul_loss(masked(x @ w) @ v)

    case_of(loss, rng).check(rng.normal(size=[N, F]).astype(np.float32))


def padded(y, kept):
    """Its gradient is a slice: fewer rows than the loss has."""
    return tf.pad(y, tf.stack([[kept, 0], [0, 0]]))


def sliced(y, kept):
    """Its gradient is a pad: more rows than the loss has."""

    @tf.custom_gradient
    def last_rows(y):
        return tf.identity(y[kept:]), lambda dy: tf.pad(dy, tf.stack([[kept, 0], [0, 0]]))

    return last_rows(y)


def halved(y, kept):
    """Its gradient repeats every row's gradient, rows and all."""

    @tf.custom_gradient
    def first_rows(y):
        return tf.identity(y[: tf.shape(y)[0] // kept]), lambda dy: tf.tile(dy, tf.stack([kept, 1]))

    return first_rows(y)


@pytest.mark.parametrize("change", [padded, sliced, halved], ids=lambda change: change.__name__)
def test_a_change_of_the_number_of_rows_is_seen_in_the_run(change, rng):
    """A pad, slice or tile of the batch, by an amount that only the run knows.

    The rows still split evenly into two microbatches, 2, 3 or 4 each, but are not the loss's rows any more: norms and
    sums would come out, of the wrong examples. Microbatches of unknown size are the hard case, since no other
    check counts the rows then.
    """
    w = tf.Variable(rng.normal(size=[F, F]).astype(np.float32), name="w")
    size = {"padded": 2, "sliced": 6, "halved": 8}[change.__name__]  # rows of x; the loss has 4

    def loss(x):
        kept = tf.reduce_sum(tf.ones_like(x[:2, 0], tf.int32))  # 2, which the graph does not tell
        return matmul_loss(change(x @ w, kept))

    case = Case(loss, [w], tf.TensorSpec([None, F]), rng, num_microbatches=2)
    x, weights = rng.normal(size=[size, F]).astype(np.float32), np.ones(2, np.float32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="changes along the axis"):
        case.ghost(x, weights)
    # XLA has no assertions, and needs to know the amounts.
    case.loss = lambda x: matmul_loss(change(x @ w, 2))
    signature = [case.spec, tf.TensorSpec([None])]
    full, plain, _ = tf.function(case._ghost, signature, autograph=False, jit_compile=True)(x, weights)[0]
    assert np.all(np.isnan(full.value)) and np.all(np.isnan(plain.value))


@pytest.mark.parametrize("keep", [1, 0])
def test_a_pad_that_leaves_the_rows_alone_is_exact(keep, rng):
    """Negative control: the same ops, by amounts that only the run knows, along the other axis or by nothing."""
    w = tf.Variable(rng.normal(size=[F, F]).astype(np.float32), name="w")

    def loss(x):
        kept = tf.reduce_sum(tf.ones_like(x[:1, 0], tf.int32)) - 1  # 0
        wide = tf.pad(x @ w, tf.stack([[kept, 0], [1, 1]]))
        return matmul_loss(tf.slice(wide, tf.stack([kept, keep]), [-1, F]))

    case = Case(loss, [w], tf.TensorSpec([None, F]), rng)
    case.check(rng.normal(size=[N, F]).astype(np.float32))
    assert 0 in case.plan.recognised


def test_rows_that_are_not_the_examples_are_refused_before_the_run(rng):
    """One loss from six rows: with static shapes this is known before anything runs."""
    w = tf.Variable(rng.normal(size=[F, F]).astype(np.float32), name="w")

    @tf.custom_gradient
    def mean_row(y):
        return tf.reduce_mean(y, axis=0, keepdims=True), lambda dy: tf.broadcast_to(dy / 6.0, [6, F])

    case = Case(lambda x: matmul_loss(mean_row(x @ w)), [w], tf.TensorSpec([6, F]), rng)
    case.ghost(rng.normal(size=[6, F]).astype(np.float32), np.ones(1, np.float32))
    assert "6 rows for 1 microbatches" in case.plan.unrecognised.get(0, "")


@pytest.mark.parametrize("num_microbatches", [None, 2])
def test_gradients_joined_along_the_examples_are_refused(num_microbatches, rng):
    """Pairs (row k, row n + k) in one batch of 2 n rows: the two halves' gradients come one after the other."""
    w = tf.Variable(rng.normal(size=[F, F]).astype(np.float32), name="w")

    def loss(x):
        left, right = tf.split(x @ w, 2)
        return matmul_loss(left - right)

    case = Case(loss, [w], tf.TensorSpec([None, F]), rng, num_microbatches=num_microbatches)
    case.ghost.get_concrete_function()
    assert "joins gradients along" in case.plan.unrecognised.get(0, "")


def test_a_product_that_adds_rows_in_front_of_the_examples_is_refused(rng):
    """Three copies of the batch, one after the other: no chunk of the rows belongs to one example."""
    w = tf.Variable(rng.normal(size=[F, F]).astype(np.float32), name="w")

    @tf.custom_gradient
    def first_rows(y):
        factors = tf.reshape([1.0, 2.0, 3.0], [3, 1, 1])
        return tf.identity(y[:N]), lambda dy: tf.reshape(tf.expand_dims(dy, 0) * factors, [-1, F])

    case = Case(lambda x: matmul_loss(first_rows(x @ w)), [w], tf.TensorSpec([None, F]), rng)
    case.ghost.get_concrete_function()
    assert "in front of the examples" in case.plan.unrecognised.get(0, "")


def test_microbatches_that_do_not_divide_the_batch_fail_in_the_run(rng):
    w = tf.Variable(rng.normal(size=[F, F]).astype(np.float32), name="w")
    case = Case(lambda x: matmul_loss(x @ w), [w], tf.TensorSpec([None, F]), rng, num_microbatches=3)
    with pytest.raises(tf.errors.InvalidArgumentError):
        case.ghost(rng.normal(size=[4, F]).astype(np.float32), np.ones(3, np.float32))


def test_unconnected_variables_are_in_neither_dict(rng):
    w, v = (tf.Variable(rng.normal(size=[F, F]).astype(np.float32)) for _ in range(2))
    case = Case(lambda x: matmul_loss(x @ w), [v, w], tf.TensorSpec([None, F]), rng)
    case.check(rng.normal(size=[N, F]).astype(np.float32))
    assert list(case.plan.recognised) == [1] and not case.plan.unrecognised
