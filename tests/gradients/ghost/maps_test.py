"""Variables that are made into something else before they are used, against every example's own gradient."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.gradients import paths, proof
from adaclip_tf.gradients.ghost import maps
from tests.gradients.ghost.reference import Case, squared_error

F = 4
MASK = np.triu(np.ones((F, F), np.float32), 1)


def _standardised(w):
    mean, variance = tf.nn.moments(w, [0], keepdims=True)
    return (w - mean) * tf.math.rsqrt(variance + 1e-2)


MADE = {
    "a mask": lambda w, b: (w * MASK, b),
    "a mask of columns": lambda w, b: (w, b * MASK[1] + 1.0),
    "exp": lambda w, b: (tf.exp(0.3 * w), tf.exp(-b)),
    "softmax": lambda w, b: (tf.nn.softmax(w, axis=0), tf.nn.softmax(b)),
    "activations": lambda w, b: (tf.nn.softplus(w) + tf.nn.relu(w), tf.tanh(b) + tf.sigmoid(b) + tf.nn.elu(b)),
    "activations with a slope": lambda w, b: (tf.nn.leaky_relu(w, 0.3), tf.nn.selu(b) + tf.nn.softsign(b)),
    "roots": lambda w, b: (tf.sqrt(w * w + 1.0), tf.math.rsqrt(b * b + 1.0) + tf.math.reciprocal(2.0 + b * b)),
    "a product": lambda w, b: (w @ tf.constant(MASK) + tf.constant(MASK) @ w, b),
    "a product with itself": lambda w, b: (w @ tf.transpose(w), b),
    "its own length": lambda w, b: (tf.math.l2_normalize(w, axis=0), b / (1.0 + tf.norm(b))),
    "standardised": lambda w, b: (_standardised(w), b - tf.reduce_mean(b)),
    "repeated": lambda w, b: (tf.tile(w[:2, :2], [2, 2]), tf.tile(b[:1], [F])),
    "stretched": lambda w, b: (tf.broadcast_to(w[:1], [F, F]) * w, b),
    "chosen": lambda w, b: (tf.where(w > 0, w, tf.zeros_like(w)), tf.where(b > 0, b, 0.1 * b)),
    "each made of the other": lambda w, b: (w * b, b + tf.reduce_sum(w, axis=0)),
}


def _case(make, rng, scale=1.0):
    w = tf.Variable(rng.normal(size=[F, F]).astype(np.float32), name="w")
    b = tf.Variable(rng.normal(size=[F]).astype(np.float32), name="b")

    def loss(x):
        kernel, bias = make(tf.convert_to_tensor(w), tf.convert_to_tensor(b))
        return squared_error(scale * tf.nn.bias_add(tf.nn.tanh(x @ kernel), bias))

    return Case(loss, [w, b], tf.TensorSpec([None, F]), rng)


FAST = ("a mask", "its own length", "chosen")
SLOW = pytest.mark.slow


@pytest.mark.parametrize("name", [name if name in FAST else pytest.param(name, marks=SLOW) for name in MADE])
def test_what_is_made_of_a_variable_has_a_handle(name, rng):
    case = _case(MADE[name], rng)
    case.check(rng.normal(size=[5, F]).astype(np.float32))


# Linear in v [1, F], by constants c [F, F]. What they do to absolute values is a bound on what they do.
OPS = {
    "sums": (0, lambda v, c: tf.raw_ops.Sum(input=v, axis=[-1], keep_dims=True)),
    "copies": (0, lambda v, c: tf.raw_ops.Tile(input=v, multiples=[2, 3])),
    "stretches": (0, lambda v, c: tf.raw_ops.BroadcastTo(input=v, shape=[3, F])),
    "stretches along a new axis": (0, lambda v, c: tf.raw_ops.BroadcastTo(input=v, shape=[2, 3, F])),
    "products": (0, lambda v, c: tf.raw_ops.MatMul(a=v, b=c)),
    "products from behind": (1, lambda v, c: tf.raw_ops.MatMul(a=c, b=v, transpose_b=True)),
    "factors": (1, lambda v, c: tf.raw_ops.Mul(x=c, y=v)),
    "divisors": (0, lambda v, c: tf.raw_ops.RealDiv(x=v, y=c)),
}


@pytest.mark.parametrize("name", OPS)
def test_a_map_does_to_each_gradient_what_the_op_does_to_one(name, rng):
    place, make = OPS[name]
    c = rng.normal(size=[F, F]).astype(np.float32)
    gradients = rng.normal(size=[3, 1, F]).astype(np.float32)

    @tf.function(autograph=False)
    def step(v, parts):
        function, bound = maps._functions(make(v, tf.constant(c)).op, [place])
        return function([parts]), bound([tf.abs(parts)])

    result, most = step(tf.zeros([1, F]), gradients)
    np.testing.assert_allclose(result, [make(part, c) for part in gradients], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(most, [make(np.abs(part), np.abs(c)) for part in gradients], rtol=1e-5, atol=1e-6)


@SLOW
def test_slices_and_empty_batches(rng, monkeypatch):
    monkeypatch.setattr("adaclip_tf.gradients.ghost.slices.BUDGET", 200)  # of one example at a time
    monkeypatch.setattr("adaclip_tf.gradients.ghost.slices.MODEST", 0)
    case = _case(MADE["softmax"], rng)
    for size in (3, 1, 0):
        case.check(rng.normal(size=[size, F]).astype(np.float32))


def test_a_penalty_counts_for_every_example(rng):
    w = tf.Variable(rng.normal(size=[F, F]).astype(np.float32), name="w")
    loss = lambda x: squared_error(tf.nn.tanh(x @ w)) + 0.1 * tf.reduce_sum(w * w)  # noqa: E731
    Case(loss, [w], tf.TensorSpec([None, F]), rng).check(rng.normal(size=[5, F]).astype(np.float32))


def test_what_a_map_cancels_counts_for_rounding(rng):
    """The gradient of a softmax's logits is y (dy - <dy, y>): where dy is the same for all, only rounding is left."""
    logits = tf.Variable(rng.normal(size=[F]).astype(np.float32), name="logits")
    case = Case(lambda x: x[:, 0] * 1e4 * tf.reduce_sum(tf.nn.softmax(logits)), [logits], tf.TensorSpec([None, F]), rng)
    x = np.ones([3, F], np.float32)
    full, plain, _ = case.ghost(x, np.ones([3], np.float32))[0]
    size = np.square(2 * 1e4 * tf.nn.softmax(logits)).sum()  # of y dy, over a scale of 0.5
    assert np.all(plain.magnitude >= 3.9 * size) and np.all(plain.value <= 1e-6 * size)
    assert np.all(np.isfinite(full.value))


