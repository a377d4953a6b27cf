"""What is asked of the strategy that is wrapped, by Flower's public methods.

Before a round: what it would send, all but to whom (`content_of_a_round`). After it: its server's step on one answer,
which is the private mean of all (`server_step`). And its arrays, such as FedAdam's moments, to save them (`arrays_of`,
`restore`): they are made of what was published, since it never sees anything else.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict

from adaclip_tf.flower import answers

_NODE = 1


class _Present:
    """A grid of which a strategy can only see that enough nodes are there: whom to ask is not its to choose."""

    def __init__(self, number: int):
        self._number = number

    def get_node_ids(self) -> list[int]:
        return list(range(_NODE, _NODE + self._number))


def content_of_a_round(
    strategy: Any, server_round: int, arrays: ArrayRecord, config: ConfigRecord
) -> RecordDict | None:
    """What the strategy sends to its clients, the same to all; None where it does not train."""
    enough = max(1, *(int(getattr(strategy, name, 1)) for name in ("min_available_nodes", "min_train_nodes")))
    with _without_counts():
        messages = list(strategy.configure_train(server_round, arrays, config, _Present(enough)))
    contents = [message.content for message in messages]
    if any(content != contents[0] for content in contents[1:]):
        raise ValueError(
            f"`strategy` ({type(strategy).__name__}) sends different things to different clients, which can't be made "
            "private this way: each would have to be a function of published values."
        )
    return contents[0] if contents else None


def server_step(
    strategy: Any, server_round: int, content: RecordDict, names: list[str], arrays: list[np.ndarray]
) -> ArrayRecord | None:
    """The strategy's step towards `arrays`, as if one client had answered them.

    Args:
      strategy: which averages one answer, with weight 1, and takes its server's step.
      server_round: its number.
      content: of the round's messages.
      names, arrays: the model as the private mean would have it.
    """
    key = getattr(strategy, "arrayrecord_key", None) or next(iter(content.array_records))
    weight = getattr(strategy, "weighted_by_key", "num-examples")
    answer = RecordDict({key: answers.record_of(names, arrays), "metrics": MetricRecord({weight: 1})})
    sent = Message(content=content, message_type=MessageType.TRAIN, dst_node_id=_NODE)
    with _without_counts(), _without_metrics(strategy):
        stepped, _ = strategy.aggregate_train(server_round, [Message(answer, reply_to=sent)])
    return stepped


def arrays_of(strategy: Any) -> dict[str, np.ndarray]:
    """Arrays among the strategy's attributes, by themselves or in a list or dict: "m_t/kernel" -> array."""
    found: dict[str, np.ndarray] = {}
    for name, value in vars(strategy).items():
        for path, part in _parts(name, value):
            if not isinstance(part, np.ndarray):
                break
            found[path] = part
    return found


def restore(strategy: Any, saved: dict[str, np.ndarray]) -> None:
    """Puts back what `arrays_of` gave."""
    attributes: dict[str, Any] = {}
    for path, array in saved.items():
        name, kind, key = (*path.split("/", 2), "", "")[:3]
        if not kind:
            attributes[name] = array
        elif kind == "list":
            attributes.setdefault(name, []).append(array)
        else:
            attributes.setdefault(name, {})[key] = array
    for name, value in attributes.items():
        if not hasattr(strategy, name):
            raise ValueError(f"`state` is of a strategy with {name!r}, which {type(strategy).__name__} has not.")
        setattr(strategy, name, value)


def _parts(name: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return [(f"{name}/dict/{key}", part) for key, part in value.items()]
    if isinstance(value, list):
        return [(f"{name}/list/{index:06d}", part) for index, part in enumerate(value)]
    return [(name, value)]


@contextlib.contextmanager
def _without_metrics(strategy: Any) -> Iterator[None]:
    """While a function of the user's for clients' metrics is set aside: there are none."""
    name = "train_metrics_aggr_fn"
    if not hasattr(strategy, name):
        yield
        return
    own = getattr(strategy, name)
    setattr(strategy, name, lambda *_: MetricRecord())
    try:
        yield
    finally:
        setattr(strategy, name, own)


@contextlib.contextmanager
def _without_counts() -> Iterator[None]:
    """While lines such as "Sampled 2 nodes" are left out of the log: they would be of the stand-in."""

    def serious(record: logging.LogRecord) -> bool:
        return record.levelno > logging.INFO

    logger = logging.getLogger("flwr")
    logger.addFilter(serious)
    try:
        yield
    finally:
        logger.removeFilter(serious)
