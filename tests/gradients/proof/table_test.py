"""What single ops do to labels: one line for each entry of the table that the losses of `proof_test` do not use."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.gradients import proof

W = tf.Variable(np.linspace(-1.0, 1.0, 12).reshape(3, 4).astype(np.float32))
PLACES = np.arange(24, dtype=np.float32).reshape(8, 3)
RAW = tf.raw_ops


def _proof(function, size=None, width=3):
    """The proof for x [size, width] and y [size], of the sum of the function's features."""
    found = []

    def step(x, y):
        result = function(x, y)
        found.append(proof.prove(tf.reduce_sum(result, axis=list(range(1, result.shape.rank)))))

    specs = [tf.TensorSpec([size, width]), tf.TensorSpec([size], tf.int32)]
    tf.function(step, input_signature=specs, autograph=False).get_concrete_function()
    return found[-1]


def _images(x):
    return tf.reshape(x, [-1, 1, 1, 3])


def _pooled(x, examples=1):
    """The largest of windows of so many examples."""
    return tf.nn.max_pool2d(_images(x), [examples, 1, 1, 1], [1, 1, 1, 1], "SAME")[:, 0, 0]


def _normalised(x, training, layout="NHWC", channels=3):
    numbers = {"scale": tf.ones([channels]), "offset": tf.zeros([channels])}
    used = {} if training else {"mean": tf.zeros([channels]), "variance": tf.ones([channels])}
    statistics = {"mean": [], "variance": [], **used}
    return RAW.FusedBatchNormV3(x=x, **numbers, **statistics, is_training=training, data_format=layout)[0]


def _rows_as_channels(x):
    """As Keras normalises layers: every row is a channel, of one image."""
    n = tf.shape(x)[0]
    return tf.reshape(_normalised(tf.reshape(x, [1, n, 3, 1]), True, "NCHW", n), [n, 3])


def _steps(x):
    """A loop that writes to a list and reads from one."""
    columns = tf.TensorArray(tf.float32, 3, element_shape=[x.shape[0]]).unstack(tf.transpose(x))

    def body(i, written):
        return i + 1, written.write(i, 2.0 * columns.read(i))

    start = tf.TensorArray(tf.float32, 3, element_shape=[x.shape[0]])
    return tf.transpose(tf.while_loop(lambda i, _: i < 3, body, (0, start))[1].stack())


def _replaced(x, start):
    return tf.while_loop(lambda i, _: i < 3, lambda i, _: (i + 1, 2.0 * x), (0, start))[1]


