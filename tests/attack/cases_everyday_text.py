"""Text as people train it: strings inside of the model, masks, sequences of unknown length, language models."""

import numpy as np
import tensorflow as tf

from adaclip_tf._internal import keras
from tests.attack.case import Apply, PerExample, Problem, case, mean_of_tokens, net, scce, tokens
from tests.attack.cases_everyday_tables import ByTable
from tests.attack.cases_sequences import WORDS

L = tf.keras.layers
SCCE, BCE = "sparse_categorical_crossentropy", "binary_crossentropy"


def reviews(rng, n):
    """(text, good or not)."""
    text = np.array([" ".join(rng.choice(WORDS, rng.integers(2, 6))) for _ in range(n)])
    return text, rng.integers(0, 2, (n, 1)).astype(np.float32)


def padded(length=6, vocabulary=11):
    """(token ids with zeros behind the end, good or not)."""
    return lambda rng, n: (tokens(length, vocabulary)(rng, n)[0], rng.integers(0, 2, (n, 1)).astype(np.float32))


def _any_length(build, data, loss, dtype="int64", **options):
    """A functional model over sequences of unknown length, as in Keras's examples: `Input((None,))`."""
    ids = tf.keras.Input((None,), dtype=dtype)
    return Problem(tf.keras.Model(ids, build(ids)), data, loss, **options)


def _vectorizer(length=6):
    return L.TextVectorization(output_mode="int", output_sequence_length=length, vocabulary=list(WORDS))


@case("accepted", fast=("graph",))
def reviews_by_mean():
    """Strings to an answer, all in one model."""
    layers = [_vectorizer(), L.Embedding(14, 4), L.GlobalAveragePooling1D(), L.Dense(1, "sigmoid")]
    return net(layers, reviews, BCE)


@case("accepted")
def reviews_by_masked_mean():
    layers = [_vectorizer(), L.Embedding(14, 4, mask_zero=True), L.GlobalAveragePooling1D(), L.Dense(1, "sigmoid")]
    return net(layers, reviews, BCE)


@case("accepted")
def reviews_by_convolutions():
    layers = [
        _vectorizer(),
        L.Embedding(14, 4),
        L.Conv1D(4, 3, padding="valid", activation="relu"),
        L.GlobalMaxPooling1D(),
        L.Dense(4, "relu"),
        L.Dense(1, "sigmoid"),
    ]
    return net(layers, reviews, BCE)


@case("accepted")
def reviews_by_lstm():
    return net([_vectorizer(), L.Embedding(14, 4), L.Bidirectional(L.LSTM(3)), L.Dense(1, "sigmoid")], reviews, BCE)


@case("accepted")
def reviews_as_counts():
    """A bag of words."""
    layer = L.TextVectorization(output_mode="multi_hot", vocabulary=list(WORDS))
    return net([layer, L.Dense(4, "relu"), L.Dense(1, "sigmoid")], reviews, BCE)


@case("accepted")
def reviews_as_weighted_words():
    layer = L.TextVectorization(
        output_mode="tf_idf", vocabulary=list(WORDS), idf_weights=np.linspace(0.5, 2.0, len(WORDS)).tolist()
    )
    return net([layer, L.Dense(4, "relu"), L.Dense(1, "sigmoid")], reviews, BCE)


@case("accepted")
def reviews_of_any_length():
    """TensorFlow's tutorial of recurrent networks: as long as the longest of the batch, with a mask."""
    layers = [
        _vectorizer(length=None),
        L.Embedding(14, 4, mask_zero=True),
        L.Bidirectional(L.LSTM(3)),
        L.Dense(4, "relu"),
        L.Dense(1),
    ]
    return net(layers, reviews, tf.keras.losses.BinaryCrossentropy(from_logits=True))


@case("accepted")
def lstm_of_any_length():
    """Keras's example of reviews: two bidirectional layers."""

    def build(x):
        h = L.Bidirectional(L.LSTM(3, return_sequences=True))(L.Embedding(11, 4)(x))
        return L.Dense(1, "sigmoid")(L.Bidirectional(L.LSTM(3))(h))

    return _any_length(build, padded(), BCE)


@case("accepted")
def gru_with_mask():
    return net([L.Embedding(11, 4, mask_zero=True), L.GRU(4), L.Dense(1, "sigmoid")], padded(), BCE)


