"""Ways around the proof: the number of examples in a variable, writes that data decides on, Python in a function."""

import numpy as np
import tensorflow as tf

from tests.attack.case import Apply, case, features, net

L = tf.keras.layers


def _n(x):
    return tf.cast(tf.shape(x)[0], tf.float32)


def _keeps(name, write, shape=(), dtype=tf.float32, expect="refused", before=True, **options):
    """A layer with a variable to which `write(variable, x)` writes, and that all examples read."""

    class Keeps(L.Layer):
        def __init__(self):
            super().__init__()
            self.kept = tf.Variable(tf.zeros(shape, dtype), trainable=False, name="kept")

        def call(self, x):
            if before:
                write(self.kept, tf.stop_gradient(x))
            result = x * (1.0 + tf.reduce_sum(tf.cast(self.kept, tf.float32)))
            if not before:
                write(self.kept, tf.stop_gradient(x))
            return result

    def build():
        layer = Keeps()
        start = layer.kept.numpy()
        return net(
            [L.Dense(4, "tanh"), layer, L.Dense(3)],
            features(),
            memory=lambda: [layer.kept.numpy()],
            reset=lambda: layer.kept.assign(start),
        )

    build.__name__ = name
    case(expect, **options)(build)


def _by_python(kept, x):
    tf.py_function(lambda rows: tf.identity(kept.assign(tf.reduce_mean(rows))), [x], tf.float32)


def _by_python_in_a_function(kept, x):
    tf.function(lambda rows: _by_python(kept, rows))(x)


def _by_numpy(kept, x):
    kept.assign(tf.ensure_shape(tf.numpy_function(lambda rows: rows.mean(), [x], tf.float32), []))


def _in_a_branch_on_data(kept, x):
    tf.cond(x[0, 0] > 0.0, lambda: kept.assign_add(0.5), lambda: kept)


def _in_a_case_of_data(kept, x):
    tf.switch_case(tf.cast(x[0, 0] > 0, tf.int32), [lambda: kept.assign_add(0.5), lambda: kept.assign_sub(0.5)])


def _in_a_nested_branch(kept, x):
    tf.cond(tf.reduce_mean(x) > 0.0, tf.function(lambda: kept.assign_add(0.5)), lambda: kept)


def _in_rounds_of_data(kept, x):
    rounds = tf.cast(tf.reduce_max(tf.abs(x)) * 8, tf.int32)
    tf.while_loop(lambda i: i < rounds, lambda i: (kept.assign_add(0.1), i + 1)[1:], [0])


def _once_for_each(kept, x):
    tf.while_loop(lambda i: i < tf.shape(x)[0], lambda i: (kept.assign_add(0.1), i + 1)[1:], [0])


def _if_there_are_eight(kept, x):
    tf.cond(tf.shape(x)[0] > 7, lambda: kept.assign_add(0.5), lambda: kept)


_keeps("written_in_a_branch_on_data", _in_a_branch_on_data)
_keeps("written_in_a_case_of_data", _in_a_case_of_data)
_keeps("written_in_a_nested_branch", _in_a_nested_branch)
_keeps("written_in_rounds_of_data", _in_rounds_of_data)
_keeps("written_once_for_each", _once_for_each, size_only=True)
_keeps("written_if_there_are_eight", _if_there_are_eight, size_only=True)
_keeps("count_kept", lambda kept, x: kept.assign(_n(x) - 7.0), size_only=True)
_keeps("count_kept_for_later", lambda kept, x: kept.assign_add(0.1 * _n(x)), before=False, size_only=True)
_keeps("count_kept_as_integer", lambda kept, x: kept.assign_add(tf.shape(x)[0]), dtype=tf.int32, size_only=True)
_keeps("count_kept_in_a_function", lambda kept, x: tf.function(kept.assign)(_n(x)), size_only=True)
_keeps("count_kept_by_scatter", lambda kept, x: kept.scatter_nd_add([[0]], [_n(x)]), shape=(2,), size_only=True)
_keeps(
    "count_kept_by_ones", lambda kept, x: kept.assign(tf.reduce_sum(tf.ones([tf.shape(x)[0]])) - 7.0), size_only=True
)
_keeps("written_by_python", _by_python)
_keeps("written_by_python_in_a_function", _by_python_in_a_function)
_keeps("written_through_numpy", _by_numpy)
_keeps("written_by_sum_of_examples", lambda kept, x: kept.assign(tf.reduce_sum(x)))
_keeps("written_by_last_loss", lambda kept, x: kept.assign(tf.reduce_max(tf.linalg.svd(x, compute_uv=False))))


