"""Per-microbatch gradients by copying the graph of the loss."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import DPFixedClipSGD
from adaclip_tf._internal import keras
from adaclip_tf.gradients import backward, graph, isolated, paths, proof
from tests import models


class _GraphTape:
    def gradient(self, loss, variables, output_gradients):
        return tf.gradients(loss, variables, output_gradients)


def _gradients(step, *arguments, **options):
    """Per-microbatch gradients that `isolated` gives inside a tf.function: a list of [n, ...] arrays."""
    return _traced(step, **options)(*arguments)


def _traced(step, num_microbatches=None, signature=None, jit_compile=None, autograph=True):
    options = {"jit_compile": jit_compile, "autograph": autograph}

    @tf.function(input_signature=signature, reduce_retracing=signature is None, **options)
    def run(*tensors):
        loss, variables = step(*tensors)
        n = paths.num_examples(loss) if num_microbatches is None else num_microbatches
        arrays = [tf.TensorArray(tf.float32, size=n, element_shape=v.shape) for v in variables]
        proven = proof.prove(loss)
        passed = backward.run(loss, variables, _GraphTape(), mark=proven.mark_seed)

        def consume(k, gradients, state):
            return [array.write(k, gradient) for array, gradient in zip(state, gradients)]

        return [array.stack() for array in isolated.for_each_microbatch(passed, proven, n, consume, arrays)]

    return lambda *arguments: [result.numpy() for result in run(*arguments)]


def _one_at_a_time(model, loss, inputs, labels):
    results = []
    for k in range(len(inputs)):
        with tf.GradientTape() as tape:
            value = loss(labels[k : k + 1], model(inputs[k : k + 1]))
        gradients = tape.gradient(value, model.trainable_variables)
        results.append([tf.convert_to_tensor(gradient).numpy() for gradient in gradients])
    return [np.stack(parts) for parts in zip(*results)]


def _lstm():
    layers = tf.keras.layers
    tf.keras.utils.set_random_seed(0)
    return tf.keras.Sequential([layers.Embedding(9, 4, mask_zero=True), layers.LSTM(3), layers.Dense(models.CLASSES)])


def _step(model):
    loss = models.per_example_loss()
    return lambda x, y: (loss(y, model(x)), model.trainable_variables)


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("build", [models.mlp, _lstm])
def test_equals_one_run_per_example(build, static, rng):
    model = build()
    inputs, labels = models.data(3)
    if build is _lstm:
        inputs = rng.integers(1, 9, [3, 5])
    model(inputs)
    expected = _one_at_a_time(model, models.per_example_loss(), inputs, labels)
    step = _step(model)
    if static:
        actual = _gradients(step, tf.constant(inputs), tf.constant(labels))
    else:
        signature = [tf.TensorSpec([None, *array.shape[1:]], array.dtype) for array in (inputs, labels)]
        run = _traced(step, signature=signature)
        parts = [run(inputs[rows], labels[rows]) for rows in (slice(0, 2), slice(2, 3))]
        actual = [np.concatenate(pieces) for pieces in zip(*parts)]
    for ours, theirs in zip(actual, expected):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_data_dependent_control_flow():
    w = tf.Variable([1.0, -1.0])

    def step(x):
        power = tf.reduce_sum(x * w, axis=1)
        doubled = tf.while_loop(lambda v: tf.reduce_all(v < 8.0), lambda v: [v * 2.0 + 1.0], [tf.abs(power) + 1.0])[0]
        return tf.cond(tf.reduce_sum(x) > 0.0, lambda: doubled, lambda: -doubled), [w]

    inputs = np.float32([[0.5, 0.1], [3.0, -1.0], [-2.0, 0.5]])
    alone = _traced(step)
    each = [alone(tf.constant(inputs[k : k + 1]))[0][0] for k in range(3)]
    together = _gradients(step, tf.constant(inputs))[0]
    np.testing.assert_allclose(together, each, rtol=1e-5)


def test_microbatches_of_two():
    w = tf.Variable([2.0])
    step = lambda x: (tf.square(x[:, 0] * w[0]), [w])  # noqa: E731
    inputs = np.float32([[1.0], [2.0], [3.0], [4.0]])
    actual = _gradients(step, tf.constant(inputs), num_microbatches=2)[0]
    # d/dw mean(x^2 w^2) = 2 w mean(x^2)
    np.testing.assert_allclose(actual, [[4 * 2.5], [4 * 12.5]], rtol=1e-5)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_nothing_is_summed_of_no_examples(jit_compile):
    if jit_compile and keras.GENERATION == 2:
        pytest.skip("XLA of TensorFlow 2.15 can't write to a list without entries, not even in a loop without rounds")
    w = tf.Variable([2.0])
    step = lambda x: (tf.square(x[:, 0] * w[0]), [w])  # noqa: E731
    signature = [tf.TensorSpec([None, 1])]
    assert _traced(step, signature=signature, jit_compile=jit_compile)(tf.zeros([0, 1]))[0].shape == (0, 1)


def test_dropout_draws_for_every_example():
    tf.keras.utils.set_random_seed(0)
    model = tf.keras.Sequential([tf.keras.layers.Dropout(0.5), tf.keras.layers.Dense(1, use_bias=False)])
    model.build([None, 50])

    def step(x):
        return model(x, training=True)[:, 0], model.trainable_variables

    kept = _gradients(step, tf.ones([6, 50]))[0][:, :, 0] > 0
    assert 0.3 < kept.mean() < 0.7
    assert len({row.tobytes() for row in kept}) == 6


def test_examples_that_do_not_enter_as_arguments_are_refused():
    inputs, labels = models.data(5)
    model = models.softmax_regression()
    loss = models.per_example_loss()
    closure = tf.constant(inputs)
    with pytest.raises(ValueError, match="pass the examples as arguments"):
        _gradients(lambda: (loss(labels, model(closure)), model.trainable_variables))
    with pytest.raises(ValueError, match="pass the examples as arguments"):
        _gradients(lambda y: (loss(y, model(closure)), model.trainable_variables), tf.constant(labels))


def test_input_without_a_batch_axis_is_refused():
    w = tf.Variable([1.0, 1.0])

    def step(x, table):
        return tf.reduce_sum(x * w, axis=1) + tf.reduce_sum(table), [w]

    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=r"first axis|reduces over the batch axis"):
        _gradients(step, tf.ones([4, 2]), tf.ones([3]))


def _fixed_size(function):
    """A step on batches of 4, with that number in its reshapes: it can't be run on one example."""
    w = tf.Variable([[1.0, -0.5], [0.5, 2.0]])

    def step(x):
        y = tf.reshape(function(tf.reshape(tf.tanh(x @ w), [4, 2])), [4, 2])
        return tf.reduce_sum(tf.square(y), axis=1), [w]

    return step