@case("accepted")
def stacked_with_mask():
    """Two bidirectional layers with a mask."""
    layers = [
        L.Embedding(11, 4, mask_zero=True),
        L.Bidirectional(L.LSTM(3, return_sequences=True)),
        L.Bidirectional(L.LSTM(3)),
        L.Dense(1, "sigmoid"),
    ]
    return net(layers, padded(), BCE)


@case("accepted")
def stacked_with_mask_of_any_length():
    def build(x):
        h = L.Embedding(11, 4, mask_zero=True)(x)
        return L.Dense(1, "sigmoid")(L.LSTM(3)(L.LSTM(4, return_sequences=True)(h)))

    return _any_length(build, padded(), BCE)


@case("accepted")
def convolutions_of_any_length():
    def build(x):
        h = L.Conv1D(4, 3, padding="same", activation="relu")(L.Dropout(0.0)(L.Embedding(11, 4)(x)))
        return L.Dense(1, "sigmoid")(L.Dense(4, "relu")(L.GlobalMaxPooling1D()(h)))

    return _any_length(build, padded(), BCE)


@case("accepted")
def mean_of_any_length():
    return _any_length(
        lambda x: L.Dense(1, "sigmoid")(L.GlobalAveragePooling1D()(L.Embedding(11, 4)(x))), padded(), BCE
    )


@case("accepted")
def tagger_with_convolution():
    """Named entities: a class for each word."""

    def data(rng, n):
        return rng.integers(1, 11, (n, 6)), rng.integers(0, 3, (n, 6))

    h = [
        L.Embedding(11, 4),
        L.Bidirectional(L.LSTM(3, return_sequences=True)),
        L.TimeDistributed(L.Dense(3, "softmax")),
    ]
    return net(h, data, SCCE)


@case("accepted")
def tagger_with_mask_of_any_length():
    def data(rng, n):
        x = tokens()(rng, n)[0]
        return x, rng.integers(0, 3, x.shape)

    def build(x):
        return L.Dense(3)(L.Bidirectional(L.LSTM(3, return_sequences=True))(L.Embedding(11, 4, mask_zero=True)(x)))

    return _any_length(build, data, scce(), mean=mean_of_tokens)


class Positions(L.Layer):
    """Embeddings of tokens and of places, as Keras's examples add them up."""

    def __init__(self, length, vocabulary, width, mask=False):
        super().__init__()
        self.tokens = L.Embedding(vocabulary, width, mask_zero=mask)
        self.places = L.Embedding(length, width)
        self.supports_masking = True

    def call(self, x):
        return self.tokens(x) + self.places(tf.range(tf.shape(x)[-1]))

    def compute_mask(self, x, mask=None):
        return self.tokens.compute_mask(x) if self.tokens.mask_zero else mask


class Encoder(L.Layer):
    """Keras's TransformerEncoder, the one from its book."""

    def __init__(self, width, inner, heads):
        super().__init__()
        self.attention = L.MultiHeadAttention(heads, width)
        self.dense = tf.keras.Sequential([L.Dense(inner, "relu"), L.Dense(width)])
        self.first, self.second = L.LayerNormalization(), L.LayerNormalization()
        self.supports_masking = True

    def call(self, x, mask=None):
        pairs = None if mask is None else tf.cast(mask[:, tf.newaxis, :], tf.int32)
        h = self.first(x + self.attention(x, x, attention_mask=pairs))
        return self.second(h + self.dense(h))


@case("accepted", saturates=True)
def transformer_encoder():
    layers = [Positions(6, 11, 4), Encoder(4, 6, 2), L.GlobalMaxPooling1D(), L.Dropout(0.0), L.Dense(1, "sigmoid")]
    return net(layers, padded(), BCE)


@case("accepted", saturates=True)
def transformer_encoder_with_mask():
    layers = [Positions(6, 11, 4, mask=True), Encoder(4, 6, 2), L.GlobalAveragePooling1D(), L.Dense(1, "sigmoid")]
    return net(layers, padded(), BCE)


@case("accepted", saturates=True)
def transformer_encoder_of_any_length():
    def build(x):
        h = Encoder(4, 6, 2)(Positions(6, 11, 4)(x))
        return L.Dense(1, "sigmoid")(L.GlobalMaxPooling1D()(h))

    return _any_length(build, padded(), BCE)


