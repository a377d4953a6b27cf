"""What the proof says about small losses: one line for each rule that keeps examples apart, and for what must not pass.

A case is a function from the data to a loss per example. `PROVEN` must be recognised, with the batch size known before
the run and not. `UNKNOWN` are run one by one. `REFUSED` raise, with these words.
"""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.gradients import proof

W = tf.Variable(np.linspace(-1.0, 1.0, 12).reshape(3, 4).astype(np.float32))
TABLE = tf.Variable(np.ones([7, 3], np.float32))
PLACES = np.arange(8, dtype=np.float32)


def _label(function, static, **options):
    """The proof for x [batch, 3] and y [batch]; `options` for `tf.function`."""
    found = []

    def step(x, y):
        found.append(proof.prove(function(x, y)))

    size = 8 if static else None
    specs = [tf.TensorSpec([size, 3]), tf.TensorSpec([size], tf.int32)]
    tf.function(step, input_signature=specs, autograph=False, **options).get_concrete_function()
    return found[-1]


def _rows(x, axis=1):
    return tf.reduce_sum(x, axis=axis)


def _time_major(x):
    steps = tf.transpose(tf.stack([x, 2.0 * x], axis=1), [1, 0, 2])
    return tf.reduce_sum(tf.unstack(steps, axis=0)[1], axis=1)


def _loop(x):
    return tf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s + x[:, 0]), (0, tf.zeros_like(x[:, 0])))[1]


def _called(x):
    return tf.function(lambda v: tf.reduce_sum(tf.nn.relu(v @ W), axis=1), autograph=False)(x)


def _axes_of_a_called_function(x):
    """How its gradient is told by what axes a function summed."""
    squares, axes = tf.function(lambda v: (tf.square(v), tf.range(1, 2)), autograph=False)(x)
    return tf.reduce_sum(squares, axis=axes)