def _in_another_order_and_back(y):
    """Nothing proves that the examples are where they were."""
    return tf.gather(tf.gather(y, [1, 2, 3, 0]), [3, 0, 1, 2])


MEET = {
    "another layout": lambda y: tf.transpose(tf.reshape(y, [2, 4])),
    "neighbours": lambda y: y + tf.concat([y[1:], y[:1]], axis=0),
    "the first": lambda y: y * (1.0 + tf.abs(y[:1] - y[3:])),
}


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("name", MEET)
def test_a_batch_of_copies_is_no_way_out_where_examples_meet(name, jit_compile):
    """Their gradients would hang on the number of copies, which is the size of the batch."""
    x = tf.constant(np.random.default_rng(0).normal(size=[4, 2]).astype(np.float32) / 4)
    run = lambda: _gradients(_fixed_size(MEET[name]), x, jit_compile=jit_compile)[0]  # noqa: E731
    if jit_compile:  # drops assertions: every example is left out
        assert np.isnan(run()).all()
    else:
        with pytest.raises(tf.errors.InvalidArgumentError, match="how many examples the batch has"):
            run()


def test_a_batch_of_copies_gives_the_gradients_of_examples_that_stay_apart():
    x = np.random.default_rng(0).normal(size=[4, 2]).astype(np.float32) / 4
    dropout = tf.keras.layers.Dropout(0.5)
    actual = _gradients(_fixed_size(_in_another_order_and_back), tf.constant(x))[0]
    for k in range(4):
        with tf.GradientTape() as tape:
            loss, variables = _fixed_size(tf.identity)(tf.constant(x))
            loss = loss[k]
        np.testing.assert_allclose(actual[k], tape.gradient(loss, variables)[0], rtol=1e-4)
    # The same random numbers in both runs of the check, others for every example.
    drop = lambda y: dropout(_in_another_order_and_back(y), training=True)  # noqa: E731
    drawn = _gradients(_fixed_size(drop), tf.constant(x[[0] * 4]))[0]
    assert len({row.tobytes() for row in drawn}) > 1


