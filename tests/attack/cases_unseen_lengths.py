"""Series and texts of a length that only the run tells, as `padded_batch` hands them out."""

import dataclasses

import tensorflow as tf

from tests.attack import cases_everyday_series, cases_everyday_text
from tests.attack.case import Apply, Problem, case, features, scce, tokens

L = tf.keras.layers


def _of_unknown_length(x, *others):
    return (x[:, : tf.random.uniform([], 100, 101, tf.int32)], *others)


_MODELS = [
    *(getattr(cases_everyday_series, name) for name in ("forecast_of_any_length", "tagger_of_any_length")),
    *(
        getattr(cases_everyday_text, name)
        for name in (
            "lstm_of_any_length",
            "convolutions_of_any_length",
            "tagger_with_mask_of_any_length",
            "transformer_encoder_of_any_length",
        )
    ),
]
for _model in _MODELS:

    def _build(model=_model):
        return dataclasses.replace(model(), derive=_of_unknown_length)

    _build.__name__ = _model.__name__.replace("any_length", "unknown_length")
    case("accepted")(_build)


def _series(function):
    inputs = tf.keras.Input((None, 3))
    return Problem(tf.keras.Model(inputs, function(inputs)), features(5, 3), scce(), derive=_of_unknown_length)


@case("accepted")
def over_the_root_of_unknown_length():
    """A sum over time over the root of how long the series are, later times counting less."""

    def model(x):
        places = Apply(lambda s: s * tf.exp(-0.1 * tf.cast(tf.range(tf.shape(s)[1]), tf.float32))[:, None])
        total = Apply(lambda s: tf.reduce_sum(s, 1) / tf.sqrt(tf.cast(tf.shape(s)[1], tf.float32)))
        return L.Dense(3)(total(places(L.Dense(4, "tanh")(x))))

    return _series(model)


@case("accepted")
def causal_mask_of_unknown_length():
    def attend(s):
        length = tf.shape(s)[1]
        mask = tf.linalg.band_part(tf.ones([length, length]), -1, 0)
        return tf.matmul(tf.nn.softmax(tf.matmul(s, s, transpose_b=True) - 1e9 * (1.0 - mask)), s)

    return _series(lambda x: L.Dense(3)(L.GlobalAveragePooling1D()(Apply(attend)(L.Dense(4, "tanh")(x)))))


@case("accepted")
def sines_of_unknown_length():
    """Positions by sines and cosines, made for the length at hand."""

    def positions(s):
        angles = tf.cast(tf.range(tf.shape(s)[1]), tf.float32)[:, None] / tf.constant([1.0, 10.0])
        return s + tf.concat([tf.sin(angles), tf.cos(angles)], -1)[None]

    return _series(lambda x: L.Dense(3)(L.GlobalMaxPooling1D()(L.Conv1D(4, 2)(Apply(positions)(L.Dense(4)(x))))))


@case("accepted")
def embedded_places_of_unknown_length():
    class Places(L.Layer):
        def __init__(self):
            super().__init__()
            self.words, self.places = L.Embedding(11, 4), L.Embedding(8, 4)

        def call(self, x):
            return self.words(x) + self.places(tf.range(tf.shape(x)[1]))

    inputs = tf.keras.Input((None,), dtype="int64")
    outputs = L.Dense(3)(L.GlobalAveragePooling1D()(Places()(inputs)))
    return Problem(tf.keras.Model(inputs, outputs), tokens(), scce(), derive=_of_unknown_length)


@case("accepted")
def last_half_of_unknown_length():
    """The second half of a series, and the mean of it in reverse order."""

    def halves(s):
        half = tf.shape(s)[1] // 2
        return tf.reduce_mean(tf.reverse(s[:, half:], [1]), 1) + s[:, half]

    return _series(lambda x: L.Dense(3)(Apply(halves)(L.Dense(4, "tanh")(x))))