class _Shows(tf.keras.metrics.Metric):
    """Shows a weight of a layer, and tracks it so."""

    def __init__(self, shown):
        super().__init__(name="shows")
        self.shown = shown

    def update_state(self, *args, **kwargs):
        del args, kwargs

    def reset_state(self):
        pass

    def result(self):
        return tf.reduce_sum(self.shown)


class _Averages(L.Layer):
    """Keeps a moving average in a weight that the loss does not read."""

    def __init__(self):
        super().__init__()
        self.mean = self.add_weight(shape=(4,), trainable=False, initializer="zeros", name="mean")

    def call(self, x):
        self.mean.assign(0.9 * self.mean + 0.1 * tf.reduce_mean(x, axis=0))
        return x


@case("refused", fast=("graph",))
def written_where_a_metric_looks():
    layer = _Averages()
    return net(
        [L.Dense(4, "tanh"), layer, L.Dense(3)],
        features(),
        compile={"metrics": [_Shows(layer.mean)]},
        memory=lambda: [layer.mean.numpy()],
        reset=lambda: layer.mean.assign(np.zeros(4)),
    )


@case("accepted")
def weight_at_which_a_metric_looks():
    layer = L.Dense(4, "tanh")
    problem = net([layer, L.Dense(3)], features())
    problem.compile = {"metrics": [_Shows(layer.kernel), "accuracy"]}
    return problem


def _remembering(wrap):
    """Python that adds what it saw last, somewhere in a graph."""
    kept = [np.zeros(4, np.float32)]

    def exchange(x):
        old = kept[0]
        kept[0] = np.asarray(x)[0].copy()
        return np.asarray(x) + old

    def remember(x):
        return tf.ensure_shape(wrap(exchange)(tf.stop_gradient(x)), [None, 4])

    def reset():
        kept[0] = np.zeros(4, np.float32)

    return net(
        lambda x: L.Dense(3)(L.Dense(4, "tanh")(Apply(remember)(x))),
        features(4),
        memory=lambda: [kept[0]],
        reset=reset,
    )


def _called(exchange):
    return tf.function(lambda x: tf.numpy_function(exchange, [x], tf.float32))


def _called_eagerly(exchange):
    return tf.function(lambda x: tf.py_function(exchange, [x], tf.float32))


def _in_a_branch(exchange):
    return lambda x: tf.cond(
        tf.shape(x)[1] > 0, lambda: tf.ensure_shape(tf.numpy_function(exchange, [x], tf.float32), [None, 4]), lambda: x
    )


def _mapped(exchange):
    def one(row):
        return tf.ensure_shape(tf.numpy_function(lambda v: exchange(v[None])[0], [row], tf.float32), [4])

    return lambda x: tf.map_fn(one, x)


def _stateless(exchange):
    return lambda x: tf.numpy_function(exchange, [x], tf.float32, stateful=False)


for _name, _wrap in {
    "python_in_a_function": _called,
    "eager_python_in_a_function": _called_eagerly,
    "python_in_a_branch": _in_a_branch,
    "python_in_a_map": _mapped,
    "python_said_to_be_stateless": _stateless,
}.items():

    def _build(wrap=_wrap):
        return _remembering(wrap)

    _build.__name__ = _name
    case("refused")(_build)


@case("refused", infinite=False)
def python_watches():
    """A py_function beside the loss that hands the batch to a list."""
    kept = []

    def watch(x):
        tf.numpy_function(lambda rows: kept.append(float(rows[0, 0])) or np.float32(0), [x], tf.float32)
        return x

    return net(
        [L.Dense(4, "tanh"), Apply(watch), L.Dense(3)],
        features(),
        memory=lambda: [np.array(kept)],
        reset=kept.clear,
    )


# ----------------------------------------------------------------------------------------------------------------
# Python objects that outlive a step.


@case("refused")
def tensor_kept_by_a_layer():
    """`self.last = x`: the next trace finds a tensor of an earlier graph, or the eager value."""

    class Keeps(L.Layer):
        def __init__(self):
            super().__init__()
            self._holder = []

        def call(self, x):
            result = x + (self._holder[-1] if self._holder else 0.0)
            if tf.executing_eagerly():
                self._holder[:] = [tf.stop_gradient(x)[:1]]
            return result

    layer = Keeps()
    return net([L.Dense(4, "tanh"), layer, L.Dense(3)], features(), reset=layer._holder.clear)
