"""Several replicas under `tf.distribute`: what each keeps for itself, and how their sums are added up.

Noise in shares. Replica r of R sums the clipped gradients of its own examples and adds noise of its own,

    W_r = sum_{k on r} u_k + N(0, z^2 / R I),

and only W_r is ever sent. The W_r add up to W = sum_k u_k + N(0, z^2 I): the sum over all examples, with the noise of
one device, once. Every replica then holds the same W and computes the same weights and state from it.

What shares mean for trust: a replica knows its own share, so to those who run c of the R replicas the others' sum
has noise of variance z^2 (R - c) / R, not z^2. Against everybody else it is z^2.

What is kept per replica (noise streams, un-noised sums) is not mirrored: a variable that is made under a strategy's
scope is broadcast to all workers by the first one, and so would a noise key be.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import tensorflow as tf

from adaclip_tf.gradients import ClippedSum, graph

T = TypeVar("T")

_SUPPORTED = (
    tf.distribute.MirroredStrategy,
    tf.distribute.MultiWorkerMirroredStrategy,
    tf.distribute.OneDeviceStrategy,
)


def count() -> int:
    """R, how many replicas take a step together."""
    return tf.distribute.get_strategy().num_replicas_in_sync


def check_strategy(strategy: tf.distribute.Strategy, who: str) -> None:
    """Refuses the strategies under which a step is not one noised sum."""
    if not _has_scope(strategy) or isinstance(strategy, _SUPPORTED):
        return
    raise NotImplementedError(
        f"{who} does not run under {type(strategy).__name__}: a step is one noised sum, over replicas that wait "
        "for each other. Use MirroredStrategy, MultiWorkerMirroredStrategy or OneDeviceStrategy. (Workers of a "
        "ParameterServerStrategy do not wait: each would count its own noise and change the state while others use it.)"
    )


def check_step(made_under: tf.distribute.Strategy, num_microbatches: int | None, who: str) -> None:
    """Refuses a step that would not be one noised sum of all replicas."""
    strategy = tf.distribute.get_strategy()
    check_strategy(strategy, who)
    if count() == 1:
        return
    if made_under is not strategy:
        raise ValueError(
            f"{who} was made outside the scope of the {type(strategy).__name__} that it runs under, so its state "
            "would not be the same on all replicas. Make it and the model inside `with strategy.scope():`."
        )
    if tf.distribute.in_cross_replica_context():
        raise ValueError(f"{who} takes steps on each replica: call it in a function that `strategy.run` runs.")
    if tf.executing_eagerly():
        raise NotImplementedError(
            f"{who} needs a graph on {count()} replicas: leave out `run_eagerly=True`, or call `strategy.run` inside "
            "a `tf.function`."
        )
    if num_microbatches and num_microbatches % count():
        raise ValueError(
            f"`num_microbatches` counts those of the whole batch and must be a multiple of the {count()} replicas; "
            f"got {num_microbatches}."
        )


def scope(strategy: tf.distribute.Strategy) -> contextlib.AbstractContextManager:
    """`strategy.scope()` for those who are outside of any scope."""
    if tf.distribute.has_strategy() or not _has_scope(strategy):
        return contextlib.nullcontext()
    return strategy.scope()


def _has_scope(strategy: tf.distribute.Strategy) -> bool:
    """True unless this is TensorFlow's implicit default strategy."""
    return type(strategy).__name__ != "_DefaultDistributionStrategy"


def add_up(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The sum of each tensor over all replicas, on all of them. All must call it, and not inside `tf.cond`."""
    if count() == 1:
        return list(tensors)
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, list(tensors))


def meet() -> bool:
    """Whether the caller is a replica, be it the only one, and Keras's update waits for all of them."""
    return tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context()


def together(function: Callable[..., Any], *arguments: Any) -> None:
    """Calls `function(strategy, *arguments)` once for all replicas, with their arguments side by side."""
    tf.distribute.get_replica_context().merge_call(function, args=arguments)


def first(value: Any) -> tf.Tensor:
    """One replica's tensor of several that are equal."""
    return tf.distribute.get_strategy().experimental_local_results(value)[0]


def number() -> int:
    """The calling replica's, known while the graph is made: replicas have graphs, or parts of one, of their own."""
    context = tf.distribute.get_replica_context()
    return int(tf.get_static_value(context.replica_id_in_sync_group)) if context else 0


class Alike:
    """Sees to it that all replicas compute the same function of their parts of a batch.

    TensorFlow cuts a batch by place: without its first example, each part's first one moves to the replica before it.
    If its loss were another one there, the sum would move by more than the example that is gone. Workers are
    processes of their own, which can't be compared here: docs/distribution.md asks them to run one program.
    """

    def __init__(self) -> None:
        self._seen: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()

    def check(self, batch: ClippedSum) -> None:
        """Raises ValueError if another replica does not compute in the same step what this one does for `batch`."""
        if count() == 1:
            return
        outermost = batch.data[0].graph
        while getattr(outermost, "outer_graph", None) is not None and outermost.outer_graph.building_function:
            outermost = outermost.outer_graph
        by_replica = self._seen.setdefault(outermost, {})
        mine = by_replica.setdefault(number(), [])
        mine.append(graph.fingerprint(batch.computed, batch.data))
        if any(len(theirs) >= len(mine) and theirs[len(mine) - 1] != mine[-1] for theirs in by_replica.values()):
            raise ValueError(
                "The replicas do not compute the same: something in the model or the loss depends on which replica it "
                "runs on. Which replica an example meets depends on the others in its batch, so they would change "
                "its gradient. Leave out the replica's number. Where BatchNormalization was trained on replicas and is "
                "frozen now, `for v in model.non_trainable_variables: v.assign(v.numpy())`, in the strategy's scope, "
                "gives all replicas the same averages."
            )


class PerReplica(Generic[T]):
    """One object for each replica that this process runs, made by `make(replica number)` when it is needed."""

    def __init__(self, make: Callable[[int], T]):
        self._make = make
        self._made: dict[int, T] = {}

    def here(self) -> T:
        """Returns the calling replica's object."""
        own = number()
        if own not in self._made:
            self._made[own] = self._make(own)
        return self._made[own]

    def all(self) -> list[T]:
        """Those that were needed so far."""
        return list(self._made.values())