PROVEN = {
    "a bias": lambda x, y: tf.nn.bias_add(x @ W, W[0]),
    "a bias of channels that come first": lambda x, y: RAW.BiasAdd(
        value=tf.reshape(x, [-1, 3, 1, 1]), bias=W[:, 0], data_format="NCHW"
    ),
    "rows as channels": lambda x, y: _rows_as_channels(x),
    "normalised by constants": lambda x, y: _normalised(_images(x), False),
    "chosen by rows": lambda x, y: tf.compat.v1.where(y > 2, x, -x),
    "chosen by rows, or nothing": lambda x, y: tf.compat.v1.where(y > 2, x, tf.zeros(tf.shape(x))),
    "a list": lambda x, y: _steps(x),
    "a state that is replaced": lambda x, y: _replaced(x, tf.zeros(tf.shape(x))),
    "a diagonal": lambda x, y: tf.linalg.diag_part(x[:, :, tf.newaxis] * x[:, tf.newaxis]),
    "a matrix of a row": lambda x, y: tf.linalg.diag(x),
    "a largest feature": lambda x, y: tf.one_hot(tf.argmax(x, axis=1), 3) * x,
    "a time axis in front": lambda x, y: tf.reduce_max(tf.stack([x, 2.0 * x]), axis=0),
    "two axes reduced": lambda x, y: tf.reduce_sum(tf.stack([x, x])[:, :, tf.newaxis], axis=[0, 2]),
    "one draw for all": lambda x, y: x * tf.random.gamma([], 1.0),
    "pictures": lambda x, y: _pooled(x),
    "pictures that were drawn": lambda x, y: x * _pooled(tf.random.uniform(tf.shape(x))),
    "an axis by the rank": lambda x, y: tf.reduce_sum(x[:, :, tf.newaxis], axis=RAW.Rank(input=x)),
    "three factors": lambda x, y: tf.einsum("ni,ij,nj->n", x, W[:, :3], x)[:, tf.newaxis],
    "columns put back": lambda x, y: tf.transpose(tf.math.unsorted_segment_sum(tf.transpose(x), [2, 0, 2], 4)),
    "turned around, each by its own length": lambda x, y: tf.reverse_sequence(x, tf.minimum(y, 3), seq_axis=1),
    "turned around, all alike": lambda x, y: tf.reverse_sequence(x, tf.fill([tf.shape(x)[0]], 2), seq_axis=1),
    "frames of a signal": lambda x, y: tf.signal.frame(x, 2, 1),
    "as many as there are": lambda x, y: x[0 : tf.shape(x)[0]],
    "equations": lambda x, y: tf.linalg.solve(tf.linalg.diag(x) + tf.eye(3), x[:, :, tf.newaxis]),
    "equations of all, by columns": lambda x, y: tf.transpose(
        tf.linalg.triangular_solve(W[:, :3] + 2.0 * tf.eye(3), tf.transpose(x))
    ),
    "products of rows": lambda x, y: tf.matmul(x[:, tf.newaxis], x[:, :, tf.newaxis]),
}
NOT_PROVEN_STATIC = {
    "looked up by place": lambda x, y: x * tf.gather(tf.random.normal([9, 3]), np.arange(8)),
    "sorted by place": lambda x, y: tf.transpose(tf.transpose(x) * tf.sort(tf.random.normal([3, 8]))),
    "codes of places": lambda x, y: x * tf.one_hot(np.arange(8), 3),
    "chosen by rows, or by place": lambda x, y: tf.compat.v1.where(y > 2, x, PLACES + tf.random.uniform([])),
    "pictures by place": lambda x, y: x * _pooled(tf.sort(tf.random.uniform([8, 3]), axis=0)),
    "pictures that were drawn, by twos": lambda x, y: x * _pooled(tf.random.uniform([8, 3]), 2),
    "a state that starts by place": lambda x, y: _replaced(x, tf.sort(tf.random.uniform([8, 3]), axis=0)),
}
NOT_PROVEN = {
    "rows put elsewhere": lambda x, y: x * tf.math.unsorted_segment_sum(x, [1, 0, 3, 2, 5, 4, 7, 6], 8),
    "examples turned around": lambda x, y: tf.reverse_sequence(x, tf.fill([3], 2), seq_axis=0, batch_axis=1),
    "a system of all": lambda x, y: tf.linalg.triangular_solve(tf.random.normal([8, 8]), x),
    "turned around by place": lambda x, y: tf.reverse_sequence(x, tf.range(tf.shape(x)[0]) % 3, seq_axis=1),
}
REFUSED = {
    "images": lambda x, y: _normalised(_images(x), True),
    "images of channels that come first": lambda x, y: _normalised(tf.reshape(x, [-1, 3, 1, 1]), True, "NCHW"),
    "the largest example": lambda x, y: x * tf.cast(tf.argmax(x, axis=0), tf.float32),
    "windows over examples": lambda x, y: _pooled(x, 2),
    "a diagonal of examples": lambda x, y: x * tf.linalg.diag_part(tf.stack([x, x, x]))[0, :1],
}


@pytest.mark.parametrize("size", [8, None])
@pytest.mark.parametrize("name", PROVEN)
def test_entries_that_keep_examples_apart(name, size):
    assert _proof(PROVEN[name], size).unproven is None


@pytest.mark.parametrize("name", NOT_PROVEN_STATIC)
def test_values_by_place_are_not_taken_for_all_alike(name):
    try:
        assert _proof(NOT_PROVEN_STATIC[name], 8).unproven is not None
    except ValueError as error:
        assert "closed over" in str(error)


@pytest.mark.parametrize("size", [8, None])
@pytest.mark.parametrize("name", NOT_PROVEN)
def test_entries_that_may_see_several_examples(name, size):
    assert _proof(NOT_PROVEN[name], size).unproven is not None


@pytest.mark.parametrize("size", [8, None])
@pytest.mark.parametrize("name", REFUSED)
def test_entries_that_see_several_examples(name, size):
    with pytest.raises(ValueError, match="one example changes others"):
        _proof(REFUSED[name], size)


def test_a_slice_of_all_examples():
    assert _proof(lambda x, y: x[0:8], 8).unproven is None
    assert _proof(lambda x, y: x * tf.broadcast_to(W[:1], [8, 4])[0:8, 1:], 8).unproven is None
    assert _proof(lambda x, y: x[0:8], None).unproven is not None
    assert _proof(lambda x, y: x[0 : tf.shape(x)[0] - 1], None).unproven is not None
    with pytest.raises(ValueError, match=r"another number|rows, and the loss has"):
        assert _proof(lambda x, y: x[0:7], 8).unproven is not None


def _pairs(x):
    """[examples, width] by twos: only the run tells how many each example has."""
    return tf.reshape(x, [-1, 2])


