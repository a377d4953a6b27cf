"""Steps that keep something of a batch besides the noised weights: each must be refused, or keep nothing."""

import numpy as np
import tensorflow as tf

from tests.attack.case import Apply, Problem, case, features, floats, net, scce

L = tf.keras.layers


class Memory(L.Layer):
    """Adds something remembered to its input; subclasses say what they write."""

    def __init__(self, rows=1):
        super().__init__()
        self.kept = tf.Variable(tf.zeros([rows, 4]), trainable=False, name="kept")

    def call(self, x, training=None):
        del training
        self.write(tf.stop_gradient(x))
        return x + self.read()

    def read(self):
        return self.kept[:1]


def _remember(name, write, read=None, **options):
    kind = type(name, (Memory,), {"write": write, **({"read": read} if read else {})})

    def build():
        return net([L.Dense(4, "tanh"), kind(rows=4), L.Dense(3)], features())

    build.__name__ = f"memory_{name}"
    case("refused", **options)(build)


def _average(self, x):
    self.kept.assign(0.9 * self.kept + 0.1 * tf.reduce_mean(x, axis=0))


def _add_in_function(self, x):
    tf.function(lambda: self.kept.assign_add(tf.tile(x[:1], [4, 1])))()


def _write_in_cond(self, x):
    tf.cond(x[0, 0] > -9.0, lambda: self.kept.assign(tf.tile(x[:1], [4, 1])), lambda: self.kept)


def _write_in_loop(self, x):
    def body(i):
        self.kept.assign_add(tf.tile(x[:1], [4, 1]))
        return i + 1

    tf.while_loop(lambda i: i < 2, body, [0])


_remember("assign", lambda self, x: self.kept.assign(tf.tile(x[:1], [4, 1])), fast=("graph",))
_remember("assign_add", lambda self, x: self.kept.assign_add(tf.tile(x[:1], [4, 1])), fast=("graph",))
_remember("assign_sub", lambda self, x: self.kept.assign_sub(tf.tile(x[:1], [4, 1])))
_remember(
    "how_many",
    lambda self, x: self.kept.assign_add(tf.fill([4, 4], tf.cast(tf.shape(x)[0], tf.float32))),
    size_only=True,
)
_remember("never_read", lambda self, x: self.kept.assign(tf.tile(x[:1], [4, 1])), lambda self: 0.0)
_remember("moving_average", _average)
_remember("scatter_nd_update", lambda self, x: self.kept.scatter_nd_update([[0]], x[:1]), fast=("graph",))
_remember("scatter_update", lambda self, x: self.kept.scatter_update(tf.IndexedSlices(x[:1], [0])))
_remember("scatter_add_by_label", lambda self, x: self.kept.scatter_add(tf.IndexedSlices(x, tf.argmax(x, 1))))
_remember("batch_scatter_max", lambda self, x: self.kept.scatter_max(tf.IndexedSlices(x[:1], [0])))
_remember("slice_assign", lambda self, x: self.kept[:1].assign(x[:1]))
_remember(
    "read_by_gather", lambda self, x: self.kept.scatter_nd_update([[0]], x[:1]), lambda self: tf.gather(self.kept, [0])
)
_remember("sparse_read", lambda self, x: self.kept[:1].assign(x[:1]), lambda self: self.kept.sparse_read([0]))
_remember("in_function", _add_in_function)
_remember("in_cond", _write_in_cond)
_remember("in_loop", _write_in_loop)
_remember(
    "count_of_positives",
    lambda self, x: self.kept.assign_add(tf.ones([4, 4]) * tf.reduce_sum(tf.cast(x[:, :1] > 0, tf.float32))),
)


@case("refused")
def memory_integer_count():
    """How often each class was seen."""

    class Counts(L.Layer):
        def __init__(self):
            super().__init__()
            self.seen = tf.Variable(tf.zeros([4], tf.int32), trainable=False)

        def call(self, x):
            self.seen.scatter_add(tf.IndexedSlices(tf.ones_like(x[:, 0], tf.int32), tf.argmax(x, 1)))
            return x

    layer = Counts()
    return net([L.Dense(4, "tanh"), layer, L.Dense(3)], features(), memory=lambda: [layer.seen.numpy()])


@case("refused")
def memory_of_codebook():
    """VQ-VAE: codes are moving averages of what was assigned to them, not trained."""

    class Codebook(L.Layer):
        def __init__(self):
            super().__init__()
            self.codes = tf.Variable(np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32), trainable=False)

        def call(self, x):
            nearest = tf.argmin(tf.reduce_sum(tf.square(x[:, None] - self.codes[None]), -1), 1)
            sums = tf.math.unsorted_segment_sum(x, nearest, 3)
            self.codes.assign(0.9 * self.codes + 0.1 * tf.stop_gradient(sums))
            return x + tf.stop_gradient(tf.gather(self.codes, nearest) - x)

    return net([L.Dense(4, "tanh"), Codebook(), L.Dense(3)], features())