def test_numbers_that_are_not_real_have_no_map(rng):
    """i (1 + i) times something real is -1 times it, and i: of which no real part on the way tells."""
    w = tf.Variable(rng.normal(size=[F]).astype(np.float32), name="w")
    i = tf.constant(1j, tf.complex64)
    turned = lambda: tf.cast(tf.cast(w, tf.complex64) * i * (i + 1.0), tf.float32)  # noqa: E731
    case = Case(lambda x: squared_error(x * turned()), [w], tf.TensorSpec([None, F]), rng)
    case.check(rng.normal(size=[3, F]).astype(np.float32), all_recognised=False)
    assert "not real" in case.plan.unrecognised[0]


def test_what_has_no_known_shape_has_no_map(rng):
    w = tf.Variable(rng.normal(size=[F, F]).astype(np.float32), name="w")
    mask = tf.Variable(MASK, shape=tf.TensorShape(None), trainable=False)
    case = Case(lambda x: squared_error(x @ tf.reshape(w * mask, [F, F])), [w], tf.TensorSpec([None, F]), rng)
    case.check(rng.normal(size=[3, F]).astype(np.float32), all_recognised=False)
    assert "only known at run time" in case.plan.unrecognised[0]


def test_what_is_rounded_to_whole_numbers_has_no_handle(rng):
    w = tf.Variable(rng.normal(size=[F, F]).astype(np.float32), name="w")
    rounded = _custom(NOT_LINEAR["rounded"])
    case = Case(lambda x: squared_error(x @ rounded(w)), [w], tf.TensorSpec([None, F]), rng)
    case.check(rng.normal(size=[3, F]).astype(np.float32), all_recognised=False)
    assert "whole numbers" in case.plan.unrecognised[0]


def _reason(make, spec=(None, F)):
    """Why the gradient of w is not proven to be a sum over examples."""
    w, found = tf.Variable(np.ones([F, F], np.float32)), []

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(x @ make(tf.convert_to_tensor(w)), axis=1)
        proven = proof.prove(loss)
        seed = tf.identity(tf.ones_like(loss))
        gradient = tape.gradient(loss, w, output_gradients=seed)
        found.append(proven.summed(gradient))

    tf.function(step, input_signature=[tf.TensorSpec(spec)], autograph=False).get_concrete_function()
    return found[-1]


def _custom(backward):
    """Hands its input on, with a gradient of its own: (dy, input) -> gradient."""
    return tf.custom_gradient(lambda w: (w, lambda dy: backward(dy, w)))


NOT_LINEAR = {
    "shifted": lambda dy, w: dy - 1.0,
    "divided": lambda dy, w: 1.0 / (dy + 3.0 * dy),
    "squared": lambda dy, w: dy * dy,
    "chosen": lambda dy, w: tf.where(w > 0, dy, w),
    "rounded": lambda dy, w: tf.cast(tf.cast(dy, tf.int32), tf.float32),
}


def test_maps_by_public_numbers_are_sums_over_examples():
    assert _reason(lambda w: w * MASK) is None
    assert _reason(_custom(lambda dy, w: dy - w * dy)) is None


@pytest.mark.parametrize("name", NOT_LINEAR)
def test_maps_that_are_not_linear_are_no_sums_over_examples(name):
    assert "nothing proves" in (_reason(_custom(NOT_LINEAR[name])) or "")


def test_a_map_by_how_many_examples_there_are_is_no_sum_of_their_terms():
    def loss(x, w):
        @tf.custom_gradient
        def times_count(v):
            return v, lambda dy: dy * tf.cast(tf.shape(x)[0], tf.float32)

        return tf.reduce_sum(x @ times_count(tf.convert_to_tensor(w)), axis=1)

    w = tf.Variable(np.ones([F, F], np.float32))

    def step(x):
        with tf.GradientTape() as tape:
            value = loss(x, w)
        paths.clipped_sum(value, [w], tape, None, path="ghost", num_microbatches=None)

    with pytest.raises(ValueError, match=r"No ghost rule|how many examples"):
        tf.function(step, input_signature=[tf.TensorSpec([None, F])]).get_concrete_function()