UNKNOWN_ROWS = {
    "a part": lambda x, n: tf.slice(_pairs(x), [0, 0], [n + n, -1]),
    "a part, by strides": lambda x, n: _pairs(x)[: n + n],
    "a comparison with so many": lambda x, n: tf.where(
        tf.raw_ops.Equal(x=_pairs(x), y=tf.zeros([n * n, 1]), incompatible_shape_error=False), 1.0, _pairs(x)
    ),
}


@pytest.mark.parametrize("name", UNKNOWN_ROWS)
def test_parts_of_unknown_rows_are_not_taken_for_all_of_them(name):
    """Half of 4 N rows, cut into N parts, gives an example what is another's."""
    function = UNKNOWN_ROWS[name]
    again = lambda x, y: tf.reshape(function(x, tf.shape(x)[0]), [tf.shape(x)[0], -1])  # noqa: E731
    found = _proof(again, width=None)
    told = any("changes the examples" in check.what for check in found.walk.checks.all)  # by the run
    assert found.unproven is not None or told
    whole = lambda x, y: tf.reshape(_pairs(x), [tf.shape(x)[0], -1])  # noqa: E731
    assert _proof(whole, width=None).unproven is None


def test_a_width_that_is_not_the_batch_s_may_be_unknown():
    """[examples, None]: noise of that shape has one axis that is as long as the batch, not two."""
    assert _proof(lambda x, y: x + tf.zeros(tf.shape(x)), width=None).unproven is None
    assert _proof(lambda x, y: x + tf.random.normal(tf.shape(x)), width=None).unproven is None
    assert _proof(lambda x, y: x + tf.zeros(2 * [tf.shape(x)[0]]), width=None).unproven is not None
    assert _proof(lambda x, y: x + 2.0 * tf.zeros(2 * [tf.shape(x)[0]]), width=None).unproven is not None


def _gradients(function, spec):
    """The proof, and the gradients of W and of a variable that takes no part, inside a function."""
    found, other = [], tf.Variable(1.0)

    def step(x):
        with tf.GradientTape() as tape:
            loss = function(x)
        proven = proof.prove(loss)
        seed = tf.identity(tf.ones_like(loss))
        gradients = tape.gradient(loss, [W, other], output_gradients=seed)
        proven.look_back(seed, gradients)
        found.append((proven.summed(gradients[0]), proven.keeps_apart(gradients)))

    tf.function(step, input_signature=[spec], autograph=False).get_concrete_function()
    return found[-1]


@pytest.mark.parametrize("size", [8, 1, None])
def test_the_gradient_of_a_kernel_is_a_sum_over_examples(size):
    assert _gradients(lambda x: tf.reduce_sum(tf.tanh(x @ W), axis=1), tf.TensorSpec([size, 3])) == (None, True)


def test_rows_that_are_drawn_are_a_sum_over_examples():
    """One row of a table for each example: as in the embedding of a time that is drawn."""

    def loss(x, rows):
        return tf.reduce_sum(x[:, :1] * tf.gather(W, rows(tf.shape(x)[0])), axis=1)

    spec = tf.TensorSpec([None, 3])
    reason, apart = _gradients(lambda x: loss(x, lambda n: tf.random.uniform([n], 0, 3, tf.int32)), spec)
    assert reason is None and not apart  # that there are as many is for the run to show
    by_place = lambda n: tf.cast(tf.sort(tf.random.uniform([2])), tf.int32)  # noqa: E731
    reason, _ = _gradients(lambda x: loss(x, by_place), tf.TensorSpec([2, 3]))
    assert "nothing proves" in (reason or "")


def test_rows_for_texts_of_any_length_are_a_sum_over_examples():
    """That as many rows are looked up as there are values is for the run to show."""

    def loss(x):
        return tf.reduce_sum(tf.nn.embedding_lookup(W, tf.cast(x, tf.int32)), axis=[1, 2])

    assert _gradients(loss, tf.TensorSpec([None, None])) == (None, False)


def test_how_long_texts_are_is_public():
    def loss(x):
        length = tf.shape(x)[1]
        weights = tf.exp(-tf.cast(tf.range(length), tf.float32))
        return tf.reduce_sum(x * weights, 1) / tf.sqrt(tf.cast(tf.reduce_prod(tf.shape(x)[1:]), tf.float32)) * W[0, 0]

    assert _gradients(loss, tf.TensorSpec([None, None])) == (None, True)


def test_a_sum_that_is_squared_is_none():
    @tf.custom_gradient
    def squared(w):
        return w, tf.square

    reason, apart = _gradients(lambda x: tf.reduce_sum(x @ squared(W), axis=1), tf.TensorSpec([None, 3]))
    assert "nothing proves" in reason and not apart