def _called_under_a_tape(x):
    """Its graph gets more results, which the gradient will need."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        return _called(x)


def _counts(y, **options):
    return tf.math.bincount(y, minlength=7, maxlength=7, dtype=tf.float32, **options)


PROVEN = {
    "dense": lambda x, y: _rows(tf.nn.relu(x @ W)),
    "a part of one class token for all": lambda x, y: _rows(x * tf.broadcast_to(W[:1], [tf.shape(x)[0], 4])[:, 1:]),
    "axes of a called function": lambda x, y: _axes_of_a_called_function(x),
    "called under a tape": lambda x, y: _called_under_a_tape(x),
    "cross_entropy": lambda x, y: tf.nn.sparse_softmax_cross_entropy_with_logits(y, x @ W),
    "softmax over features": lambda x, y: _rows(tf.nn.softmax(x, axis=1) * x),
    "constant row": lambda x, y: _rows(x * np.float32([1.0, 2.0, 3.0])),
    "constant column of ones": lambda x, y: _rows(x * tf.ones_like(x)),
    "random mask": lambda x, y: _rows(x * tf.random.uniform(tf.shape(x))),
    "one class token for all": lambda x, y: _rows(tf.concat([x, tf.broadcast_to(W[:1], [tf.shape(x)[0], 4])], 1)),
    "reshape and back": lambda x, y: _rows(tf.reshape(tf.reshape(x, [-1, 1]), [-1, 3])),
    "reshape by the batch's size": lambda x, y: _rows(tf.reshape(x, [tf.shape(x)[0], 3, 1]), [1, 2]),
    "transposed and back": lambda x, y: tf.reduce_sum(tf.transpose(x), axis=0),
    "time major": lambda x, y: _time_major(x),
    "lookup": lambda x, y: _rows(tf.gather(TABLE, y)),
    "counts in a row": lambda x, y: _rows(_counts(y[:, tf.newaxis], axis=-1)),
    "weighed counts in a row": lambda x, y: _rows(_counts(y[:, tf.newaxis] + tf.range(3), axis=-1, weights=x)),
    "gather of features": lambda x, y: _rows(tf.gather(x, [2, 0], axis=1)),
    "gather within the example": lambda x, y: tf.gather(x, y % 3, axis=1, batch_dims=1),
    "one hot": lambda x, y: _rows(x * tf.one_hot(y, 3)),
    "negative axes": lambda x, y: tf.reduce_mean(x, axis=-1),
    "slice of features": lambda x, y: _rows(x[:, 1:]),
    "ellipsis": lambda x, y: _rows(x[..., tf.newaxis, :2], [1, 2]),
    "split of features": lambda x, y: _rows(tf.split(x, 3, axis=1)[1]),
    "pad features": lambda x, y: _rows(tf.pad(x, [[0, 0], [1, 2]])),
    "tile features": lambda x, y: _rows(tf.tile(x, [1, 2])),
    "reverse features": lambda x, y: tf.reverse(x, [1])[:, 0],
    "roll features": lambda x, y: tf.roll(x, 1, axis=1)[:, 0],
    "cumsum over features": lambda x, y: tf.cumsum(x, axis=1)[:, -1],
    "top k of features": lambda x, y: _rows(tf.math.top_k(x, 2).values),
    "einsum": lambda x, y: tf.einsum("bi,ij,bj->b", x, W, x @ W),
    "batched products": lambda x, y: _rows(tf.matmul(x[:, :, tf.newaxis], x[:, tf.newaxis, :]), [1, 2]),
    "quantised in a given range": lambda x, y: _rows(
        tf.quantization.quantize_and_dequantize_v2(x, -1.0, 1.0, range_given=True)
    ),
    "bits": lambda x, y: _rows(tf.cast(tf.bitcast(x, tf.uint8), tf.float32), [1, 2]),
    "where": lambda x, y: tf.where(y > 2, x[:, 0], x[:, 1]),
    "stop_gradient of the example": lambda x, y: _rows(x * tf.stop_gradient(x)),
    "a loop over steps": lambda x, y: _loop(x),
    "a function that is called": lambda x, y: _called(x),
    "a public branch": lambda x, y: tf.cond(W[0, 0] > 0.0, lambda: _rows(x), lambda: _rows(2.0 * x)),
    "mean over features of a mean over features": lambda x, y: tf.reduce_mean(tf.nn.relu(x), axis=[1]),
}


def _counted(x, count):
    return tf.reduce_sum(tf.tile(x[:, :1], [1, count]), axis=1)


def _mask_of_longest(y):
    return tf.sequence_mask(y)  # [batch, the largest of all]


def _extent(tensor, axis=0):
    return tf.cast(tf.shape(tensor)[axis], tf.float32)


def _by_number(x, y):
    """What gradients of gathers do: places in the flattened batch, by numbers that come from its shape."""
    shape = tf.cast(tf.shape(x), tf.int64)
    places = tf.range(shape[0]) * shape[1] + tf.cast(y % 3, tf.int64)
    return tf.gather(tf.reshape(x, [-1]), places)


UNKNOWN = {
    "places in the flattened batch": _by_number,
    "as many as there are positive ones": lambda x, y: _rows(x) / _extent(tf.where(x[:, 0] > 0.0)),
    "tiles as data says": lambda x, y: _counted(x, tf.reduce_max(y)),
    "a shape as data says": lambda x, y: tf.reduce_sum(tf.reshape(x, [-1, 1 + 2 * tf.reduce_max(y)]), axis=1)[:8],
    "the first example": lambda x, y: _rows(x * tf.sign(x[0, 0])),
    "a slice of examples": lambda x, y: tf.concat([_rows(x[:4]), _rows(x[4:])], axis=0),
    "examples in reverse": lambda x, y: _rows(x[::-1]),
    "one op that nobody knows": lambda x, y: _rows(tf.linalg.sqrtm(tf.eye(3) + 0.0 * x[:, :, tf.newaxis]), [1, 2]),
    "gather over examples": lambda x, y: _rows(tf.gather(x, y % 2)),
    "shuffled": lambda x, y: _rows(tf.random.shuffle(x)),
    "features of examples that others choose": lambda x, y: tf.gather(
        tf.transpose(tf.tile(x, [1, 3])[:, :8]), y[:, tf.newaxis] % 8, batch_dims=1
    )[:, 0],
    "a bias by place": lambda x, y: _rows(
        tf.transpose(tf.transpose(x) * tf.nn.bias_add(tf.zeros([1, 8]), tf.tile(TABLE[:, 0], [2])[:8]))
    ),
    "numbered examples": lambda x, y: _rows(x) * tf.cast(tf.range(tf.shape(x)[0]), tf.float32),
    "an op that nobody knows": lambda x, y: _rows(tf.linalg.expm(tf.stack([x, x, x], axis=1)), [1, 2]),
    "a branch on the data": lambda x, y: tf.cond(x[0, 0] > 0.0, lambda: _rows(x), lambda: -_rows(x)),
    "a branch on a sum": lambda x, y: tf.cond(tf.reduce_sum(x) > 0.0, lambda: _rows(x), lambda: -_rows(x)),
    "a variable as long as the batch": lambda x, y: _rows(x) * tf.tile(TABLE[:, 0], [2])[:8],
}

APART = "so that one example changes others"
REFUSED = {
    "mean of the batch": (lambda x, y: _rows(x - tf.reduce_mean(x, axis=0)), APART),
    "negative axis of the batch": (lambda x, y: _rows(x - tf.stop_gradient(tf.reduce_mean(x, axis=-2))), APART),
    "largest of the batch": (lambda x, y: _rows(x / tf.reduce_max(x)), APART),
    "softmax over the batch": (lambda x, y: _rows(tf.transpose(tf.nn.softmax(tf.transpose(x)))), "across the examples"),
    "rolled batch": (lambda x, y: _rows(x - tf.roll(x, 1, axis=0)), "across the examples"),
    "reversed batch": (lambda x, y: _rows(x - tf.reverse(x, [0])), "across the examples"),
    "cumsum over the batch": (lambda x, y: tf.cumsum(_rows(x)), "across the examples"),
    "counts in the batch": (lambda x, y: _rows(x) / tf.reduce_max(_counts(y)), "counts over the batch"),
    "sorted examples": (lambda x, y: _rows(tf.gather(x, tf.argsort(y))), APART),
    "pairs": (lambda x, y: _rows(tf.matmul(x, x, transpose_b=True)), "every other"),
    "differences of pairs": (lambda x, y: _rows(x[:, tf.newaxis] - x[tf.newaxis], [1, 2]), "every other"),
    "pairs by einsum": (lambda x, y: tf.einsum("bi,ci->b", x, x), "every other"),
    "covariance": (lambda x, y: _rows(x @ tf.matmul(x, x, transpose_a=True)), APART),
    "hidden in a function": (lambda x, y: _rows(tf.function(lambda v: v - tf.reduce_mean(v, 0))(x)), APART),
    "batch normalisation": (lambda x, y: _rows(_batch_norm(x)), "normalises over the batch"),
    "bits of other examples": (
        lambda x, y: _rows(x * tf.reduce_sum(tf.cast(tf.bitcast(x, tf.uint8), tf.float32), axis=[0, 2])),
        APART,
    ),
    "several rows per example": (lambda x, y: tf.reshape(x, [-1]), "3 entries for each example"),
    "constants by place": (lambda x, y: _rows(x) * PLACES, "by their place"),
    "a closed over batch": (
        lambda x, y: _rows((PLACES[:, np.newaxis] @ W[:1]) * _rows(x)[:, tf.newaxis]),
        "closed over",
    ),
    "python in the graph": (
        lambda x, y: tf.reshape(tf.numpy_function(np.sum, [x], tf.float32), [1]) * _rows(x),
        "Python",
    ),
    "the width of a mask as wide as the longest": (lambda x, y: _rows(x) / _extent(_mask_of_longest(y), 1), APART),
    "as many numbers as the longest": (lambda x, y: _rows(x) / _extent(tf.range(tf.reduce_max(y))), APART),
    "a constant by place, number by number": (
        lambda x, y: _rows(x) * tf.stack([tf.constant(PLACES)[i] for i in range(8)]),
        "closed over",
    ),
    "quantised by the batch's range": (
        lambda x, y: _rows(tf.quantization.quantize_and_dequantize_v2(x, 0.0, 0.0, range_given=False)),
        "range from the whole batch",
    ),
    "the sum of all": (lambda x, y: tf.reshape(tf.reduce_sum(x), [1]), APART),
    "a bias's gradient with the examples in the middle": (
        lambda x, y: _rows(x) * tf.raw_ops.BiasAddGrad(out_backprop=tf.tile(tf.transpose(x)[..., None], [1, 1, 8])),
        APART,
    ),
}
# With a batch size that is fixed, these are constants.
REFUSED_DYNAMIC = {
    "divided by the batch size": (lambda x, y: _rows(x) / tf.cast(tf.shape(x)[0], tf.float32), "how many examples"),
    "divided by a size": (lambda x, y: _rows(x) / tf.cast(tf.size(x), tf.float32), "how many examples"),
}
UNKNOWN_DYNAMIC = {
    "as many features as examples": lambda x, y: _rows(tf.tile(x[:, :1], [1, tf.shape(x)[0]])),
    "zeros as wide as the batch": lambda x, y: _rows(x[:, :1] + tf.zeros(2 * [tf.shape(x)[0]])),
    "as many numbers as examples": lambda x, y: _rows(x) / _extent(tf.range(tf.shape(x)[0])),
    "reshaped to the batch's width": lambda x, y: _rows(tf.reshape(x, [-1, tf.shape(x)[0]])),
}


def _batch_norm(x):
    images = tf.reshape(x, [-1, 1, 1, 3])
    return tf.reshape(
        tf.raw_ops.FusedBatchNormV3(x=images, scale=W[:, 0], offset=W[:, 1], mean=[], variance=[])[0], [-1, 3]
    )


def _params(cases, *more):
    both = [
        pytest.param(case, static, id=f"{name}-{static}") for name, case in cases.items() for static in (True, False)
    ]
    return both + [pytest.param(case, False, id=f"{name}-False") for cases in more for name, case in cases.items()]


@pytest.mark.parametrize(("function", "static"), _params(PROVEN))
def test_examples_that_stay_apart_are_recognised(function, static):
    assert _label(function, static).unproven is None


@pytest.mark.parametrize(("function", "static"), _params(UNKNOWN, UNKNOWN_DYNAMIC))
def test_what_is_not_known_is_run_one_by_one(function, static):
    assert _label(function, static).unproven is not None


@pytest.mark.parametrize(("case", "static"), _params(REFUSED, REFUSED_DYNAMIC))
def test_what_is_known_to_mix_is_refused(case, static):
    function, words = case
    with pytest.raises(ValueError, match=words):
        _label(function, static)


def _in_a_function(function):
    return tf.function(function, autograph=False)


SUMMED = {
    "dense": lambda x, y: _rows(tf.nn.relu(x @ W)),
    "a mean over features": lambda x, y: tf.reduce_mean(tf.nn.relu(x @ W), axis=1),
    "a product with what is broadcast": lambda x, y: _rows((x @ W) * W[0]),
    "softmax and a mean": lambda x, y: tf.reduce_mean(tf.nn.softmax(x @ W) * (x @ W), axis=-1),
    "one row for all": lambda x, y: _rows(x[:, :, tf.newaxis] * W, [1, 2]),
    "an axis in front": lambda x, y: _rows(tf.concat([x @ W, x], 1) * tf.cast(y, tf.float32)[:, tf.newaxis]),
}
# With an open size the shapes are lost in the function's gradient; the ghost path spells it out first.
IN_A_FUNCTION = {f"{name}, in a function": _in_a_function(case) for name, case in SUMMED.items()}


def _why_not_summed(function, static):
    found = []

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = function(x, y)
        proven = proof.prove(loss)
        seed = tf.identity(tf.ones_like(loss))
        proven.mark_seed(seed)
        gradient = tape.gradient(loss, W, output_gradients=seed)
        proven.look_back(seed, [gradient])
        found.append(proven.unproven or proven.summed(gradient))

    size = 8 if static else None
    specs = [tf.TensorSpec([size, 3]), tf.TensorSpec([size], tf.int32)]
    tf.function(step, input_signature=specs, autograph=False).get_concrete_function()
    return found[-1]


@pytest.mark.parametrize(
    ("name", "static"), [*((n, s) for n in SUMMED for s in (1, 0)), *((n, 1) for n in IN_A_FUNCTION)]
)
def test_gradients_of_what_stays_apart_are_sums_over_examples(name, static):
    assert _why_not_summed({**SUMMED, **IN_A_FUNCTION}[name], static) is None


def test_a_custom_gradient_that_looks_at_the_batch_is_not_a_sum_over_examples():
    @tf.custom_gradient
    def scaled(v):
        return v, lambda dy: dy * tf.reduce_max(v)

    found = []

    @tf.function(input_signature=[tf.TensorSpec([None, 3])], autograph=False)
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(scaled(x @ W), axis=1)
        proven = proof.prove(loss)
        seed = tf.identity(tf.ones_like(loss))
        gradient = tape.gradient(loss, W, output_gradients=seed)
        found.append((proven.unproven, proven.summed(gradient)))
        proven.look_back(seed, [gradient])

    with pytest.raises(ValueError, match="reduces over the batch axis, so that one example changes others"):
        step.get_concrete_function()
    forwards, backwards = found[-1]
    assert forwards is None
    assert backwards is not None and "nothing proves" in backwards


def test_the_axes_that_sums_over_the_batch_tell_are_no_sums_over_examples():
    """Which classes occur once, of all that occur: numbers made of a sum, but not of one term per example."""

    @tf.function(input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec([None], tf.int32)], autograph=False)
    def step(x, y):
        counts = tf.reduce_sum(tf.one_hot(y, 4, dtype=tf.int32), axis=0)
        axes = tf.raw_ops.BroadcastGradientArgs(s0=counts, s1=tf.fill([4], 2)).r0
        proven = proof.prove(_rows(x) + 0.0 * tf.cast(y, tf.float32))
        assert proven.summed(counts) is None
        for numbers in (axes, tf.cast(axes, tf.float32)):
            assert "nothing proves" in (proven.summed(numbers) or "")

    step.get_concrete_function()


def test_advice_fits_where_examples_meet():
    def loss(x, y, scope):
        with tf.name_scope(scope):
            return _rows(x) / tf.reduce_max(x)

    for scope, fix in (("compile_loss", "reduction='none'"), ("dense", "Replace BatchNormalization")):
        with pytest.raises(ValueError, match=fix):
            _label(lambda x, y, scope=scope: loss(x, y, scope), static=False)


@pytest.mark.parametrize("size", [8, None])
def test_slices_of_a_gradient_must_be_those_of_examples(size):
    """Row i of a table gets the i-th slice: with the examples along another axis it would get something of each."""

    @tf.function(input_signature=[tf.TensorSpec([size, 8]), tf.TensorSpec([size], tf.int32)], autograph=False)
    def step(x, y):
        proven = proof.prove(_rows(x))
        assert proven.summed(tf.IndexedSlices(x, y)) is None
        for values, indices in ((tf.transpose(x), y), (x, tf.range(8)), (tf.concat([x, x], 0), y)):
            assert "nothing proves" in proven.summed(tf.IndexedSlices(values, indices))

    step.get_concrete_function()


@pytest.mark.parametrize("jit_compile", [False, True])
def test_data_of_another_length_poisons_the_run(jit_compile):
    """XLA drops assertions: there the poison is all that is left."""

    @tf.function(jit_compile=jit_compile, autograph=False)
    def poison(x, y):
        return proof.prove(_rows(x) * y).poison()

    x = tf.ones([1, 3])
    assert poison(x, tf.ones([1])).numpy() == 0.0
    step = poison.get_concrete_function(tf.TensorSpec([None, 3]), tf.TensorSpec([None]))
    assert step(tf.ones([4, 3]), tf.ones([4])).numpy() == 0.0
    if jit_compile:
        assert np.isnan(step(tf.ones([4, 3]), tf.ones([1])).numpy())
    else:
        with pytest.raises(tf.errors.InvalidArgumentError, match="first axis"):
            step(tf.ones([4, 3]), tf.ones([1]))


def test_a_scalar_of_the_dataset_is_refused_and_a_scalar_argument_is_public():
    def step(x, scalar):
        proof.prove(_rows(x) * scalar)

    options = {"autograph": False}
    tf.function(step, [tf.TensorSpec([None, 3]), tf.TensorSpec([])], **options).get_concrete_function()
    rates = [{"a": tf.TensorSpec([]), "b": tf.TensorSpec([])}, tf.TensorSpec([None, 3])]
    tf.function(lambda rate, x: step(x, rate["b"]), rates, **options).get_concrete_function()
    batch = [tf.TensorSpec([]), (tf.TensorSpec([None, 3]), tf.TensorSpec([]))]
    with pytest.raises(ValueError, match="belongs to no example"):
        tf.function(lambda rate, data: step(*data), batch, **options).get_concrete_function()
    data = iter(tf.data.Dataset.from_tensors((tf.ones([4, 3]), 2.0)))
    with pytest.raises(ValueError, match="belongs to no example"):
        tf.function(lambda: step(*next(data)), **options)()


WRITES = {
    "assign": lambda bank, x: bank.assign(tf.reduce_sum(x, axis=0)),
    "assign_add": lambda bank, x: bank.assign_add(tf.reduce_sum(x, axis=0)),
    "how many": lambda bank, x: bank.assign(tf.fill([3], tf.cast(tf.shape(x)[0], tf.float32))),
    "scatter": lambda bank, x: bank.scatter_nd_update([[0]], x[0, :1]),
    "slice": lambda bank, x: bank[1:2].assign(x[0, 1:2]),
    "in a function": lambda bank, x: tf.function(lambda v: bank.assign_add(v[0]))(x),
    "in a branch": lambda bank, x: tf.cond(bank[0] >= 0.0, lambda: bank.assign_add(x[0]), bank.read_value),
    "in a case": lambda bank, x: tf.switch_case(
        tf.cast(bank[0], tf.int32), [lambda: bank.assign_add(x[0]), bank.read_value]
    ),
    "in a loop": lambda bank, x: tf.while_loop(lambda i: i < 2, lambda i: _then(bank.assign_add(x[0]), i + 1), [0]),
}


def _then(write, value):
    with tf.control_dependencies([write]):
        return tf.identity(value)


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("name", WRITES)
def test_nothing_of_a_batch_may_stay_behind(name, reads):
    bank = tf.Variable([0.0, 0.0, 0.0])

    def loss(x, y):
        WRITES[name](bank, x)
        return _rows(x * bank if reads else x)

    with pytest.raises(ValueError, match="keeps what it saw"):
        _label(loss, static=False)


def test_a_train_step_may_not_write_after_the_optimizer_was_called():
    """As momentum contrast does: the queue of examples is filled behind the step, and read by the next one."""
    queue, metric = tf.Variable([0.0, 0.0, 0.0]), tf.keras.metrics.Mean()

    def step(x, keeps):
        proof.prove(_rows(x * queue))
        metric.update_state(x)
        queue.assign_add([1.0, 1.0, 1.0])
        if keeps:
            queue.assign(x[0])

    signature = [tf.TensorSpec([None, 3])]
    tf.function(lambda x: step(x, False), input_signature=signature).get_concrete_function()
    with pytest.raises(ValueError, match="keeps what it saw"):
        tf.function(lambda x: step(x, True), input_signature=signature).get_concrete_function()


def test_inputs_that_the_loss_does_not_get_may_be_of_any_length():
    """The two parts of an element come out of one op."""
    elements = tf.data.Dataset.from_tensors((tf.ones([8, 3]), tf.ones([5]))).repeat()
    iterator = iter(elements)

    def step(part):
        element = next(iterator)
        proof.prove(_rows(element[0]) * (tf.reduce_sum(element[1]) if part else 1.0))

    tf.function(lambda: step(0), autograph=False).get_concrete_function()
    with pytest.raises(ValueError, match=APART):
        tf.function(lambda: step(1), autograph=False).get_concrete_function()


def test_what_is_not_computed_from_data_may_be_written():
    count = tf.Variable(0)

    def loss(x, y):
        count.assign_add(1)
        return _rows(x)

    assert _label(loss, static=False).unproven is None


def test_a_metric_may_be_written_but_not_read_by_the_loss():
    metric = tf.keras.metrics.Mean()

    def loss(x, y, reads):
        metric.update_state(x)
        return _rows(x) * (metric.result() if reads else 1.0)

    assert _label(lambda x, y: loss(x, y, False), static=False).unproven is None
    with pytest.raises(ValueError, match="reads a Keras metric"):
        _label(lambda x, y: loss(x, y, True), static=False)


@pytest.mark.parametrize("reads", [False, True])
def test_what_the_loss_read_is_no_metric_later(reads):
    """A metric that is made behind the optimizer's call, around a variable that the loss depends on."""
    scale = tf.Variable(1.0)

    class Scale(tf.keras.metrics.Metric):
        variables = property(lambda self: [scale])
        update_state = result = None

    def step(x):
        proof.prove(_rows(x) * (scale if reads else 1.0))
        metric = Scale()
        scale.assign_add(tf.reduce_sum(x))
        del metric

    traced = tf.function(step, [tf.TensorSpec([None, 3])], autograph=False)
    if not reads:
        traced.get_concrete_function()
    else:
        with pytest.raises(ValueError, match="a Keras metric on which the loss depends"):
            traced.get_concrete_function()


