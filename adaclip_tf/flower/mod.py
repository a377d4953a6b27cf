"""`clipping_mod`: clips at the client, so that what leaves it is a record of norm 1 and nothing else."""

from __future__ import annotations

import logging
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from flwr.app import Error, Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode

from adaclip_tf import core
from adaclip_tf.flower import answers, sums

Mod = Callable[[Message, Any, Callable[[Message, Any], Message]], Message]


def clipping_mod(rule: core.ClippingRule) -> Mod:
    """A Flower mod for clients of `PrivateStrategy(..., clipping="client")`.

    Example:
      >>> app = flwr.clientapp.ClientApp(mods=[clipping_mod(core.AdaClip())])

    The public vectors (a, b) come with the message. The app gets the message without them. Of its answer the one record
    of arrays is taken, as the model's new weights; the change is transformed and clipped, and that is what is sent.
    Metrics and all else are left behind. Put it last: mods that follow would see, and could send, what is not clipped.

    A server that clips the records again trusts this mod with nothing: a client without it counts as nothing.

    Args:
      rule: the server's. Of its options only how it clips, and what it asks of every record, play a part here.
    """
    sums.check_rule(rule)

    def mod(message: Message, context: Any, call_next: Callable[[Message, Any], Message]) -> Message:
        if message.metadata.message_type.split(".")[0] != MessageType.TRAIN:
            return call_next(message, context)
        records = message.content.array_records
        models = [record for name, record in records.items() if name not in (answers.CENTER, answers.SCALE)]
        if (
            len(records) != 3
            or len(models) != 1
            or any(record.keys() != models[0].keys() for record in records.values())
        ):
            return _error(message, "the message has no (a, b): use `PrivateStrategy(..., clipping='client')`")
        sent = answers.arrays_of(models[0])
        vectors = [
            [tf.constant(records[kind][name].numpy(), tf.float32) for name in sent]
            for kind in (answers.CENTER, answers.SCALE)
        ]
        message.content = RecordDict(
            {name: record for name, record in message.content.items() if name not in (answers.CENTER, answers.SCALE)}
        )
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        try:
            change = answers.Asked([], "", sent).change(reply)
        except answers.UnusableError as error:
            return _error(message, str(error))
        clipper = sums.Clipper(rule, list(sent), [array.shape for array in sent.values()])
        record = [part[0].astype(np.float32) for part in clipper.records([change], core.Transform(*vectors))]
        content = RecordDict({answers.CLIPPED: answers.record_of(sent, record)})
        if len(record) > len(sent):
            content[answers.STATISTICS] = answers.record_of(["0"], record[len(sent) :])
        reply.content = content
        return reply

    return mod


def _error(message: Message, why: str) -> Message:
    """An error in the place of an answer: nothing that is not clipped leaves the client."""
    logging.getLogger(answers.LOGGER).error("clipping_mod: %s.", why)
    return Message(Error(code=ErrorCode.MOD_FAILED_PRECONDITION, reason=f"clipping_mod: {why}."), reply_to=message)
