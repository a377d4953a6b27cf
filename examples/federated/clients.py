"""The clients of a federated simulation: who holds what data, and what a client computes from it.

A client's record is the change that a few steps of local SGD make to the model. It is transformed and clipped by
`AdaClipSumQuery.preprocess_record` where it was computed, and only sums of such records travel on. A `Site`
computes for many clients at once, with weights that have one more leading axis, which runs over clients: each
client's record is a function of that client's rows and of what was broadcast, and of nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from adaclip_tf import core, query


class Population(NamedTuple):
    """Clients and their rows: client `ids[k]` holds rows `first[k]` to `first[k] + size[k]` of x and y."""

    ids: np.ndarray
    first: np.ndarray
    size: np.ndarray
    x: np.ndarray
    y: np.ndarray

    def part(self, index: int, count: int) -> Population:
        """Every `count`-th client from `index` on, with their rows and nobody else's."""
        mine = range(index, len(self.ids), count)
        return _gather(self, mine, [np.arange(self.first[k], self.first[k] + self.size[k]) for k in mine])


class Broadcast(NamedTuple):
    """What the server sends out in a round. All of it is public: the sampled clients' ids only inside the system."""

    weights: Sequence[Any]
    center: Sequence[Any]  # a
    scale: Sequence[Any]  # b
    clients: np.ndarray  # the sampled ids
    round_number: int