def test_a_table_may_be_read_but_not_filled():
    table = tf.lookup.experimental.MutableHashTable(tf.int32, tf.float32, 0.0)
    assert "unknown rank" in _label(lambda x, y: _rows(x) + table.lookup(y), static=False).unproven  # so run one by one

    def fill(x, y):
        table.insert(y, x[:, 0])
        return _rows(x)

    with pytest.raises(ValueError, match="keeps what it saw"):
        _label(fill, static=False)


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("moves_on", [False, True])
def test_seeds_that_the_step_moves_on_are_draws(moves_on, static):
    """As those of Keras 3's Dropout. What a fixed seed gives to a place is no draw."""
    seed = tf.Variable([3, 4])

    def loss(x, y):
        del y
        drawn_from = tf.identity(seed)
        if moves_on:
            seed.assign_add([0, 1])
        return _rows(x * tf.random.stateless_uniform(tf.shape(x), drawn_from))

    assert (_label(loss, static).unproven is None) == moves_on


@pytest.mark.parametrize("static", [False, True])
def test_what_was_broadcast_against_a_kernel_is_traced_back(static):
    """Keras 3's EinsumDense: the gradient by x of matmul(x [batch, time, features], kernel [features, units])."""
    kernel, found = tf.Variable(np.ones([4, 2], np.float32)), []

    @tf.function(input_signature=[tf.TensorSpec([8 if static else None, 5, 3])], autograph=False)
    def step(x):
        hidden = tf.linalg.matmul(tf.linalg.matmul(x, W), kernel)
        loss = tf.reduce_sum(hidden, axis=[1, 2])
        proven = proof.prove(loss)
        seed = tf.identity(tf.ones_like(loss))
        gradients = tf.gradients(loss, [W, kernel], seed)
        proven.look_back(seed, gradients)
        found.append([proven.summed(gradient) for gradient in gradients])

    step.get_concrete_function()
    assert found[-1] == [None, None]


def test_a_reshape_to_the_shape_that_there_is_changes_nothing():
    @tf.function(input_signature=[tf.TensorSpec([None, 3])], autograph=False)
    def step(x):
        double = 2.0 * x
        same, other = tf.reshape(double, tf.shape(x)), tf.reshape(double, [-1, 1, 3])
        walk = proof.prove(_rows(same) + _rows(other, [1, 2])).walk
        assert proof.changes_nothing(walk, same.op)
        assert not proof.changes_nothing(walk, other.op)
        assert not proof.changes_nothing(walk, double.op)
        assert not proof.changes_nothing(None, same.op)

    step.get_concrete_function()
