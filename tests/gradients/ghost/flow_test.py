"""How labels pass through single backward ops: the entries that say no, and those that few models need."""

import pytest
import tensorflow as tf

from adaclip_tf.gradients import ghost, graph  # noqa: F401  (`ghost` fills the table)
from adaclip_tf.gradients.ghost import flow, labels

RAW = tf.raw_ops
N = 6


def _label(function, batch=N, microbatches=None):
    """The label of `function(seed)`, and the seed's own."""
    with tf.Graph().as_default():
        seed = tf.compat.v1.placeholder(tf.float32, [batch])
        ctx = labels.Context(seed, microbatches)
        result = function(seed)
        flow.propagate(ctx, seed)
        return ctx.label(result), ctx.label(seed)


def _rows(seed):
    """[batch, 2]."""
    return tf.reshape(tf.stack([seed, 2.0 * seed], axis=1), [-1, 2])


def _images(seed):
    """[batch, 3, 3, 1]."""
    return tf.tile(tf.reshape(seed, [-1, 1, 1, 1]), [1, 3, 3, 1])


def _matrices(seed):
    """[batch, 3, 3]."""
    return tf.squeeze(_images(seed), 3)


def _identities():
    return tf.eye(3, batch_shape=[N])


def _diagonals(matrices, beside):
    """Two of them, of which the lower one is shorter."""
    return RAW.MatrixDiagPartV3(input=matrices, k=[-1, 0], padding_value=beside)


def _as_diagonals(rows, beside):
    numbers = {"k": 0, "num_rows": -1, "num_cols": -1}
    return RAW.MatrixDiagV3(diagonal=rows, **numbers, padding_value=beside)


def _normalised(dy, layout, training=True):
    numbers = {"scale": [1.0], "reserve_space_1": [0.0], "reserve_space_2": [1.0], "reserve_space_3": [0.0]}
    other = tf.ones(dy.shape)
    return RAW.FusedBatchNormGradV3(y_backprop=dy, x=other, **numbers, data_format=layout, is_training=training)[0]


def _sliced(seed, **masks):
    """The gradient of a slice of [batch, 2], handed [batch, 2]."""
    two = [0, 0]
    return RAW.StridedSliceGrad(shape=[N, 2], begin=two, end=[N, 2], strides=[1, 1], dy=_rows(seed), **masks)


