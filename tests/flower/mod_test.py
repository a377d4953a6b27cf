"""Tests of `clipping_mod`: what leaves a client is a record of norm 1, and nothing else."""

import doctest
import logging

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'adaclip-tf[flower]'")

import flwr.clientapp
from flwr.app import ConfigRecord, Context, Message, RecordDict

from adaclip_tf import core
from adaclip_tf.flower import clipping_mod, sampling, sums
from adaclip_tf.flower import mod as mod_lib
from examples.federated.grid import InProcessGrid
from tests.flower import federation
from tests.flower.federation import MODEL, RULES, flat, private


def sent(rule, clipping="client"):
    """A message of a round to node 4, whose change is far beyond any clip."""
    strategy = private(rule, clipping=clipping)
    grid = InProcessGrid(federation.trains, 4)
    return strategy.configure_train(1, federation.record(MODEL), ConfigRecord(), grid)[3]


def context(node=4):
    return Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={})


@pytest.mark.parametrize("name", ["adaclip", "quantile"])
def test_what_leaves_a_client_is_clipped_and_nothing_else(name):
    """By a `ClientApp` of Flower's, whose function sees neither (a, b) nor anything else that is new."""
    app, seen = flwr.clientapp.ClientApp(mods=[clipping_mod(RULES[name])]), []

    @app.train()
    def train(message, context):
        seen.append(sorted(message.content))
        return federation.trains(message, context)

    reply = app(sent(RULES[name]), context())
    assert seen == [["arrays", "config"]]
    expected = {"adaclip.clipped"} | ({"adaclip.statistics"} if name == "quantile" else set())
    assert set(reply.content) == expected  # no metrics, no number of examples
    parts = [flat(federation.arrays_of(record)) for record in reply.content.array_records.values()]
    assert np.linalg.norm(np.concatenate(parts)) == pytest.approx(1.0, rel=1e-5)


def test_other_messages_pass_as_they_are():
    message = Message(RecordDict(), dst_node_id=4, message_type="evaluate")
    answer = object()
    assert clipping_mod(core.FixedClip(1.0))(message, None, lambda *_: answer) is answer


def test_what_cannot_be_clipped_does_not_leave(caplog):
    mod = clipping_mod(core.FixedClip(1.0))
    called = []
    message = sent(core.FixedClip(1.0))
    message.content["adaclip.center"] = federation.record({"bias": MODEL["bias"]})  # (a, b) of another model
    logging.getLogger("flwr").addHandler(caplog.handler)
    try:
        for unfit in (sent(core.FixedClip(1.0), "server"), message):
            reply = mod(unfit, context(), lambda *_: called.append(1))
            assert reply.has_error() and "clipping='client'" in reply.error.reason and not called
    finally:
        logging.getLogger("flwr").removeHandler(caplog.handler)
    assert "clipping_mod: the message has no (a, b)" in caplog.text
    message = sent(core.FixedClip(1.0))
    other = mod(message, context(), lambda m, _: federation.answer(m, {"bias": np.ones(3, np.float32)}))
    assert other.has_error() and "other names" in other.error.reason


def test_a_rule_is_a_rule():
    with pytest.raises(ValueError, match=r"`rule` must be a `core.ClippingRule`"):
        clipping_mod(0.5)


def test_examples_in_the_docstrings():
    for module in (mod_lib, sums, sampling):
        assert doctest.testmod(module, extraglobs={"flwr": flwr}).failed == 0
