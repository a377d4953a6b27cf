"""What else may tell of a batch besides the values that are written: how many examples there are, whether and how often
something is written at all, Python, other replicas."""

import gc
import types
import weakref

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import function as tf1

from adaclip_tf.gradients import proof
from adaclip_tf.gradients.proof import memory, metrics, sources

W = tf.Variable(np.linspace(-1.0, 1.0, 3).astype(np.float32))


def _loss(x):
    return tf.reduce_sum(x * W, axis=1)


def _proven(function, size=None):
    tf.function(function, input_signature=[tf.TensorSpec([size, 3])], autograph=False).get_concrete_function()


def _python(x):
    return tf.numpy_function(lambda rows: rows, [x], tf.float32)


def _rounds(bank, how_many):
    def round_of(i):
        with tf.control_dependencies([bank.assign_add(1.0)]):
            return i + 1

    tf.while_loop(lambda i: i < how_many, round_of, [0])


def _growing_loop(bank, x):
    """A loop that is not followed: data reaches what decides about the next round only after many of them."""

    def round_of(i, *states):
        with tf.control_dependencies([bank.assign_add(1.0)]):
            return i + 1, x[0, 0], *states[:-2], states[-2] + 0.0 * states[-1]

    tf.while_loop(lambda i, *states: states[-1] < 1.0, round_of, (0, *[tf.constant(0.0)] * 12))


def _classes(x):
    return tf.cast(x[:, :1] > 0.0, tf.int64)


def _in_a_dataset(x, function):
    return tf.data.Dataset.from_tensor_slices(x).map(function).reduce(tf.zeros([2], tf.int64), lambda total, _: total)


def _behind_a_switch(bank, x):
    _, positive = tf.raw_ops.Switch(data=1.0, pred=tf.reduce_sum(x) > 0.0)
    with tf.control_dependencies([tf.identity(positive)]):
        bank.assign_add(1.0)


WRITES = {
    "behind a switch": _behind_a_switch,
    "in a staging area": lambda bank, x: tf.raw_ops.Stage(values=[tf.reduce_sum(x)]),
    "in a file": lambda bank, x: tf.io.write_file("/dev/null", tf.strings.as_string(tf.reduce_sum(x))),
    "in a file that is printed to": lambda bank, x: tf.print(x, output_stream="file:///dev/null"),
    "in a sampler that counts": lambda bank, x: tf.random.learned_unigram_candidate_sampler(_classes(x), 1, 2, True, 9),
    "in the same sampler in a dataset": lambda bank, x: _in_a_dataset(
        x, lambda row: tf.random.learned_unigram_candidate_sampler(_classes(row[None]), 1, 2, True, 9)[0]
    ),
    "in a debugger's file": lambda bank, x: tf.raw_ops.DebugIdentity(input=x, debug_urls=["file:///dev/null"]),
    "how many examples there are": lambda bank, x: bank.assign_add(tf.cast(tf.shape(x)[0], tf.float32)),
    "the same in a function": lambda bank, x: tf.function(bank.assign)(tf.cast(tf.shape(x)[0], tf.float32)),
    "a sum of as many ones": lambda bank, x: bank.assign(tf.reduce_sum(tf.ones([tf.shape(x)[0]]))),
    "in a branch on data": lambda bank, x: tf.cond(x[0, 0] > 0.0, lambda: bank.assign_add(1.0), bank.read_value),
    "in a function in a branch on data": lambda bank, x: tf.cond(
        x[0, 0] > 0.0, tf.function(lambda: bank.assign_add(1.0)), bank.read_value
    ),
    "in a case of data": lambda bank, x: tf.switch_case(
        tf.cast(x[0, 0], tf.int32), [lambda: bank.assign_add(1.0), bank.read_value]
    ),
    "in as many rounds as data says": lambda bank, x: _rounds(bank, tf.cast(x[0, 0], tf.int32)),
    "in as many rounds as there are examples": lambda bank, x: _rounds(bank, tf.shape(x)[0]),
    "in a loop that is not followed": _growing_loop,
    "skipped random numbers": lambda bank, x: tf.random.Generator.from_seed(1).skip(tf.cast(x[0, 0], tf.int32)),
}


@pytest.mark.parametrize("name", WRITES)
def test_what_a_batch_decides_may_not_be_written(name):
    """The loss reads nothing of it: what stays behind is enough."""
    bank = tf.Variable(0.0)

    def step(x):
        WRITES[name](bank, x)
        proof.prove(_loss(x))

    with pytest.raises(ValueError, match="keeps what it saw of a batch"):
        _proven(step)


@pytest.mark.parametrize("name", WRITES)
def test_nor_behind_the_loss(name):
    """Where labels are made for what may be noted alone; other ops that come with it are not asked for."""
    bank = tf.Variable(0.0)

    def step(x):
        proof.prove(_loss(x))
        x = tf.exp(x)
        WRITES[name](bank, x)

    with pytest.raises(ValueError, match="keeps what it saw of a batch"):
        _proven(step)