def deal(x: np.ndarray, y: np.ndarray, num_clients: int, seed: int = 0) -> Population:
    """Deals the examples to clients, each example to one, unevenly and not at random.

    The examples are sorted by label and cut at random places; a client gets two pieces, or one where there are fewer
    than two examples per client. So most clients have seen one or two labels, and some hold many times what
    others do. As in McMahan et al. 2017, but with pieces of unequal size.
    """
    if not 1 <= num_clients <= len(y):
        raise ValueError(f"`num_clients` must be from 1 to the number of examples, {len(y)}; got {num_clients!r}.")
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    pieces_each = min(2, len(y) // num_clients)
    cuts = 1 + np.sort(rng.choice(len(y) - 1, pieces_each * num_clients - 1, replace=False))
    pieces = np.split(order, cuts)
    rng.shuffle(pieces)
    rows = [np.concatenate(pieces[k::num_clients]) for k in range(num_clients)]
    everyone = Population(np.arange(num_clients), np.zeros(0), np.zeros(0), x.reshape(len(x), -1), y)
    return _gather(everyone, range(num_clients), rows)


def _gather(population: Population, members: Sequence[int], rows: Sequence[np.ndarray]) -> Population:
    """The population of `members` (positions, not ids), who hold `rows` of it."""
    size = np.array([len(held) for held in rows], np.int64)
    everything = np.concatenate([np.zeros(0, np.int64), *rows])
    return Population(
        ids=population.ids[np.asarray(members, np.int64)],
        first=np.cumsum(size) - size,
        size=size,
        x=np.asarray(population.x[everything], np.float32),
        y=np.asarray(population.y[everything], np.int32),
    )


# ---------------------------------------------------------------------------------------------------
# The model: dense layers, as a list [kernel, bias, kernel, bias, ...].


def initial_weights(features: int, hidden: Sequence[int], classes: int, seed: int = 0) -> list[np.ndarray]:
    """Glorot's uniform kernels and zero biases; zeros for the last layer, so that the start favours no class."""
    rng = np.random.default_rng(seed)
    widths = [features, *hidden, classes]
    weights = []
    for rows, columns in zip(widths[:-1], widths[1:]):
        limit = np.sqrt(6.0 / (rows + columns))
        weights += [rng.uniform(-limit, limit, (rows, columns)).astype(np.float32), np.zeros(columns, np.float32)]
    weights[-2][:] = 0.0
    return weights


def logits(weights: Sequence[Any], x: Any) -> tf.Tensor:
    """[..., rows, classes] from x of shape [..., rows, features]; leading axes of the weights run over clients."""
    layers = list(zip(weights[::2], weights[1::2]))
    for kernel, bias in layers[:-1]:
        x = tf.nn.relu(x @ kernel + bias[..., None, :])
    kernel, bias = layers[-1]
    return x @ kernel + bias[..., None, :]


def accuracy(weights: Sequence[Any], x: np.ndarray, y: np.ndarray) -> float:
    """The fraction of `y` that the model gets right."""
    weights = [tf.convert_to_tensor(weight) for weight in weights]
    return float(np.mean(np.argmax(logits(weights, x.reshape(len(x), -1)), axis=-1) == y))


# ---------------------------------------------------------------------------------------------------
# What is computed where the data is.


class Site:
    """Computes the records of its clients and adds up what `preprocess_record` makes of them.

    Args:
      population: the clients of this site.
      shapes: of the weights.
      steps: of local SGD. Step t takes the client's next `batch` rows, and starts over at the end of its
        rows, so that a client with few rows repeats them and one with many gets through them over the rounds.
      batch: rows per step.
      learning_rate: of local SGD.
    """

    def __init__(
        self, population: Population, shapes: Sequence[Sequence[int]], steps: int, batch: int, learning_rate: float
    ):
        self._population = population
        self._shapes = shapes
        self._steps, self._batch, self._learning_rate = steps, batch, learning_rate
        specs = [tf.TensorSpec(shape) for shape in shapes]
        # Clipping needs (a, b), which come with the broadcast, and not the rule behind them. No noise is added here.
        self._query = query.AdaClipSumQuery(specs, noise_multiplier=0.0, expected_num_records=1.0)
        features = population.x.shape[1]
        signature = [
            specs,
            core.Transform(specs, specs),
            tf.TensorSpec([None, steps, batch, features]),
            tf.TensorSpec([None, steps, batch], tf.int32),
        ]
        self._collect = tf.function(self._sum_of_records, input_signature=signature, autograph=False)

    @property
    def query(self) -> query.AdaClipSumQuery:
        """For its sample states."""
        return self._query

    def collect(self, broadcast: Broadcast) -> list[tf.Tensor]:
        """The sample state of those of this site's clients that were sampled; zeros if none was."""
        held = self._population
        sampled = np.flatnonzero(np.isin(held.ids, broadcast.clients))
        per_round = self._steps * self._batch
        turns = broadcast.round_number * per_round + np.arange(per_round)
        rows = held.first[sampled, None] + turns % held.size[sampled, None]
        rows = rows.reshape(-1, self._steps, self._batch)
        transform = core.Transform(self._whole(broadcast.center), self._whole(broadcast.scale))
        return self._collect(list(broadcast.weights), transform, held.x[rows], held.y[rows])

    def _whole(self, vectors: Sequence[Any]) -> list[np.ndarray]:
        """a or b in the shapes of the weights: a fixed clip is sent as one number per variable."""
        return [np.broadcast_to(vector, shape) for vector, shape in zip(vectors, self._shapes)]

    def _sum_of_records(self, weights, transform, x, y):
        def accumulate(sample_state, record):
            clipped = self._query.preprocess_record(transform, record)
            return self._query.accumulate_preprocessed_record(sample_state, clipped)

        return tf.foldl(accumulate, self._records(weights, x, y), initializer=self._query.initial_sample_state())

    def _records(self, weights, x, y):
        """The change of each client's weights, stacked."""
        clients = tf.shape(y)[:1]
        start = [tf.tile(w[None], tf.concat([clients, tf.ones_like(tf.shape(w))], axis=0)) for w in weights]
        local = start
        for step in range(self._steps):
            with tf.GradientTape() as tape:
                tape.watch(local)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y[:, step], logits(local, x[:, step]))
                # A sum over clients: no client's loss depends on another's weights.
                loss = tf.reduce_sum(tf.reduce_mean(losses, axis=1))
            gradients = tape.gradient(loss, local)
            local = [w - self._learning_rate * g for w, g in zip(local, gradients)]
        return [end - begin for end, begin in zip(local, start)]