def _dense(x, weights):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(x[:, 0] > 0.0, tf.int32), x @ weights)


def _spread(x, weights):
    """The gradient of `maximum` holds zeros for a whole batch: next to them one example becomes as many."""
    return tf.maximum(x[:, 0] + weights[0, 0], 0.1)


@pytest.mark.parametrize(("function", "alone"), [(_dense, True), (_spread, False)])
def test_a_graph_for_one_size_of_batch_runs_on_less_where_no_shape_holds_that_size(function, alone, monkeypatch):
    weights = tf.Variable([[1.0, -0.5], [0.5, 2.0]])
    x = tf.constant(np.random.default_rng(0).normal(size=[4, 2]).astype(np.float32))
    runs_on_less, seen = isolated._runs_on_less, []
    monkeypatch.setattr(isolated, "_runs_on_less", lambda *given: seen.append(runs_on_less(*given)) or seen[-1])
    step = lambda x: (function(x, weights), [weights])  # noqa: E731
    actual = _gradients(step, x)[0]
    assert seen == [alone]
    for k in range(4):
        with tf.GradientTape() as tape:
            loss = function(x, weights)[k]
        np.testing.assert_allclose(actual[k], tape.gradient(loss, weights), rtol=1e-5)


@pytest.mark.parametrize("num_microbatches", [None, 4])
def test_what_runs_on_less_does_not_hang_on_the_size_that_the_graph_was_made_for(num_microbatches):
    """A sum over the batch whose gradient is spread over four examples, behind an op that hides that it is one."""
    weights = tf.Variable([1.0, 2.0])

    def step(x):
        hidden = tf.linalg.expm(tf.linalg.diag(x * weights))
        return tf.reduce_sum(x, axis=1) * tf.reduce_sum(hidden), [weights]

    with pytest.raises(tf.errors.InvalidArgumentError, match="how many examples the batch has"):
        _gradients(step, tf.ones([4, 2]), num_microbatches=num_microbatches)


def test_ops_are_listed_once_behind_what_they_need_and_wait_for():
    with tf.Graph().as_default():
        start = tf.constant(1.0)
        check = tf.raw_ops.Assert(condition=start > 0.0, data=[start])
        with tf.control_dependencies([check]):
            middle = tf.identity(start)
        end = (middle * middle) + tf.exp(middle)
        ordered = graph.in_order(end.op, lambda known: False)
        assert len(ordered) == len(set(ordered))
        places = {op: place for place, op in enumerate(ordered)}
        assert places[start.op] < places[check] < places[middle.op] < places[end.op]
        assert graph.in_order(end.op, lambda known: known is middle or known is middle.op)[-1] is end.op
        assert check not in graph.in_order(end.op, lambda known: known is middle or known is middle.op)


def test_draws_inside_a_function_leave_a_fixed_batch_unchecked():
    """Nothing can tell what the same draws would give among zeros: such a step runs all the same."""
    weights = tf.Variable([[1.0], [2.0]])

    def step(x):
        noise = tf.function(lambda: tf.random.uniform([4, 1]), autograph=False)()
        return tf.reshape(x @ weights + 0.0 * tf.cumsum(tf.reverse(noise, [0])), [4]), [weights]

    x = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
    (gradients,) = _gradients(step, x, signature=[tf.TensorSpec([4, 2])])
    np.testing.assert_allclose(gradients[:, :, 0], x.numpy(), rtol=1e-6)


def test_gradients_are_those_at_the_weights_of_the_loss():
    """Another optimizer of the same step may have changed them in between."""
    weights = tf.Variable([[1.0], [2.0]])

    def step(x):
        loss = tf.square(tf.reshape(x @ weights, [-1]))
        weights.assign_add([[5.0], [5.0]])
        return loss, [weights]

    (gradients,) = _gradients(step, tf.constant([[1.0, 0.0], [0.0, 1.0]]))
    np.testing.assert_allclose(gradients[:, :, 0], [[2.0, 0.0], [0.0, 4.0]])


