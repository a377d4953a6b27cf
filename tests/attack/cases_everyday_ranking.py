"""Recommendation, search and advertising: one user, query or session for each example."""

import numpy as np
import tensorflow as tf

from tests.attack.case import Apply, PerExample, Problem, case, features, floats, net, scce

L = tf.keras.layers


def _history(rng, n):
    """(items seen so far, padded by 0; the item in question), whether it was clicked."""
    seen = rng.integers(1, 9, (n, 5)) * (np.arange(5) < rng.integers(1, 6, (n, 1)))
    return (seen, rng.integers(1, 9, (n, 1))), rng.integers(0, 2, (n, 1)).astype(np.float32)


def _bce():
    return tf.keras.losses.BinaryCrossentropy(from_logits=True, reduction="none")


@case("accepted")
def deep_interest_network():
    """What was seen, weighed by how it goes with the item in question."""

    def model(inputs):
        seen, item = inputs
        table = L.Embedding(9, 3)
        keys, query = table(seen), table(item)
        repeated = Apply(lambda t: tf.repeat(t, 5, axis=1))(query)
        pairs = L.Concatenate()([repeated, keys, L.Subtract()([repeated, keys]), L.Multiply()([repeated, keys])])
        scores = L.Dense(1)(L.Dense(4, "sigmoid")(pairs))
        masked = Apply(lambda t: t[0] * tf.cast(t[1] > 0, tf.float32)[..., None])([scores, seen])
        interest = Apply(lambda t: tf.reduce_sum(t[0] * t[1], axis=1))([masked, keys])
        return L.Dense(1)(L.Dense(4, "relu")(L.Concatenate()([interest, L.Flatten()(query)])))

    return net(model, _history, _bce())


@case("accepted")
def compressed_interactions():
    """xDeepFM: outer products of fields, compressed by a convolution."""

    def model(x):
        fields = L.Embedding(20, 3)(x)
        hidden = fields
        pooled = []
        for _ in range(2):
            hidden = Apply(lambda t: tf.einsum("bhd,bmd->bdhm", t[0], t[1]))([hidden, fields])
            shape = (3, hidden.shape[2] * hidden.shape[3])
            hidden = L.Permute((2, 1))(L.Conv1D(4, 1)(L.Reshape(shape)(hidden)))
            pooled.append(Apply(lambda t: tf.reduce_sum(t, -1))(hidden))
        return L.Dense(1)(L.Concatenate()(pooled))

    return net(model, _fields, _bce())


def _fields(rng, n):
    return rng.integers(0, 5, (n, 4)) + 5 * np.arange(4), rng.integers(0, 2, (n, 1)).astype(np.float32)


@case("accepted")
def interactions_by_attention():
    """AutoInt: fields attend to each other."""

    def model(x):
        fields = L.Embedding(20, 4)(x)
        mixed = L.MultiHeadAttention(2, 3)(fields, fields)
        return L.Dense(1)(L.Flatten()(L.ReLU()(L.Add()([L.Dense(4)(fields), mixed]))))

    return net(model, _fields, _bce())


@case("accepted")
def products_of_fields():
    """PNN / DLRM: the upper half of the fields' inner products."""

    def pairs(t):
        gram = tf.matmul(t, t, transpose_b=True)
        upper = np.triu(np.ones((4, 4), bool), 1)
        return tf.ensure_shape(tf.boolean_mask(gram, upper, axis=1), [None, 6])

    def model(x):
        fields = L.Embedding(20, 3)(x)
        return L.Dense(1)(L.Concatenate()([L.Flatten()(fields), Apply(pairs)(fields)]))

    return net(model, _fields, _bce())


@case("accepted")
def products_of_fields_gathered():
    """The same with the pairs taken by their numbers, as DeepCTR does."""

    def pairs(t):
        rows, columns = np.triu_indices(4, 1)
        return tf.reduce_sum(tf.gather(t, rows, axis=1) * tf.gather(t, columns, axis=1), -1)

    def model(x):
        fields = L.Embedding(20, 3)(x)
        return L.Dense(1)(L.Concatenate()([L.Flatten()(fields), Apply(pairs)(fields)]))

    return net(model, _fields, _bce())


@case("accepted")
def listwise_softmax_of_own_documents():
    """A query and its documents make one example; the loss compares within the list (ListNet)."""

    def data(rng, n):
        return floats(rng, n, 6, 4), rng.integers(0, 3, (n, 6)).astype(np.float32)

    def loss(relevance, scores):
        return -tf.reduce_sum(tf.nn.softmax(relevance) * tf.nn.log_softmax(scores[..., 0]), -1)

    return net([L.Dense(4, "tanh"), L.Dense(1)], data, PerExample(loss))


@case("accepted")
def pairwise_loss_of_own_documents():
    """LambdaRank-like: pairs of a query's own documents, weighed by how far their ranks differ."""

    def data(rng, n):
        return floats(rng, n, 6, 4), rng.integers(0, 3, (n, 6)).astype(np.float32)

    def loss(relevance, scores):
        scores = scores[..., 0]
        better = tf.cast(relevance[:, :, None] > relevance[:, None, :], tf.float32)
        place = tf.cast(tf.argsort(tf.argsort(scores, direction="DESCENDING")), tf.float32)
        discount = 1.0 / tf.math.log(place + 2.0)
        weight = tf.abs(discount[:, :, None] - discount[:, None, :])
        return tf.reduce_sum(weight * better * tf.nn.softplus(scores[:, None, :] - scores[:, :, None]), [1, 2])

    return net([L.Dense(4, "tanh"), L.Dense(1)], data, PerExample(loss))