FOLLOWED = {
    "features that are summed": (lambda seed: tf.reduce_sum(_rows(seed), axis=1), 0),
    "features that are summed, kept": (lambda seed: tf.reduce_sum(_rows(seed), axis=1, keepdims=True), 0),
    "an axis in front that is dropped": (lambda seed: tf.reduce_sum(tf.expand_dims(_rows(seed), 0), axis=0), 0),
    "a reflected border": (
        lambda seed: RAW.MirrorPadGrad(input=_images(seed), paddings=[[0, 0], [1, 1], [0, 0], [0, 0]], mode="REFLECT"),
        0,
    ),
    "a slice": (lambda seed: _sliced(seed, begin_mask=1, end_mask=1), 0),
    "a slice behind an ellipsis": (
        lambda seed: RAW.StridedSliceGrad(
            shape=[N, 2, 1],
            begin=[0, 0],
            end=[0, 1],
            strides=[1, 1],
            dy=_rows(seed),
            ellipsis_mask=1,
            shrink_axis_mask=2,
        ),
        0,
    ),
    "a slice of features behind an ellipsis": (
        lambda seed: RAW.StridedSliceGrad(
            shape=[N, 2], begin=[0, 0], end=[0, 1], strides=[1, 1], dy=tf.reshape(seed, [-1, 1]), ellipsis_mask=1
        ),
        0,
    ),
    "gradients side by side": (lambda seed: tf.concat([_rows(seed), 2.0 * _rows(seed)], axis=1), 0),
    "systems, one for each": (lambda seed: RAW.MatrixSolve(matrix=2.0 * _identities(), rhs=_matrices(seed)), 0),
    "a triangle of each matrix": (
        lambda seed: RAW.MatrixBandPart(input=_matrices(seed), num_lower=tf.constant(-1), num_upper=tf.constant(0)),
        0,
    ),
    "diagonals of each matrix": (lambda seed: _diagonals(_matrices(seed), 0.0), 0),
    "a matrix of each row": (lambda seed: _as_diagonals(_rows(seed), 0.0), 0),
    "products of matrices": (lambda seed: RAW.BatchMatMulV2(x=_matrices(seed), y=tf.ones([N, 3, 3])), 0),
}
LOST = {
    "an axis of the examples that is contracted": lambda seed: RAW.BatchMatMulV2(
        x=_rows(seed), y=tf.ones([N, 2]), adj_x=True
    ),
    "a system of all": lambda seed: RAW.MatrixSolve(matrix=tf.eye(N), rhs=_rows(seed)),
    "systems along a new axis": lambda seed: RAW.MatrixTriangularSolve(
        matrix=_identities()[tf.newaxis], rhs=_matrices(seed)
    ),
    "a triangle of all": lambda seed: RAW.MatrixBandPart(
        input=_rows(seed), num_lower=tf.constant(-1), num_upper=tf.constant(0)
    ),
    "a diagonal of all": lambda seed: _diagonals(_rows(seed), 0.0),
    "diagonals with something beside": lambda seed: _diagonals(_matrices(seed), 1.0),
    "a matrix of each row with something beside": lambda seed: _as_diagonals(_rows(seed), 1.0),
    "the second operand": lambda seed: RAW.BatchMatMulV2(x=tf.ones([2, N]), y=_rows(seed)),
    "an image that is normalised": lambda seed: _normalised(tf.reshape(seed, [N, 1, 1, 1]), "NHWC"),
    "a slice of examples": _sliced,
    "a slice that starts later": lambda seed: _sliced(seed, end_mask=1),
    "an ellipsis that is empty": lambda seed: RAW.StridedSliceGrad(
        shape=[N, 2], begin=[0, 0, 0], end=[0, N, 2], strides=[1, 1, 1], dy=_rows(seed), ellipsis_mask=1
    ),
    "something that is added": lambda seed: _rows(seed) + 1.0,
    "something that is chosen instead": lambda seed: tf.where(tf.ones([N, 2]) > 0.0, _rows(seed), 1.0),
    "a square": lambda seed: seed * seed,
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_rows_are_followed(name):
    function, axis = FOLLOWED[name]
    label, _ = _label(function)
    assert isinstance(label, labels.Lead), label
    assert label.axis == axis
    assert label.rows == 1


@pytest.mark.parametrize("name", LOST)
def test_rows_that_meet_are_lost(name):
    label, _ = _label(LOST[name])
    assert isinstance(label, labels.Lost), label


def test_one_image_by_itself_is_normalised_over_its_channels_only_where_they_come_first():
    for layout, kind in (("NHWC", labels.Lost), ("NCHW", labels.Lead)):
        label, _ = _label(lambda seed, layout=layout: _normalised(tf.reshape(seed, [1, 1, 1, 1]), layout), batch=1)
        assert isinstance(label, kind), (layout, label)


def test_the_sum_over_the_examples_is_a_sum():
    assert isinstance(_label(tf.reduce_sum)[0], labels.Summed)


@pytest.mark.parametrize(("rows", "holds"), [(4, True), (1, False)])
def test_an_operand_that_all_examples_share_is_seen_in_the_run(rows, holds):
    """A product with matrices of which there may be one for each example, or one for all: then their gradients meet."""

    @tf.function(input_signature=[tf.TensorSpec([None, 2, 3]), tf.TensorSpec([None, 3, 2])], autograph=False)
    def poison(own, other):
        seed = tf.identity(tf.ones(tf.shape(other)[:1]))
        ctx = labels.Context(seed, None)
        upstream = tf.tile(tf.reshape(seed, [-1, 1, 1]), [1, 2, 2])
        gradient = tf.gradients(tf.matmul(own, other), own, upstream)[0]
        flow.propagate(ctx, seed)
        summed = gradient.op.inputs[0]
        assert summed.op.type == "Sum" and isinstance(ctx.label(summed), labels.Lead), ctx.label(summed)
        return graph.poison(ctx.facts(ctx.label(summed)), ctx.n)

    own, other = tf.ones([rows, 2, 3]), tf.ones([4, 3, 2])
    if holds:
        assert poison(own, other) == 0.0
    else:
        with pytest.raises(tf.errors.InvalidArgumentError, match="changes along the axis that holds the examples"):
            poison(own, other)


def test_a_batch_that_may_not_split_evenly_is_checked_in_the_run():
    assert _label(tf.identity, batch=6, microbatches=3)[1].checks == frozenset()
    assert isinstance(_label(tf.identity, batch=6, microbatches=4)[1], labels.Lost)
    assert _label(tf.identity, batch=None)[1].checks == frozenset()
    assert len(_label(tf.identity, batch=None, microbatches=3)[1].checks) == 1