def test_labels_behind_the_loss_are_made_where_they_are_asked_for():
    """A public write labels what it hangs on: not a chain of ops on data, nor a branch on data that writes nothing."""
    bank = tf.Variable(0.0)

    def step(x):
        walk = proof.prove(_loss(x)).walk
        unasked = tf.cond(x[0, 0] > 0.0, lambda: tf.exp(x), lambda: x)
        bank.assign(tf.constant(1.0) + 1.0)
        assert unasked.ref() not in walk.labels
        assert not isinstance(walk.label(unasked), type(walk.label(tf.constant(1.0))))  # asked for: data
        with pytest.raises(ValueError, match="keeps what it saw of a batch"):
            bank.assign(unasked[0, 0])

    _proven(step)


@pytest.mark.parametrize("size", [None, 8])
def test_what_no_data_decides_may_be_written(size):
    """Branches and rounds that are public, draws for every example."""
    bank, generator = tf.Variable(0.0), tf.random.Generator.from_seed(1)

    def step(x):
        tf.cond(bank > 0.0, lambda: bank.assign_add(1.0), bank.read_value)
        _rounds(bank, 3)
        proof.prove(_loss(x + generator.normal(tf.shape(x))))

    _proven(step, size)


@pytest.mark.parametrize("sampler", ["log_uniform", "uniform"])
def test_samplers_with_fixed_tables_keep_nothing(sampler):
    """What `tf.nn.sampled_softmax_loss` draws by default; the negative control is the sampler that counts, above."""

    def step(x):
        getattr(tf.random, f"{sampler}_candidate_sampler")(_classes(x), 1, 2, True, 9)
        proof.prove(_loss(x))

    _proven(step)


def test_checks_and_prints_keep_nothing():
    def step(x):
        tf.debugging.Assert(tf.reduce_all(x < 1e9), [x])
        tf.print(x)
        proof.prove(_loss(x))

    _proven(step)


@tf1.Defun(tf.float32)
def _python_of_tensorflow_1(x):
    return _python(x)


def _called(x):
    """As `tf.nn.ctc_loss` calls its parts."""
    return tf.raw_ops.StatefulPartitionedCall(args=[x], Tout=[tf.float32], f=_python_of_tensorflow_1)[0]


PYTHON = {
    "on the way to the loss": lambda x: _loss(tf.ensure_shape(_python(x), [None, 3])),
    "in a function": lambda x: _loss(tf.ensure_shape(tf.function(_python)(x), [None, 3])),
    "in a branch": lambda x: _loss(tf.ensure_shape(tf.cond(W[0] > 0.0, lambda: _python(x), lambda: x), [None, 3])),
    "in a function of TensorFlow 1": lambda x: _loss(tf.ensure_shape(_called(x), [None, 3])),
    "beside the loss": lambda x: (_python(x), _loss(x))[1],
    "beside the loss, in a function": lambda x: (tf.function(_python)(x), _loss(x))[1],
    "beside the loss, how many there are": lambda x: (_python(tf.cast(tf.shape(x)[0], tf.float32)), _loss(x))[1],
}


@pytest.mark.parametrize("name", PYTHON)
def test_python_gets_nothing_of_a_batch(name):
    with pytest.raises(ValueError, match="Python code in the middle of a graph"):
        _proven(lambda x: proof.prove(PYTHON[name](x)) and None)


def test_python_no_data_is_given_to_is_refused_in_the_loss():
    """It may remember what it was told elsewhere."""
    remembered = tf.function(lambda: tf.numpy_function(lambda: np.float32(3.0), [], tf.float32, stateful=False))
    with pytest.raises(ValueError, match="Python code in the middle of a graph"):
        _proven(lambda x: proof.prove(_loss(x) * tf.ensure_shape(remembered(), [])) and None)


def test_python_behind_the_optimizer_is_a_metric():
    """Such as one of scikit-learn's. By itself it is not: it may write a variable that the next loss reads."""
    metric = tf.keras.metrics.MeanMetricWrapper(lambda y, p: tf.ensure_shape(_python(p), [None]))

    def step(x, in_a_metric):
        loss = _loss(x)
        proof.prove(loss)
        if in_a_metric:
            metric.update_state(loss, loss)
        else:
            _python(loss)

    _proven(lambda x: step(x, True))
    with pytest.raises(ValueError, match="Python code in the middle of a graph"):
        _proven(lambda x: step(x, False))


def test_python_in_front_of_the_optimizer_is_none_whoever_calls():
    """A step that is taken inside of a metric's method, for whatever reason: there is no loss yet to stand behind."""

    class Caller(tf.keras.metrics.Metric):
        def update_state(self, call):
            call()

        result = None

    step = lambda x: (_python(x), proof.prove(_loss(x)))[0] and None  # noqa: E731
    with pytest.raises(ValueError, match="Python code in the middle of a graph"):
        _proven(lambda x: Caller().update_state(lambda: step(x)))