def _next_token(length=5, vocabulary=11):
    def data(rng, n):
        ids = rng.integers(1, vocabulary, (n, length + 1))
        return ids[:, :-1], ids[:, 1:]

    return data


def _causal_mask(x):
    """As Keras's example of a small GPT makes it."""
    batch, length = tf.shape(x)[0], tf.shape(x)[1]
    mask = tf.cast(tf.range(length)[:, None] >= tf.range(length), tf.int32)
    return tf.tile(tf.reshape(mask, [1, length, length]), [batch, 1, 1])


class CausalBlock(L.Layer):
    def __init__(self, width, heads=2):
        super().__init__()
        self.attention = L.MultiHeadAttention(heads, width)
        self.dense = tf.keras.Sequential([L.Dense(6, "relu"), L.Dense(width)])
        self.first, self.second = L.LayerNormalization(epsilon=1e-6), L.LayerNormalization(epsilon=1e-6)

    def call(self, x):
        h = self.first(x + self.attention(x, x, attention_mask=_causal_mask(x)))
        return self.second(h + self.dense(h))


LOGITS = {"from_logits": True}


@case("accepted", saturates=True)
def small_gpt():
    layers = [Positions(5, 11, 4), CausalBlock(4), L.Dense(11)]
    return net(layers, _next_token(), tf.keras.losses.SparseCategoricalCrossentropy(**LOGITS))


@case("accepted", saturates=True)
def small_gpt_with_tied_head():
    def build(x):
        table = L.Embedding(11, 4)
        h = CausalBlock(4)(table(x))
        return ByTable(table)(L.LayerNormalization()(h))

    return net(build, _next_token(), tf.keras.losses.SparseCategoricalCrossentropy(**LOGITS))


@case("accepted", saturates=True)
def small_gpt_of_any_length():
    def build(x):
        return L.Dense(11)(CausalBlock(4)(Positions(8, 11, 4)(x)))

    return _any_length(build, _next_token(), tf.keras.losses.SparseCategoricalCrossentropy(**LOGITS))


