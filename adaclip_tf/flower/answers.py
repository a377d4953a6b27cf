"""Which of the messages that come back count in a round, and what is in them.

Nothing that a client sends may stop a round, and nothing but one record of the right shapes may enter the sum:

| a client that               | counts as                                                   |
|-----------------------------|-------------------------------------------------------------|
| was not asked in this round | nothing                                                     |
| answers twice               | its first answer, and no more                               |
| answers to another round    | nothing                                                     |
| sends an error, or no arrays | nothing                                                    |
| sends other names or shapes | nothing                                                     |
| sends NaN or infinity       | nothing: `sums` makes it zeros                              |
| sends a huge change         | a record of norm 1, or nothing where float32 overflows       |
| does not answer             | nothing, and the divisor stays                              |

Where an answer is left out the reason goes to the log at DEBUG: how many answered is not noised.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from flwr.app import Array, ArrayRecord, Message

LOGGER = "flwr"  # Flower's own
# Names of the records that travel between `PrivateStrategy` and `clipping_mod`.
CENTER, SCALE, CLIPPED, STATISTICS = "adaclip.center", "adaclip.scale", "adaclip.clipped", "adaclip.statistics"


class UnusableError(ValueError):
    """Why an answer does not count."""


def arrays_of(record: ArrayRecord) -> dict[str, np.ndarray]:
    """Name -> array."""
    return {name: array.numpy() for name, array in record.items()}


def record_of(names: Iterable[str], arrays: Iterable[np.ndarray]) -> ArrayRecord:
    """The inverse."""
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in zip(names, arrays)})


def check_model(arrays: dict[str, np.ndarray]) -> None:
    """Refuses a model whose arrays can't be moved by noised changes."""
    if not arrays:
        raise ValueError("`initial_arrays` must hold at least one array; got none.")
    for name, array in arrays.items():
        if not np.issubdtype(array.dtype, np.floating):
            raise ValueError(
                f"`initial_arrays` must be floating-point numbers; {name!r} is {array.dtype}. Leave it out of what "
                "clients are sent and send back."
            )
        if not np.all(np.isfinite(array)):
            raise ValueError(f"`initial_arrays` must be finite; {name!r} is not.")


class Asked:
    """The clients of a round, and what they were sent.

    Args:
      nodes: who was asked.
      token: the `group_id` of the round's messages, which answers carry too.
      arrays: the model as it was sent.
    """

    def __init__(self, nodes: Iterable[int], token: str, arrays: dict[str, np.ndarray]):
        self._waiting, self.token, self.arrays = set(nodes), token, arrays

    def usable(
        self, replies: Iterable[Message], read: Callable[[Message], list[np.ndarray]]
    ) -> Iterator[list[np.ndarray]]:
        """What `read` makes of the first answer of everyone who was asked, where it makes something of it."""
        for reply in replies:
            try:
                node = reply.metadata.src_node_id
                if node not in self._waiting or reply.metadata.group_id != self.token:
                    raise UnusableError("it was not asked for, or is the second one")
                self._waiting.remove(node)
                if reply.has_error():
                    raise UnusableError("it says that the client failed")
                found = read(reply)
            except Exception as error:  # whatever a client sends, the round goes on without it
                logging.getLogger(LOGGER).debug("An answer was left out: %s", error)
                continue
            yield found

    def change(self, reply: Message) -> list[np.ndarray]:
        """What the client would have the model moved by: its arrays minus those that it was sent."""
        (record,) = _exactly_one(list(reply.content.array_records.values()))
        new = _checked(record, {name: array.shape for name, array in self.arrays.items()})
        with np.errstate(over="ignore", invalid="ignore"):
            return [np.asarray(new[name], np.float64) - array for name, array in self.arrays.items()]

    def clipped(self, reply: Message, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
        """The record that `clipping_mod` made at the client, in `shapes`."""
        records = reply.content.array_records
        if CLIPPED not in records:
            raise UnusableError("it was not clipped: the client has no `clipping_mod`")
        wanted = dict(zip(self.arrays, shapes))
        found = list(_checked(records[CLIPPED], wanted).values())
        for shape in shapes[len(self.arrays) :]:
            found += _checked(records[STATISTICS], {"0": shape}).values()
        return found


def _exactly_one(records: list[ArrayRecord]) -> list[ArrayRecord]:
    if len(records) != 1:
        raise UnusableError(f"it has {len(records)} records of arrays, not 1")
    return records


def _checked(record: ArrayRecord, shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """The arrays of `record` in the order of `shapes`, which they must have, with numbers in them."""
    if set(record.keys()) != set(shapes):
        raise UnusableError("its arrays have other names")
    found = {}
    for name, shape in shapes.items():
        if tuple(record[name].shape) != tuple(shape):  # what it says of itself: before it is unpacked
            raise UnusableError(f"{name!r} has another shape")
        array = record[name].numpy()
        if array.shape != tuple(shape) or not np.issubdtype(array.dtype, np.floating):
            raise UnusableError(f"{name!r} is not what was sent")
        found[name] = array
    return found