@pytest.mark.parametrize("first", ["the metric", "what was read"])
def test_what_is_computed_from_a_variable_that_turns_out_to_be_a_metric_s_is_data(first):
    """Keras makes metrics while it traces a step. What was read before may be written behind that, or be already."""
    total, weight = tf.Variable(0.0), tf.Variable(1.0)

    class Total(tf.keras.metrics.Metric):
        variables = property(lambda self: [total])
        update_state = result = None

    def step(x, made):
        proof.prove(_loss(x))
        before = 2.0 * total + 1.0
        if first == "what was read":
            weight.assign(before)
        metric = Total() if made else None
        total.assign_add(tf.reduce_sum(x) if made else 1.0)
        if first == "the metric":
            weight.assign(before)
        del metric

    _proven(lambda x: step(x, False))
    with pytest.raises(ValueError, match="keeps what it saw of a batch in a variable"):
        _proven(lambda x: step(x, True))


def test_metrics_that_a_model_makes_at_work_are_found_at_once():
    """Keras makes some while it traces a step, when all that there were have been looked for."""

    class Model(tf.keras.Model):
        def work(self):
            found = memory.Memory()
            assert not found.is_metric(id(W))
            self.late = tf.keras.metrics.Mean()
            assert self in metrics.running_models()
            assert [metric is self.late for metric in metrics.of_running_models()] == [True]
            return [found.is_metric(handle) for handle in metrics.handles_of([self.late])]

        def work_again(self):
            return len(list(metrics.running_models()))

        def call_twice(self):
            return self.work_again()

    model = Model()
    assert model.work() == [True, True]
    assert model.call_twice() == 1
    assert model not in list(metrics.running_models())


@pytest.mark.parametrize("moved_by", ["data", "what data decides", "nothing"])
def test_a_generator_behind_the_optimizer_is_not_moved_by_data(moved_by):
    generator = tf.random.Generator.from_seed(1)

    def step(x):
        proof.prove(_loss(x))
        if moved_by == "data":
            generator.skip(tf.cast(tf.reduce_max(x), tf.int64))
        else:
            many = tf.cast(tf.reduce_max(x), tf.int32) if moved_by == "what data decides" else 5
            generator.uniform([many])

    if moved_by == "nothing":
        _proven(step)
    else:
        with pytest.raises(ValueError, match="keeps what it saw of a batch"):
            _proven(step)


def _of_all_replicas(x):
    return tf.raw_ops.CollectiveReduceV2(
        input=x, group_size=2, group_key=1, instance_key=1, ordering_token=[], merge_op="Add", final_op="Id"
    )


def test_what_replicas_join_is_refused():
    def step(x):
        proof.prove(_loss(x + tf.ensure_shape(_of_all_replicas(x), [None, 3])))

    with pytest.raises(ValueError, match="joins the examples of several replicas"):
        _proven(step)


def test_whether_all_replicas_have_a_batch_is_public():
    """As TensorFlow asks on several workers before a dataset hands one out."""
    iterator = iter(tf.data.Dataset.from_tensor_slices(tf.ones([8, 3])).batch(4))

    def step():
        element = iterator.get_next_as_optional()
        have_one = _of_all_replicas(tf.cast(element.has_value(), tf.int32))
        x = tf.cond(tf.reshape(have_one, []) > 0, element.get_value, lambda: next(iterator))
        proof.prove(_loss(x))

    tf.function(step, autograph=False).get_concrete_function()


@pytest.mark.parametrize("second", [0, 1])
def test_an_example_belongs_to_one_replica(second, monkeypatch):
    """One replica may have two losses of the same data, with an optimizer each; two replicas may not."""

    def step(x):
        for number in (0, second):
            context = types.SimpleNamespace(num_replicas_in_sync=2, replica_id_in_sync_group=tf.constant(number))
            monkeypatch.setattr(tf.distribute, "get_replica_context", lambda context=context: context)
            proof.prove(_loss(x))

    if second == 0:
        _proven(step)
    else:
        with pytest.raises(ValueError, match="losses of two replicas"):
            _proven(step)


def test_among_zeros_a_sparse_example_has_fewer_entries_around_it():
    """Row 2 four times: whole in its own place, then in turn without entries and with zeros for them."""
    dense = np.array([[1.0, 0, 2], [0, 3, 0], [4, 5, 0]], np.float32)
    sparse = tf.sparse.from_dense(dense)
    piece = sources.Piece((sparse.indices, sparse.values, sparse.dense_shape), "sparse")
    indices, values, shape = (part.numpy().tolist() for part in piece.take(tf.constant([2] * 4), 1))
    assert indices == [[0, 0], [0, 1], [2, 0], [2, 1]]
    assert values == [4.0, 5.0, 0.0, 0.0]
    assert shape == [4, 3]


def test_what_was_noised_does_not_keep_its_graph():
    with tf.Graph().as_default() as traced:
        proof.privatised([tf.constant(1.0)])
    still = weakref.ref(traced)
    del traced
    gc.collect()
    assert still() is None


def test_what_was_a_metrics_is_nobody_elses():
    """Handles are told apart by their ids, which come back: a layer's variable could pass for that of a dead metric."""
    metric = tf.keras.metrics.Mean()
    found = metrics.handles_of([metric])
    del metric
    gc.collect()
    assert found and all(id(handle) == number for number, handle in found.items())
    assert not found.keys() & {id(tf.Variable(0.0).handle) for _ in range(100)}
