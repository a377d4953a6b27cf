"""What the tests of `adaclip_tf.flower` share: a model of two arrays, clients that answer as they are told, a grid."""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from adaclip_tf import core
from adaclip_tf.flower import PrivateStrategy
from examples.federated.grid import InProcessGrid

MODEL = {"kernel": np.array([[1.0, -2.0], [0.5, 0.0]], np.float32), "bias": np.array([0.1, 0.2], np.float32)}
SHAPES = [array.shape for array in MODEL.values()]
DIMENSION = 6
ADACLIP = core.AdaClip(core.MomentEstimator(h2=1.0, initial_std=0.2))
SCALES = core.Scales(clip=0.5, shapes=[np.ones([2, 1]), np.ones([2]) * 0.3], damping=3.0)
RULES = {
    "adaclip": ADACLIP,
    "fixed": core.FixedClip(0.5),
    "quantile": core.QuantileClip(initial_clip=0.5),
    "learnt scales": core.ScaledClip(SCALES, precondition=False),
    "learnt scales, preconditioned": core.ScaledClip(SCALES),
    "whitening": core.Whitening(core.MomentEstimator(h2=1.0, initial_std=0.2)),
    "per layer": core.PerLayerClip(0.5),
    "per coordinate": core.PerCoordinateClip(0.5),
}


def record(arrays):
    """An `ArrayRecord` of a dict of arrays."""
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def arrays_of(found):
    return {name: array.numpy() for name, array in found.items()}


def flat(arrays):
    return np.concatenate([np.ravel(array) for array in (arrays.values() if isinstance(arrays, dict) else arrays)])


def change_of(node, size=0.4):
    """The change that client `node` makes, always the same: sizes from well within a clip of 0.5 to far beyond it."""
    rng = np.random.default_rng(node)
    return {name: size * node * rng.normal(size=array.shape).astype(np.float32) for name, array in MODEL.items()}


def answer(message, arrays, metrics=None):
    """A reply that holds `arrays`, and the metrics that FedAvg wants."""
    content = RecordDict({"arrays": record(arrays), "metrics": MetricRecord(metrics or {"num-examples": 1})})
    return Message(content, reply_to=message)


def trains(message, context):
    """A client: sends back what it was sent, moved by its own change, and metrics that nobody may see."""
    sent = arrays_of(message.content["arrays"])
    node = context.node_id
    moved = {name: array + change_of(node)[name] for name, array in sent.items()}
    return answer(message, moved, {"num-examples": 10**node, "secret": float(node)})


def private(rule=ADACLIP, strategy=None, *, noise_multiplier=0.0, clients=4, **options):
    """A `PrivateStrategy` in whose rounds all clients take part, without noise unless told otherwise."""
    from flwr.serverapp.strategy import FedAvg

    defaults = {"num_clients": clients, "clients_per_round": clients, "delta": 1e-3}
    return PrivateStrategy(strategy or FedAvg(), rule, noise_multiplier=noise_multiplier, **{**defaults, **options})


def one_round(strategy, client=trains, clients=4, arrays=None):
    """(the model after one more round, its metrics), by Flower's own methods."""
    grid = InProcessGrid(client, clients)
    messages = strategy.configure_train(1, record(arrays or MODEL), ConfigRecord(), grid)
    moved, metrics = strategy.aggregate_train(1, grid.send_and_receive(messages))
    return arrays_of(moved), metrics
