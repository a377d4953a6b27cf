"""Variables that are used more than once, against every example's own gradient."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.ghost import embeddings, products, several
from tests.gradients.ghost.reference import Case, check_norms, squared_error

F = 4


def steps(count):
    """A loop of `count` steps, unrolled."""

    def loss(x, w, b):
        h = tf.zeros_like(x[:, 0])
        for t in range(count):
            h = tf.nn.tanh(tf.matmul(x[:, t], w) + tf.matmul(h, tf.transpose(w)) * 0.5 + b)
        return squared_error(h)

    return loss


def twice(x, w, b):
    return squared_error(tf.nn.bias_add(tf.nn.tanh(tf.nn.bias_add(x[:, 0] @ w, b)) @ w, b))


def three_parts(x, w, b):
    return squared_error(tf.stack([tf.nn.tanh(x[:, t] @ w + b) for t in range(3)], axis=1))


def and_its_transpose(x, w, b):
    return squared_error(tf.nn.tanh(x[:, 0] @ w + b) @ tf.transpose(w))


def both_transposed(x, w, b):
    return squared_error(tf.nn.tanh(x[:, 0] @ tf.transpose(w) + b) @ tf.transpose(w))


def on_time_and_once(x, w, b):
    return squared_error(tf.nn.tanh(x @ w + b)) + squared_error(x[:, 1] @ w + b)


def multiplied_and_added(x, w, b):
    """An outer product and a sum over the batch."""
    return squared_error(x[:, 0] @ w + tf.reduce_sum(x[:, 0, :, tf.newaxis] * w, axis=1) + b)


def minus_itself(x, w, b):
    """The uses cancel but for the bias."""
    return squared_error(x[:, 0] @ w - x[:, 0] @ w + b)


def by_einsum(x, w, b):
    return squared_error(tf.einsum("ntj,ij->nti", tf.einsum("nti,ij->ntj", x, w) + b, w))


USES = [twice, three_parts, and_its_transpose, both_transposed, on_time_and_once, multiplied_and_added]
USES += [minus_itself, by_einsum, steps(2), steps(3)]


def case_of(loss, rng, **options):
    w = tf.Variable(rng.normal(size=[F, F]).astype(np.float32), name="w")
    b = tf.Variable(rng.normal(size=[F]).astype(np.float32), name="b")
    return Case(lambda x: loss(x, w, b), [w, b], tf.TensorSpec([None, 3, F]), rng, **options)


@pytest.mark.parametrize("few_rows", [0, 4])
@pytest.mark.parametrize("loss", USES, ids=lambda loss: loss.__name__)
def test_every_use_counts(loss, few_rows, rng, monkeypatch):
    monkeypatch.setattr(products, "_FEW_ROWS", few_rows)
    case = case_of(loss, rng)
    case.check(rng.normal(size=[5, 3, F]).astype(np.float32))
    if few_rows:
        case.check(rng.normal(size=[1, 3, F]).astype(np.float32))
        case.check(np.zeros([0, 3, F], np.float32))


@pytest.mark.parametrize("loss", [twice, and_its_transpose], ids=lambda loss: loss.__name__)
def test_microbatches(loss, rng):
    case_of(loss, rng, num_microbatches=3).check(rng.normal(size=[6, 3, F]).astype(np.float32))


def text_case(loss, rng, shapes=((7, F),), dtype=tf.int32, shape=(None, 5), **options):
    variables = [tf.Variable(rng.normal(size=s).astype(np.float32), name=f"v{i}") for i, s in enumerate(shapes)]
    return Case(lambda x: loss(x, *variables), variables, tf.TensorSpec(shape, dtype), rng, **options)


def looked_up_twice(x, table):
    return squared_error(tf.gather(table, x) * tf.gather(table, x[:, ::-1]))


def looked_up_in_parts(x, table):
    return squared_error(tf.gather(table, x[:, :2])[:, 0] + tf.reduce_mean(tf.gather(table, x), 1))


def tied(x, table):
    return squared_error(tf.nn.tanh(tf.reduce_mean(tf.gather(table, x), 1)) @ tf.transpose(table))


def tied_flag(x, table):
    return squared_error(tf.matmul(tf.reduce_mean(tf.gather(table, x), 1), table, transpose_b=True))


def tied_on_time(x, table):
    hidden = tf.reshape(tf.nn.tanh(tf.gather(table, x)), [-1, F])
    logits = tf.matmul(hidden, table, transpose_b=True)
    return squared_error(tf.reshape(logits, [-1, 5, 7]))


def tied_twice(x, table):
    hidden = tf.reduce_mean(tf.gather(table, x) * tf.gather(table, (x + 1) % 7), 1)
    return squared_error(
        tf.matmul(tf.nn.tanh(tf.matmul(hidden, table, transpose_b=True)) @ table, table, transpose_b=True)
    )


TABLES = [looked_up_twice, looked_up_in_parts, tied, tied_flag, tied_on_time, tied_twice]


@pytest.mark.parametrize("loss", TABLES, ids=lambda loss: loss.__name__)
def test_tables_that_are_used_again(loss, rng):
    case = text_case(loss, rng)
    for size in (4, 1, 0):
        case.check(rng.integers(0, 7, size=[size, 5]).astype(np.int32))


def test_tables_that_are_used_again_in_microbatches(rng):
    text_case(tied_twice, rng, num_microbatches=2).check(rng.integers(0, 7, size=[6, 5]).astype(np.int32))


def test_the_form_without_gradients_is_used_for_tied_tables(rng, monkeypatch):
    """The form that is tested above must be the one that is meant."""
    made = []
    monkeypatch.setattr(several.LookedUpAndMultiplied, "_crossed", lambda *_: made.append(1) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        text_case(tied_flag, rng).check(rng.integers(0, 7, size=[4, 5]).astype(np.int32))
    assert made


@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_on_two_images(groups, rng):
    def loss(x, kernel):
        return squared_error(tf.stack([tf.nn.conv2d(x[:, i], kernel, 1, "SAME") for i in range(2)], axis=1))

    def depthwise(x, kernel):
        images = [tf.nn.depthwise_conv2d(x[:, i], kernel, [1, 1, 1, 1], "SAME") for i in range(2)]
        return squared_error(tf.stack(images, axis=1))

    kind = loss if groups == 1 else depthwise
    case = text_case(kind, rng, shapes=[(2, 2, 2, 3)], dtype=tf.float32, shape=(None, 2, 4, 4, 2))
    case.check(rng.normal(size=[3, 2, 4, 4, 2]).astype(np.float32))


def test_what_is_added_besides_the_loss_is_unrecognised(rng):
    @tf.custom_gradient
    def with_decay(w):
        return tf.identity(w), lambda dw: dw + 0.1 * w

    case = case_of(lambda x, w, b: squared_error(x[:, 0] @ with_decay(w) + x[:, 1] @ w + b), rng)
    case.ghost(rng.normal(size=[3, 3, F]).astype(np.float32), np.ones(3, np.float32))
    assert "does not come from the loss" in case.plan.unrecognised[0]


def test_parts_of_unequal_lengths_are_not_taken_for_one_another(rng):
    """Values and indices that were laid out in other pieces: the first value belongs to the second index list."""
    table = tf.Variable(rng.normal(size=[7, F]).astype(np.float32))

    @tf.custom_gradient
    def look_up(x):
        rows = tf.gather(table, x)

        def back(dy, variables=None):
            values = tf.reshape(dy, [-1, F])
            slices = tf.IndexedSlices(
                tf.concat([values, values[:1]], 0), tf.concat([tf.reshape(x, [-1])[:1], tf.reshape(x, [-1])], 0)
            )
            return None, [slices]

        return rows, back

    case = Case(lambda x: squared_error(look_up(x)), [table], tf.TensorSpec([None, 5], tf.int32), rng)
    x = rng.integers(0, 7, size=[3, 5]).astype(np.int32)
    try:
        case.ghost(x, np.ones(3, np.float32))
    except tf.errors.InvalidArgumentError:
        return  # they do not fit
    assert 0 in case.plan.unrecognised


def test_uses_that_cancel_are_covered_by_the_magnitude(rng):
    """x large, and a gradient that is the small difference of two large ones: value may be off, not the bound."""
    x = rng.normal(size=[6, 2, F]).astype(np.float32) * 1e3
    dy = rng.normal(size=[6, 2, F]).astype(np.float32)
    x[:, 1] = -x[:, 0]
    dy[:, 1] = dy[:, 0] + 1e-4 * dy[:, 1]
    term = products.of_arrays(tf.constant(6), tf.constant(x), tf.constant(dy), 2)
    exact = np.einsum("nti,ntj->nij", x.astype(np.float64), dy.astype(np.float64))
    scale = rng.uniform(0.2, 2.0, size=[F, F]).astype(np.float32)
    norms = term.squared_norms(tf.constant(0.0), tf.constant(scale))
    squares = np.square(exact / scale).sum((1, 2))
    assert np.all(norms.value + 2e-6 * norms.magnitude >= squares)
    assert np.all(norms.magnitude >= 1e3 * squares)


def test_what_a_tied_table_adds_up_is_bounded_by_its_parts(rng):
    """Rows that are looked up and multiplied by 0 do not show in the sums; the bound stays (|L| + |P|)^2."""
    values, dy = (tf.constant(rng.normal(size=[4, 3, F]).astype(np.float32)) for _ in range(2))
    x = np.ones([4, 3, 7], np.float32)
    x[..., :2] = 0.0
    indices = tf.constant([0, 1, 0] * 4)
    lookup = embeddings.Lookup(tf.constant(4), (7, F), indices, tf.reshape(values, [-1, F]), 3)
    product = products.of_arrays(tf.constant(4), tf.constant(x), dy, 3)
    scale, zero = tf.constant(np.full([7, F], 0.01, np.float32)), tf.constant(0.0)
    parts = [term.squared_norms(zero, scale) for term in (lookup, product)]
    norms = several.LookedUpAndMultiplied(tf.constant(4), lookup, product).squared_norms(zero, scale)
    assert np.all(norms.magnitude >= np.square(sum(np.sqrt(part.magnitude) for part in parts)) * (1 - 1e-5))
    np.testing.assert_allclose(norms.value, sum(part.value for part in parts), rtol=1e-5)


def test_rows_outside_of_the_table_are_dropped(rng):
    """As a sum by segments drops them. Index -1 of one example must not become the last row of the one before."""
    values = tf.constant(rng.normal(size=[4, F]).astype(np.float32))
    indices, kept = embeddings._inside(tf.constant([0, 1, -1, 2]), values, 3)
    term = embeddings.Lookup(tf.constant(2), (3, F), indices, kept, 2)
    records = np.zeros([2, 3, F])
    records[0, 0], records[0, 1], records[1, 2] = values[0], values[1], values[3]
    check_norms(term.squared_norms(tf.constant(0.0), tf.constant(1.0)), records, 0.0, 1.0, "rows")


def test_only_sums_of_like_shapes_are_taken_apart():
    """What is broadcast is no sum of gradients; nor is what lies side by side a sum of sparse ones."""
    with tf.Graph().as_default():
        matrix, row = tf.fill([2, 3], 1.0), tf.fill([3], 1.0)
        assert len(graph.contributions(matrix + 2.0 * matrix)) == 2
        for sum_of in (tf.raw_ops.AddV2, tf.raw_ops.Add):
            assert len(graph.contributions(sum_of(x=matrix, y=row))) == 1
        indices = tf.concat([tf.fill([2], 0), tf.fill([2], 1)], axis=0)
        for axis, parts in ((0, 2), (1, 1)):
            values = tf.concat([matrix, 2.0 * matrix], axis=axis)
            assert len(graph.contributions(tf.IndexedSlices(values, indices))) == parts


CANCELLING = {
    "a product and a sum": lambda x, w: x @ w - tf.reduce_sum(x[:, :, tf.newaxis] * w, axis=1),
    "in another order": lambda x, w: x @ w - tf.reverse(x, [1]) @ w[::-1],
    "of a part": lambda x, w: x[:, :2] @ w[:2] - tf.reduce_sum(x[:, :2, tf.newaxis] * w[:2], axis=1),
    "over time, of a part": lambda x, w: tf.reduce_sum(_there_and_back(x[:, 1:]) @ w[1:], axis=1),
    "transposed, of a part": lambda x, w: tf.reduce_sum(_there_and_back(x[:, 1:]) @ tf.transpose(w[:, 1:]), axis=1),
    "looked up": lambda x, w: x @ w - tf.reduce_sum(_looked_up(x, w) * x[:, :, tf.newaxis], axis=1) + x @ w[::-1] * 0,
    "looked up twice": lambda x, w: tf.reduce_sum(_looked_up(x, w) - _looked_up(x, w), axis=2) * x,
    "looked up twice, and added": lambda x, w: (
        tf.reduce_sum(_looked_up(x, w) - _looked_up(x, w), axis=2) * x
        + 0.0 * tf.reduce_sum(x[:, :, tf.newaxis] * w, axis=1)
    ),
    "a convolution": lambda x, w: tf.reduce_sum(_convolved(x, tf.reshape(w, [1, 1, F, F])), axis=[1, 2]),
    "a convolution of a part": lambda x, w: tf.reduce_sum(_convolved(x[:, 1:], w[1:][tf.newaxis]), axis=[1, 2]),
}


def _there_and_back(x):
    return tf.stack([x, -x], axis=1)


def _looked_up(x, w):
    return tf.gather(w, tf.tile(tf.range(F)[tf.newaxis], [tf.shape(x)[0], 1]))


def _convolved(x, kernel):
    images = _there_and_back(x)[:, :, tf.newaxis]
    return tf.nn.depthwise_conv2d(images, tf.reshape(kernel, [1, 1, x.shape[1], F]), [1, 1, 1, 1], "VALID")


@pytest.mark.parametrize("name", CANCELLING)
def test_what_cancels_within_an_example_counts_for_rounding(rng, name):
    """In the weighted sum of all examples it cancels after it was added up, and leaves what was rounded there."""
    w = tf.Variable(rng.normal(size=[F, F]).astype(np.float32), name="w")
    case = Case(lambda x: tf.reduce_sum(CANCELLING[name](x, w), axis=1), [w], tf.TensorSpec([None, F]), rng)
    x = (1e6 * rng.uniform(1.0, 2.0, size=[3, F])).astype(np.float32)
    _, plain, _ = case.ghost(x, np.ones([3], np.float32))[0]
    assert np.all(plain.value <= 1e6) and np.all(plain.magnitude >= 4 * 1e12)


def test_what_cancels_where_gradients_are_formed_counts_for_rounding(rng):
    """With a scale for each coordinate, and too large to be kept."""
    x, scale = 1e6 * rng.uniform(1.0, 2.0, size=[3, 1, 64]), rng.uniform(0.5, 1.0, size=[64, 64])
    dy = np.broadcast_to(np.array([1, 1, 1, -1, -1, -1])[:, np.newaxis], [3, 6, 64])
    arrays = [tf.constant(array, tf.float32) for array in (np.broadcast_to(x, [3, 6, 64]), dy)]
    term = products.of_arrays(tf.constant(3), *arrays, 6)
    norms = term.squared_norms(tf.constant(0.0), tf.constant(scale, tf.float32))
    most = np.square(6 * np.swapaxes(x, 1, 2) / scale).sum((1, 2))
    assert np.all(norms.value <= 1e-6 * most) and np.all(norms.magnitude >= 0.999 * most)
