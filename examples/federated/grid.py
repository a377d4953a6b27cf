"""A Flower grid in one process: every message goes straight to a `ClientApp`, and its answer comes straight back.

Flower's simulation engine (`simulation`) costs ten times the processor time, and wants Ray. Here the same strategy,
messages and client app meet without anything in between, so that thousands of clients are no matter. What travels is
Flower's `Message`, but nothing is serialized, and nothing gets lost.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid

Client = Callable[[Message, Context], Message]


def _identify() -> None:
    """Messages of newer Flower carry who made them in which run, which a SuperLink would have said."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:
        return
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1


class InProcessGrid(Grid):
    """Nodes 1 to n; node k has partition k - 1.

    Args:
      client: a `flwr.clientapp.ClientApp`, or any function from a message and a context to an answer.
      nodes: n; or the ids of the nodes, in the order of their partitions.
    """

    def __init__(self, client: Client, nodes: int | Sequence[int]):
        self._client = client
        ids = range(1, nodes + 1) if isinstance(nodes, int) else nodes
        self._partitions = {node: partition for partition, node in enumerate(ids)}
        self._ids = itertools.count(1)
        self._answers: dict[str, Message] = {}
        _identify()

    def get_node_ids(self) -> Iterable[int]:
        return list(self._partitions)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        del timeout  # nobody is late
        return self.pull_messages(self.push_messages(messages))

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        sent = []
        for message in messages:
            sent.append(str(next(self._ids)))
            own = Message(
                RecordDict(message.content),  # of its own: a client may change what it is sent
                dst_node_id=message.metadata.dst_node_id,
                message_type=message.metadata.message_type,
                group_id=message.metadata.group_id,
            )
            self._answers[sent[-1]] = self._answer(own)
        return sent

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self._answers.pop(number) for number in message_ids if number in self._answers]

    def _answer(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        config = {"partition-id": self._partitions[node], "num-partitions": len(self._partitions)}
        context = Context(run_id=0, node_id=node, node_config=config, state=RecordDict(), run_config={})
        try:
            return self._client(message, context)
        except Exception as error:  # as a SuperNode does: a client that fails answers with an error
            return Message(Error(code=2, reason=str(error)), reply_to=message)

    # What else Flower's class wants, and no strategy asks for.

    @property
    def run(self) -> Any:
        raise NotImplementedError("There is no run here: no SuperLink started it.")

    def set_run(self, *arguments: Any, **named: Any) -> None:
        raise NotImplementedError("There is no run here: no SuperLink started it.")

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        return Message(*arguments, **named)