@case("accepted")
def characters_by_gru():
    """TensorFlow's text generation tutorial: a subclass, a loss at every character."""

    class Characters(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.embedding, self.dense = L.Embedding(11, 4), L.Dense(11)
            self.gru = L.GRU(5, return_sequences=True, return_state=True)

        def call(self, x):
            h, _ = self.gru(self.embedding(x))
            return self.dense(h)

    return Problem(Characters(), _next_token(), tf.keras.losses.SparseCategoricalCrossentropy(**LOGITS))


def _pairs(rng, n):
    source, target = rng.integers(1, 9, (n, 5)), rng.integers(1, 7, (n, 5))
    return (source, target[:, :-1]), target[:, 1:]


@case("accepted")
def translation_by_lstm():
    """Encoder and decoder, teacher forcing."""

    def build(x):
        _, *state = L.LSTM(4, return_state=True)(L.Embedding(9, 3)(x[0]))
        h = L.LSTM(4, return_sequences=True)(L.Embedding(7, 3)(x[1]), initial_state=state)
        return L.Dense(7, "softmax")(h)

    return net(build, _pairs, SCCE)


@case("accepted", saturates=True)
def translation_with_attention():
    """Luong's attention from the decoder to the encoder."""

    def build(x):
        seen, state = L.GRU(4, return_sequences=True, return_state=True)(L.Embedding(9, 3)(x[0]))
        h = L.GRU(4, return_sequences=True)(L.Embedding(7, 3)(x[1]), initial_state=state)
        return L.Dense(7, "softmax")(L.Concatenate()([h, L.Attention()([h, seen])]))

    return net(build, _pairs, SCCE)


@case("accepted", saturates=True)
def translation_by_transformer():
    def build(x):
        seen = Encoder(4, 6, 2)(Positions(5, 9, 4)(x[0]))
        h = Positions(4, 7, 4)(x[1])
        h = L.LayerNormalization()(L.Add()([h, L.MultiHeadAttention(2, 2)(h, h, use_causal_mask=True)]))
        h = L.LayerNormalization()(L.Add()([h, L.MultiHeadAttention(2, 2)(h, seen)]))
        return L.Dense(7, "softmax")(L.Add()([h, L.Dense(4)(L.Dense(6, "relu")(h))]))

    return net(build, _pairs, SCCE)


@case("accepted")
def siamese_sentences():
    """One encoder for both, cosine similarity against a label."""

    def data(rng, n):
        pair = rng.integers(1, 11, (n, 6)), rng.integers(1, 11, (n, 6))
        return pair, rng.integers(0, 2, (n, 1)).astype(np.float32)

    def build(x):
        encoder = tf.keras.Sequential([L.Embedding(11, 4), L.GlobalAveragePooling1D(), L.Dense(4, "tanh")])
        return L.Dense(1, "sigmoid")(L.Dot(axes=1, normalize=True)([encoder(x[0]), encoder(x[1])]))

    return net(build, data, BCE)


@case("accepted")
def siamese_lstm():
    """Two texts through one bidirectional LSTM (Quora's questions)."""

    def data(rng, n):
        pair = rng.integers(1, 11, (n, 6)), rng.integers(1, 11, (n, 6))
        return pair, rng.integers(0, 2, (n, 1)).astype(np.float32)

    def build(x):
        table, encoder = L.Embedding(11, 4), L.Bidirectional(L.LSTM(3))
        first, second = encoder(table(x[0])), encoder(table(x[1]))
        return L.Dense(1, "sigmoid")(L.Concatenate()([first, second, L.Multiply()([first, second])]))

    return net(build, data, BCE)


def _tags(rng, n):
    return rng.integers(1, 11, (n, 5)), rng.integers(0, 3, (n, 5))


@case("accepted")
def conditional_random_field():
    """A linear-chain CRF: transitions are weights, the partition function a loop over time."""

    class Field(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.scores = tf.keras.Sequential([L.Embedding(11, 4), L.Dense(3)])
            self.moves = self.add_weight(shape=(3, 3), initializer="glorot_uniform", name="moves")

        def call(self, x):
            scores = self.scores(x)
            return tf.concat([scores, tf.broadcast_to(self.moves, [tf.shape(scores)[0], 3, 3])], axis=1)

    def loss(y, out):
        scores, moves, y = out[:, :5], out[:, 5:], tf.cast(y, tf.int32)
        own = tf.reduce_sum(tf.one_hot(y, 3) * scores, [1, 2])
        own += tf.einsum("bti,bij,btj->b", tf.one_hot(y[:, :-1], 3), moves, tf.one_hot(y[:, 1:], 3))
        total = scores[:, 0]
        for time in range(1, 5):
            total = tf.reduce_logsumexp(total[:, :, None] + moves, axis=1) + scores[:, time]
        return tf.reduce_logsumexp(total, axis=1) - own

    return Problem(Field(), _tags, PerExample(loss))


@case("accepted")
def bag_of_embeddings_with_weights():
    """fastText by hand: embeddings weighted by attention to a learnt vector."""

    def build(x):
        h = L.Embedding(11, 4)(x)
        weight = L.Softmax(axis=1)(L.Dense(1)(L.Dense(3, "tanh")(h)))
        return L.Dense(1, "sigmoid")(Apply(lambda t: tf.reduce_sum(t, 1))(L.Multiply()([h, weight])))

    return net(build, padded(), BCE)


if keras.GENERATION == 3:

    @case("accepted", saturates=True)
    def transformer_of_keras_ops():
        """Written with `keras.ops`, as Keras 3's guides do."""
        ops = tf.keras.ops

        class Block(L.Layer):
            def __init__(self):
                super().__init__()
                self.project = L.Dense(12)
                self.out = L.Dense(4)

            def call(self, x):
                query, key, value = ops.split(self.project(x), 3, axis=-1)
                scores = ops.matmul(query, ops.transpose(key, (0, 2, 1))) / ops.sqrt(4.0)
                length = ops.shape(x)[1]
                allowed = ops.tril(ops.ones((length, length)))
                scores = ops.where(ops.equal(allowed, 1.0), scores, -1e9)
                return self.out(ops.matmul(ops.softmax(scores), value)) + x

        layers = [L.Embedding(11, 4), Block(), L.Dense(11)]
        return net(layers, _next_token(), tf.keras.losses.SparseCategoricalCrossentropy(**LOGITS))
