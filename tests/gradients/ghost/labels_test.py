"""Tests of `adaclip_tf.gradients.ghost.labels`: what a graph tells about the number of microbatches."""

import pytest
import tensorflow as tf

from adaclip_tf.gradients import graph
from adaclip_tf.gradients.ghost import labels

N = 4


def context(make, loss_spec=None, fill=tf.fill):
    """The `Context` of a seed made for a loss, with `make(loss, seed, other, k)` as the number of microbatches."""
    found = []

    @tf.function(
        autograph=False,
        input_signature=[loss_spec or tf.TensorSpec([None]), tf.TensorSpec([None, N]), tf.TensorSpec([], tf.int32)],
    )
    def trace(loss, other, k):
        seed = tf.identity(fill(tf.shape(loss), 1.0) if fill is tf.fill else fill(loss))
        found.append(labels.Context(seed, make(loss, seed, other, k)))

    trace.get_concrete_function()
    return found[0]


OWN = {
    "None": lambda loss, seed, other, k: None,
    "of the loss": lambda loss, seed, other, k: tf.shape(loss)[0],
    "of the seed": lambda loss, seed, other, k: tf.shape(seed)[0],
    "the size of the loss": lambda loss, seed, other, k: tf.size(loss),
    "behind an identity": lambda loss, seed, other, k: tf.identity(tf.shape(loss)[0]),
}
FOREIGN = {
    "a number from outside": lambda loss, seed, other, k: k,
    "of another tensor": lambda loss, seed, other, k: tf.shape(other)[0],
    "another tensor's features": lambda loss, seed, other, k: tf.shape(other)[1],
    "the size of another tensor": lambda loss, seed, other, k: tf.size(other),
    "of an axis that the run tells": lambda loss, seed, other, k: tf.shape(loss)[k],
    "half of the loss's": lambda loss, seed, other, k: tf.shape(loss)[0] // 2,
    "a constant": lambda loss, seed, other, k: 2,
}


@pytest.mark.parametrize("fill", [tf.fill, tf.ones_like, tf.zeros_like], ids=["fill", "ones_like", "zeros_like"])
@pytest.mark.parametrize("name", OWN)
def test_a_number_that_is_the_loss_s_length_means_one_example_each(name, fill):
    assert context(OWN[name], fill=fill).microbatch_size == 1


@pytest.mark.parametrize("fill", [tf.fill, tf.ones_like], ids=["fill", "ones_like"])
@pytest.mark.parametrize("name", FOREIGN)
def test_any_other_number_leaves_the_size_to_the_run(name, fill):
    """Taken for the length of the loss, it would make the rows of several examples one example's."""
    assert context(FOREIGN[name], fill=fill).microbatch_size is None


def test_the_second_axis_of_a_loss_is_not_its_length():
    spec = tf.TensorSpec([None, None])
    assert context(lambda loss, seed, other, k: tf.shape(loss)[1], spec).microbatch_size is None
    assert context(lambda loss, seed, other, k: tf.shape(loss)[0:1], spec).microbatch_size is None
    assert context(lambda loss, seed, other, k: tf.size(loss), spec).microbatch_size is None


@pytest.mark.parametrize(("batch", "n", "size"), [(6, 6, 1), (6, 3, 2), (6, 1, 6), (1, 1, 1), (0, 0, 1), (6, None, 1)])
def test_static_sizes(batch, n, size):
    ctx = context(lambda loss, seed, other, k: n, tf.TensorSpec([batch]))
    assert ctx.microbatch_size == size
    assert ctx.static_n == (batch if n is None else n)


def test_divides():
    ctx = context(lambda loss, seed, other, k: 3, tf.TensorSpec([6]))
    assert [ctx.divides(dimension) for dimension in (None, 0, 3, 4, 6)] == [None, True, True, False, True]
    assert context(lambda loss, seed, other, k: k).divides(6) is None
    assert context(lambda loss, seed, other, k: 0, tf.TensorSpec([0])).divides(0)


def test_what_is_made_of_zeros_alone_is_zero():
    made_of = [
        tf.transpose,
        tf.negative,
        lambda tensor: tf.reduce_sum(tensor, axis=0),
        lambda tensor: tf.expand_dims(tf.reverse(tensor, [1]), 0),
    ]
    with tf.Graph().as_default():
        ctx = labels.Context(tf.zeros([2]), None)
        zeros, others = (tf.compat.v1.placeholder(tf.float32, [2, 3]) for _ in range(2))
        ctx.zeros.add(zeros.ref())  # an argument of a loop
        for function in made_of:
            assert ctx.is_zero(function(zeros))
            assert not ctx.is_zero(function(others))
        assert not ctx.is_zero(tf.exp(zeros))


def test_a_check_is_made_once_per_tensor_and_axis():
    with tf.Graph().as_default():
        one, two = tf.zeros([2, 3]), tf.zeros([2, 3])
        ctx = labels.Context(tf.zeros([2]), None)
        indices = [ctx.check(one, 0, one.op), ctx.check(one, 1, one.op), ctx.check(two, 0, two.op)]
        indices += [ctx.check(one, 0, one.op, equals=two), ctx.check(one, 0, one.op)]
    assert indices == [0, 1, 2, 3, 0]
    assert len(ctx.checks) == 4


def told(check, *sizes):
    """Whether a check holds for vectors of these sizes: by an assertion, and, without one, by 0 or NaN for XLA."""

    def poison(*tensors):
        ctx = labels.Context(tf.zeros([2]), None)  # two microbatches
        label = labels.Lead(checks=frozenset({check(ctx, *tensors)}))
        return graph.poison(ctx.facts(label), ctx.n)

    signature, tensors = [tf.TensorSpec([None])] * len(sizes), [tf.zeros([size]) for size in sizes]
    compiled = tf.function(poison, signature, autograph=False, jit_compile=True)
    holds = bool(compiled(*tensors) == 0.0)
    try:
        tf.function(poison, signature, autograph=False)(*tensors)
    except tf.errors.InvalidArgumentError:
        return holds, False
    return holds, True


@pytest.mark.parametrize(("rows", "other", "holds"), [(4, 4, True), (6, 4, False), (2, 4, False)])
def test_extents_are_compared_by_value(rows, other, holds):
    def check(ctx, tensor, source):
        return ctx.check(tensor, 0, tensor.op, equals=source)

    assert told(check, rows, other) == (holds, holds)


@pytest.mark.parametrize(("rows", "holds"), [(0, True), (2, True), (6, True), (3, False), (1, False)])
def test_rows_must_be_a_multiple_of_the_microbatches(rows, holds):
    assert told(lambda ctx, tensor: ctx.check(tensor, 0, tensor.op), rows) == (holds, holds)


def test_no_check_is_no_poison():
    with tf.Graph().as_default():
        assert graph.poison(labels.Context(tf.zeros([2]), None).facts(labels.Lead()), tf.constant(2)) is None