def _by_a_seed(moves_on):
    """The gradient of the weight is what is drawn for an example, from a seed that the step moves on or not."""
    seed, weight = tf.Variable([3, 4]), tf.Variable(1.0)

    def step(x):
        drawn_from = tf.identity(seed)
        if moves_on:
            seed.assign_add([0, 1])
        drawn = tf.random.stateless_uniform(tf.shape(x), drawn_from)
        return weight * drawn[:, 0] * x[:, 0], [weight]

    return step


@pytest.mark.parametrize("static", [False, True])
def test_examples_draw_from_a_seed_that_moves_on_and_share_what_a_fixed_one_gives(static):
    """By a fixed seed the place would decide, which is another one when an example before it leaves."""
    signature = [tf.TensorSpec([5 if static else None, 1])]
    drawn = _gradients(_by_a_seed(True), tf.ones([5, 1]), signature=signature)[0]
    assert len(set(drawn.tolist())) == 5
    fixed = _gradients(_by_a_seed(False), tf.ones([5, 1]), signature=signature)[0]
    assert len(set(fixed.tolist())) == 1


def test_a_function_that_counts_its_calls_is_not_run_for_each_example():
    """Its counter would tell how many examples there are."""
    calls, kernel = tf.Variable(0.0), tf.Variable(tf.ones([3]))

    @tf.function
    def counted(x):
        calls.assign_add(1.0)
        return tf.linalg.expm(tf.linalg.diag(x))[:, 0, 0]

    optimizer = DPFixedClipSGD(1.0, l2_norm_clip=1.0, noise_multiplier=0.0, expected_batch_size=4)

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def step(x):
        optimizer.minimize(lambda: counted(x * kernel), [kernel])

    with pytest.raises(ValueError, match="write once for each example"):
        step(tf.ones([4, 3]))


def test_a_counter_beside_the_step_counts_once():
    calls, kernel = tf.Variable(0.0), tf.Variable(tf.ones([3]))
    optimizer = DPFixedClipSGD(1.0, l2_norm_clip=1.0, noise_multiplier=0.0, expected_batch_size=4)

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def step(x):
        with tf.control_dependencies([calls.assign_add(1.0)]):
            optimizer.minimize(lambda: tf.linalg.expm(tf.linalg.diag(x * kernel))[:, 0, 0], [kernel])

    step(tf.ones([4, 3]))
    assert calls.numpy() == 1.0


def test_a_loss_that_leaves_examples_out_has_no_entries_that_are_examples():
    weights = tf.Variable([1.0, -1.0, 2.0])

    def step(x):
        losses = tf.reduce_sum(x * weights, axis=1)
        return tf.boolean_mask(losses, x[:, 0] > 0.0), [weights]

    run = _traced(step, signature=[tf.TensorSpec([None, 3])], autograph=False)
    x = np.float32([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    np.testing.assert_allclose(run(x)[0], x)  # each has one
    with pytest.raises(tf.errors.InvalidArgumentError, match="does not have one entry"):
        run(x * [[-1.0], [1.0]])


@pytest.mark.parametrize("batch_size", [None, 4])
def test_examples_draw_numbers_of_their_own_from_a_generator_that_moves_on_once(batch_size):
    """How far its state moves does not hang on how often examples are run."""
    generator = tf.random.Generator.from_seed(3)
    weight = tf.Variable(1.0)

    def step(x):
        draws = generator.uniform([tf.shape(x)[0]])
        moved = tf.map_fn(lambda row: row, x)  # unknown to the ghost rules
        return moved[:, 0] * draws * weight, [weight]

    signature = [tf.TensorSpec([batch_size, 2])]
    before = generator.state.numpy()[0]
    (gradients,) = _gradients(step, np.ones([4, 2], np.float32), signature=signature, autograph=False)
    moved_by = generator.state.numpy()[0] - before
    assert len(set(gradients.tolist())) == 4
    other = tf.random.Generator.from_seed(3)
    other.uniform([4])
    assert moved_by == other.state.numpy()[0] - before