@case("refused")
def memory_of_spectral_statistics():
    """Normalises by statistics of earlier batches (batch renormalisation): mixes nothing within a batch."""

    class Renorm(L.Layer):
        def __init__(self):
            super().__init__()
            self.mean = tf.Variable(tf.zeros([4]), trainable=False)

        def call(self, x):
            y = x - self.mean
            self.mean.assign_add(0.1 * tf.stop_gradient(tf.reduce_mean(y, axis=0)))
            return y

    return net([L.Dense(4, "tanh"), Renorm(), L.Dense(3)], features())


@case("refused")
def memory_in_metric():
    """A Keras metric whose result the loss depends on."""
    metric = tf.keras.metrics.Mean()

    class UsesMetric(L.Layer):
        def call(self, x):
            metric.update_state(x[:, 0])
            return x + tf.stop_gradient(metric.result())

    return net(
        [L.Dense(4, "tanh"), UsesMetric(), L.Dense(3)],
        features(),
        memory=lambda: [v.numpy() for v in metric.variables],
        reset=metric.reset_state,
    )


@case("refused")
def memory_in_table():
    """A mutable lookup table from the first feature to its example."""
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)

    def remember(x):
        keys = tf.cast(tf.round(x[:, 0] * 10), tf.int64)
        old = table.lookup(keys)
        with tf.control_dependencies([table.insert(keys, tf.stop_gradient(x[:, 1]))]):
            return x + tf.reshape(old, [-1, 1])

    def reset():
        table.remove(table.export()[0])

    def memory():
        keys, values = (part.numpy() for part in table.export())
        order = np.argsort(keys)
        return [keys[order], values[order]]

    return net([L.Dense(4, "tanh"), Apply(remember), L.Dense(3)], features(), memory=memory, reset=reset)


@case("refused")
def memory_in_queue():
    queue = tf.queue.FIFOQueue(100, [tf.float32], [[]])

    def remember(x):
        with tf.control_dependencies([queue.enqueue_many([x[:, 0]])]):
            return tf.identity(x)

    def reset():
        queue.dequeue_many(queue.size())

    return net(
        [L.Dense(4, "tanh"), Apply(remember), L.Dense(3)],
        features(),
        memory=lambda: [queue.size().numpy()],
        reset=reset,
    )


@case("refused")
def memory_in_python():
    """A py_function that adds what the last batch held."""
    kept = [np.zeros(4, np.float32)]

    def exchange(x):
        old = kept[0]
        kept[0] = np.asarray(x)[0].copy()
        return x + old

    def remember(x):
        return tf.ensure_shape(tf.numpy_function(exchange, [tf.stop_gradient(x)], tf.float32), [None, 4])

    def reset():
        kept[0] = np.zeros(4, np.float32)

    def build(x):
        return L.Dense(3)(L.Dense(4, "tanh")(Apply(remember)(x)))

    return net(build, features(4), memory=lambda: [kept[0]], reset=reset)


@case("refused")
def memory_in_py_function():
    kept = []

    def look(x):
        kept.append(float(x[0, 0]))
        return x

    def remember(x):
        return tf.ensure_shape(tf.py_function(look, [x], tf.float32), [None, 4])

    return net(
        lambda x: L.Dense(3)(L.Dense(4, "tanh")(Apply(remember)(x))),
        features(4),
        memory=lambda: [np.array(kept)],
        reset=kept.clear,
    )


@case("refused", fixed=8)
def stateful_rnn():
    """Carries its state into the next batch; its batch size is fixed."""
    layer = L.GRU(3, stateful=True)
    x = tf.keras.Input(batch_shape=(8, 4, 2))
    model = tf.keras.Model(x, L.Dense(3)(layer(x)))
    return Problem(
        model,
        features(4, 2),
        scce(),
        memory=lambda: [state.numpy() for state in layer.states],
        reset=layer.reset_states,
    )


@case("refused")
def closed_over_data():
    """Data that is a constant of the program: a table of 64 examples, the first of them beside each batch."""
    table = tf.constant(floats(np.random.default_rng(3), 64, 4))
    return net([L.Dense(4, "tanh"), Apply(lambda x: x + table[: tf.shape(x)[0]]), L.Dense(3)], features())


@case("refused", own_step_only=True)
def momentum_encoder_with_bank():
    """MoCo: negatives come from a bank into which each batch is written."""
    problem = net([L.Dense(4, "tanh"), L.Dense(3)], features())
    bank = tf.Variable(floats(np.random.default_rng(4), 16, 3), trainable=False)
    start = bank.numpy()

    def loss_fn(batch):
        x, _ = batch
        q = problem.model(x, training=True)
        scores = tf.concat([tf.reduce_sum(q * q, 1, keepdims=True), tf.matmul(q, bank, transpose_b=True)], 1)
        bank.assign(tf.concat([tf.stop_gradient(q)[:1], bank[:-1]], 0))
        return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.zeros_like(q[:, 0], tf.int32), scores)

    problem.loss_fn = loss_fn
    problem.memory, problem.reset = lambda: [bank.numpy()], lambda: bank.assign(start)
    return problem