@case("accepted")
def bayesian_personalised_ranking():
    """A user, an item that was bought and one that was not, all drawn with the data."""

    def data(rng, n):
        return tuple(rng.integers(0, 9, (n, 1)) for _ in range(3)), np.ones((n, 1), np.float32)

    def model(inputs):
        users, items = L.Embedding(9, 3), L.Embedding(9, 3)
        user, good, bad = users(inputs[0]), items(inputs[1]), items(inputs[2])
        difference = L.Subtract()([L.Dot(axes=2)([user, good]), L.Dot(axes=2)([user, bad])])
        return L.Flatten()(difference)

    return net(model, data, _bce())


@case("accepted", random=True, own_step_only=True)
def sampled_softmax():
    """`tf.nn.sampled_softmax_loss`: candidates are drawn from a table that is fixed."""

    class Sampled(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden = L.Dense(4, "tanh")
            self.kernel = self.add_weight(shape=(20, 4), name="kernel")
            self.bias = self.add_weight(shape=(20,), initializer="zeros", name="bias")

        def call(self, x):
            return self.hidden(x)

        def loss_of(self, batch):
            x, y = batch
            return tf.nn.sampled_softmax_loss(
                tf.convert_to_tensor(self.kernel),
                tf.convert_to_tensor(self.bias),
                tf.cast(y[:, None], tf.int64),
                self(x),
                num_sampled=5,
                num_classes=20,
            )

    model = Sampled()
    return Problem(model, features(classes=20), scce(), players=_player(model))


def _player(model):
    model(np.zeros((1, 5), np.float32))
    return [(model.loss_of, model.trainable_variables)]


@case("accepted", random=True)
def skip_grams_with_drawn_negatives():
    """Word2vec: negatives drawn anew for each example."""

    def data(rng, n):
        return (rng.integers(0, 9, (n, 1)), rng.integers(0, 9, (n, 1))), np.zeros((n, 1), np.float32)

    class Pairs(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.words, self.contexts = L.Embedding(9, 3), L.Embedding(9, 3)

        def call(self, inputs):
            word, context = inputs
            drawn = tf.random.uniform([tf.shape(word)[0], 4], 0, 9, tf.int32)
            ids = tf.concat([tf.cast(context, tf.int32), drawn], 1)
            return tf.einsum("bij,bkj->bk", self.words(word), self.contexts(ids))

    def loss(y, logits):
        truth = tf.concat([tf.ones_like(logits[:, :1]), tf.zeros_like(logits[:, 1:])], 1)
        return tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(truth, logits), -1)

    return Problem(Pairs(), data, PerExample(loss))


@case("accepted")
def entire_space_of_two_tasks():
    """ESMM: the second task's probability is a product; a loss for each name."""

    def model(x):
        h = L.Dense(4, "relu")(x)
        click, bought = L.Dense(1, "sigmoid", name="click")(h), L.Dense(1, "sigmoid")(h)
        return {"click": click, "both": L.Multiply(name="both")([click, bought])}

    def data(rng, n):
        click = rng.integers(0, 2, (n, 1)).astype(np.float32)
        return floats(rng, n, 5), {"click": click, "both": click * rng.integers(0, 2, (n, 1)).astype(np.float32)}

    loss = {name: tf.keras.losses.BinaryCrossentropy(reduction="none") for name in ("click", "both")}
    problem = net(model, data, loss)
    problem.compile = {"loss_weights": {"click": 1.0, "both": 0.5}}
    return problem


@case("accepted", own_step_only=True)
def uncertainties_of_tasks():
    """Kendall's weights of tasks, learned."""

    class Both(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.body, self.first, self.second = L.Dense(4, "tanh"), L.Dense(1), L.Dense(3)
            self.log_variance = self.add_weight(shape=(2,), initializer="zeros", name="log_variance")

        def call(self, x):
            h = self.body(x)
            return tf.concat([self.first(h), self.second(h)], -1) + 0.0 * tf.reduce_sum(self.log_variance)

        def loss_of(self, batch):
            x, y = batch
            out = self(x)
            first = tf.square(out[:, 0] - tf.cast(y, tf.float32))
            second = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(y, tf.int32), out[:, 1:])
            s = tf.convert_to_tensor(self.log_variance)
            return tf.exp(-s[0]) * first + s[0] + tf.exp(-s[1]) * second + s[1]

    model = Both()
    return Problem(model, features(), scce(), players=_player(model))


@case("accepted")
def session_graph():
    """SR-GNN: an adjacency of each session's own, gated updates, the last item as query."""

    def data(rng, n):
        return (rng.integers(0, 9, (n, 4)), rng.uniform(size=(n, 4, 4)).astype(np.float32)), rng.integers(0, 9, n)

    class Session(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.table, self.cell = L.Embedding(9, 3), L.GRUCell(3)
            self.out, self.one, self.two = L.Dense(3), L.Dense(3), L.Dense(1)

        def call(self, inputs):
            items, edges = inputs
            h = self.table(items)
            for _ in range(2):
                message = tf.matmul(edges, self.out(h))
                flat, _ = self.cell(tf.reshape(message, [-1, 3]), [tf.reshape(h, [-1, 3])])
                h = tf.reshape(flat, [-1, 4, 3])
            weight = self.two(tf.sigmoid(self.one(h) + h[:, -1:]))
            session = tf.reduce_sum(weight * h, 1) + h[:, -1]
            return tf.matmul(session, tf.convert_to_tensor(self.table.embeddings), transpose_b=True)

    return Problem(Session(), data, scce())
